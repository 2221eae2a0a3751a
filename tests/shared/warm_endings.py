"""Scripts that end in every way the API, the model and the CLI can bring about, for both lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ROWS", "Row"]


@dataclass(frozen=True)
class Row:
    """One script, and how a run of it ends; the last reply is for all further requests."""

    name: str
    replies: tuple[Mapping[str, Any], ...]
    outcome: str
    kind: str | None = None
    told: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the failure, alike on both lanes and all releases."""
    options: Mapping[str, Any] = field(default_factory=dict)
    closed: bool = False
    """Nothing listens at the API's address."""

    @property
    def expected(self) -> dict[str, Any]:
        """`outcome`, `kind` and fields of the failure, alike on both lanes."""
        if self.outcome != "failed":
            return {"outcome": self.outcome, "kind": None}
        return {"outcome": self.outcome, "kind": self.kind, **self.told}


def _about(name: str, **more: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/google.rpc.{name}", **more}


def _quota(name: str) -> dict[str, Any]:
    return _about("QuotaFailure", violations=[{"quotaMetric": "m", "quotaId": name}])


def _failing(status: int, error: str, **more: Any) -> tuple[dict[str, Any]]:
    return ({"status": status, "error": error, **more},)


_AS_STREAM = {"headers": {"content-type": "text/event-stream"}}
_BAD_KEY = {"details": [_about("ErrorInfo", reason="API_KEY_INVALID", domain="googleapis.com")]}
_PER_MINUTE = {
    "details": [
        _quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier"),
        _about("RetryInfo", retryDelay="1s"),
    ]
}
_PER_DAY = {"details": [_quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")]}
_LOOK = {"calls": [("list_directory", {"dir_path": "."})]}
_ONCE = {"max_attempts": 1}
_EMPTY = {"empty": True}


def _refused(status: int, kind: str, **more: Any) -> dict[str, Any]:
    told = {"http_status": status, "retryable": False, "retry_after": None}
    return {"outcome": "failed", "kind": kind, "told": told, **more}


def _blocked(*, filtered: bool = False, **more: Any) -> dict[str, Any]:
    """The gateway sees the API's finish reason on both lanes: what a filter blocked is not retryable."""
    given: dict[str, Any] = {"outcome": "failed", "kind": "blocked", "options": _ONCE}
    given["told"] = {"http_status": None, "retryable": not filtered}
    return {**given, **more}


def _failed(kind: str, status: int | None) -> dict[str, Any]:
    told = {"http_status": status, "retryable": True}
    return {"outcome": "failed", "kind": kind, "told": told, "options": _ONCE}


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
        ({"text": "first", **_LOOK}, *_failing(500, "boom")),
        **_failed("server", 500),
    ),
    Row(
        "tool, then cut",
        ({"text": "first", **_LOOK}, {"text": "half", "cut": True}),
        **_failed("network", None),
    ),
    Row("bad key", _failing(400, _NO_KEY, **_BAD_KEY), **_refused(400, "auth")),
    Row("bad key in a stream", _failing(400, _NO_KEY, **_BAD_KEY, **_AS_STREAM), **_refused(400, "auth")),
    Row("401", _failing(401, "Invalid authentication credentials."), **_refused(401, "auth")),
    Row("403", _failing(403, "Permission denied on project x."), **_refused(403, "auth")),
    Row("404", _failing(404, _NO_MODEL), **_refused(404, "model_not_found")),
    Row("404 in a stream", _failing(404, _NO_MODEL, **_AS_STREAM), **_refused(404, "model_not_found")),
    Row("400", _failing(400, "The input token count is too high."), **_refused(400, "bad_request")),
    Row("413", _failing(413, "Too large."), **_refused(413, "bad_request")),
    Row(
        "429 by the minute",
        _failing(429, "Resource exhausted", **_PER_MINUTE),
        **_failed("quota_minute", 429),
    ),
    Row("429 without a word", _failing(429, "Resource exhausted"), **_failed("quota_minute", 429)),
    Row("429 by the day", _failing(429, "Resource exhausted", **_PER_DAY), **_refused(429, "quota_day")),
    Row("500", _failing(500, "It is overloaded."), **_failed("server", 500)),
    Row("503", _failing(503, "It is overloaded."), **_failed("server", 503)),
    Row("out of reach", (), **_failed("network", None), closed=True),
    Row("cut", ({"text": "half of", "cut": True},), **_failed("network", None)),
    Row("a page", ({"garbage": "<html>hi</html>"},), **_failed("server", None)),
    Row("no JSON", ({"garbage": "data: {bad json\n\n"},), **_failed("server", None)),
    Row(
        "a page with 502",
        ({"garbage": "<html>Bad Gateway</html>", "status": 502},),
        **_failed("server", None),
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
        told={"retryable": False},
    ),
    Row("max turns", (_LOOK,), "max_turns", options={"max_turns": 2}),
    Row("max turns, just enough", (_LOOK, {"text": "done"}), "success", options={"max_turns": 2}),
)
