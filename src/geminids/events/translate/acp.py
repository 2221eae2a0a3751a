"""Translate the updates of an ACP session into events, and find the turn that each update belongs
to. ACP is the JSON-RPC protocol in which the warm CLI reports what it does.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from geminids.events.model import Change, Event, Text, Thought, ToolFinished, ToolStarted
from geminids.events.numbering import EventNumbers
from geminids.events.translate.stream_json import WhyNot
from geminids.gemini.protocol import tool_results as tools
from geminids.gemini.protocol.acp.messages import AcpToolCall, Unknown, Update
from geminids.redact import Redactor, TextRedactor

__all__ = ["AcpTranslator", "Progress", "Results", "tool_name", "unified"]

_THOUGHT = re.compile(r"\*\*(.*?)\*\*\n(.*)", re.DOTALL)
# Two forms of the ids that the CLI gives to tool calls: the tool name twice, or once with a
# timestamp.
_TWICE = re.compile(r"(?P<name>.+)__(?P=name)_\d+_\d+\Z", re.DOTALL)
_TIMED = re.compile(r"(.+?)[-_]\d{12,}[-_]\w+\Z", re.DOTALL)


def tool_name(call_id: str) -> str:
    """Return the name of the tool, extracted from the id of a tool call. ACP contains the name only
    in this id, which the CLI makes from the name and other parts.

    >>> tool_name("read_file__read_file_1794822567391_0"), tool_name("glob__call-7"), tool_name("glob_1794822567391_0")
    ('read_file', 'glob', 'glob')
    """
    twice = _TWICE.match(call_id)
    if twice:
        return twice["name"]
    name, separator, _ = call_id.partition("__")
    if separator and tools.kind_of(name) == "other":
        # An MCP server may have tools such as `issue__read` and `issue__delete`. Only the part
        # after the last `__` is the model's call id.
        name = call_id.rpartition("__")[0]
    if name and separator:
        return name
    timed = _TIMED.match(call_id)
    return timed[1] if timed else call_id


_NEW_CONTENT = ("agent_message_chunk", "agent_thought_chunk", "tool_call")


class AcpTranslator:
    """Translates the ACP updates of one prompt into events. It also stores facts that decide the
    outcome of the prompt, such as `thinking_only`.

    `why_not` is a function that returns why a tool call is forbidden; None if the call is allowed.
    `on_unrecorded` is called with the id of each tool call for which the journal (the session file
    of the CLI) will contain no result (`ToolRecord`).
    """

    def __init__(
        self,
        numbers: EventNumbers,
        redactor: Redactor,
        session_id: str,
        cwd: str,
        why_not: WhyNot | None = None,
        on_unrecorded: Callable[[str], None] | None = None,
    ) -> None:
        self._numbers = numbers
        self._redactor = redactor
        self._why_not = why_not
        self._on_unrecorded = on_unrecorded
        self._cwd = cwd
        self._text = TextRedactor(redactor) if redactor else None
        self._open: dict[str, ToolStarted] = {}
        self._seen: set[str] = set()
        self._allowed_at: dict[str, int] = {}
        self._progress = Progress(numbers)
        self.session_id: str | None = session_id
        self.tools_ended = 0
        self.agent_turns: dict[str, int] = {}
        self.thinking_only = False
        """Whether the model has sent thoughts, but no text, since the last tool call."""

    @property
    def tools_running(self) -> bool:
        return bool(self._open)

    @property
    def running(self) -> tuple[ToolStarted, ...]:
        """The tool calls that are running, in the order of their start."""
        return tuple(self._open.values())

    def is_open(self, call_id: str) -> bool:
        return call_id in self._open

    def translate(self, update: Update | Unknown) -> list[Event]:
        """Return the events of one ACP update. This method never raises, even for an invalid
        update.
        """
        out: list[Event] = []
        if isinstance(update, Update) and (update.kind in _NEW_CONTENT or self._is_late(update.tool)):
            self._catch_up(out, tool=update.tool.tool_call_id if update.tool else None)
        if isinstance(update, Unknown):
            level = "info" if update.why == "unknown_update" else "warning"
            line = self._redactor.text(update.line)
            out.append(self._numbers.notice(level, update.why, line))  # type: ignore[arg-type]
        elif update.kind == "agent_message_chunk":
            self._add_text(update.text or "", out)
        elif update.kind == "agent_thought_chunk":
            self._add_thought(update.text or "", out)
        elif update.tool is not None:
            self._flush(out)
            if update.kind == "tool_call":
                self._begin(update.tool, out)
            if update.tool.status in ("completed", "failed"):
                self._end(update.tool, out)
        return out

    def _is_late(self, call: AcpToolCall | None) -> bool:
        """Return whether no update about the tool call `call` has arrived before the current one.
        Return False if `call` is None.

        For some calls, the CLI sends no update at the start of the call, but only at its end. Then
        the first update is late.
        """
        return call is not None and call.tool_call_id not in self._seen

    def begin_asked(self, call: AcpToolCall) -> tuple[ToolStarted, list[Event]]:
        """Record the start of a tool call for which the agent asks permission. Return two values:
        the `ToolStarted` event of the call, and all events to emit, which include this
        event.
        """
        out: list[Event] = []
        self._catch_up(out, tool=call.tool_call_id)
        self._flush(out)
        self._begin(call, out)
        started = self._open.get(call.tool_call_id)
        assert started is not None
        return started, out

    def allow(self, call_id: str) -> None:
        """Record that a tool call was allowed. Its duration is measured from now on."""
        self._allowed_at[call_id] = _now()

    def deny(self, call_id: str, why: str) -> list[Event]:
        """End a tool call that was denied, and return the events to emit. `why` is the reason. The
        CLI sends no more updates about this call.
        """
        started = self._open.pop(call_id, None)
        if started is None:
            return []
        self._report_unrecorded(call_id)
        return [self._finished(started, status="denied", error=why)]

    def add_answer(self, text: str, thoughts: int) -> None:
        """Add a complete answer of the model that was read from the journal (the session file of
        the CLI). `thoughts` is the number of thoughts in the answer. The answers are used to find
        the end of each turn.
        """
        self._progress.answers.append((text.strip(), thoughts))

    def add_results(self, results: Results) -> None:
        """Add the results of all tool calls of one turn. They were read from the journal (the
        session file of the CLI).
        """
        self._progress.results.append(results)

    def _catch_up(self, out: list[Event], *, tool: str | None) -> None:
        """If the current update belongs to a later turn, end all turns before that turn. Append to
        `out` the events of tool calls in the ended turns for which the CLI sent no update.

        `tool` is the id of the update's tool call; None if the update is text or a thought.
        """
        while self._progress.is_over(tool):
            self._add_unreported(self._progress.current_results, out)
            self._progress.next_turn()

    def _add_unreported(self, results: Results, out: list[Event]) -> None:
        """Append to `out` the events of the tool calls for which the CLI sent no update: calls of
        unknown and forbidden tools. `results` are the results of all tool calls of a turn, from the
        journal.
        """
        for call_id, name, response in results:
            if call_id in self._seen:
                continue
            self._flush(out)
            error = response.get("error")
            message = self._redactor.text(error) if isinstance(error, str) else None
            started = self._started(call_id, name, AcpToolCall(tool_call_id=call_id))
            self._report_unrecorded(call_id)
            why = self._why_not(name, {}) if self._why_not is not None else None
            fields: dict[str, Any] = {"status": "failed" if message is not None else "ok", "error": message}
            if why is not None:
                fields = {"status": "denied", "error": tools.denial_text(why, message)}
            out += [started, self._finished(started, **fields)]

    def _report_unrecorded(self, call_id: str) -> None:
        """Call `on_unrecorded`, because the journal (the session file of the CLI) will contain no
        `ToolRecord` of this tool call. Without this report, the run would wait for the record
        before it ends the call.
        """
        if self._on_unrecorded is not None:
            self._on_unrecorded(call_id)

    def finish(self) -> list[Event]:
        """Return the last events of the prompt. They contain:

        - the text that was held back because it could be the start of a secret;
        - the tool calls that are only in the journal (the session file of the CLI);
        - the end of each tool call that is still running, with the status `cancelled`.
        """
        out: list[Event] = []
        self._flush(out)
        while self._progress.has_results:
            self._add_unreported(self._progress.current_results, out)
            self._progress.next_turn()
        for call_id in self._open:
            self._report_unrecorded(call_id)
        out += [self._finished(started, status="cancelled") for started in self._open.values()]
        self._open.clear()
        return out

    def _add_text(self, text: str, out: list[Event]) -> None:
        self._progress.add_text(text)
        self.thinking_only = False
        shown = text if self._text is None else self._text.feed(text)
        if not shown:
            return
        out.append(Text(**self._common(), text=shown))

    def _add_thought(self, text: str, out: list[Event]) -> None:
        self._flush(out)
        self._progress.add_thought()
        self.thinking_only = True
        parts = _THOUGHT.match(text)
        subject, rest = (parts[1], parts[2]) if parts else ("", text)
        clean = self._redactor.text
        out.append(Thought(**self._common(), subject=clean(subject) or None, text=clean(rest)))

    def _begin(self, call: AcpToolCall, out: list[Event]) -> None:
        if call.tool_call_id in self._open:
            return
        started = self._started(call.tool_call_id, tool_name(call.tool_call_id), call)
        self._open[call.tool_call_id] = started
        if started.kind == "agent":
            self.agent_turns[started.id] = started.turn
        out.append(started)

    def _started(self, call_id: str, name: str, call: AcpToolCall) -> ToolStarted:
        self._seen.add(call_id)
        self.thinking_only = False
        clean = self._redactor.text
        paths = tuple(clean(path) for path in call.paths)
        return ToolStarted(
            **self._common(),
            id=call_id,
            name=name,
            kind=tools.kind_of(name),
            title=clean(tools.acp_title(name, call.title, call.paths, self._cwd)),
            input=None,
            paths=paths,
        )

    def _end(self, call: AcpToolCall, out: list[Event]) -> None:
        if call.status == "failed" and call.tool_call_id not in self._seen:
            # The arguments were invalid, or a rule denied the call. For such a call, the CLI sends
            # only the end; the journal contains the arguments.
            self._begin(call, out)
        started = self._open.pop(call.tool_call_id, None)
        if started is None:
            text = f"the CLI sent a result for a tool call that it never started ({call.tool_call_id!r})"
            out.append(self._numbers.notice("warning", "protocol", self._redactor.text(text)))
            return
        content = call.text
        output = None if content is None else self._redactor.text(content)
        if call.status == "completed":
            status = tools.status_of("success", None, None, output)
            reason = output if status == "denied" else None
            fields = {"status": status, "output": output, "error": reason, "changes": self._changes(call)}
            out.append(self._finished(started, **fields))
            return
        status = tools.status_of("error", None, output, None)
        why = self._why_not(started.name, {}) if self._why_not and status == "denied" else None
        error = tools.denial_text(why, output) if why else output
        out.append(self._finished(started, status=status, error=error))

    def _changes(self, call: AcpToolCall) -> tuple[Change, ...]:
        clean = self._redactor.text
        return tuple(
            Change(clean(path), "edited" if old else "created", clean(unified(path, old, new)))
            for path, old, new in call.diffs
        )

    def _finished(self, started: ToolStarted, **fields: Any) -> ToolFinished:
        self._progress.tool_ended = True
        self.tools_ended += 1
        at = _now()
        return ToolFinished(
            at=at,
            seq=self._numbers.next(),
            attempt=started.attempt,
            turn=started.turn,
            id=started.id,
            name=started.name,
            input=None,
            duration_ms=max(0, at - self._allowed_at.pop(started.id, started.at)),
            parent=started.parent,
            **fields,
        )

    def _flush(self, out: list[Event]) -> None:
        held = self._text.flush() if self._text is not None else ""
        if held:
            out.append(Text(**self._common(), text=held))

    def _common(self) -> dict[str, Any]:
        numbers = self._numbers
        return {"at": _now(), "seq": numbers.next(), "attempt": numbers.attempt, "turn": numbers.turn}


def unified(path: str, old: str | None, new: str) -> str:
    """Return a change of one file as a unified diff. `old` is the content before the change (None
    for a new file), and `new` is the content after it.
    """
    before, after = (old or "").splitlines(keepends=True), new.splitlines(keepends=True)
    lines = difflib.unified_diff(before, after, "before" if old else "/dev/null", path)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def _now() -> int:
    return int(time.time() * 1000)


# For each tool call of one turn: its id, the tool name, and the response that the model received.
Results = Sequence[tuple[str, str, Mapping[str, Any]]]


class Progress:
    """Finds the turn that an ACP update belongs to, with the help of the journal (the session file
    of the CLI).

    The updates alone do not show where a turn ends: tools run one after the other, and calls of
    unknown tools have no update. But the journal shows where: before the model starts a new answer,
    the CLI writes the previous answer and the results of its tool calls to the journal. An update
    may arrive later than the journal entries of its turn. So the texts and ids in the updates are
    compared with those in the journal.
    """

    def __init__(self, numbers: EventNumbers) -> None:
        self._numbers = numbers
        self._pieces: list[str] = []
        self._thoughts = 0
        self.tool_ended = False
        self.answers: list[tuple[str, int]] = []
        self.results: list[Results] = []

    @property
    def _index(self) -> int:
        return self._numbers.turn - 1

    @property
    def has_results(self) -> bool:
        return self._index < len(self.results)

    @property
    def current_results(self) -> Results:
        return self.results[self._index] if self.has_results else ()

    def is_over(self, tool: str | None) -> bool:
        """Return whether the current turn has ended, because the current update belongs to a later
        turn. `tool` is the id of the update's tool call; None if the update is text or a thought.
        """
        if tool is not None:
            return self.has_results and tool not in [call_id for call_id, _, _ in self.current_results]
        if self.tool_ended:
            return True
        if not self.has_results or self._index >= len(self.answers):
            return False
        text, thoughts = self.answers[self._index]
        return self._thoughts >= thoughts and "".join(self._pieces).strip() == text

    def next_turn(self) -> None:
        self._numbers.turn += 1
        self._pieces, self._thoughts, self.tool_ended = [], 0, False

    def add_text(self, text: str) -> None:
        self._pieces.append(text)

    def add_thought(self) -> None:
        self._thoughts += 1
