"""Shared by the tests of views: short event constructors, a manual clock, an emulated terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from rich.cells import cell_len

from geminids.events.model import (
    Event,
    Finished,
    Notice,
    Started,
    Text,
    Thought,
    ToolFinished,
    ToolStarted,
)
from geminids.views.terminal.terminal import TerminalView

_CODE = re.compile(r"\x1b\[(?P<n>[0-9;]*)(?P<csi>[A-Za-z])")


class TerminalScreen:
    """An emulated terminal.

    It knows the control codes that the view may use and fails at any other.
    """

    def __init__(self, columns: int, rows: int = 12) -> None:
        self.columns = columns
        self.height = rows
        self.rows = [[" "] * columns for _ in range(rows)]
        self.scrolled: list[str] = []
        self.row = self.column = 0
        self.full = False

    @property
    def text(self) -> str:
        """Everything that was shown, including the rows that have scrolled away."""
        rows = [*self.scrolled, *("".join(row).rstrip() for row in self.rows)]
        return "\n".join(rows).rstrip("\n")

    def write(self, text: str) -> None:
        position = 0
        while position < len(text):
            if text[position] == "\x1b":
                code = _CODE.match(text, position)
                assert code, f"unknown code: {text[position : position + 8]!r}"
                self._run_code(code)
                position = code.end()
            else:
                self._put(text[position])
                position += 1

    def _run_code(self, code: re.Match[str]) -> None:
        command = code["csi"]
        if command == "m":
            return
        assert not code["n"], code[0]
        if command == "J":
            self.rows[self.row][self.column :] = [" "] * (self.columns - self.column)
            for row in self.rows[self.row + 1 :]:
                row[:] = [" "] * self.columns
        else:
            raise AssertionError(f"unknown code: {code[0]!r}")
        self.full = False

    def _put(self, letter: str) -> None:
        if letter == "\n":
            self._move_down()
            self.column, self.full = 0, False
        elif letter == "\r":
            self.column, self.full = 0, False
        elif letter == "\t":
            self.column = min((self.column // 8 + 1) * 8, self.columns - 1)
        else:
            assert letter.isprintable(), f"a control character: {letter!r}"
            self._print(letter, cell_len(letter))

    def _print(self, letter: str, cells: int) -> None:
        if self.full or self.column + cells > self.columns:
            self._move_down()
            self.column, self.full = 0, False
        self.rows[self.row][self.column : self.column + cells] = [letter, *[""] * (cells - 1)]
        self.column += cells
        if self.column >= self.columns:
            self.column, self.full = self.columns - 1, True

    def _move_down(self) -> None:
        if self.row < self.height - 1:
            self.row += 1
            return
        self.scrolled.append("".join(self.rows.pop(0)).rstrip())
        self.rows.append([" "] * self.columns)


class Events:
    """Builds events from their interesting fields; the other fields have defaults."""

    def __init__(self) -> None:
        self.seq = -1

    def _make(self, kind: type[Any], /, **fields: Any) -> Any:
        self.seq += 1
        return kind(**{"at": 0, "seq": self.seq, "attempt": 1, "turn": 1, **fields})

    def started(self, **fields: Any) -> Any:
        defaults = {"run_id": "r", "session_id": "s-1", "model": "flash", "cwd": ".", "cli_version": "0.61.0"}
        return self._make(Started, **{**defaults, "transport": "headless", "pid": 1, **fields})

    def text(self, text: str) -> Any:
        return self._make(Text, text=text)

    def thought(self, subject: str) -> Any:
        return self._make(Thought, subject=subject, text="")

    def tool(self, title: str, id: str = "t", **fields: Any) -> Any:
        defaults = {"name": "run_shell_command", "kind": "execute", "input": {}, **fields}
        return self._make(ToolStarted, id=id, title=title, **defaults)

    def done(self, status: str = "ok", id: str = "t", **fields: Any) -> Any:
        defaults = {"name": "run_shell_command", "input": {}, "duration_ms": 3240, **fields}
        return self._make(ToolFinished, id=id, status=status, **defaults)

    def notice(self, level: str, code: str, message: str = "", **fields: Any) -> Any:
        return self._make(Notice, level=level, code=code, message=message, **fields)

    def finished(self, **fields: Any) -> Any:
        defaults = {
            "run_id": "r",
            "outcome": "success",
            "failure": None,
            "reason": None,
            "text": "",
            "answer": "",
            "session_id": "s-1",
            "clear_session": False,
            "usage": None,
            "attempts": 1,
            "exit_code": 0,
            "duration_ms": 3400,
            "ended": (),
            "complete": False,
        }
        return self._make(Finished, **{**defaults, **fields})


@dataclass
class WatchedView:
    """A view whose output is collected."""

    width: int
    terminal: bool
    fields: dict[str, Any] = field(default_factory=dict)
    now: float = 100.0001

    def __post_init__(self) -> None:
        self.file = io.StringIO()
        self.view = TerminalView(
            self.file, terminal=self.terminal, width=self.width, clock=lambda: self.now, **self.fields
        )

    def show(self, *events: Event) -> WatchedView:
        self.view.show(*events)
        return self

    def wait(self, seconds: float) -> WatchedView:
        """Advance the clock in ticks of 0.1 s."""
        start = self.now
        for tenth in range(1, round(seconds * 10) + 1):
            self.now = start + tenth / 10 + 1e-6
            if self.view.live:
                self.view.tick()
        return self

    @property
    def raw(self) -> str:
        return self.file.getvalue()

    @property
    def screen(self) -> str:
        terminal_screen = TerminalScreen(self.width)
        terminal_screen.write(self.raw)
        return terminal_screen.text


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def watch_view(monkeypatch: pytest.MonkeyPatch) -> Callable[..., WatchedView]:
    """A function that makes a watched view of a terminal, or of a pipe with `terminal=False`."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)

    def make(width: int = 80, *, terminal: bool = True, **fields: Any) -> WatchedView:
        return WatchedView(width, terminal, fields)

    return make
