"""The result of a run, with the field names of Leadmetrics and Paperclip."""

from __future__ import annotations

from typing import Literal

import msgspec

from geminids.dialects.leadmetrics.transcript import Entry
from geminids.events.encoding import encode_json

__all__ = [
    "AdapterExecutionResult",
    "AdapterUsage",
    "BillingType",
    "ErrorFamily",
    "ErrorMeta",
    "ResultJson",
    "SessionParams",
    "Stats",
]

ErrorFamily = Literal["transient_upstream", "provider_quota", "model_refusal"]
BillingType = Literal["api", "subscription", "metered_api"]


class AdapterUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Billed tokens: input with cached tokens and tool prompts, output with thinking."""

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int | None = None


class SessionParams(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the orchestrator stores to resume the session, which belongs to the folder `cwd`."""

    session_id: str
    cwd: str | None = None
    workspace_id: str | None = None
    repo_url: str | None = None
    repo_ref: str | None = None


class ErrorMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Details of an error beside its message."""

    outcome: str
    kind: str | None = None
    hint: str | None = None
    retryable: bool | None = None
    http_status: int | None = None
    problems: tuple[tuple[str, str], ...] = ()


class Stats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sums of a run, with the names of the CLI's `result` event. We add `thoughts` and `tool`.

    `unknown_requests` is the number of requests that are not in the sums, because their tokens are
    not known.
    """

    duration_ms: int
    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached: int | None = None
    thoughts: int | None = None
    tool: int | None = None
    unknown_requests: int | None = None


class ResultJson(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="result"
):
    """The `result` event, built from the ending, so that a run that printed none has one too."""

    timestamp: str
    status: Literal["success", "error"]
    stats: Stats
    error: str | None = None
    stop_reason: str | None = msgspec.field(default=None, name="stopReason")
    stderr: str | None = None


class AdapterExecutionResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a run ended.

    Paperclip's fields, and Leadmetrics' `success`, `output`, `error` and `transcript`.
    """

    success: bool
    exit_code: int | None
    signal: str | None
    timed_out: bool
    error_message: str | None
    error_code: str | None
    error_family: ErrorFamily | None = None
    retry_not_before: str | None = None
    error_meta: ErrorMeta | None = None
    usage: AdapterUsage | None = None
    usage_basis: Literal["per_run"] | None = None
    session_id: str | None = None
    session_params: SessionParams | None = None
    session_display_id: str | None = None
    provider: str = "google"
    biller: str = "google"
    model: str | None = None
    billing_type: BillingType | None = None
    cost_usd: float | None = None
    result_json: ResultJson | None = None
    summary: str | None = None
    clear_session: bool = False
    output: str = ""
    error: str | None = None
    transcript: tuple[Entry, ...] = ()

    def encode(self) -> bytes:
        """The result as one JSON object, without a newline."""
        head = encode_json(msgspec.structs.replace(self, transcript=()))
        # The transcript is the last field, and empty. Entries are encoded one by one: an input may
        # be nested too deep.
        return b"".join((head[:-2], b",".join(map(_encode_entry, self.transcript)), b"]}"))


def _encode_entry(entry: Entry) -> bytes:
    try:
        return encode_json(entry)
    except RecursionError:
        return encode_json(msgspec.structs.replace(entry, input=None))
