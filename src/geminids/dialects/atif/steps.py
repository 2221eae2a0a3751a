"""The steps of one trajectory, gathered from events: each of them is an answer of the model with its calls."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from io import StringIO

import msgspec

from geminids.dialects.atif.model import Call, Metrics, Observation, Observed, Reference, Step
from geminids.events.model import PermissionDecided, Thought, TokensUsed, ToolFinished, ToolStarted

__all__ = ["Answer", "Called", "added", "encoded", "metrics_of", "moment", "with_more"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Called(msgspec.Struct):
    """A call, and what became of it as far as that is known."""

    started: ToolStarted | ToolFinished
    finished: ToolFinished | None = None
    decided: PermissionDecided | None = None

    def call(self) -> Call:
        # On the warm lane the input is known when the call has ended.
        known = self.started.input or (self.finished.input if self.finished else None)
        permission = None
        if self.decided is not None:
            told = {"decision": self.decided.decision, "by": self.decided.by, "reason": self.decided.reason}
            permission = {"permission": {name: value for name, value in told.items() if value is not None}}
        return Call(
            tool_call_id=self.started.id,
            function_name=self.started.name or "unknown",
            arguments=known or {},
            extra=permission,
        )

    def observed(self, agents: Collection[str]) -> Observed | None:
        """What the call gave; None where nothing is known of it."""
        mine = [Reference(trajectory_id=self.started.id)] if self.started.id in agents else None
        end = self.finished
        if end is None:
            return Observed(source_call_id=self.started.id, subagent_trajectory_ref=mine) if mine else None
        said = end.output if end.status == "ok" else (end.error or end.output)
        told = {
            "status": None if end.status == "ok" else end.status,
            "exit_code": end.exit_code,
            "duration_ms": end.duration_ms,
        }
        return Observed(
            source_call_id=end.id,
            content=said,
            subagent_trajectory_ref=mine,
            extra={name: value for name, value in told.items() if value is not None} or None,
        )


class Answer:
    """What the model thought, said and called in one turn; of a subagent, between two rounds of tools."""

    __slots__ = ("at", "calls", "text", "thoughts", "tokens", "turn")

    def __init__(self, at: int, turn: int) -> None:
        self.at = at
        self.turn = turn
        self.text: StringIO | None = None
        self.thoughts: list[str] = []
        self.calls: list[Called] = []
        self.tokens: list[TokensUsed] = []

    def think(self, thought: Thought) -> None:
        self.thoughts.append(f"{thought.subject}: {thought.text}" if thought.subject else thought.text)

    @property
    def is_over(self) -> bool:
        """Whether all that was called here has ended: what a subagent does next is its next answer."""
        return bool(self.calls) and all(one.finished for one in self.calls)

    def step(self, number: int, agents: Collection[str]) -> Step:
        """The step of it; `agents` are the calls that have a trajectory of their own."""
        results = [seen for one in self.calls if (seen := one.observed(agents)) is not None]
        return Step(
            step_id=number,
            timestamp=moment(self.at),
            source="agent",
            message=self.text.getvalue() if self.text else "",
            model_name=next((used.model for used in self.tokens if used.model), None),
            reasoning_content="\n".join(self.thoughts) or None,
            metrics=metrics_of(self.tokens),
            llm_call_count=len(self.tokens) or None,
            observation=Observation(results=results) if results else None,
            tool_calls=[one.call() for one in self.calls] or None,
            extra={"turn": self.turn},
        )


def metrics_of(tokens: Sequence[TokensUsed]) -> Metrics | None:
    """The tokens of some requests together; what none of them tells is left out."""
    if not tokens:
        return None
    extra = {
        name: number
        for name, field in (("thoughts_tokens", "thinking"), ("tool_tokens", "tool"))
        if (number := added(*(getattr(used, field) for used in tokens))) is not None
    }
    return Metrics(
        prompt_tokens=with_more(added(*(used.input for used in tokens)), extra.get("tool_tokens")),
        completion_tokens=with_more(added(*(used.output for used in tokens)), extra.get("thoughts_tokens")),
        cached_tokens=added(*(used.cached for used in tokens)),
        extra=extra or None,
    )


def added(*numbers: int | None) -> int | None:
    """The sum of what is known.

    >>> added(1, None, 2), added(None), added()
    (3, None, None)
    """
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def with_more(number: int | None, more: int | None) -> int | None:
    """A number and what may be known besides; unknown where the number itself is."""
    return None if number is None else number + (more or 0)


def moment(at: int) -> str | None:
    """Unix ms as ISO 8601; None for a time that no calendar has.

    >>> moment(1_794_800_000_123)
    '2026-11-16T03:33:20.123Z'
    """
    try:
        when = _EPOCH + timedelta(milliseconds=at)
    except OverflowError:
        return None
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encoded(step: Step) -> msgspec.Raw:
    """A step by itself; arguments that are as deep as JSON can be may not fit in here, and are left out then."""
    try:
        return msgspec.Raw(msgspec.json.encode(step))
    except RecursionError:
        calls = [msgspec.structs.replace(one, arguments={}) for one in step.tool_calls or ()]
        return msgspec.Raw(msgspec.json.encode(msgspec.structs.replace(step, tool_calls=calls)))
