"""Build the result of a run for Leadmetrics and Paperclip: one JSON object at the end."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import msgspec

from geminids.dialects.leadmetrics.model import (
    AdapterExecutionResult,
    AdapterUsage,
    Ended,
    ErrorFamily,
    ErrorMeta,
    ResultJson,
    SessionParams,
    Stats,
)
from geminids.dialects.leadmetrics.transcript import Entry, Transcript, iso_time
from geminids.events.cost import Basis, Cost, with_reported_totals
from geminids.events.model import Event, Finished, Started, Text, Usage
from geminids.outcome import Failure

__all__ = ["Encoder", "refused", "result_of"]

_NO_END = "the events end before the run has ended"
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
    """Collects the events of a run, and returns the result of the run at the end.

    `timeout` is the time limit of the run in seconds. It appears in the error of a run that timed
    out.
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
        """Return the result of the events so far."""
        result = result_of(self.finished, self.started, self.transcript.entries(), timeout=self._timeout)
        # If the run configures no model, the CLI chooses it: `auto`, or the model in its settings.
        return msgspec.structs.replace(result, model=result.model or self.transcript.model)


def result_of(
    finished: Finished | None,
    started: Started | None = None,
    transcript: tuple[Entry, ...] = (),
    *,
    timeout: float | None = None,
) -> AdapterExecutionResult:
    """Build the result of a run from its last event, its first event and its transcript.

    If `finished` is None, the end of the run is not known, and the result is a failure. `timeout`
    is the time limit of the run in seconds; infinity if the run has no limit. The error of a run
    that timed out contains `timeout`. If `timeout` is None, the error contains the duration of the
    run instead.
    """
    session = started.session_id if started else None
    model = started.model if started else None
    if finished is None:
        result = refused(_NO_END)
        return msgspec.structs.replace(
            result, model=model, transcript=transcript, **_session_fields(session, started)
        )
    message = _message(finished, timeout)
    failure = finished.failure
    code = finished.exit_code
    turns = finished.outcome == "max_turns"
    ok = finished.outcome == "success"
    lost = failure is not None and failure.kind == "session_not_found"
    # Do not use the id in `started` if `finished` contains none: the CLI has then not stored the
    # session, so the session cannot be resumed.
    session = None if lost else finished.session_id
    used = _used(finished)
    usage = _usage(used)
    cost = finished.cost
    fields = _session_fields(session, started)
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
        **fields,
        model=model,
        cost_usd=float(cost.usd) if cost is not None and cost.usd is not None else None,
        cost_basis=_basis(cost),
        auth_mode=cost.auth_mode if cost is not None else None,
        result_json=_result_json(finished, used, message),
        summary=finished.answer,
        clear_session=lost or finished.clear_session,
        ended=tuple(Ended(pid=one.pid, command=one.command, signal=one.signal) for one in finished.ended),
        output=finished.text,
        error=message,
        transcript=transcript,
    )


def _basis(cost: Cost | None) -> Basis | None:
    """Return how exact the cost in dollars is; None if `cost` is None.

    The result is `unknown` if the cost in dollars is unknown. This is the case for Google accounts
    and Vertex AI, even if the list price of the tokens is known exactly.
    """
    if cost is None:
        return None
    return cost.basis if cost.usd is not None else "unknown"


def refused(message: str, *, problems: Sequence[tuple[str, str]] = ()) -> AdapterExecutionResult:
    """Return the result of a run that was refused before it started.

    `message` says why. `problems` are the invalid options, each with its error message.
    """
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
    return message or f"the run ended with the outcome {finished.outcome}"


def _seconds(finished: Finished, timeout: float | None) -> str | None:
    """Return the number of seconds, as text, for the error message of a run that timed out.

    This number is `timeout`, the time limit of the run. If `timeout` is None, it is the duration of
    the run. Return None if the run was stopped because the CLI printed nothing for too long.
    """
    if finished.stall is not None:
        return None
    if timeout is None:
        return str(finished.duration_ms // 1000)
    # Add one millisecond, because `duration_ms` is rounded down.
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


def _used(finished: Finished) -> Usage:
    """Return the token counts of the run. If the API answered no request, for example because it
    rejected the key, all counts are None."""
    used = finished.usage
    if used is None or not any((used.input, used.output, used.total, used.models, used.unknown)):
        return Usage()
    return used


def _usage(used: Usage) -> AdapterUsage | None:
    """Return the billed tokens. Return None if one of the counts is unknown, because the sums would
    then be too low."""
    used = with_reported_totals(used)
    if used.unknown or used.input is None or used.tool is None:
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


def _result_json(finished: Finished, used: Usage, message: str | None) -> ResultJson:
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
