"""The run record of cakit: one JSON object per run, from its events or the CLI's json report."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from geminids.dialects.record.trajectory import STDERR_LINE
from geminids.events.model import Event, Finished, Started, Text, ToolStarted, Usage
from geminids.gemini.protocol.json_report import ModelReport, read_report

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
    """The fields of cakit's record of a run; unknown ones are None."""

    agent: str = "gemini"
    agent_version: str | None = None
    runtime_seconds: float | None = None
    response: str | None = None
    models_usage: dict[str, ModelTokens] = {}
    llm_calls: int | None = None
    tool_calls: int | None = None
    total_cost: float | None = None
    telemetry_log: str | None = None
    cakit_exit_code: int | None = None
    command_exit_code: int | None = None
    output_path: str | None = None
    trajectory_path: str | None = None
    raw_output: str | None = None


class Problem(msgspec.Struct, frozen=True):
    """An error in a record, and its field."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def check(record: Record, *, trajectory: bool = False) -> list[Problem]:
    """Check the record of a run that ended with exit 0. Other exit codes report a failure already.

    `trajectory`: also require the path of the trajectory file, as cakit's documentation does and
    its code does not.

    >>> [str(problem) for problem in check(Record(response="hi", llm_calls=1, tool_calls=0, command_exit_code=0))]
    ['models_usage: no model with known tokens']
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
    """Encode a record as cakit prints it: indented by two spaces, sorted keys, ASCII only."""
    return json.dumps(msgspec.to_builtins(record), indent=2, sort_keys=True).encode() + b"\n"


def decode(data: bytes | str) -> Record:
    """Decode a record of `encode` or of cakit.

    The latter has no `cached_tokens` and `thinking_tokens`.
    """
    return msgspec.json.decode(data, type=Record)


def raw_output(stdout: str, stderr: str = "") -> str:
    """Both outputs of the CLI as one text.

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
    """The record of a run with `--output-format json`, from its output; mask secrets before."""
    report = read_report(stdout, stderr)
    response = report.response if report else stdout.strip().rpartition("\n")[2].strip()
    usage = of_report(report.stats.models if report and report.stats else {})
    tools = report.stats.tools.total_calls if report and report.stats else None
    record = Record(
        agent_version=agent_version,
        runtime_seconds=runtime_seconds,
        response=response or None,
        models_usage=usage.models,
        llm_calls=usage.requests,
        tool_calls=tools,
        command_exit_code=exit_code,
        raw_output=raw_output(stdout, stderr),
    )
    cakit_exit_code = exit_code or (1 if check(record) or (report and report.error) else 0)
    return replace(record, cakit_exit_code=cakit_exit_code)


def from_events(events: Iterable[Event]) -> Record:
    """The record of a run from its events."""
    encoder = Encoder()
    for event in events:
        encoder.feed((event,))
    return encoder.record()


class Encoder:
    """Collects the events of a run. Returns its record at the end, without paths and raw output."""

    def __init__(self) -> None:
        self._started: Started | None = None
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
            # The response is the text after the last tool.
            self._text = io.StringIO(newline="")

    def record(self) -> Record:
        """The record so far; complete after `Finished`."""
        version = self._started.cli_version if self._started else None
        finished = self._finished
        if finished is None:
            response = self._text.getvalue() or None
            return Record(agent_version=version, response=response, cakit_exit_code=1)
        usd = finished.cost.usd if finished.cost is not None else None
        record = Record(
            agent_version=version,
            runtime_seconds=finished.duration_ms / 1000,
            response=self._response(finished),
            models_usage=of_models(finished.usage),
            # As the CLI's own `totalRequests`: failed requests count as well.
            llm_calls=finished.usage.requests if finished.usage is not None else None,
            tool_calls=self._tool_calls(finished),
            command_exit_code=finished.exit_code,
            total_cost=float(usd) if usd is not None else None,
        )
        return replace(record, cakit_exit_code=_exit_code(finished, record))

    def _response(self, finished: Finished) -> str | None:
        if self._started is None and finished.outcome != "success":
            return finished.reason or (finished.failure.message if finished.failure else None)
        return finished.answer or None

    def _tool_calls(self, finished: Finished) -> int | None:
        """Includes calls of subagents, as the CLI counts them.

        None if there were some and the journal was not read.
        """
        if self._started is None or (self._agents and not finished.complete):
            return None
        return self._tools


def _exit_code(finished: Finished, record: Record) -> int:
    if finished.outcome == "success":
        return 1 if check(record) else 0
    kind = finished.failure.kind if finished.failure else None
    if kind in _BAD_INPUT:
        return 2
    return 127 if kind == "cli_missing" else finished.exit_code or 1


class ModelTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one model: prompt with cached tokens, completion with thinking."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int | UnsetType = UNSET
    thinking_tokens: int | UnsetType = UNSET


class ReportUsage(msgspec.Struct, frozen=True):
    """The usage in a json report: tokens of each model, and the number of requests."""

    models: dict[str, ModelTokens]
    requests: int | None


def of_models(usage: Usage | None) -> dict[str, ModelTokens]:
    """From the usage of a run, without models that have requests with unknown tokens."""
    models = {
        model.model: _tokens(model.input, model.output, model.thinking, model.total, model.cached)
        for model in (usage.models if usage else ())
        if not model.unknown
    }
    return {name: tokens for name, tokens in models.items() if tokens}


def of_report(models: Mapping[str, ModelReport]) -> ReportUsage:
    """From the models of a json report, with the CLI's model names."""
    usage = {}
    for name, model in models.items():
        counts = model.tokens
        usage[name] = _tokens(counts.prompt, counts.candidates, counts.thoughts, counts.total, counts.cached)
    requests = [model.api.total_requests for model in models.values()]
    known = [number for number in requests if number is not None]
    total = sum(known) if requests and len(known) == len(requests) else None
    return ReportUsage({name: tokens for name, tokens in usage.items() if tokens}, total)


def _tokens(
    prompt: int | None, output: int | None, thinking: int | None, total: int | None, cached: int | None
) -> ModelTokens | None:
    if prompt is None or output is None or thinking is None:
        return None
    completion = output + thinking
    return ModelTokens(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=prompt + completion if total is None else total,
        cached_tokens=UNSET if cached is None else cached,
        thinking_tokens=thinking,
    )
