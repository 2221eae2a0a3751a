"""The current activity of a run and its duration: a state machine over events.

The caller passes the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from geminids.events.model import (
    Event,
    Finished,
    Notice,
    Retry,
    Started,
    Text,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
)
from geminids.views.sanitize import one_line

__all__ = ["RunActivity", "Status"]

# No status while text arrives; it appears again after this many seconds without text.
QUIET = 1.0


@dataclass(frozen=True, slots=True)
class RunActivity:
    """What the run is doing, and for how many seconds."""

    text: str
    seconds: float


class Status:
    """Follows all events; `activity` is None while text arrives and after the end."""

    def __init__(self, now: float) -> None:
        self._text = "starting"
        self._since = now
        self._spawned = False
        self._wrote: float | None = None
        self._retry: tuple[str, float] | None = None
        self._held: tuple[str, float, float] | None = None
        self._tools: dict[str, ToolStarted] = {}
        self._began: dict[str, float] = {}
        self._stopping: float | None = None
        self._over = False

    def update(self, event: Event, now: float) -> None:
        """Handle an event. For pieces of text that came together, the last one is enough."""
        if isinstance(event, Notice):
            self._noticed(event, now)
            return
        if isinstance(event, TokensUsed) and event.is_http_error:
            return  # the notice before it reports the retry
        self._retry = self._held = None
        if isinstance(event, Started):
            self._spawned = True
            # A warm CLI has the prompt when `Started` comes.
            self._change_to("thinking" if event.lane == "warm" else "starting", now)
        elif isinstance(event, Text):
            self._change_to("thinking", now)
            self._wrote = now
        elif isinstance(event, Thought):
            subject = one_line(event.subject or "")
            self._change_to(f"thinking: {subject}" if subject else "thinking", now)
        elif isinstance(event, ToolStarted):
            self._change_to("thinking", now)
            self._tools[event.id] = event
            self._began[event.id] = now
        elif isinstance(event, ToolFinished):
            self._tools.pop(event.id, None)
            self._began.pop(event.id, None)
            self._change_to("thinking", now)
        elif isinstance(event, Finished):
            self._over = True
        elif self._text == "starting":
            self._change_to("thinking", now)

    def stop(self, now: float) -> None:
        """The run was asked to stop."""
        if self._stopping is None:
            self._stopping = now

    def activity(self, now: float) -> RunActivity | None:
        """The activity at this time."""
        if self._over:
            return None
        if self._stopping is not None:
            return RunActivity("stopping", now - self._stopping)
        if self._retry is not None:
            return RunActivity(self._retry[0], now - self._retry[1])
        if self._held is not None and now < self._held[2]:
            return RunActivity(self._held[0], now - self._held[1])
        if self._wrote is not None and now - self._wrote < QUIET:
            return None
        if self._tools:
            return self._running(now)
        return RunActivity(self._text, now - self._since)

    def _running(self, now: float) -> RunActivity:
        """The tool that the run waits for: the first call, or the call that it made in turn."""
        parents = {tool.parent for tool in self._tools.values()}
        leaves = [tool for tool in self._tools.values() if tool.id not in parents]
        # Broken input could make tools each other's parents.
        tool = (leaves or list(self._tools.values()))[0]
        others = f" (and {len(leaves) - 1} more)" if len(leaves) > 1 else ""
        return RunActivity(f"running {one_line(tool.title or tool.name)}{others}", now - self._began[tool.id])

    def _change_to(self, text: str, now: float) -> None:
        """Change the activity.

        A thought does not restart the clock: the model was thinking already.
        """
        if not (text.startswith("thinking:") and self._text.startswith("thinking")):
            self._since = now
        self._text = text
        self._wrote = None

    def _noticed(self, event: Notice, now: float) -> None:
        if event.code == "stall":
            return  # our own notice: the activity stays the same
        # Output of the CLI, even on stderr, means that it has loaded. Notices before the spawn are
        # our own.
        if self._spawned and self._text == "starting":
            self._change_to("thinking", now)
        if event.retry is not None:
            self._retry = (_retry_text(event.retry), now)
        elif event.code == "gave_up":
            self._retry = None
        elif event.wait_s is not None:
            # Only for this time: then the next attempt starts, or the request is sent.
            reason = one_line(event.message.partition(": ")[2])
            text = "waiting for the next attempt" if event.code == "next_attempt" else f"waiting: {reason}"
            self._retry, self._held = None, (text, now, now + event.wait_s)


def _retry_text(retry: Retry) -> str:
    # After attempt n fails, retry n follows: the numbers are the same.
    number = "" if retry.attempt is None else f" {retry.attempt}"
    return f"retry{number} after {'no answer' if retry.http_status is None else f'HTTP {retry.http_status}'}"
