"""A run as it is watched in a terminal: text as it comes, a line a tool, what goes on now, and how it ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import IO

from rich.cells import cell_len
from rich.text import Text as Styled

from geminids.events.model import (
    Event,
    Finished,
    Notice,
    Started,
    Text,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
)
from geminids.views.amounts import duration
from geminids.views.sanitize import clean, one_line
from geminids.views.terminal.footer import Seen, footer
from geminids.views.terminal.screen import Screen
from geminids.views.terminal.status import Status

__all__ = ["TerminalView"]

_MARKS = {"ok": ("✓", "green"), "failed": ("✗", "red"), "denied": ("⊘", "yellow"), "cancelled": ("◌", "dim")}
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"
# What the CLI says of a request that it gives up.
_OF_A_FAILURE = ("api_error", "gave_up")
_OFFLINE = "offline: the answers come from a script, not from a model; the CLI and its tools are real"


class TerminalView:
    """Shows events. Call `tick` ten times a second where `live` is true, and `close` at the end.

    `show` and `tick` raise `BrokenPipeError`, once, where nobody reads any more.
    """

    def __init__(
        self,
        file: IO[str] | None = None,
        *,
        offline: bool = False,
        home: str = "user",
        terminal: bool | None = None,
        width: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen = Screen(file or sys.stdout, terminal=terminal, width=width)
        self._clock = clock
        self._status = Status(clock())
        self._seen = Seen(offline=offline, home=home)
        self._titles: dict[str, str] = {}
        self._in_text = False
        self._unsaid: list[Notice] = []
        """A request failed, as the CLI says it: not shown where the failure itself is what comes next."""

    @property
    def live(self) -> bool:
        """Whether there is a line that changes, which wants ticks."""
        return self._screen.live

    def show(self, *events: Event) -> None:
        """Show events; those of one call are written at once."""
        said: list[Text] = []
        for event in events:
            if type(event) is Text:
                said.append(event)
                continue
            self._say(said)
            self._take(event)
        self._say(said)
        self.tick()

    def tick(self) -> None:
        """Time has gone on."""
        self._screen.status(self._spinner())
        self._screen.flush()

    def stopping(self) -> None:
        """The run was asked to end."""
        self._status.stop(self._clock())
        self.tick()

    def close(self) -> None:
        """Nothing more comes; never raises."""
        self._screen.close()

    def _say(self, said: list[Text]) -> None:
        """Pieces of text are joined first: a fast stream costs what its letters cost."""
        if not said:
            return
        self._status.see(said[-1], self._clock())
        text = clean("".join(event.text for event in said))
        said.clear()
        if not self._in_text:
            text = text.lstrip("\n")
            if not text:
                return
            self._say_unsaid()
            self._screen.gap()
            self._in_text = True
        self._seen.answered = True
        self._screen.text(text)

    def _take(self, event: Event) -> None:
        self._status.see(event, self._clock())
        if isinstance(event, Notice):
            self._notice(event)
            return
        if isinstance(event, Finished) and event.failure is not None:
            self._unsaid.clear()
        if not isinstance(event, TokensUsed):
            self._say_unsaid()
        if isinstance(event, ToolStarted):
            self._titles[event.id] = one_line(event.title or event.name)
            self._below_text()
        elif isinstance(event, ToolFinished):
            self._tool(event)
        elif isinstance(event, Started):
            self._started(event)
        elif isinstance(event, Thought):
            self._seen.answered = True
        elif isinstance(event, Finished):
            self._finished(event)

    def _notice(self, event: Notice) -> None:
        if event.code in _OF_A_FAILURE:
            self._unsaid.append(event)
        elif event.code == "stall":
            self._remark("…", event)
        elif event.code == "next_attempt":
            self._unsaid.clear()
            self._remark("!", event)
        elif event.level in ("warning", "error") and event.code != "retry":
            self._say_unsaid()
            self._remark("!", event)

    def _remark(self, mark: str, event: Notice) -> None:
        self._below_text()
        self._screen.paragraph(Styled(f"{mark} {one_line(event.message)}", "yellow"), indent=2)

    def _say_unsaid(self) -> None:
        unsaid, self._unsaid = self._unsaid, []
        for event in unsaid:
            self._remark("!", event)

    def _below_text(self) -> None:
        """Tools and notices stand apart from text, and together among themselves."""
        if self._in_text:
            self._screen.gap()
            self._in_text = False

    def _started(self, event: Started) -> None:
        if self._seen.started is not None:
            self._below_text()
            self._screen.line(Styled(f"attempt {event.attempt}", "yellow"), indent=2)
        elif self._seen.offline:
            self._screen.paragraph(Styled(_OFFLINE, "yellow"))
            self._screen.gap()
        self._seen.started = event

    def _tool(self, event: ToolFinished) -> None:
        self._seen.answered = True
        self._below_text()
        mark, style = _MARKS[event.status]
        title = self._titles.pop(event.id, one_line(event.name))
        facts = _facts(event)
        indent = 2 if event.parent is None else 6
        self._screen.line(
            Styled(f"{mark} ", style),
            self._fitting(title, indent + 2, facts),
            Styled(facts, "dim"),
            indent=indent,
        )
        if event.status in ("failed", "denied"):
            why = _first_line(event.error or event.output or "")
            if why:
                self._screen.paragraph(Styled(why, "dim"), indent=indent + 2)

    def _finished(self, event: Finished) -> None:
        self._below_text()
        self._screen.gap()
        first, *rest = footer(event, self._seen)
        self._screen.paragraph(first)
        for line in rest:
            self._screen.paragraph(line, indent=2)

    def _spinner(self) -> Styled | None:
        now = self._clock()
        doing = self._status.doing(now)
        if doing is None or not self._screen.live:
            return None
        frames = _FRAMES if self._screen.unicode else _ASCII_FRAMES
        frame = frames[int(now * 10) % len(frames)]
        time_spent = f"  {duration(max(doing.seconds, 0.1) * 1000)}"
        what = self._fitting(doing.what, 2, time_spent)
        return Styled.assemble((f"{frame} ", "cyan"), what, (time_spent, "dim"))

    def _fitting(self, title: str, before: int, after: str) -> Styled:
        """The title is cut, not what stands after it."""
        styled = Styled(title)
        if self._screen.width is not None:
            styled.truncate(max(self._screen.width - before - cell_len(after), 8), overflow="ellipsis")
        return styled


def _facts(event: ToolFinished) -> str:
    told: list[str] = [] if event.status == "ok" else [event.status]
    if event.exit_code:
        told.append(f"exit code {event.exit_code}")
    if event.duration_ms is not None and event.status != "denied":
        told.append(duration(event.duration_ms))
    return "  " + " · ".join(told) if told else ""


def _first_line(text: str) -> str:
    return next((line for row in text[:4000].splitlines() if (line := one_line(row))), "")
