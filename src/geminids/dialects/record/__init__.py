"""Build cakit's run record, a JSON object about one run, from events or from the CLI's report.

The report is the JSON that `gemini --output-format json` prints.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from geminids.dialects.record.trajectory import STDERR_LINE
from geminids.events.model import Event, Finished, Started, Text, ToolStarted, Usage
from geminids.gemini.protocol.json_report import ModelReport, ReportError, read_report

__all__ = [
    "Encoder",
    "ModelTokens",
    "Problem",
    "Record",
    "ReportUsage",
    "check",
    "decode",
    "encode",
    "from_events",
    "from_report",
    "of_models",
    "of_report",
    "raw_output",
]

_BAD_INPUT = ("bad_prompt", "bad_option")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A run record as cakit writes it (cakit runs coding agents for benchmarks). A value that is not
    known is None.

    `exit_code` is the exit code that cakit would return for this run: 0 only if the run succeeded
    and the function `check` found no problem in the record. `command_exit_code` is the exit code of
    Gemini CLI. `error` says why the run failed.
    """

    agent: str = "gemini"
    agent_version: str | None = None
    runtime_seconds: float | None = None
    response: str | None = None
    models_usage: dict[str, ModelTokens] = {}
    llm_calls: int | None = None
    tool_calls: int | None = None
    total_cost: float | None = None
    telemetry_log: str | None = None
    exit_code: int | None = None
    command_exit_code: int | None = None
    error: str | None = None
    output_path: str | None = None
    trajectory_path: str | None = None
    raw_output: str | None = None


class Problem(msgspec.Struct, frozen=True):
    """A problem with one field of a record: the name of the field, and a message."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def check(record: Record, *, trajectory: bool = True) -> list[Problem]:
    """Return one problem for each critical field that is missing or invalid. The flag `--strict`
    uses this check.

    The critical fields are `response`, `models_usage`, `llm_calls`, `tool_calls` and
    `trajectory_path`. Pass `trajectory=False` for a record without files: `trajectory_path` is then
    not checked.

    If the CLI exited with an error, the result is empty: `exit_code` already reports the failure.

    >>> record = Record(response="hi", llm_calls=1, tool_calls=0, command_exit_code=0)
    >>> [str(problem) for problem in check(record)]
    ['models_usage: no model with known tokens', 'trajectory_path: missing']
    """
    if record.command_exit_code not in (0, None):
        return []
    problems = []
    if not (record.response or "").strip():
        problems.append(Problem("response", "missing" if record.response is None else "blank"))
    if not record.models_usage:
        problems.append(Problem("models_usage", "no model with known tokens"))
    if record.llm_calls is None or record.llm_calls < 1:
        problems.append(Problem("llm_calls", _count(record.llm_calls, "1")))
    if record.tool_calls is None or record.tool_calls < 0:
        problems.append(Problem("tool_calls", _count(record.tool_calls, "0")))
    if trajectory and not record.trajectory_path:
        problems.append(Problem("trajectory_path", "missing"))
    return problems


def _count(number: int | None, least: str) -> str:
    return "not known" if number is None else f"{number}, must be at least {least}"


def encode(record: Record) -> bytes:
    """Encode a record as cakit prints it: JSON with sorted keys, in ASCII, indented by two spaces
    per level."""
    return json.dumps(msgspec.to_builtins(record), indent=2, sort_keys=True).encode() + b"\n"


def decode(data: bytes | str) -> Record:
    """Decode a record that `encode` wrote. Unknown keys are ignored. Missing keys get their default
    values."""
    return msgspec.json.decode(data, type=Record)


def raw_output(stdout: str, stderr: str = "") -> str:
    """Join the CLI's stdout and stderr to one text, with a separator line between them. If stderr
    is empty, return only stdout.

    >>> raw_output("{}", "a warning")
    '{}\\n\\n----- STDERR -----\\na warning'
    """
    return f"{stdout}\n\n{STDERR_LINE}\n{stderr}" if stderr else stdout


def from_report(
    stdout: str,
    stderr: str = "",
    *,
    exit_code: int | None,
    agent_version: str | None = None,
    runtime_seconds: float | None = None,
) -> Record:
    """Build the record of a run from what the CLI printed with `--output-format json`.

    From stdout, only the last JSON value is used. If this value contains no error, the error is
    read from stderr. `exit_code` is the exit code of the CLI; None if it is not known. The field
    `raw_output` contains all of stdout and stderr. Secrets are not masked.
    """
    report = read_report(stdout)
    failed = report if report and report.error else read_report(stderr)
    usage = of_report(report.stats.models if report and report.stats else {})
    record = Record(
        agent_version=agent_version,
        runtime_seconds=runtime_seconds,
        response=(report.response or None) if report else None,
        models_usage=usage.models,
        llm_calls=usage.requests,
        tool_calls=report.stats.tools.total_calls if report and report.stats else None,
        command_exit_code=exit_code,
        error=_message(failed.error) if failed and failed.error else None,
        raw_output=raw_output(stdout, stderr),
    )
    is_bad = record.error is not None or check(record, trajectory=False)
    return replace(record, exit_code=exit_code or (1 if is_bad else 0))


def _message(error: ReportError) -> str:
    """Return the CLI's error as one text.

    >>> _message(ReportError("AuthError", "no key"))
    'AuthError: no key'
    """
    return ": ".join(filter(None, (error.type, error.message))) or "unknown error"


def from_events(events: Iterable[Event]) -> Record:
    """Build the record of a run from its events. The fields for files and for the raw output are
    None."""
    encoder = Encoder()
    for event in events:
        encoder.feed((event,))
    return encoder.record()


class Encoder:
    """Collects the events of a run. The method `record` returns the run record. In this record, the
    fields for files and for the raw output are None."""

    def __init__(self) -> None:
        self._started: Started | None = None
        self._first_start: int | None = None
        self._finished: Finished | None = None
        self._reset()

    def _reset(self) -> None:
        self._text = io.StringIO(newline="")
        self._tools = 0
        self._agents = 0

    def feed(self, events: Sequence[Event]) -> bytes:
        add_text = self._text.write
        for event in events:
            kind = type(event)
            if self._finished is not None:
                break
            if kind is Text:
                add_text(event.text)  # type: ignore[attr-defined]
            elif isinstance(event, ToolStarted):
                self._on_tool(event)
                add_text = self._text.write
            elif isinstance(event, Started):
                self._started = event
                if self._first_start is None:
                    self._first_start = event.at
                self._reset()
                add_text = self._text.write
            elif isinstance(event, Finished):
                self._finished = event
        return b""

    def finish(self) -> bytes:
        return encode(self.record())

    def _on_tool(self, event: ToolStarted) -> None:
        self._tools += 1
        self._agents += event.kind == "agent"
        if event.parent is None:
            # The response is the text after the last tool call of the main agent.
            self._text = io.StringIO(newline="")

    def record(self) -> Record:
        """Return the record of the events so far. The record is complete after the event
        `Finished`."""
        version = self._started.cli_version if self._started else None
        finished = self._finished
        if finished is None:
            response = self._text.getvalue() or None
            return Record(
                agent_version=version,
                response=response,
                exit_code=1,
                error="the events end before the run has ended",
            )
        usd = finished.cost.usd if finished.cost is not None else None
        record = Record(
            agent_version=version,
            runtime_seconds=self._runtime(finished),
            response=finished.answer or None,
            models_usage=of_models(finished.usage),
            # Failed requests count too, as in the CLI's own `totalRequests`.
            llm_calls=finished.usage.requests if finished.usage is not None else None,
            tool_calls=self._tool_calls(finished),
            command_exit_code=finished.exit_code,
            error=_why(finished),
            total_cost=float(usd) if usd is not None else None,
        )
        return replace(record, exit_code=_exit_code(finished, record))

    def _runtime(self, finished: Finished) -> float | None:
        """Return the seconds from the first start of the CLI to the end of the run.

        Return None if the CLI was not started.
        """
        return None if self._first_start is None else max(finished.at - self._first_start, 0) / 1000

    def _tool_calls(self, finished: Finished) -> int | None:
        """Return the number of tool calls. Calls of subagents are included, as in the CLI's own
        count.

        Return None if the events contain no `Started`, or if a subagent ran and geminids could not
        read what this subagent did.
        """
        if self._started is None or (self._agents and not finished.complete):
            return None
        return self._tools


def _exit_code(finished: Finished, record: Record) -> int:
    if finished.outcome == "success":
        return 1 if check(record, trajectory=False) else 0
    kind = finished.failure.kind if finished.failure else None
    if kind in _BAD_INPUT:
        return 2
    return 127 if kind == "cli_missing" else finished.exit_code or 1


def _why(finished: Finished) -> str | None:
    """Return why the run failed; None if the run succeeded."""
    if finished.outcome == "success":
        return None
    if finished.failure is not None:
        return f"{finished.failure.kind}: {finished.failure.message}"
    return finished.reason or finished.outcome


class ModelTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of all requests to one model.

    `prompt_tokens` include `cached_tokens`. `completion_tokens` do not include `thinking_tokens`.
    `total_tokens` is the total that the API reported. In addition to `prompt_tokens` and
    `completion_tokens`, it counts `thinking_tokens` and the input tokens that the API adds for its
    own tools, such as Google Search.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int | UnsetType = UNSET
    thinking_tokens: int | UnsetType = UNSET


class ReportUsage(msgspec.Struct, frozen=True):
    """The usage in a report: the tokens of each model, and the number of all requests.

    `requests` is None if the report names no model, or if it lacks the number of requests of at
    least one model.
    """

    models: dict[str, ModelTokens]
    requests: int | None


def of_models(usage: Usage | None) -> dict[str, ModelTokens]:
    """Return the tokens of each model of a run; an empty dict if `usage` is None.

    A model is omitted if its prompt, output or total tokens are not known, or if the tokens of one
    of its requests are not known.
    """
    models = {
        model.model: _tokens(model.input, model.output, model.thinking, model.total, model.cached)
        for model in (usage.models if usage else ())
        if not model.unknown
    }
    return {name: tokens for name, tokens in models.items() if tokens}


def of_report(models: Mapping[str, ModelReport]) -> ReportUsage:
    """Return the usage in a report of the CLI. If the prompt, output or total tokens of one model
    are missing, the tokens of all models are left out, because a sum over the other models would be
    too low.
    """
    usage = {}
    for name, model in models.items():
        counts = model.tokens
        usage[name] = _tokens(counts.prompt, counts.candidates, counts.thoughts, counts.total, counts.cached)
    requests = [model.api.total_requests for model in models.values()]
    known = [number for number in requests if number is not None]
    total = sum(known) if requests and len(known) == len(requests) else None
    models_usage = {name: tokens for name, tokens in usage.items() if tokens}
    return ReportUsage(models_usage if len(models_usage) == len(usage) else {}, total)


def _tokens(
    prompt: int | None, output: int | None, thinking: int | None, total: int | None, cached: int | None
) -> ModelTokens | None:
    """Return the token counts under cakit's names. Return None if `prompt`, `output` or `total` is
    not known."""
    if prompt is None or output is None or total is None:
        return None
    return ModelTokens(
        prompt_tokens=prompt,
        completion_tokens=output,
        total_tokens=total,
        cached_tokens=UNSET if cached is None else cached,
        thinking_tokens=UNSET if thinking is None else thinking,
    )
