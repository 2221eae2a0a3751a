"""How a run can end: all outcomes, all kinds of failures, and the exit codes."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

__all__ = ["EXIT_CODES", "FAILURE_KINDS", "OUTCOMES", "Failure", "FailureKind", "Outcome"]

Outcome = Literal["success", "failed", "interrupted", "timed_out", "max_turns", "over_budget"]

FailureKind = Literal[
    "auth",
    "tier_retired",
    "quota_minute",
    "quota_day",
    "model_not_found",
    "bad_request",
    "server",
    "network",
    "session_not_found",
    "session_busy",
    "untrusted_folder",
    "config",
    "sandbox",
    "tool_fatal",
    "blocked",
    "loop",
    "cut_off",
    "crashed",
    "cli_missing",
    "cli_unsupported",
    "bad_prompt",
    "bad_option",
    "schema_mismatch",
    "protocol",
    "timed_out",
    "max_turns",
    "over_budget",
    "interrupted",
]

OUTCOMES: tuple[str, ...] = get_args(Outcome)
FAILURE_KINDS: tuple[str, ...] = get_args(FailureKind)

# Exit codes of `geminids run`, by outcome. If Gemini CLI is missing, the exit code is 127, as in a
# shell.
EXIT_CODES: dict[str, int] = {
    "success": 0,
    "failed": 1,
    "max_turns": 4,
    "over_budget": 4,
    "timed_out": 124,
    "interrupted": 130,
}


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a run did not succeed.

    The last four kinds have the names of their outcomes: you, or a limit that you set, ended the
    run. The other kinds belong to the outcome `failed`.

    `retryable` says whether a retry can help. `retry_after` is the number of seconds to wait before
    the retry; None if it is not known. `hint` says what to do. `stderr_tail` is the end of what the
    CLI printed to stderr.
    """

    kind: FailureKind
    message: str
    retryable: bool
    hint: str
    retry_after: float | None = None
    http_status: int | None = None
    exit_code: int | None = None
    stderr_tail: str | None = None
