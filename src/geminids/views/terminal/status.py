"""What a run is doing now and for how long: a state machine over its events, with the clock handed in."""

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

__all__ = ["Doing", "Status"]

# Text that still flows speaks for itself; after this many seconds of silence the status speaks again.
QUIET = 1.0


@dataclass(frozen=True, slots=True)
class Doing:
    """What is going on, and for how many seconds."""

    what: str
    seconds: float


class Status:
    """Sees every event; `doing` says what is going on, or None where text flows or all is over."""

    def __init__(self, now: float) -> None:
        self._what = "starting"
        self._since = now
        self._spawned = False
        self._wrote: float | None = None
        self._retry: tuple[str, float] | None = None
        self._held: tuple[str, float, float] | None = None
        self._tools: dict[str, ToolStarted] = {}
        self._began: dict[str, float] = {}
        self._stopping: float | None = None
        self._over = False

    def see(self, event: Event, now: float) -> None:
        """Take one event; pieces of text that came together may be told by their last one."""
        if isinstance(event, Notice):
            self._noticed(event, now)
            return
        if isinstance(event, TokensUsed) and event.is_http_error:
            return  # the notice before it says that the request is sent again
        self._retry = self._held = None
        if isinstance(event, Started):
            self._spawned = True
            # A warm CLI is told to be there when it has the prompt.
            self._turn_to("thinking" if event.lane == "warm" else "starting", now)
        elif isinstance(event, Text):
            self._turn_to("thinking", now)
            self._wrote = now
        elif isinstance(event, Thought):
            subject = one_line(event.subject or "")
            self._turn_to(f"thinking: {subject}" if subject else "thinking", now)
        elif isinstance(event, ToolStarted):
            self._turn_to("thinking", now)
            self._tools[event.id] = event
            self._began[event.id] = now
        elif isinstance(event, ToolFinished):
            self._tools.pop(event.id, None)
            self._began.pop(event.id, None)
            self._turn_to("thinking", now)
        elif isinstance(event, Finished):
            self._over = True
        elif self._what == "starting":
            self._turn_to("thinking", now)

    def stop(self, now: float) -> None:
        """The run was asked to end."""
        if self._stopping is None:
            self._stopping = now

    def doing(self, now: float) -> Doing | None:
        """What is going on at this moment."""
        if self._over:
            return None
        if self._stopping is not None:
            return Doing("stopping", now - self._stopping)
        if self._retry is not None:
            return Doing(self._retry[0], now - self._retry[1])
        if self._held is not None and now < self._held[2]:
            return Doing(self._held[0], now - self._held[1])
        if self._wrote is not None and now - self._wrote < QUIET:
            return None
        if self._tools:
            return self._running(now)
        return Doing(self._what, now - self._since)

    def _running(self, now: float) -> Doing:
        """The tool that is waited for: the first that was called, or what it has called in its turn."""
        parents = {tool.parent for tool in self._tools.values()}
        leaves = [tool for tool in self._tools.values() if tool.id not in parents]
        # Broken input could name tools as each other's parents.
        tool = (leaves or list(self._tools.values()))[0]
        others = f" (and {len(leaves) - 1} more)" if len(leaves) > 1 else ""
        return Doing(f"running {one_line(tool.title or tool.name)}{others}", now - self._began[tool.id])

    def _turn_to(self, what: str, now: float) -> None:
        """A thought does not set the clock back: the model has been thinking since its last word."""
        if not (what.startswith("thinking:") and self._what.startswith("thinking")):
            self._since = now
        self._what = what
        self._wrote = None

    def _noticed(self, event: Notice, now: float) -> None:
        if event.code == "stall":
            return  # our own: it changes nothing
        # The CLI has spoken, if only on stderr: it has loaded. Notices before the spawn are our own.
        if self._spawned and self._what == "starting":
            self._turn_to("thinking", now)
        if event.retry is not None:
            self._retry = (_retry_words(event.retry), now)
        elif event.code == "gave_up":
            self._retry = None
        elif event.wait_s is not None:
            # For so long and no longer: then the next attempt begins, or the model has the request.
            reason = one_line(event.message.partition(": ")[2])
            what = "waiting for the next attempt" if event.code == "next_attempt" else f"waiting: {reason}"
            self._retry, self._held = None, (what, now, now + event.wait_s)


def _retry_words(retry: Retry) -> str:
    # Where the first attempt failed, the first retry follows: the numbers are the same.
    number = "" if retry.attempt is None else f" {retry.attempt}"
    return f"retry{number} after {'no answer' if retry.http_status is None else f'HTTP {retry.http_status}'}"
