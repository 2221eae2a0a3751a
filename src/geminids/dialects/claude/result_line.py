"""Build the last line of Claude Code's output, `result`, from the data of a run."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from geminids.dialects.claude.line_writer import LineWriter
from geminids.dialects.claude.model import ApiErrorLine, Denial, Message, Result, TextBlock, Usage
from geminids.dialects.claude.usage import cost_of_run, models_of, stop_reason_of, usage_of_run
from geminids.events.model import Finished, ToolFinished, ToolStarted

__all__ = ["ResultDetails", "ToolClock", "api_error", "result"]

NO_END = "the run gave no result"
# Claude's names for API failures. The `result` of such a run has the subtype `success`, but
# `is_error` is true.
_API = {
    "auth": "authentication_failed",
    "tier_retired": "billing_error",
    "quota_minute": "rate_limit",
    "quota_day": "rate_limit",
    "model_not_found": "invalid_request",
    "bad_request": "invalid_request",
    "server": "server_error",
    "network": "unknown",
}
_SUBTYPES = {"max_turns": "error_max_turns", "over_budget": "error_max_budget_usd"}


class ToolClock:
    """Measures how much time of a run passed without a running tool.

    This time is the best available estimate of `duration_api_ms`, the time that the run waited for
    the API.
    """

    def __init__(self) -> None:
        self._busy = 0
        self._since = 0
        self._running: set[str] = set()

    def start(self, call: ToolStarted) -> None:
        # A subagent mostly waits for the API, so its time counts as API time.
        if call.parent is None and call.kind != "agent":
            self._since = self._since if self._running else call.at
            self._running.add(call.id)

    def stop(self, call: ToolFinished) -> None:
        if call.id in self._running:
            self._running.remove(call.id)
            if not self._running:
                self._busy += max(call.at - self._since, 0)

    def idle(self, total_ms: int) -> int:
        """Return how many of `total_ms` milliseconds passed without a running tool."""
        return max(total_ms - self._busy, 0)


class ResultDetails(NamedTuple):
    """The data that the `result` line needs, but the event `Finished` does not contain."""

    clock: ToolClock
    duration_ms: int
    turns: int
    denials: list[Denial]
    tool_cut_off: bool


def api_error(finished: Finished, writer: LineWriter) -> ApiErrorLine | None:
    """Return the line with the API error, which Claude Code prints before `result`. Return None if
    the run did not fail because of the API."""
    kind = finished.failure.kind if finished.failure else ""
    if finished.outcome != "failed" or kind not in _API:
        return None
    line_id = writer.line_id()
    content: list[TextBlock] = [TextBlock(_reason(finished))]
    message = Message(
        writer.ids.message(), "message", "assistant", "<synthetic>", [*content], "stop_sequence", "", Usage()
    )
    return ApiErrorLine(message, None, writer.session_id, line_id, _API[kind])


def result(finished: Finished | None, ending: ResultDetails, writer: LineWriter) -> Result:
    """Build the `result` line. Fields with unknown values are omitted."""
    total_ms = ending.duration_ms if finished is None else max(finished.duration_ms, 0)
    line = Result(
        subtype=_subtype(finished),
        is_error=finished is None or finished.outcome != "success",
        duration_ms=total_ms,
        duration_api_ms=ending.clock.idle(total_ms),
        num_turns=ending.turns,
        session_id=(finished.session_id if finished else None) or writer.session_id,
        total_cost_usd=cost_of_run(finished),
        usage=usage_of_run(finished),
        model_usage=models_of(finished),
        permission_denials=ending.denials,
        terminal_reason=_terminal_reason(finished, ending.tool_cut_off),
        uuid=writer.line_id(),
    )
    if finished is not None and finished.outcome == "success":
        value = UNSET if finished.value is None else finished.value
        # Without the gateway the finish reason is unknown. A successful run ends with STOP.
        reason = stop_reason_of(finished.finish_reason or "STOP")
        return msgspec.structs.replace(
            line, result=finished.answer, stop_reason=reason or UNSET, structured_output=value
        )
    if finished is not None and line.subtype == "success":
        status = finished.failure.http_status if finished.failure else None
        return msgspec.structs.replace(
            line, result=_reason(finished), api_error_status=UNSET if status is None else status
        )
    return msgspec.structs.replace(line, errors=[_reason(finished)])


def _subtype(finished: Finished | None) -> str:
    if finished is None:
        return "error_during_execution"
    kind = finished.failure.kind if finished.failure else ""
    if finished.outcome == "success" or (finished.outcome == "failed" and kind in _API):
        return "success"
    if kind == "schema_mismatch":
        return "error_max_structured_output_retries"
    return _SUBTYPES.get(finished.outcome, "error_during_execution")


def _reason(finished: Finished | None) -> str:
    if finished is None:
        return NO_END
    return finished.reason or (finished.failure.message if finished.failure else finished.outcome)


def _terminal_reason(finished: Finished | None, tool_cut_off: bool) -> str | UnsetType:
    outcome = finished.outcome if finished else None
    if outcome in ("interrupted", "timed_out"):
        return "aborted_tools" if tool_cut_off else "aborted_streaming"
    if outcome == "success":
        return "completed"
    return "max_turns" if outcome == "max_turns" else UNSET
