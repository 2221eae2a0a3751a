"""Translate the end of a run to SubLang's `done`, and to an `error` before it if the run failed."""

from __future__ import annotations

from geminids.dialects.agent_events.model import Done, Error, Metadata
from geminids.dialects.agent_events.usage import AgentUsage
from geminids.events.model import Finished

__all__ = ["STATUSES", "done_of"]

# `timed_out` is an error: a time limit stopped the run, nobody interrupted it on purpose.
STATUSES = {
    "success": "success",
    "failed": "error",
    "interrupted": "interrupted",
    "timed_out": "error",
    "max_turns": "max_turns",
    "over_budget": "max_budget",
}
_BEFORE_THE_MODEL = (
    "session_not_found",
    "session_busy",
    "untrusted_folder",
    "config",
    "sandbox",
    "cli_missing",
    "cli_unsupported",
    "bad_prompt",
    "bad_option",
    "protocol",
)

_Error = tuple[Error, Metadata | None]


def done_of(
    finished: Finished, usage: AgentUsage, *, was_started: bool = True, resume: str | None = None
) -> tuple[_Error | None, tuple[Done, Metadata]]:
    """Return the `error` event, if any, and the `done` event, each with its metadata.

    `was_started` is True if the CLI was started; the code of the error depends on it. `resume` is
    the id of the session that the run was to resume. If the run was interrupted before the CLI
    reported a session, `resume` becomes the resume token in `done`.
    """
    status = STATUSES[finished.outcome]
    resumed = resume if status == "interrupted" else None
    done = Done(
        status=status,
        usage=usage,
        duration_ms=max(0, finished.duration_ms),
        result=finished.answer if finished.answer or status == "success" else None,
        resume_token=finished.session_id or resumed,
    )
    metadata = Metadata(
        run_id=finished.run_id,
        outcome=finished.outcome,
        reason=finished.reason,
        exit_code=finished.exit_code,
    )
    return (_error(finished, was_started) if status == "error" else None), (done, metadata)


def _error(finished: Finished, was_started: bool) -> _Error:
    failure = finished.failure
    message = (
        (failure.message if failure else None) or finished.reason or f"the run ended: {finished.outcome}"
    )
    error = Error(code=_code(finished, was_started), message=message, recoverable=False)
    if failure is None:
        return error, None
    return error, Metadata(
        failure=failure.kind,
        hint=failure.hint or None,
        retryable=failure.retryable,
        http_status=failure.http_status,
    )


def _code(finished: Finished, was_started: bool) -> str:
    kind = finished.failure.kind if finished.failure else None
    if finished.outcome == "timed_out":
        return "GEMINI_TIMED_OUT"
    if not was_started or kind in _BEFORE_THE_MODEL:
        return "GEMINI_STREAM_ERROR"
    return "GEMINI_EXIT_ERROR" if kind in ("cut_off", "crashed") else "GEMINI_RESULT_ERROR"
