"""Read the JSON report that the CLI prints with `--output-format json`.

The CLI prints the report to stdout. If the run failed, it prints the report to stderr, between log
lines.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import msgspec

__all__ = [
    "JsonReport",
    "ModelReport",
    "ReportError",
    "ReportTokens",
    "ToolsReport",
    "last_json",
    "read_report",
]

T = TypeVar("T", bound=msgspec.Struct)

# The JSON object starts at the beginning of a line. After an error the CLI prints it twice; one
# copy has the prefix "[ERROR] ".
_BEGIN = re.compile(r"^(?:\[ERROR\] )?(?=[\[{])", re.MULTILINE)


class ReportTokens(msgspec.Struct, frozen=True):
    """The numbers of tokens that one model used, in the JSON report of a run.

    `prompt` includes `cached`. `candidates` (the tokens of the answers) does not include
    `thoughts`.
    """

    prompt: int | None = None
    candidates: int | None = None
    total: int | None = None
    cached: int | None = None
    thoughts: int | None = None
    tool: int | None = None


class Requests(msgspec.Struct, frozen=True, rename="camel"):
    """The number of API requests to one model and their total duration, in the JSON report of a
    run.
    """

    total_requests: int | None = None
    total_errors: int | None = None
    total_latency_ms: float | None = None


class ModelReport(msgspec.Struct, frozen=True):
    """The tokens that one model used, and the API requests to this model, in the JSON report of a
    run.
    """

    tokens: ReportTokens = ReportTokens()
    api: Requests = Requests()


class ToolsReport(msgspec.Struct, frozen=True, rename="camel"):
    """The number of tool calls and their total duration, in the JSON report of a run."""

    total_calls: int | None = None
    total_success: int | None = None
    total_fail: int | None = None
    total_duration_ms: float | None = None


class ReportStats(msgspec.Struct, frozen=True):
    """The totals in the JSON report of a run. `models` maps the name of each model to its totals;
    `tools` contains the totals of all tool calls.
    """

    models: dict[str, ModelReport] = {}
    tools: ToolsReport = ToolsReport()


class ReportError(msgspec.Struct, frozen=True):
    """The error that ended the run, in its JSON report. `code` is an exit code or an HTTP
    status.
    """

    type: str | None = None
    message: str | None = None
    code: int | str | None = None


class JsonReport(msgspec.Struct, frozen=True):
    """The JSON report of a run. `response` is the text of the model's last turn; the texts of
    earlier turns are not in the report.
    """

    session_id: str | None = None
    response: str | None = None
    stats: ReportStats | None = None
    error: ReportError | None = None
    warnings: list[str] = []


def last_json(text: str) -> Any:
    """Return the last JSON object or array in `text` that starts at the beginning of a line. Return
    None if there is none.

    >>> last_json('noise\\n{"a": 1}\\nmore\\n{\\n  "b": 2\\n}')
    {'b': 2}
    """
    decoder = json.JSONDecoder()
    value, end = None, 0
    for begin in _BEGIN.finditer(text):
        if begin.end() < end:
            continue  # this line is a part of the previous value
        try:
            value, end = decoder.raw_decode(text, begin.end())
        except (ValueError, RecursionError):
            continue
    return value


def read_report(output: str) -> JsonReport | None:
    """Read the JSON report from `output`, the stdout or stderr of the CLI. The report is the last
    JSON value in `output`. Return None if there is no JSON value, or if the last one is not an
    object.

    If a value in the report has the wrong type, its field gets the default, as if the value were
    missing. The other values are still read.
    """
    value = last_json(output)
    if not isinstance(value, dict):
        return None
    error, stats = value.get("error"), value.get("stats")
    return msgspec.structs.replace(
        _read_object(value, JsonReport),
        error=_read_object(error, ReportError) if isinstance(error, dict) else None,
        stats=_read_stats(stats) if isinstance(stats, dict) else None,
    )


def _read_stats(stats: dict[str, Any]) -> ReportStats:
    models = stats.get("models")
    return ReportStats(
        {
            name: ModelReport(
                _read_object(model.get("tokens"), ReportTokens), _read_object(model.get("api"), Requests)
            )
            for name, model in (models.items() if isinstance(models, dict) else ())
            if isinstance(model, dict)
        },
        _read_object(stats.get("tools"), ToolsReport),
    )


def _read_object(value: Any, kind: type[T]) -> T:
    """Convert a JSON object to a struct of the type `kind`. A field gets its default if it is
    missing in the object, or if its value has the wrong type. If `value` is not an object, all
    fields get their defaults.
    """
    fields = {}
    for field in msgspec.structs.fields(kind) if isinstance(value, dict) else ():
        try:
            fields[field.name] = msgspec.convert(value[field.encode_name], field.type)
        except (KeyError, msgspec.ValidationError):
            continue
    return kind(**fields)
