"""The steps of one trajectory, gathered from events: each of them is an answer of the model with its calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from io import StringIO
from typing import Any

import msgspec

from geminids.dialects.atif.model import (
    Call,
    FinalMetrics,
    Metrics,
    Observation,
    Observed,
    Reference,
    Step,
)
from geminids.events.encoding import encode_json
from geminids.events.model import (
    PermissionDecided,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
    Usage,
)

__all__ = ["Answer", "Called", "encoded", "metrics_of", "moment", "totals_of"]

_COUNTED = ("input", "cached", "output", "thinking", "tool")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Called(msgspec.Struct):
    """A call, and what became of it as far as that is known."""

    started: ToolStarted | ToolFinished
    finished: ToolFinished | None = None
    decided: PermissionDecided | None = None
    command: str | None = None

    @property
    def id(self) -> str:
        return self.started.id

    @property
    def is_over(self) -> bool:
        return self.finished is not None

    def arguments(self) -> dict[str, Any] | None:
        """On the warm lane they are known when the call has ended; of a refused command, the question tells it."""
        known = self.started.input or (self.finished.input if self.finished else None) or self.started.input
        return known if known is not None or self.command is None else {"command": self.command}

    def call(self) -> Call:
        given = self.arguments()
        extra: dict[str, Any] = {}
        if given is None and isinstance(self.started, ToolStarted):
            extra["title"] = self.started.title  # all that is known of what it wanted
        if self.decided is not None:
            told = {"decision": self.decided.decision, "by": self.decided.by, "reason": self.decided.reason}
            extra["permission"] = {name: value for name, value in told.items() if value is not None}
        return Call(
            tool_call_id=self.id,
            function_name=self.started.name or "unknown",
            arguments=given or {},
            extra=extra or None,
        )

    def observed(self) -> Observed | None:
        """What the call gave; None where nothing is known of it."""
        end = self.finished
        if end is None:
            return None
        told = {
            "status": None if end.status == "ok" else end.status,
            "exit_code": end.exit_code,
            "duration_ms": end.duration_ms,
        }
        return Observed(
            source_call_id=end.id,
            content=end.output if end.status == "ok" else (end.error or end.output),
            extra={name: value for name, value in told.items() if value is not None} or None,
        )


class Written:
    """A call that is over, as it will stand in the document: a tenth of what its events take in memory."""

    __slots__ = ("_call", "_seen", "id")
    is_over = True

    def __init__(self, called: Called) -> None:
        self.id = called.id
        self._call = _encoded(called.call())
        self._seen = encode_json(called.observed())  # it is over: there is something

    def call(self) -> msgspec.Raw:
        return msgspec.Raw(self._call)

    def observed(self) -> msgspec.Raw:
        return msgspec.Raw(self._seen)


class Answer:
    """What the model thought, said and called in one turn; of a subagent, between two rounds of tools."""

    __slots__ = ("at", "calls", "said", "text", "thoughts", "tokens", "turn")

    def __init__(self, at: int, turn: int) -> None:
        self.at = at
        self.turn = turn
        self.said = ""
        self.text: StringIO | None = None
        self.thoughts: list[str] = []
        self.calls: list[Called | Written] = []
        self.tokens: list[TokensUsed] = []

    def think(self, thought: Thought) -> None:
        self.thoughts.append(f"{thought.subject}: {thought.text}" if thought.subject else thought.text)

    def open_text(self) -> StringIO:
        self.text = StringIO(newline="")
        return self.text

    def write(self, agents: Collection[str]) -> list[Called]:
        """Make it small, since the next one has begun; the calls that need not be known any more.

        What comes late is added all the same.
        """
        if self.text is not None:
            self.said, self.text = self.said + self.text.getvalue(), None
        written = []
        for place, call in enumerate(self.calls):
            if isinstance(call, Called) and call.is_over and call.id not in agents and not _is_agent(call):
                self.calls[place] = Written(call)
                written.append(call)
        return written

    @property
    def is_over(self) -> bool:
        """Whether all that was called here has ended: what a subagent does next is its next answer."""
        return bool(self.calls) and all(one.is_over for one in self.calls)

    def step(self, number: int, agents: Collection[str], discarded: Collection[int] = ()) -> Step:
        """The step of it; `agents` are the calls that have a trajectory of their own, `discarded` the requests whose
        answers the CLI did not use."""
        unused = [used.request for used in self.tokens if used.request in discarded]
        results = [seen for one in self.calls if (seen := _seen(one, agents)) is not None]
        return Step(
            step_id=number,
            timestamp=moment(self.at),
            source="agent",
            message=self.said + self.text.getvalue() if self.text else self.said,
            model_name=next((used.model for used in self.tokens if used.model), None),
            reasoning_content="\n".join(self.thoughts) or None,
            metrics=metrics_of(self.tokens),
            llm_call_count=len(self.tokens) or None,
            observation=Observation(results=results) if results else None,
            tool_calls=[one.call() for one in self.calls] or None,
            extra={"turn": self.turn, **({"discarded_requests": unused} if unused else {})},
        )


def _is_agent(called: Called) -> bool:
    """Whether what a subagent did may still be told."""
    return isinstance(called.started, ToolStarted) and called.started.kind == "agent"


def _seen(called: Called | Written, agents: Collection[str]) -> Observed | msgspec.Raw | None:
    seen = called.observed()
    if called.id not in agents:
        return seen
    if isinstance(seen, msgspec.Raw):
        seen = msgspec.json.decode(seen, type=Observed)
    mine = [Reference(trajectory_id=called.id)]
    return msgspec.structs.replace(seen or Observed(source_call_id=called.id), subagent_trajectory_ref=mine)


def metrics_of(tokens: Sequence[TokensUsed]) -> Metrics | None:
    """The tokens of some requests together; left out if those of one are not known."""
    if not tokens:
        return None
    if unknown := sum(used.input is None for used in tokens):
        return Metrics(extra={"unknown_requests": unknown})
    if len(tokens) == 1:  # as in nearly every step
        sums = {field: getattr(tokens[0], field) for field in _COUNTED}
    else:
        sums = {field: added(*(getattr(used, field) for used in tokens)) for field in _COUNTED}
    return Metrics(
        prompt_tokens=added(sums["input"], sums["tool"]),
        completion_tokens=added(sums["output"], sums["thinking"]),
        cached_tokens=sums["cached"],
        extra=_parts({"thoughts_tokens": sums["thinking"], "tool_tokens": sums["tool"]}, sums) or None,
    )


def totals_of(usage: Usage, steps: int) -> FinalMetrics:
    """The tokens of a whole run. If a request has unknown tokens, `extra` has the sums of the others."""
    parts = {"input": usage.input, "output": usage.output, "thinking": usage.thinking, "tool": usage.tool}
    prompt, completion = added(usage.input, usage.tool), added(usage.output, usage.thinking)
    total = {"total_tokens": usage.total if prompt is None or completion is None else None}
    if usage.unknown:
        known = {"known_prompt_tokens": prompt, "known_completion_tokens": completion}
        return FinalMetrics(
            total_steps=steps,
            extra={"unknown_requests": usage.unknown, **_parts({**known, **total}, parts)},
        )
    return FinalMetrics(
        total_prompt_tokens=prompt,
        total_completion_tokens=completion,
        total_cached_tokens=usage.cached,
        total_steps=steps,
        extra=_parts(total, parts) or None,
    )


def _parts(told: dict[str, int | None], sums: dict[str, int | None]) -> dict[str, int]:
    """What is known of a sum that is not: input without tool prompts, output without thinking."""
    if sums["tool"] is None:
        told["input_tokens"] = sums["input"]
    if sums["thinking"] is None:
        told["output_tokens"] = sums["output"]
    return {name: number for name, number in told.items() if number is not None}


def added(*numbers: int | None) -> int | None:
    """The sum; unknown where one of them is.

    >>> added(1, 2), added(1, None, 2), added(None)
    (3, None, None)
    """
    return None if None in numbers else sum(filter(None, numbers))


def moment(at: int) -> str | None:
    """Unix ms as ISO 8601; None for a time that no calendar has.

    >>> moment(1_794_800_000_123)
    '2026-11-16T03:33:20.123Z'
    """
    second, ms = divmod(at, 1000)
    day = _second(second)
    return None if day is None else f"{day}.{ms:03}Z"


@lru_cache(maxsize=8)
def _second(at: int) -> str | None:
    """Kept for the steps of the same second."""
    try:
        return (_EPOCH + timedelta(seconds=at)).isoformat()[:19]
    except (OverflowError, ValueError):
        return None


def encoded(step: Step) -> msgspec.Raw:
    """A step by itself; arguments that are as deep as JSON can be may not fit in here, and are left out then."""
    try:
        return msgspec.Raw(encode_json(step))
    except RecursionError:
        calls = [
            one if isinstance(one, msgspec.Raw) else msgspec.structs.replace(one, arguments={})
            for one in step.tool_calls or ()
        ]
        return msgspec.Raw(encode_json(msgspec.structs.replace(step, tool_calls=calls)))


def _encoded(call: Call) -> bytes:
    try:
        return encode_json(call)
    except RecursionError:
        return encode_json(msgspec.structs.replace(call, arguments={}))
