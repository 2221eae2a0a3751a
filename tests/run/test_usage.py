"""The tokens of a run: the CLI's sums, its requests, and what the sums have over them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids import TokensUsed
from geminids.events.from_journal import JournalTranslator
from geminids.events.ledger import Ledger
from geminids.events.model import ModelUsage, Usage
from geminids.redact import Redactor
from geminids.run.usage import by_request, counted, remainder, usage_of
from geminids.wire.stream_json import ModelStats, Stats
from recordings import recorded


def _request(model: str | None = "m", role: Any = "main", **counts: int | None) -> TokensUsed:
    known = {"input": 100, "cached": 10, "output": 5, "thinking": 7, "tool": 0}
    return TokensUsed(at=0, seq=0, attempt=1, turn=1, model=model, role=role, **{**known, **counts})


def _stats(*requests: TokensUsed) -> Stats:
    """What the CLI sums up; `input_tokens` includes the cached ones, `output_tokens` excludes thinking."""

    def summed(some: list[TokensUsed]) -> dict[str, Any]:
        whole = {name: sum(getattr(one, name) or 0 for one in some) for name in ("input", "cached", "output")}
        rest = sum((one.thinking or 0) + (one.tool or 0) for one in some)
        return {
            "input_tokens": whole["input"],
            "output_tokens": whole["output"],
            "cached": whole["cached"],
            "total_tokens": whole["input"] + whole["output"] + rest,
        }

    names = {one.model or "" for one in requests}
    models = {name: ModelStats(**summed([one for one in requests if one.model == name])) for name in names}
    return Stats(**summed(list(requests)), models=models)


def test_from_the_sums_alone_thinking_is_what_nobody_knows() -> None:
    """None where something is left for it, 0 where nothing is."""
    usage = usage_of(_stats(_request()))
    assert usage is not None
    assert (usage.input, usage.output, usage.total, usage.requests) == (100, 5, 112, None)
    assert usage.thinking is None and usage.tool is None
    without = usage_of(_stats(_request(thinking=0)))
    assert without is not None
    assert (without.thinking, without.tool) == (0, 0)
    assert usage_of(None) is None
    assert usage_of(Stats()) is None


def test_requests_that_add_up_tell_all() -> None:
    """Thinking and tool prompts, by model too, and how many requests there were; nothing is left over."""
    requests = [_request(), _request(input=200), _request("n", "subagent", thinking=1)]
    usage = usage_of(_stats(*requests))
    assert remainder(usage, requests, Ledger()) == []
    full = by_request(usage, requests, each=True)
    assert full is not None
    assert (full.thinking, full.tool, full.requests) == (15, 0, 3)
    assert {one.model: one.thinking for one in full.models} == {"m": 14, "n": 1}


def test_the_router_is_the_rest() -> None:
    """One request of role `utility` for each model that has more; how many that were is not known."""
    known = [_request(), _request(input=200)]
    router = _request("lite", "utility", input=30, cached=0, output=3, thinking=0)
    usage = usage_of(_stats(*known, router))
    (rest,) = remainder(usage, known, Ledger())
    assert (rest.model, rest.role) == ("lite", "utility")
    assert (rest.input, rest.cached, rest.output, rest.thinking, rest.tool) == (30, 0, 3, 0, 0)
    full = by_request(usage, [*known, rest], each=False)
    assert full is not None
    assert (full.requests, full.thinking) == (None, 14)


def test_a_rest_that_thought_says_not_how_much() -> None:
    """The sums do not tell thinking from tool prompts."""
    usage = usage_of(_stats(_request(), _request("lite", thinking=9)))
    (rest,) = remainder(usage, [_request()], Ledger())
    assert rest.thinking is None and rest.tool is None
    full = by_request(usage, [_request(), rest], each=False)
    assert full is not None
    assert full.thinking is None


def test_models_under_other_names_are_one_rest() -> None:
    """Where the journal's names are not those of the sums, only the whole can be compared."""
    usage = usage_of(_stats(_request("served"), _request("lite", input=30)))
    (rest,) = remainder(usage, [_request("asked")], Ledger())
    assert (rest.model, rest.input) == (None, 30)


@pytest.mark.parametrize("requests", [[], [_request(), _request()], [_request(input=None)]])
def test_what_does_not_add_up_changes_nothing(requests: list[TokensUsed]) -> None:
    """More requests than sums, none at all, or one without a number: the sums stay as they are."""
    usage = usage_of(_stats(_request()))
    assert by_request(usage, requests, each=True) == usage
    assert remainder(usage, requests, Ledger()) == []


def test_without_sums_there_is_no_usage() -> None:
    """A run that was stopped has none, whatever requests were told."""
    assert by_request(None, [_request()], each=True) is None
    assert remainder(None, [_request()], Ledger()) == []


_COUNTS = st.integers(0, 1000)
_REQUEST = st.builds(
    _request,
    st.sampled_from(["m", "n"]),
    input=_COUNTS,
    cached=_COUNTS,
    output=_COUNTS,
    thinking=_COUNTS,
    tool=_COUNTS,
)


@given(st.lists(_REQUEST, min_size=1, max_size=6), st.lists(_REQUEST, max_size=3))
def test_known_and_rest_are_the_sums(known: list[TokensUsed], unknown: list[TokensUsed]) -> None:
    """Whichever requests are known, with the rest they are all there is; numbers go on without a gap."""
    usage = usage_of(_stats(*known, *unknown))
    assert usage is not None
    ledger = Ledger()
    rest = remainder(usage, known, ledger)
    assert [one.seq for one in rest] == list(range(len(rest)))
    for name in ("input", "output"):
        assert sum(getattr(one, name) for one in (*known, *rest)) == getattr(usage, name)
    assert all((one.input or 0) >= 0 and (one.output or 0) >= 0 for one in rest)


@pytest.mark.parametrize("version", ["0.61.0", "0.41.2"])
def test_a_recorded_journal_adds_up(version: str) -> None:
    """The requests of a real session, against the sums that a stream would give of them."""
    translator = JournalTranslator(Ledger(), Redactor())
    _, conversation = recorded(version, "What is x?")
    told = [
        event
        for message in conversation.messages
        for event in translator.translate(message)[0]
        if isinstance(event, TokensUsed)
    ]
    usage = usage_of(_stats(*told))
    full = by_request(usage, told, each=True)
    assert full is not None
    assert full.requests == len(told) > 0
    assert full.thinking == 5 * len(told)
    assert isinstance(full, Usage) and all(isinstance(one, ModelUsage) for one in full.models)


# A warm turn: the journal's requests, and the sums in the answer to its prompt.


def test_a_warm_turn_whose_requests_add_up() -> None:
    """Nothing is added; by model, and with how many requests there were."""
    requests = [_request(), _request(input=200), _request("n", thinking=1)]
    new, usage = counted(requests, (400, 15), Ledger(), each=True)
    assert new == [] and usage is not None
    assert (usage.input, usage.cached, usage.output, usage.thinking, usage.requests) == (400, 30, 15, 15, 3)
    assert usage.total == 400 + 15 + 15
    assert [(one.model, one.input) for one in usage.models] == [("m", 300), ("n", 100)]
    assert counted(requests, (400, 15), Ledger(), each=False)[1] == msgspec.structs.replace(
        usage, requests=None
    )


def test_a_warm_turn_of_which_the_journal_lacks_something() -> None:
    """What the sums have over it is one more request, of a model that nobody knows; how many there were is unknown."""
    ledger = Ledger()
    (missing,), usage = counted([_request()], (150, 9), ledger, each=True)
    assert (missing.role, missing.model, missing.input, missing.output) == ("main", None, 50, 4)
    assert (missing.cached, missing.thinking, missing.tool, missing.seq, ledger.seq) == (
        None,
        None,
        None,
        0,
        1,
    )
    assert usage is not None and (usage.input, usage.output, usage.requests) == (150, 9, None)
    assert usage.thinking is None and usage.total is None, "not all of it is known"
    assert [one.model for one in usage.models] == ["m"]


def test_a_warm_turn_without_a_journal() -> None:
    """The sums are all there is."""
    (missing,), usage = counted([], (7, 3), Ledger(), each=True)
    assert (missing.input, missing.output) == (7, 3)
    assert usage is not None and (usage.input, usage.output, usage.requests, usage.models) == (7, 3, None, ())


def test_a_warm_turn_that_tells_no_sums() -> None:
    """An error, or a cancelled turn: what the journal has is told; nothing at all where it has nothing."""
    new, usage = counted([_request()], (None, None), Ledger(), each=True)
    assert new == [] and usage is not None and (usage.input, usage.requests) == (100, 1)
    assert counted([], (None, None), Ledger(), each=True) == ([], None)
    assert counted([], (0, 0), Ledger(), each=True) == ([], None), "a turn that never reached a model"


def test_sums_below_the_requests_add_nothing() -> None:
    """The CLI forgets the tokens of an answer that it threw away: the requests were made all the same."""
    new, usage = counted([_request()], (0, 0), Ledger(), each=True)
    assert new == [] and usage is not None and (usage.input, usage.output) == (100, 5)


def test_requests_beside_the_conversation_are_not_in_the_sums_of_a_warm_turn() -> None:
    """Those of subagents: counted in the usage, and not taken for a difference."""
    new, usage = counted([_request(), _request("n", "subagent", input=40)], (100, 5), Ledger(), each=True)
    assert new == [] and usage is not None and (usage.input, usage.requests) == (140, 2)


@given(
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999)), max_size=4),
    st.tuples(st.none() | st.integers(0, 9999), st.none() | st.integers(0, 9999)),
)
def test_the_usage_of_a_warm_turn_is_the_sum_of_its_requests(
    counts: list[tuple[int, int]], told: Any
) -> None:
    """Of all that are told, the added one included; and never less than the CLI's sums where these can be met."""
    requests = [_request(input=given, output=made) for given, made in counts]
    new, usage = counted(requests, told, Ledger(), each=True)
    if usage is None:
        assert not requests and not new
        return
    assert usage.input == sum(one.input or 0 for one in (*requests, *new))
    assert usage.output == sum(one.output or 0 for one in (*requests, *new))
    assert len(new) <= 1
    if new and None not in told:
        assert (usage.input, usage.output) == told
