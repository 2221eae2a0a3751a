"""Show a stored session in a terminal. The entries of subagents are indented."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import IO

from rich.cells import cell_len
from rich.text import Text

from geminids.events.model import Change, Usage
from geminids.sessions.transcript import (
    PromptEntry,
    RemarkEntry,
    TextEntry,
    ThoughtEntry,
    ToolEntry,
    TranscriptEntry,
    TurnEnd,
)
from geminids.views.amounts import count, tokens
from geminids.views.sanitize import clean, one_line
from geminids.views.terminal.answer import AnswerWriter
from geminids.views.terminal.screen import Screen
from geminids.views.tools import tool_mark

__all__ = ["TranscriptView", "tool_facts", "turn_summary"]

_LEVELS = {"error": "red", "warning": "yellow"}
_FOLDED_OUTPUT_LINES = 3
_FOLDED_DIFF_LINES = 8
_INDENT = 4
_SIGNS = {"+": "green", "-": "red", "@": "cyan"}
_BREAKS = "\r\n"
# The number of characters of a line that are shown without `--full`. No terminal is wider.
_MAX_LINE_LENGTH = 4000


def turn_summary(turn: TurnEnd) -> str:
    """Format the models and the tokens of a turn in one line; empty if both are unknown."""
    used = Usage(input=turn.input, cached=turn.cached, output=turn.output, thinking=turn.thinking)
    parts = [", ".join(map(one_line, turn.models))]
    if turn.requests > 1:
        parts.append(count(turn.requests, "request"))
    parts.append(tokens(used) if turn.requests else "")
    if turn.tool:
        parts.append(f"{turn.tool:,} for API tools")
    return " · ".join(part for part in parts if part)


def tool_facts(tool: ToolEntry) -> str:
    """Format details of a tool call in one line: status, exit code, and number of changed lines."""
    parts: list[str] = [] if tool.status == "ok" else [tool.status]
    if tool.exit_code:
        parts.append(f"exit code {tool.exit_code}")
    parts += [_extent(change) for change in tool.changes]
    return " · ".join(parts)


def _extent(change: Change) -> str:
    """Format how many lines a change of a file added and removed, as in "+3 -1"."""
    rows = [row for row in (change.diff or "").splitlines() if not row.startswith(("+++", "---"))]
    added, removed = (sum(row.startswith(sign) for row in rows) for sign in "+-")
    return f"{'new, ' if change.kind == 'created' else ''}+{added} -{removed}"


class TranscriptView:
    """Writes the entries of a session to a terminal, each one as soon as `show` receives it.

    Without `full`, long outputs and diffs are shortened. The methods of this class raise
    `BrokenPipeError` if the program that reads the output has ended.
    """

    def __init__(
        self,
        file: IO[str] | None = None,
        *,
        full: bool = False,
        terminal: bool | None = None,
        width: int | None = None,
    ) -> None:
        self._screen = Screen(file or sys.stdout, terminal=terminal, width=width)
        self._full = full
        self._last: type[TranscriptEntry] | None = None
        self._folded = False

    def head(self, title: str, *facts: str) -> None:
        """Write the title, and each fact about the session on a line below it."""
        self._screen.paragraph(Text(one_line(title), "bold"))
        for fact in facts:
            self._screen.paragraph(Text(one_line(fact, 2000), "dim"))
        self._screen.flush()

    def show(self, entries: Iterable[TranscriptEntry]) -> None:
        for entry in entries:
            indent = min(entry.depth, 5) * _INDENT
            if isinstance(entry, TurnEnd) and not turn_summary(entry):
                continue
            # Write no empty line between two tools, or between two thoughts.
            if type(entry) is not self._last or not isinstance(entry, ToolEntry | ThoughtEntry):
                self._screen.gap()
            self._last = type(entry)
            self._entry(entry, indent)
            self._screen.flush()

    def foot(self, *lines: str) -> None:
        """Write the last lines, such as the command that resumes the session."""
        self._screen.gap()
        if self._folded:
            self._screen.paragraph(Text("use --full to show the complete output of tools", "dim"))
        for line in lines:
            self._screen.paragraph(Text(line, "dim", no_wrap=True))
        self._screen.flush()

    def _entry(self, entry: TranscriptEntry, indent: int) -> None:
        if isinstance(entry, PromptEntry):
            self._prompt(entry, indent)
        elif isinstance(entry, TextEntry):
            self._answer(entry.text, indent)
        elif isinstance(entry, ThoughtEntry):
            self._thought(entry, indent)
        elif isinstance(entry, ToolEntry):
            self._tool(entry, indent)
        elif isinstance(entry, RemarkEntry):
            style = _LEVELS.get(entry.level, "dim")
            self._screen.paragraph(Text(f"! {clean(entry.text).strip()}", style), indent=indent)
        elif summary := turn_summary(entry):
            self._screen.paragraph(Text(summary, "dim"), indent=indent)

    def _prompt(self, entry: PromptEntry, indent: int) -> None:
        """Show a prompt and the start of its message id, because `sessions fork --at` needs this
        id."""
        message_id = "" if entry.depth else one_line(entry.message)[:8]
        rows = clean(entry.text).strip("\n").splitlines() or [""]
        for number, row in enumerate(rows):
            lead = Text("> " if number == 0 else "  ", "bold cyan")
            self._screen.paragraph(Text.assemble(lead, (row, "bold")), indent=indent)
        kinds = [one_line(media.media_type, 60) for media in entry.media]
        if line := " · ".join([*([message_id] if message_id else []), *kinds]):
            self._screen.line(Text(f"  {line}", "dim"), indent=indent)

    def _answer(self, text: str, indent: int) -> None:
        self._screen.new_line()
        writer = AnswerWriter(self._screen, indent=indent)
        writer.write(text.strip("\n"))
        writer.end()
        self._screen.new_line()

    def _thought(self, entry: ThoughtEntry, indent: int) -> None:
        separator = ": " if entry.subject and entry.text else ""
        if self._full:
            text = f"{clean(entry.subject)}{separator}{clean(entry.text)}".strip()
            self._screen.paragraph(Text(f"∙ {text}", "dim italic"), indent=indent + 2)
            return
        text = one_line(f"{entry.subject}{separator}{entry.text}", 2000)
        self._screen.line(Text(f"∙ {text}", "dim italic"), indent=indent + 2)

    def _tool(self, entry: ToolEntry, indent: int) -> None:
        facts = tool_facts(entry)
        facts = f"  {facts}" if facts else ""
        title = Text(one_line(entry.title))
        if self._screen.width is not None:
            title.truncate(max(self._screen.width - indent - 4 - cell_len(facts), 8), overflow="ellipsis")
        mark, style = tool_mark(entry)
        self._screen.line(Text(f"{mark} ", style), title, Text(facts, "dim"), indent=indent + 2)
        diffs = [change.diff for change in entry.changes if change.diff]
        for diff in diffs:
            self._diff(_without_head(diff), indent + 6)
        if entry.error:
            self._block(entry.error, "red dim", indent + 6)
        if entry.output and (self._full or not diffs):
            self._block(entry.output, "dim", indent + 6)

    def _block(self, text: str, style: str, indent: int) -> None:
        """Show the first three lines of the output of a tool, or with `--full` all lines.

        With `--full`, all lines are in one `Text` object, because one object for each line would be
        slow.
        """
        if self._full:
            full_text = clean(text).strip("\n").expandtabs(4).replace("\n", "\n" + " " * indent)
            self._screen.paragraph(Text(full_text, style, no_wrap=True), indent=indent)
            return
        *rows, rest = f"{text.strip(_BREAKS)}\n".split("\n", _FOLDED_OUTPUT_LINES)
        for row in rows:
            self._screen.line(Text(clean(row[:_MAX_LINE_LENGTH]).expandtabs(4), style), indent=indent)
        self._fold_note(rest.count("\n"), indent)

    def _diff(self, rows: list[str], indent: int) -> None:
        for row in rows if self._full else rows[:_FOLDED_DIFF_LINES]:
            styled = Text(row, _SIGNS.get(row[:1], "dim"), no_wrap=True)
            if self._full:
                self._screen.paragraph(styled, indent=indent)
            else:
                self._screen.line(styled, indent=indent)
        self._fold_note(0 if self._full else len(rows) - _FOLDED_DIFF_LINES, indent)

    def _fold_note(self, rows: int, indent: int) -> None:
        if rows > 0:
            self._folded = True
            self._screen.line(Text(f"… {count(rows, 'more line')}", "dim italic"), indent=indent)


def _without_head(diff: str) -> list[str]:
    """Return the lines of a diff without the lines that contain the file name.

    The name is already shown above the diff.
    """
    rows = clean(diff).strip("\n").expandtabs(4).split("\n")
    return [row for row in rows if not row.startswith(("Index: ", "=====", "--- ", "+++ "))]
