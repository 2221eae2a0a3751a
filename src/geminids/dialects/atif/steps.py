"""Build the steps of an ATIF document from events.

A step is one turn of the model: its thoughts, its text and its tool calls.
"""

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
from geminids.events.cost import with_reported_totals
from geminids.events.encoding import encode_json
from geminids.events.model import (
    PermissionDecided,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
    Usage,
)

__all__ = ["CallState", "ModelTurn", "encoded", "iso_timestamp", "metrics_of", "totals_of"]

_COUNTED = ("input", "cached", "output", "thinking", "tool")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CallState(msgspec.Struct):
    """A tool call, and those of its events that have already arrived."""

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
        """Return the input of the call; None if it is not known.

        On the warm transport, where the CLI is already running before the run starts, the input is
        reported when the call ends. The input of a denied shell command is reported only in its
        permission request.
        """
        arguments = (
            self.started.input or (self.finished.input if self.finished else None) or self.started.input
        )
        return arguments if arguments is not None or self.command is None else {"command": self.command}

    def call(self) -> Call:
        arguments = self.arguments()
        extra: dict[str, Any] = {}
        if arguments is None and isinstance(self.started, ToolStarted):
            extra["title"] = self.started.title  # nothing else describes the call
        if self.decided is not None:
            fields = {"decision": self.decided.decision, "by": self.decided.by, "reason": self.decided.reason}
            extra["permission"] = {name: value for name, value in fields.items() if value is not None}
        return Call(
            tool_call_id=self.id,
            function_name=self.started.name or "unknown",
            arguments=arguments or {},
            extra=extra or None,
        )

    def observed(self) -> Observed | None:
        """Return the result of the call; None if the call has not ended."""
        end = self.finished
        if end is None:
            return None
        details = {
            "status": None if end.status == "ok" else end.status,
            "exit_code": end.exit_code,
            "duration_ms": end.duration_ms,
        }
        return Observed(
            source_call_id=end.id,
            content=end.output if end.status == "ok" else (end.error or end.output),
            extra={name: value for name, value in details.items() if value is not None} or None,
        )


class EncodedCall:
    """A finished tool call, stored as JSON. The JSON takes a tenth of the memory that the events of
    the call take."""

    __slots__ = ("_call", "_result", "id")
    is_over = True

    def __init__(self, call: CallState) -> None:
        self.id = call.id
        self._call = _encoded(call.call())
        self._result = encode_json(call.observed())  # `observed` is not None, because the call has ended

    def call(self) -> msgspec.Raw:
        return msgspec.Raw(self._call)

    def observed(self) -> msgspec.Raw:
        return msgspec.Raw(self._result)


class ModelTurn:
    """One turn of the model: its thoughts, its text and its tool calls.

    `at` is the start time in Unix milliseconds. `turn` is the number of the turn within the
    attempt.
    """

    __slots__ = ("at", "calls", "closed_text", "text", "thoughts", "tokens", "turn")

    def __init__(self, at: int, turn: int) -> None:
        self.at = at
        self.turn = turn
        self.closed_text = ""
        self.text: StringIO | None = None
        self.thoughts: list[str] = []
        self.calls: list[CallState | EncodedCall] = []
        self.tokens: list[TokensUsed] = []

    def think(self, thought: Thought) -> None:
        self.thoughts.append(f"{thought.subject}: {thought.text}" if thought.subject else thought.text)

    def open_text(self) -> StringIO:
        self.text = StringIO(newline="")
        return self.text

    def compact(self, agents: Collection[str]) -> list[CallState]:
        """Store the finished tool calls as JSON, to free memory. Return the calls that were
        changed.

        This is called when the next turn has begun. Events of this turn that arrive later can still
        be added. `agents` are the ids of the calls that started subagents. These calls are not
        changed, because events of the subagents can still arrive.
        """
        if self.text is not None:
            self.closed_text, self.text = self.closed_text + self.text.getvalue(), None
        encoded_calls = []
        for index, call in enumerate(self.calls):
            if isinstance(call, CallState) and call.is_over and call.id not in agents and not _is_agent(call):
                self.calls[index] = EncodedCall(call)
                encoded_calls.append(call)
        return encoded_calls

    @property
    def is_over(self) -> bool:
        """Whether the turn has tool calls and all of them have ended.

        After the turn of a subagent is over, the next event of this subagent begins a new turn.
        """
        return bool(self.calls) and all(call.is_over for call in self.calls)

    def step(self, number: int, agents: Collection[str], discarded: Collection[int] = ()) -> Step:
        """Return the turn as a step. `number` is the id of the step.

        `agents` are the ids of the calls that started subagents. The result of such a call refers
        to the document of its subagent. `discarded` identifies the requests whose answers the CLI
        did not use: each item is the number of a request (`TokensUsed.request`).
        """
        unused = [used.request for used in self.tokens if used.request in discarded]
        results = [result for call in self.calls if (result := _result(call, agents)) is not None]
        return Step(
            step_id=number,
            timestamp=iso_timestamp(self.at),
            source="agent",
            message=self.closed_text + self.text.getvalue() if self.text else self.closed_text,
            model_name=next((used.model for used in self.tokens if used.model), None),
            reasoning_content="\n".join(self.thoughts) or None,
            metrics=metrics_of(self.tokens),
            llm_call_count=len(self.tokens) or None,
            observation=Observation(results=results) if results else None,
            tool_calls=[call.call() for call in self.calls] or None,
            extra={"turn": self.turn, **({"discarded_requests": unused} if unused else {})},
        )


def _is_agent(call: CallState) -> bool:
    """Return whether the call started a subagent. Events of the subagent may arrive even after the
    call has ended."""
    return isinstance(call.started, ToolStarted) and call.started.kind == "agent"


def _result(call: CallState | EncodedCall, agents: Collection[str]) -> Observed | msgspec.Raw | None:
    result = call.observed()
    if call.id not in agents:
        return result
    if isinstance(result, msgspec.Raw):
        result = msgspec.json.decode(result, type=Observed)
    references = [Reference(trajectory_id=call.id)]
    return msgspec.structs.replace(
        result or Observed(source_call_id=call.id), subagent_trajectory_ref=references
    )


def metrics_of(tokens: Sequence[TokensUsed]) -> Metrics | None:
    """Return the token counts of these requests, added up; None if there are no requests.

    If the token counts of a request are unknown, the result contains no sums, only the number of
    such requests.
    """
    if not tokens:
        return None
    if unknown := sum(used.input is None for used in tokens):
        return Metrics(extra={"unknown_requests": unknown})
    if len(tokens) == 1:  # nearly every step has one request
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
    """Return the token totals of a run. `steps` is the number of its steps.

    If the tokens of a request are unknown, the totals are omitted. `extra` then contains the sums
    over the other requests.
    """
    usage = with_reported_totals(usage)
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


def _parts(counts: dict[str, int | None], sums: dict[str, int | None]) -> dict[str, int]:
    """Return the content of the field `extra`: all known numbers in `counts` and, for each unknown
    total, the known part of this total.

    If `sums["tool"]` is None, the total of prompt tokens is unknown, so only its part
    `input_tokens` is added. If `sums["thinking"]` is None, the total of completion tokens is
    unknown, so only its part `output_tokens` is added.
    """
    if sums["tool"] is None:
        counts["input_tokens"] = sums["input"]
    if sums["thinking"] is None:
        counts["output_tokens"] = sums["output"]
    return {name: number for name, number in counts.items() if number is not None}


def added(*numbers: int | None) -> int | None:
    """Return the sum of the numbers; None if one of them is None.

    >>> added(1, 2), added(1, None, 2), added(None)
    (3, None, None)
    """
    return None if None in numbers else sum(filter(None, numbers))


def iso_timestamp(at: int) -> str | None:
    """Return a time in Unix milliseconds as ISO 8601; None if the time is out of range.

    >>> iso_timestamp(1_794_800_000_123)
    '2026-11-16T03:33:20.123Z'
    """
    second, ms = divmod(at, 1000)
    time = _second(second)
    return None if time is None else f"{time}.{ms:03}Z"


@lru_cache(maxsize=8)
def _second(at: int) -> str | None:
    """Return a time in Unix seconds as ISO 8601; None if the time is out of range.

    The result is cached, because many steps begin in the same second.
    """
    try:
        return (_EPOCH + timedelta(seconds=at)).isoformat()[:19]
    except (OverflowError, ValueError):
        return None


def encoded(step: Step) -> msgspec.Raw:
    """Encode a step as JSON. Arguments that are nested too deeply for JSON are replaced by `{}`."""
    try:
        return msgspec.Raw(encode_json(step))
    except RecursionError:
        calls = [
            call if isinstance(call, msgspec.Raw) else msgspec.structs.replace(call, arguments={})
            for call in step.tool_calls or ()
        ]
        return msgspec.Raw(encode_json(msgspec.structs.replace(step, tool_calls=calls)))


def _encoded(call: Call) -> bytes:
    try:
        return encode_json(call)
    except RecursionError:
        return encode_json(msgspec.structs.replace(call, arguments={}))
