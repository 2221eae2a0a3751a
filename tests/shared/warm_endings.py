"""Scripts for all endings that the API, the model and the CLI can cause, for both transports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ROWS", "Row"]


@dataclass(frozen=True)
class Row:
    """One script, and the expected end of its run. The last reply is repeated for further
    requests."""

    name: str
    replies: tuple[Mapping[str, Any], ...]
    outcome: str
    kind: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Expected fields of the failure, the same on both transports and for all releases."""
    options: Mapping[str, Any] = field(default_factory=dict)
    closed: bool = False
    """Whether no server listens at the API's address."""

    @property
    def expected(self) -> dict[str, Any]:
        """The expected `outcome`, `kind` and other fields of the failure, the same on both
        transports."""
        if self.outcome != "failed":
            kind = None if self.outcome == "success" else self.outcome
            return {"outcome": self.outcome, "kind": kind}
        return {"outcome": self.outcome, "kind": self.kind, **self.fields}


def _error_detail(name: str, **more: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/google.rpc.{name}", **more}


def _quota_detail(name: str) -> dict[str, Any]:
    return _error_detail("QuotaFailure", violations=[{"quotaMetric": "m", "quotaId": name}])


def _error_reply(status: int, error: str, **more: Any) -> tuple[dict[str, Any]]:
    return ({"status": status, "error": error, **more},)


_AS_STREAM = {"headers": {"content-type": "text/event-stream"}}
_BAD_KEY = {"details": [_error_detail("ErrorInfo", reason="API_KEY_INVALID", domain="googleapis.com")]}
_PER_MINUTE = {
    "details": [
        _quota_detail("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
        _error_detail("RetryInfo", retryDelay="1s"),
    ]
}
_PER_DAY = {"details": [_quota_detail("GenerateRequestsPerDayPerProjectPerModel-FreeTier")]}
_LOOK = {"calls": [("list_directory", {"dir_path": "."})]}
_ONCE = {"max_attempts": 1}
_EMPTY = {"empty": True}


def _permanent_failure(status: int, kind: str, **more: Any) -> dict[str, Any]:
    fields = {"http_status": status, "retryable": False, "retry_after": None}
    return {"outcome": "failed", "kind": kind, "fields": fields, **more}


def _blocked(*, filtered: bool = False, **more: Any) -> dict[str, Any]:
    """Return the expected end of a blocked answer. An answer that a content filter blocked is not
    retryable: the gateway sees the API's finish reason on both transports."""
    expected: dict[str, Any] = {"outcome": "failed", "kind": "blocked", "options": _ONCE}
    expected["fields"] = {"http_status": None, "retryable": not filtered}
    return {**expected, **more}


def _retryable_failure(kind: str, status: int | None) -> dict[str, Any]:
    fields = {"http_status": status, "retryable": True}
    return {"outcome": "failed", "kind": kind, "fields": fields, "options": _ONCE}


_NO_KEY = "API key not valid. Please pass a valid API key."
_NO_MODEL = "models/nope is not found."

ROWS: tuple[Row, ...] = (
    Row("plain", ({"text": ["Hel", "lo"]},), "success"),
    Row("tool, then text", (_LOOK, {"text": "done"}), "success"),
    Row("tool, then nothing", (_LOOK, _EMPTY), "success", options=_ONCE),
    Row("tool, then a filter", (_LOOK, {"finish": "SAFETY", **_EMPTY}), **_blocked(filtered=True)),
    Row("tool, then thoughts alone", (_LOOK, {"thought": "hm"}), **_blocked()),
    Row(
        "tool, then 500",
        ({"text": "first", **_LOOK}, *_error_reply(500, "boom")),
        **_retryable_failure("server", 500),
    ),
    Row(
        "tool, then cut",
        ({"text": "first", **_LOOK}, {"text": "half", "cut": True}),
        **_retryable_failure("network", None),
    ),
    Row("bad key", _error_reply(400, _NO_KEY, **_BAD_KEY), **_permanent_failure(400, "auth")),
    Row(
        "bad key in a stream",
        _error_reply(400, _NO_KEY, **_BAD_KEY, **_AS_STREAM),
        **_permanent_failure(400, "auth"),
    ),
    Row("401", _error_reply(401, "Invalid authentication credentials."), **_permanent_failure(401, "auth")),
    Row("403", _error_reply(403, "Permission denied on project x."), **_permanent_failure(403, "auth")),
    Row("404", _error_reply(404, _NO_MODEL), **_permanent_failure(404, "model_not_found")),
    Row(
        "404 in a stream",
        _error_reply(404, _NO_MODEL, **_AS_STREAM),
        **_permanent_failure(404, "model_not_found"),
    ),
    Row(
        "400",
        _error_reply(400, "The input token count is too high."),
        **_permanent_failure(400, "bad_request"),
    ),
    Row("413", _error_reply(413, "Too large."), **_permanent_failure(413, "bad_request")),
    Row(
        "429 by the minute",
        _error_reply(429, "Resource exhausted", **_PER_MINUTE),
        **_retryable_failure("quota_minute", 429),
    ),
    Row(
        "429 without a word",
        _error_reply(429, "Resource exhausted"),
        **_retryable_failure("quota_minute", 429),
    ),
    Row(
        "429 by the day",
        _error_reply(429, "Resource exhausted", **_PER_DAY),
        **_permanent_failure(429, "quota_day"),
    ),
    Row("500", _error_reply(500, "It is overloaded."), **_retryable_failure("server", 500)),
    Row("503", _error_reply(503, "It is overloaded."), **_retryable_failure("server", 503)),
    Row("out of reach", (), **_retryable_failure("network", None), closed=True),
    Row("cut", ({"text": "half of", "cut": True},), **_retryable_failure("network", None)),
    Row("a page", ({"garbage": "<html>hi</html>"},), **_retryable_failure("server", None)),
    Row("no JSON", ({"garbage": "data: {bad json\n\n"},), **_retryable_failure("server", None)),
    Row(
        "a page with 502",
        ({"garbage": "<html>Bad Gateway</html>", "status": 502},),
        **_retryable_failure("server", None),
    ),
    Row("blocked prompt", ({"blocked": "SAFETY"},), **_blocked(filtered=True)),
    Row("SAFETY", ({"finish": "SAFETY", **_EMPTY},), **_blocked(filtered=True)),
    Row("SAFETY with text", ({"finish": "SAFETY", "text": "some"},), "success"),
    Row("RECITATION", ({"finish": "RECITATION", **_EMPTY},), **_blocked(filtered=True)),
    Row("OTHER", ({"finish": "OTHER", **_EMPTY},), **_blocked(filtered=True)),
    Row(
        "PROHIBITED_CONTENT",
        ({"finish": "PROHIBITED_CONTENT", **_EMPTY},),
        **_blocked(filtered=True),
    ),
    Row("MAX_TOKENS", ({"finish": "MAX_TOKENS", **_EMPTY},), **_blocked()),
    Row("MAX_TOKENS with text", ({"finish": "MAX_TOKENS", "text": "some"},), "success"),
    Row("nothing", (_EMPTY,), **_blocked()),
    Row("thoughts alone", ({"thought": "hmm"},), **_blocked()),
    Row("malformed call", ({"finish": "MALFORMED_FUNCTION_CALL", **_EMPTY},), **_blocked()),
    Row(
        "malformed call with text",
        ({"finish": "MALFORMED_FUNCTION_CALL", "text": "I call"},),
        **_blocked(),
    ),
    Row("no end", ({"finish": None, "text": "half"},), **_blocked()),
    Row(
        "loop",
        ({"calls": [("read_file", {"file_path": "nope.txt"})]},),
        "failed",
        "loop",
        fields={"retryable": False},
    ),
    Row("max turns", (_LOOK,), "max_turns", options={"max_turns": 2}),
    Row("max turns, just enough", (_LOOK, {"text": "done"}), "success", options={"max_turns": 2}),
)
