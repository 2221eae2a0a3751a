"""Show a run in a terminal while it runs: the text, the tools, a status line, and a footer."""

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
from geminids.options.flag_names import with_flags
from geminids.views.amounts import duration
from geminids.views.sanitize import one_line
from geminids.views.terminal.answer import AnswerWriter
from geminids.views.terminal.footer import RunFacts, footer
from geminids.views.terminal.screen import Screen
from geminids.views.terminal.status import Status
from geminids.views.tools import tool_mark

__all__ = ["TerminalView"]

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"
# The codes of notices about a failed request that the CLI does not retry any more.
_FAILED_REQUEST = ("api_error", "gave_up")
_OFFLINE = "offline: the answers come from a script, not from a model; the CLI and its tools are real"


class TerminalView:
    """Shows the events of a run in a terminal.

    If `live` is true, call `tick` ten times a second. Call `close` at the end. `show` and `tick`
    raise `BrokenPipeError` once if the program that reads the output has ended.
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
        self._facts = RunFacts(offline=offline, home=home)
        self._titles: dict[str, str] = {}
        self._answer: AnswerWriter | None = None
        """Writes the model's text; None if the last output was something else."""
        self._held_notices: list[Notice] = []
        """Notices about failed requests that are not shown yet.

        If the run fails next, these notices are dropped, because the footer then shows the failure.
        """

    @property
    def live(self) -> bool:
        """Whether the screen has a status line. If it has one, `tick` must be called regularly."""
        return self._screen.live

    def show(self, *events: Event) -> None:
        """Show events. The output for all of them is written in one step."""
        pieces: list[Text] = []
        for event in events:
            if type(event) is Text:
                pieces.append(event)
                continue
            self._write_text(pieces)
            self._handle(event)
        self._write_text(pieces)
        self.tick()

    def tick(self) -> None:
        """Update the status line, and write all output that was collected."""
        self._screen.status(self._spinner())
        self._screen.flush()

    def stopping(self) -> None:
        """Show "stopping" in the status line, because the run was asked to stop."""
        self._status.stop(self._clock())
        self.tick()

    def close(self) -> None:
        """Remove the status line and finish the output. Never raises."""
        if self._answer is not None:
            self._answer.end()
            self._answer = None
        self._screen.close()

    def _write_text(self, pieces: list[Text]) -> None:
        """Write pieces of the model's text in one step, because many small writes would be slow.

        This empties the list `pieces`.
        """
        if not pieces:
            return
        self._status.update(pieces[-1], self._clock())
        text = "".join(event.text for event in pieces)
        pieces.clear()
        if self._answer is None:
            text = text.lstrip("\n")
            if not text:
                return
            self._show_held_notices()
            self._screen.gap()
            self._answer = AnswerWriter(self._screen)
        self._facts.answered = True
        self._answer.write(text)

    def _handle(self, event: Event) -> None:
        self._status.update(event, self._clock())
        if isinstance(event, Notice):
            self._notice(event)
            return
        if isinstance(event, Finished) and event.outcome == "failed":
            self._held_notices.clear()
        if not isinstance(event, TokensUsed):
            self._show_held_notices()
        if isinstance(event, ToolStarted):
            self._titles[event.id] = one_line(event.title or event.name)
            self._below_text()
        elif isinstance(event, ToolFinished):
            self._tool(event)
        elif isinstance(event, Started):
            self._started(event)
        elif isinstance(event, Thought):
            self._facts.answered = True
        elif isinstance(event, Finished):
            self._finished(event)

    def _notice(self, event: Notice) -> None:
        if event.code in _FAILED_REQUEST:
            self._held_notices.append(event)
        elif event.code == "stall":
            self._remark("…", event)
        elif event.code == "next_attempt":
            self._held_notices.clear()
            self._remark("!", event)
        elif event.level in ("warning", "error") and event.code != "retry":
            self._show_held_notices()
            self._remark("!", event)

    def _remark(self, mark: str, event: Notice) -> None:
        self._below_text()
        self._screen.paragraph(Styled(f"{mark} {one_line(with_flags(event.message))}", "yellow"), indent=2)

    def _show_held_notices(self) -> None:
        notices, self._held_notices = self._held_notices, []
        for event in notices:
            self._remark("!", event)

    def _below_text(self) -> None:
        """End the model's text, if the last output was text, and write an empty line."""
        if self._answer is not None:
            self._answer.end()
            self._screen.gap()
            self._answer = None

    def _started(self, event: Started) -> None:
        if self._facts.started is not None:
            self._below_text()
            self._screen.line(Styled(f"attempt {event.attempt}", "yellow"), indent=2)
        elif self._facts.offline:
            self._screen.paragraph(Styled(_OFFLINE, "yellow"))
            self._screen.gap()
        self._facts.started = event

    def _tool(self, event: ToolFinished) -> None:
        self._facts.answered = True
        self._below_text()
        mark, style = tool_mark(event)
        title = self._titles.pop(event.id, one_line(event.name))
        details = _details(event)
        indent = 2 if event.parent is None else 6
        self._screen.line(
            Styled(f"{mark} ", style),
            self._fitting(title, indent + 2, details),
            Styled(details, "dim"),
            indent=indent,
        )
        if event.status in ("failed", "denied"):
            reason = _first_line(with_flags(event.error or "") or event.output or "")
            if reason:
                self._screen.paragraph(Styled(reason, "dim"), indent=indent + 2)

    def _finished(self, event: Finished) -> None:
        self._below_text()
        self._screen.gap()
        first, *rest = footer(event, self._facts)
        self._screen.paragraph(first)
        for line in rest:
            self._screen.paragraph(line, indent=2)

    def _spinner(self) -> Styled | None:
        now = self._clock()
        activity = self._status.activity(now)
        tail = one_line(self._answer.tail) if self._answer is not None else ""
        if not self._screen.live or (activity is None and not tail):
            return None
        frames = _FRAMES if self._screen.unicode else _ASCII_FRAMES
        frame = Styled(f"{frames[int(now * 10) % len(frames)]} ", "cyan")
        if activity is None:
            # Text arrives: show its end. The whole block is shown above when it is complete.
            return Styled.assemble(frame, (_last_part(tail, (self._screen.width or 80) - 2), "dim"))
        time_spent = f"  {duration(max(activity.seconds, 0.1) * 1000)}"
        text = self._fitting(activity.text, 2, time_spent)
        return Styled.assemble(frame, text, (time_spent, "dim"))

    def _fitting(self, title: str, before: int, after: str) -> Styled:
        """Truncate the title so that it fits in one line, with `before` columns to its left and the
        text `after` to its right."""
        styled = Styled(title)
        if self._screen.width is not None:
            styled.truncate(max(self._screen.width - before - cell_len(after), 8), overflow="ellipsis")
        return styled


def _details(event: ToolFinished) -> str:
    parts: list[str] = [] if event.status == "ok" else [event.status]
    if event.exit_code:
        parts.append(f"exit code {event.exit_code}")
    if event.duration_ms is not None and event.status != "denied":
        parts.append(duration(event.duration_ms))
    return "  " + " · ".join(parts) if parts else ""


def _last_part(text: str, width: int) -> str:
    """Return the end of the text that fits in `width` columns."""
    part = text[-width:]
    while cell_len(part) > width - (part != text):
        part = part[1:]
    return part if part == text else f"…{part}"


def _first_line(text: str) -> str:
    return next((line for row in text[:4000].splitlines() if (line := one_line(row))), "")
