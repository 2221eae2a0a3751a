"""The result of a run for Leadmetrics and Paperclip: one JSON object at the end."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import msgspec

from geminids.dialects.leadmetrics.model import (
    AdapterExecutionResult,
    AdapterUsage,
    ErrorFamily,
    ErrorMeta,
    ResultJson,
    SessionParams,
    Stats,
)
from geminids.dialects.leadmetrics.transcript import Entry, Transcript, iso_time
from geminids.events.model import Event, Finished, Started, Text, Usage
from geminids.outcome import Failure

__all__ = ["Encoder", "refused", "result_of"]

_NO_END = "the events end before the run does"
_CODES = {
    "auth": "gemini_auth_required",
    "tier_retired": "gemini_auth_required",
    "network": "gemini_network_unavailable",
}
_FAMILIES: dict[str, ErrorFamily] = {
    "server": "transient_upstream",
    "network": "transient_upstream",
    "quota_minute": "provider_quota",
    "quota_day": "provider_quota",
}


class Encoder:
    """Collects the events of a run, and returns its result at the end.

    See `result_of` for `timeout`.
    """

    def __init__(self, *, timeout: float | None = None) -> None:
        self._timeout = timeout
        self.transcript = Transcript()
        self.started: Started | None = None
        self.finished: Finished | None = None

    def feed(self, events: Sequence[Event]) -> bytes:
        for event in events:
            kind = type(event)
            if kind is Text:
                continue
            if kind is Started:
                self.started = event  # type: ignore[assignment]
            elif kind is Finished and self.finished is None:
                self.finished = event  # type: ignore[assignment]
        self.transcript.feed(events)
        return b""

    def finish(self) -> bytes:
        return self.result().encode() + b"\n"

    def result(self) -> AdapterExecutionResult:
        """The result of the events so far."""
        return result_of(self.finished, self.started, self.transcript.entries(), timeout=self._timeout)


def result_of(
    finished: Finished | None,
    started: Started | None = None,
    transcript: tuple[Entry, ...] = (),
    *,
    timeout: float | None = None,
) -> AdapterExecutionResult:
    """The result of a run; without `finished`, of a run whose end is not known.

    `timeout` is the time limit of the run in seconds, infinity for no limit. Events do not contain
    it: without it, a run that timed out is reported with the time that it took.
    """
    session = started.session_id if started else None
    model = started.model if started else None
    if finished is None:
        made = refused(_NO_END)
        return msgspec.structs.replace(
            made, model=model, transcript=transcript, **_session_fields(session, started)
        )
    message = _message(finished, timeout)
    failure = finished.failure
    code = finished.exit_code
    turns = finished.outcome == "max_turns"
    ok = finished.outcome == "success"
    lost = failure is not None and failure.kind == "session_not_found"
    # Not the id of the start: a CLI that never announced its session has not stored it, so it
    # cannot be resumed.
    session = None if lost else finished.session_id
    usage = _usage(finished.usage)
    usd = finished.cost.usd if finished.cost is not None else None
    return AdapterExecutionResult(
        success=ok,
        # As in Node: a process that a signal ended has no exit code.
        exit_code=None if code is not None and code < 0 else code,
        signal=_signal(code),
        timed_out=finished.outcome == "timed_out",
        error_message=message,
        error_code="max_turns_exhausted" if turns else _CODES.get(failure.kind) if failure else None,
        error_family=_family(failure),
        retry_not_before=_not_before(finished),
        error_meta=None if ok else _meta(finished),
        usage=usage,
        usage_basis="per_run" if usage else None,
        **_session_fields(session, started),
        model=model,
        cost_usd=float(usd) if usd is not None else None,
        result_json=_result_json(finished, message),
        summary=finished.answer,
        # Keep a new session that replaced a lost one.
        clear_session=turns or lost or (finished.clear_session and session is None),
        output=finished.text,
        error=message,
        transcript=transcript,
    )


def refused(message: str, *, problems: Sequence[tuple[str, str]] = ()) -> AdapterExecutionResult:
    """The result of a run that was refused before it started."""
    kind = "bad_option" if problems else None
    return AdapterExecutionResult(
        success=False,
        exit_code=None,
        signal=None,
        timed_out=False,
        error_message=message,
        error_code=None,
        error_meta=ErrorMeta(outcome="failed", kind=kind, problems=tuple(problems)),
        error=message,
    )


def _message(finished: Finished, timeout: float | None) -> str | None:
    if finished.outcome == "success":
        return None
    if finished.outcome == "timed_out" and (seconds := _seconds(finished, timeout)) is not None:
        return f"Process timed out after {seconds}s"
    message = finished.failure.message if finished.failure else finished.reason
    return message or f"the run ended as {finished.outcome}"


def _seconds(finished: Finished, timeout: float | None) -> str | None:
    """The time limit that stopped the run. None if the run was stopped earlier, for its silence."""
    if finished.stall is not None:
        return None
    if timeout is None:
        return str(finished.duration_ms // 1000)
    # One millisecond more: `duration_ms` is rounded down.
    return f"{timeout:g}" if finished.duration_ms + 1 >= timeout * 1000 else None


def _signal(code: int | None) -> str | None:
    if code is None or code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"SIG{-code}"


def _family(failure: Failure | None) -> ErrorFamily | None:
    if failure is None:
        return None
    if failure.kind == "blocked":
        return None if failure.retryable else "model_refusal"
    return _FAMILIES.get(failure.kind)


def _not_before(finished: Finished) -> str | None:
    after = finished.failure.retry_after if finished.failure else None
    if after is None or not 0 <= after < 10**9:
        return None
    return iso_time(finished.at + round(after * 1000))


def _meta(finished: Finished) -> ErrorMeta:
    failure = finished.failure
    if failure is None:
        return ErrorMeta(outcome=finished.outcome)
    return ErrorMeta(
        outcome=finished.outcome,
        kind=failure.kind,
        hint=failure.hint,
        retryable=failure.retryable,
        http_status=failure.http_status,
    )


def _usage(used: Usage | None) -> AdapterUsage | None:
    """None if any count is not known: a partial sum would be wrong."""
    if used is None or used.unknown or used.input is None or used.tool is None:
        return None
    if used.output is None or used.thinking is None:
        return None
    return AdapterUsage(
        input_tokens=used.input + used.tool,
        output_tokens=used.output + used.thinking,
        cached_input_tokens=used.cached,
    )


def _session_fields(session: str | None, started: Started | None) -> dict[str, Any]:
    if session is None:
        return {}
    params = SessionParams(session_id=session, cwd=started.cwd if started else None)
    return {"session_id": session, "session_params": params, "session_display_id": session}


def _result_json(finished: Finished, message: str | None) -> ResultJson:
    used = finished.usage or Usage()
    return ResultJson(
        timestamp=iso_time(finished.at),
        status="success" if finished.outcome == "success" else "error",
        stats=Stats(
            duration_ms=finished.duration_ms,
            total_tokens=used.total,
            input_tokens=used.input,
            output_tokens=used.output,
            cached=used.cached,
            thoughts=used.thinking,
            tool=used.tool,
            unknown_requests=used.unknown or None,
        ),
        error=message,
        stop_reason="max_turns_exhausted" if finished.outcome == "max_turns" else None,
        stderr=finished.failure.stderr_tail if finished.failure else None,
    )
