"""The report of `--output-format json`: on stdout, or after an error on stderr among log lines."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

__all__ = ["JsonReport", "ModelReport", "ReportError", "Tokens", "ToolsReport", "last_json", "read_report"]

# The CLI prints its object at the start of a line. A second copy of an error has this prefix.
_BEGIN = re.compile(r"^(?:\[ERROR\] )?(?=[\[{])", re.MULTILINE)


class Tokens(msgspec.Struct, frozen=True):
    """The tokens of one model. `prompt` includes cached tokens, `candidates` excludes thoughts."""

    prompt: int | None = None
    candidates: int | None = None
    total: int | None = None
    cached: int | None = None
    thoughts: int | None = None
    tool: int | None = None


class Requests(msgspec.Struct, frozen=True, rename="camel"):
    """The API requests of one model."""

    total_requests: int | None = None
    total_errors: int | None = None
    total_latency_ms: float | None = None


class ModelReport(msgspec.Struct, frozen=True):
    """What the run used of one model."""

    tokens: Tokens = Tokens()
    api: Requests = Requests()


class ToolsReport(msgspec.Struct, frozen=True, rename="camel"):
    """The tool calls of the run."""

    total_calls: int | None = None
    total_success: int | None = None
    total_fail: int | None = None
    total_duration_ms: float | None = None


class Stats(msgspec.Struct, frozen=True):
    """The totals of the process."""

    models: dict[str, ModelReport] = {}
    tools: ToolsReport = ToolsReport()


class ReportError(msgspec.Struct, frozen=True):
    """The error that ended the run; `code` is an exit code or an HTTP status."""

    type: str | None = None
    message: str | None = None
    code: int | str | None = None


class JsonReport(msgspec.Struct, frozen=True):
    """The whole report. `response` is the text of the last model turn only."""

    session_id: str | None = None
    response: str | None = None
    stats: Stats | None = None
    error: ReportError | None = None
    warnings: list[str] = []


def last_json(text: str) -> Any:
    """Return the last JSON value that begins a line, or None.

    >>> last_json('noise\\n{"a": 1}\\nmore\\n{\\n  "b": 2\\n}')
    {'b': 2}
    """
    decoder = json.JSONDecoder()
    value, end = None, 0
    for begin in _BEGIN.finditer(text):
        if begin.end() < end:
            continue  # inside the value that we have just read
        try:
            value, end = decoder.raw_decode(text, begin.end())
        except (ValueError, RecursionError):
            continue
    return value


def read_report(stdout: str, stderr: str = "") -> JsonReport | None:
    """Read the report from stdout, otherwise from stderr; None if neither has one."""
    for text in (stdout, stderr):
        value = last_json(text)
        if isinstance(value, dict):
            try:
                return msgspec.convert(value, JsonReport)
            except msgspec.ValidationError:
                continue
    return None
