"""The terminal view (placeholder while its builder works)."""

from __future__ import annotations

from geminids.events.model import Event, Text

__all__ = ["TerminalView"]


class TerminalView:
    def show(self, event: Event) -> None:
        if isinstance(event, Text):
            print(event.text, end="", flush=True)

    def close(self) -> None:
        print()
