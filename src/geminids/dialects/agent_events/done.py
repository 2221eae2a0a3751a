"""Build SubLang's `done` event for the end of a run and, if the run failed, the `error` event
before it."""

from __future__ import annotations

from geminids.dialects.agent_events.model import Done, Error, Metadata
from geminids.dialects.agent_events.usage import AgentUsage
from geminids.events.model import Finished

__all__ = ["STATUSES", "done_of"]

# `timed_out` is an error, not `interrupted`: a time limit stopped the run, not a person.
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
    """Return the `error` event and the `done` event of a run, each as a payload with its metadata.

    The `error` event is None if the run does not end with an error. `was_started` is True if the
    CLI was started; the code of the error depends on it. `resume` is the id of the session that the
    run had to resume; None for a new session. If the run was interrupted before the CLI reported a
    session, `done` contains this id as its resume token.
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
        (failure.message if failure else None)
        or finished.reason
        or f"the run ended with the outcome {finished.outcome}"
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
