"""The view of a run that asks for permissions, with the permission requests of a chat."""

from __future__ import annotations

from geminids.events.model import Finished
from geminids.views.terminal.chat import ChatView
from geminids.views.terminal.terminal import TerminalView

__all__ = ["AskingView"]


class AskingView(ChatView):
    """Shows a run, and its full footer: unlike in a chat, no other turn follows."""

    within = "run"

    def _finished(self, event: Finished) -> None:
        self._fold()
        TerminalView._finished(self, event)
