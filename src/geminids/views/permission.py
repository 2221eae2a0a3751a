"""A run in which somebody is asked: shown as any other run, with the questions of a chat."""

from __future__ import annotations

from geminids.events.model import Finished
from geminids.views.terminal.chat import ChatView
from geminids.views.terminal.terminal import TerminalView

__all__ = ["AskingView"]


class AskingView(ChatView):
    """A run, and its end told in full: there is no next turn that could tell the rest."""

    within = "run"

    def _finished(self, event: Finished) -> None:
        self._fold()
        TerminalView._finished(self, event)
