"""The tokens of a run: the CLI's own sums, and what single requests tell besides."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from geminids.events.ledger import Ledger
from geminids.events.model import ModelUsage, TokensUsed, Usage
from geminids.wire.stream_json import ModelStats, Stats

__all__ = ["by_request", "counted", "differences", "overseen", "remainder", "settled", "usage_of"]


def settled(
    stats: Stats | None, known: Sequence[TokensUsed], written: Sequence[TokensUsed] | None, ledger: Ledger
) -> tuple[list[TokensUsed], Usage | None]:
    """At the end of a run: the requests that have not been told yet, and the usage.

    `known` are those of the journal, `written` those of the telemetry, where there is one.
    """
    usage = usage_of(stats)
    if written is None:
        new = remainder(usage, known, ledger)
    else:
        # The journal has told the others already.
        untold = [one for one in written if not known or one.role == "utility"]
        new = [msgspec.structs.replace(one, seq=ledger.next()) for one in untold]
    return new, by_request(usage, [*known, *new], each=written is not None or not new)


def usage_of(stats: Stats | None) -> Usage | None:
    """`input_tokens` includes cached ones, `output_tokens` excludes thinking."""
    if stats is None or stats.total_tokens is None:
        return None
    return Usage(
        input=stats.input_tokens,
        cached=stats.cached,
        output=stats.output_tokens,
        thinking=_if_none(stats),
        tool=_if_none(stats),
        total=stats.total_tokens,
        models=tuple(
            ModelUsage(
                model=name,
                input=model.input_tokens,
                cached=model.cached,
                output=model.output_tokens,
                thinking=_if_none(model),
                tool=_if_none(model),
                total=model.total_tokens,
            )
            for name, model in stats.models.items()
        ),
    )


def remainder(usage: Usage | None, requests: Sequence[TokensUsed], ledger: Ledger) -> list[TokensUsed]:
    """What the sums have over the requests that are known: errands of the CLI's own, such as the router's.

    One for each model where the models' names agree, else one for all of it. None where the requests have more
    than the sums: then one of the two is wrong, and nothing can be said.
    """
    if usage is None or not requests:
        return []
    rest = [
        ModelUsage(model=model.model, **_over(model, [one for one in requests if one.model == model.model]))
        for model in usage.models
    ]
    names = {model.model for model in usage.models}
    if not rest or any(one.model not in names for one in requests):
        rest = [ModelUsage(model="", **_over(usage, requests))]
    if any((one.input or 0) < 0 or (one.output or 0) < 0 for one in rest):
        return []
    return [_utility(one, ledger) for one in rest if one.input or one.output]


def _over(sums: Usage | ModelUsage, requests: Sequence[TokensUsed]) -> dict[str, int | None]:
    known = _sums(requests)
    over: dict[str, int | None] = {}
    for name in ("input", "cached", "output", "total"):
        whole, part = getattr(sums, name), getattr(known, name)
        over[name] = None if whole is None or part is None else whole - part
    return over


def _utility(rest: ModelUsage, ledger: Ledger) -> TokensUsed:
    counted = None not in (rest.input, rest.output, rest.total)
    exact = counted and rest.total == (rest.input or 0) + (rest.output or 0)
    return TokensUsed(
        at=int(time.time() * 1000),
        seq=ledger.next(),
        attempt=ledger.attempt,
        turn=ledger.turn,
        model=rest.model or None,
        role="utility",
        input=rest.input,
        cached=rest.cached,
        output=rest.output,
        thinking=0 if exact else None,
        tool=0 if exact else None,
    )


def by_request(usage: Usage | None, requests: Sequence[TokensUsed], *, each: bool) -> Usage | None:
    """The same usage with what single requests tell: what was thinking, and, where `each` is known, how many.

    Only where they add up to the CLI's own sums: a request that is missing would make all of it wrong.
    """
    if usage is None or not requests:
        return usage
    sums = _sums(requests)
    if (sums.input, sums.output) != (usage.input, usage.output):
        return usage
    models = tuple(
        msgspec.structs.replace(model, thinking=own.thinking, tool=own.tool)
        if (own := _sums([one for one in requests if one.model == model.model])).input == model.input
        else model
        for model in usage.models
    )
    count = len(requests) if each else None
    return msgspec.structs.replace(
        usage, thinking=sums.thinking, tool=sums.tool, requests=count, models=models
    )


def counted(
    requests: Sequence[TokensUsed], told: tuple[int | None, int | None], ledger: Ledger, *, each: bool
) -> tuple[list[TokensUsed], Usage | None]:
    """At the end of a warm turn: what the journal has not told, and the usage of all requests.

    `told` is the input and the output of the main conversation as the CLI's answer has them.
    """
    main = [one for one in requests if one.role == "main"]
    known = _sums(main) if main else Usage(input=0, output=0)
    new: list[TokensUsed] = []
    if told != (None, None) and told != (known.input, known.output):
        rest = ((told[0] or 0) - (known.input or 0), (told[1] or 0) - (known.output or 0))
        if min(rest) >= 0:
            missing = _utility(ModelUsage(model="", input=rest[0], output=rest[1]), ledger)
            new = [msgspec.structs.replace(missing, role="main")]
    every = [*requests, *new]
    if not every:
        return [], None
    names = dict.fromkeys(one.model for one in every if one.model)
    models = tuple(
        ModelUsage(model=name, **_parts(_sums([one for one in every if one.model == name]))) for name in names
    )
    count = len(every) if each and not new else None
    return new, msgspec.structs.replace(_sums(every), requests=count, models=models)


def overseen(requests: Sequence[TokensUsed]) -> Usage | None:
    """The usage of a run whose every request was seen by the gateway."""
    if not requests:
        return None
    names = dict.fromkeys(one.model for one in requests if one.model)
    models = tuple(
        ModelUsage(model=name, **_parts(_sums([one for one in requests if one.model == name])))
        for name in names
    )
    return msgspec.structs.replace(_sums(requests), requests=len(requests), models=models)


def differences(
    seen: Sequence[TokensUsed],
    journal: Sequence[TokensUsed] | None,
    told: tuple[int | None, int | None] | None,
) -> list[str]:
    """Where two sources disagree, in words: what the gateway has seen, what the journal has (None where it is not
    whole), and the input and output that the CLI itself tells at the end."""
    found = []
    sums = _sums(seen)
    if told is not None and None not in told and told != (sums.input, sums.output):
        found.append(_disagree("the CLI's own sum", told, (sums.input, sums.output)))
    if journal is not None:
        # The journal has no requests of the CLI's own, such as the router's.
        spoken = _sums([one for one in seen if one.role != "utility"])
        known = _sums(journal)
        if (known.input, known.output) != (spoken.input, spoken.output):
            found.append(_disagree("the journal", (known.input, known.output), (spoken.input, spoken.output)))
    return found


def _disagree(source: str, told: tuple[int | None, int | None], seen: tuple[int | None, int | None]) -> str:
    return (
        f"{source} has {told[0]} tokens of input and {told[1]} of output, and the gateway has seen {seen[0]} and "
        f"{seen[1]}: what the gateway has seen is told"
    )


def _parts(usage: Usage) -> dict[str, int | None]:
    return {name: getattr(usage, name) for name in ("input", "cached", "output", "thinking", "tool", "total")}


def _sums(requests: Sequence[TokensUsed]) -> Usage:
    def summed(name: str) -> int | None:
        counts = [getattr(request, name) for request in requests]
        return None if None in counts else sum(counts)

    of_total = [summed(name) for name in ("input", "output", "thinking", "tool")]
    return Usage(
        input=of_total[0],
        cached=summed("cached"),
        output=of_total[1],
        thinking=of_total[2],
        tool=of_total[3],
        total=None if None in of_total else sum(part or 0 for part in of_total),
    )


def _if_none(stats: Stats | ModelStats) -> int | None:
    """0 where nothing of the total is left for it; else the rest is thinking or tool prompts, and who knows which."""
    if stats.total_tokens is None or stats.input_tokens is None or stats.output_tokens is None:
        return None
    return 0 if stats.total_tokens <= stats.input_tokens + stats.output_tokens else None
