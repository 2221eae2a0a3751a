"""Show a run in a terminal, in which the user also answers the permission requests."""

from __future__ import annotations

from geminids.events.model import Finished
from geminids.views.terminal.chat import ChatView
from geminids.views.terminal.terminal import TerminalView

__all__ = ["AskingView"]


class AskingView(ChatView):
    """Shows a run like a turn of a chat, but with the complete footer.

    The footer is complete because no other turn follows.
    """

    within = "run"

    def _finished(self, event: Finished) -> None:
        self._fold()
        TerminalView._finished(self, event)
