"""What the tests of views share: events made short, a clock that is set by hand, and a terminal to look at."""

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

_CODE = re.compile(r"\x1b(?:\[(?P<n>[0-9;]*)(?P<csi>[A-Za-z])|(?P<esc>[D78]))")


class Glass:
    """A terminal's glass: it knows the codes that the view may use, and fails at any other."""

    def __init__(self, columns: int, rows: int = 12) -> None:
        self.columns = columns
        self.height = rows
        self.rows = [[" "] * columns for _ in range(rows)]
        self.above: list[str] = []
        self.row = self.column = 0
        self.full = False
        self.saved = (0, 0)

    @property
    def text(self) -> str:
        """All that was shown, what has scrolled away included."""
        rows = [*self.above, *("".join(row).rstrip() for row in self.rows)]
        return "\n".join(rows).rstrip("\n")

    def write(self, text: str) -> None:
        at = 0
        while at < len(text):
            if text[at] == "\x1b":
                code = _CODE.match(text, at)
                assert code, f"unknown code: {text[at : at + 8]!r}"
                self._code(code)
                at = code.end()
            else:
                self._letter(text[at])
                at += 1

    def _code(self, code: re.Match[str]) -> None:
        what = code["csi"] or code["esc"]
        if what == "m":
            return
        assert not code["n"], code[0]
        if what == "J":
            self.rows[self.row][self.column :] = [" "] * (self.columns - self.column)
            for row in self.rows[self.row + 1 :]:
                row[:] = [" "] * self.columns
        elif what == "D":
            self._down()
        elif what == "7":
            self.saved = (self.row, self.column)
        elif what == "8":
            self.row, self.column = self.saved
        elif what in "AB":
            self.row = min(max(self.row + (1 if what == "B" else -1), 0), self.height - 1)
        else:
            raise AssertionError(f"unknown code: {code[0]!r}")
        self.full = False

    def _letter(self, letter: str) -> None:
        if letter == "\n":
            self._down()
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
            self._down()
            self.column, self.full = 0, False
        self.rows[self.row][self.column : self.column + cells] = [letter, *[""] * (cells - 1)]
        self.column += cells
        if self.column >= self.columns:
            self.column, self.full = self.columns - 1, True

    def _down(self) -> None:
        if self.row < self.height - 1:
            self.row += 1
            return
        self.above.append("".join(self.rows.pop(0)).rstrip())
        self.rows.append([" "] * self.columns)


class Events:
    """Events by their interesting fields alone."""

    def __init__(self) -> None:
        self.seq = -1

    def _of(self, kind: type[Any], /, **fields: Any) -> Any:
        self.seq += 1
        return kind(**{"at": 0, "seq": self.seq, "attempt": 1, "turn": 1, **fields})

    def started(self, **fields: Any) -> Any:
        given = {"run_id": "r", "session_id": "s-1", "model": "flash", "cwd": ".", "cli_version": "0.61.0"}
        return self._of(Started, **{**given, "lane": "headless", "pid": 1, **fields})

    def text(self, text: str) -> Any:
        return self._of(Text, text=text)

    def thought(self, subject: str) -> Any:
        return self._of(Thought, subject=subject, text="")

    def tool(self, title: str, id: str = "t", **fields: Any) -> Any:
        given = {"name": "run_shell_command", "kind": "execute", "input": {}, **fields}
        return self._of(ToolStarted, id=id, title=title, **given)

    def done(self, status: str = "ok", id: str = "t", **fields: Any) -> Any:
        given = {"name": "run_shell_command", "input": {}, "duration_ms": 3240, **fields}
        return self._of(ToolFinished, id=id, status=status, **given)

    def notice(self, level: str, code: str, message: str = "", **fields: Any) -> Any:
        return self._of(Notice, level=level, code=code, message=message, **fields)

    def finished(self, **fields: Any) -> Any:
        given = {
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
        return self._of(Finished, **{**given, **fields})


@dataclass
class Watched:
    """A view, and what it has written."""

    width: int
    terminal: bool
    fields: dict[str, Any] = field(default_factory=dict)
    now: float = 100.0001

    def __post_init__(self) -> None:
        self.file = io.StringIO()
        self.view = TerminalView(
            self.file, terminal=self.terminal, width=self.width, clock=lambda: self.now, **self.fields
        )

    def show(self, *events: Event) -> Watched:
        self.view.show(*events)
        return self

    def wait(self, seconds: float) -> Watched:
        """Time goes on by ticks."""
        began = self.now
        for tenth in range(1, round(seconds * 10) + 1):
            self.now = began + tenth / 10 + 1e-6
            if self.view.live:
                self.view.tick()
        return self

    @property
    def raw(self) -> str:
        return self.file.getvalue()

    @property
    def screen(self) -> str:
        glass = Glass(self.width)
        glass.write(self.raw)
        return glass.text


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Watched]:
    """Watch a run in a terminal, or in a pipe with `terminal=False`."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)

    def make(width: int = 80, *, terminal: bool = True, **fields: Any) -> Watched:
        return Watched(width, terminal, fields)

    return make
