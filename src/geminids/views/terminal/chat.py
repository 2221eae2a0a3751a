"""Show a turn of a chat in the terminal while it runs.

Thoughts are shortened to one line, the footer is short, and permission requests are shown. The view
of a single run (`terminal.py`) differs in these three points.
"""

from __future__ import annotations

from typing import Any

import msgspec
from rich.text import Text as Styled

from geminids.events.model import (
    Event,
    Finished,
    PermissionAsked,
    PermissionDecided,
    Text,
    Thought,
    ToolStarted,
)
from geminids.views.amounts import discarded, duration, money, tokens
from geminids.views.sanitize import one_line
from geminids.views.terminal.chat_permission import choices, question
from geminids.views.terminal.footer import amounts, footer
from geminids.views.terminal.terminal import TerminalView

__all__ = ["ChatView"]

_A_MOMENT = 1.0
_SUBJECTS = 3


class ChatView(TerminalView):
    """Shows one turn of a chat.

    `asked` contains the ids of all permission requests of the turn. `thoughts` contains all
    thoughts of the model in the turn.
    """

    within = "chat"
    """How long the answer "always" to a permission request is valid: for this "chat" or this "run".
    The word is shown in the question."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked: set[str] = set()
        self.thoughts: list[Thought] = []
        self._folded: list[Thought] = []
        self._calls: dict[str, ToolStarted] = {}
        self._since = self._clock()

    def ask(self, asked: PermissionAsked, *, whole: bool = False) -> None:
        """Show a permission request: with `whole`, all of its lines; otherwise the first 40 lines."""
        self._below_text()
        self._screen.status(None)
        self._screen.gap()
        for line in question(asked, whole=whole):
            self._screen.paragraph(line, indent=2)
        self._screen.flush()

    def offer(self, asked: PermissionAsked, *, more: bool, reason: bool = False) -> None:
        """Show the keys for the answer to a permission request.

        `more` adds the key that shows all lines of the request. `reason` adds the key that denies
        the request with a reason. The cursor stays at the end of the question.
        """
        for line in choices(asked, more=more, reason=reason, within=self.within):
            self._screen.paragraph(line, indent=2)
        self._screen.text("  allow? ")
        self._screen.flush()

    def answered(self, answer: str) -> None:
        """Write the user's answer after the question."""
        self._screen.text(f"{answer}\n")
        self._screen.flush()

    def end_question(self) -> None:
        """End a permission request: write an empty line below it."""
        self._screen.gap()
        self._screen.flush()

    def _write_text(self, pieces: list[Text]) -> None:
        if pieces:
            self._fold()
        super()._write_text(pieces)
        self._since = self._clock()

    def _handle(self, event: Event) -> None:
        if isinstance(event, Thought):
            self._status.update(event, self._clock())
            self._folded.append(event)
            self.thoughts.append(event)
            return
        if isinstance(event, ToolStarted):
            self._calls[event.id] = event
            self._fold()
        elif isinstance(event, PermissionAsked):
            self.asked.add(event.id)
        elif isinstance(event, PermissionDecided) and event.decision != "deny" and event.id in self._calls:
            # The tool starts only now, so its duration does not include the wait for the user.
            self._status.update(self._calls[event.id], self._clock())
        super()._handle(event)
        self._since = self._clock()

    def _fold(self) -> None:
        """Show one line that summarizes the thoughts since the last call of this method."""
        if not self._folded:
            return
        spent = self._clock() - self._since
        summary = "thought for a moment" if spent < _A_MOMENT else f"thought for {duration(spent * 1000)}"
        subjects = [subject for thought in self._folded if (subject := one_line(thought.subject or ""))]
        self._folded.clear()
        if subjects:
            before = "… " if len(subjects) > _SUBJECTS else ""
            summary = f"{summary}: {before}{' · '.join(subjects[-_SUBJECTS:])}"
        self._below_text()
        self._screen.line(Styled(summary, "dim"), indent=2)

    def _finished(self, event: Finished) -> None:
        self._fold()
        self._below_text()
        self._screen.gap()
        first, *rest = _ending(
            event, list(footer(msgspec.structs.replace(event, session_id=None), self._facts))
        )
        self._screen.paragraph(first)
        for line in rest:
            self._screen.paragraph(line, indent=2)


def _ending(event: Finished, whole: list[Styled]) -> list[Styled]:
    if event.outcome == "interrupted":
        first = Styled.assemble(("■ turn cancelled", "bold yellow"), f" after {duration(event.duration_ms)}")
        # Do not show the reason: the user has pressed Ctrl-C and knows it.
        return [first, *(line for line in whole[1:] if line.plain.startswith("ended ")), *amounts(event)]
    if event.outcome != "success":
        return whole
    models = [one_line(used.model) for used in event.usage.models] if event.usage else []
    parts = [duration(event.duration_ms), ", ".join(models), tokens(event.usage) if event.usage else ""]
    parts.append(one_line(money(event.cost)) if event.cost is not None else "")
    ended = [line for line in whole[1:] if line.plain.startswith("ended ")]
    unused = [Styled(line, "dim") for line in (discarded(event.discarded),) if line]
    return [Styled(" · ".join(filter(None, parts)), "dim"), *ended, *unused]
