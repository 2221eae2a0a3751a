"""The result of a run, with the field names of Leadmetrics and Paperclip."""

from __future__ import annotations

from typing import Literal

import msgspec

from geminids.dialects.leadmetrics.transcript import Entry
from geminids.events.cost import Basis
from geminids.events.encoding import encode_json

__all__ = [
    "AdapterExecutionResult",
    "AdapterUsage",
    "BillingType",
    "Ended",
    "ErrorFamily",
    "ErrorMeta",
    "ResultJson",
    "SessionParams",
    "Stats",
]

ErrorFamily = Literal["transient_upstream", "provider_quota", "model_refusal"]
BillingType = Literal["api", "subscription", "metered_api"]


class AdapterUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The billed tokens of a run. Input includes cached tokens, and the tokens that the API adds
    for its own tools, such as Google Search. Output includes thinking.
    """

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int | None = None


class SessionParams(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The data that the next run needs to resume the session. The orchestrator (Leadmetrics or
    Paperclip) stores this data and passes it to the next run.

    The session can be resumed only in the folder `cwd`.
    """

    session_id: str
    cwd: str | None = None
    workspace_id: str | None = None
    repo_url: str | None = None
    repo_ref: str | None = None


class ErrorMeta(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Details of an error in addition to its message."""

    outcome: str
    kind: str | None = None
    hint: str | None = None
    retryable: bool | None = None
    http_status: int | None = None
    problems: tuple[tuple[str, str], ...] = ()


class Stats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The duration and the token counts of a run, with the names of the CLI's `result` event.

    `thoughts` (thinking) and `tool` (input that the API adds for its own tools, such as Google
    Search) are additions of geminids.

    `unknown_requests` is the number of requests whose tokens are not known. The other counts do not
    include these requests.
    """

    duration_ms: int
    total_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached: int | None = None
    thoughts: int | None = None
    tool: int | None = None
    unknown_requests: int | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the run that geminids had to end. `signal` is the last signal that was sent to
    the process."""

    pid: int
    command: str
    signal: Literal["TERM", "KILL"]


class ResultJson(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="result"
):
    """An object like the CLI's `result` event. It is built from `Finished`, the last event of a
    run, because the CLI does not print a `result` in every run."""

    timestamp: str
    status: Literal["success", "error"]
    stats: Stats
    error: str | None = None
    stop_reason: str | None = msgspec.field(default=None, name="stopReason")
    stderr: str | None = None


class AdapterExecutionResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a run.

    It has all fields of Paperclip's result, and the fields `success`, `output`, `error` and
    `transcript` of Leadmetrics' result.
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
    """What the orchestrator (Leadmetrics or Paperclip) stores for the next run of this agent in
    this folder. If this is None, the next run starts a new session."""
    session_display_id: str | None = None
    provider: str = "google"
    biller: str = "google"
    model: str | None = None
    billing_type: BillingType | None = None
    cost_usd: float | None = None
    cost_basis: Basis | None = None
    """How exact `cost_usd` is. If a run ended and its cost is not known, this is `unknown`."""
    auth_mode: str | None = None
    """How the run signed in: `key`, `vertex`, `account`, `adc`, `other` or `none`. This is None if
    it is not known."""
    result_json: ResultJson | None = None
    summary: str | None = None
    clear_session: bool = False
    """Whether the orchestrator (Leadmetrics or Paperclip) must stop using the session that it has
    stored. If True, the orchestrator must store `session_params`, even if it is None, in place of
    that session."""
    ended: tuple[Ended, ...] = ()
    """The processes that were still running at the end of the run, and that geminids then ended."""
    output: str = ""
    error: str | None = None
    transcript: tuple[Entry, ...] = ()

    def encode(self) -> bytes:
        """Encode the result as one JSON object, without a newline."""
        head = encode_json(msgspec.structs.replace(self, transcript=()))
        # `head` ends with an empty transcript. Encode the entries one by one: if an input is nested
        # too deeply, only this input is left out.
        return b"".join((head[:-2], b",".join(map(_encode_entry, self.transcript)), b"]}"))


def _encode_entry(entry: Entry) -> bytes:
    try:
        return encode_json(entry)
    except RecursionError:
        return encode_json(msgspec.structs.replace(entry, input=None))
