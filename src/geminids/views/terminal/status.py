"""Track what a run is doing now, and for how long, from the events of the run.

The status line of the terminal shows the result.
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
from geminids.options.flag_names import with_flags
from geminids.views.sanitize import one_line

__all__ = ["RunActivity", "Status"]

# While the model's text arrives, there is no status line. It appears after this many seconds
# without text.
_QUIET_S = 1.0


@dataclass(frozen=True, slots=True)
class RunActivity:
    """What a run is doing now (such as "thinking"), and for how many seconds."""

    text: str
    seconds: float


class Status:
    """Tracks what a run is doing, from its events.

    Each method receives the current time as `now`, in seconds.
    """

    def __init__(self, now: float) -> None:
        self._text = "starting"
        self._since = now
        self._spawned = False
        self._last_text: float | None = None
        self._retry: tuple[str, float] | None = None
        self._wait: tuple[str, float, float] | None = None
        self._tools: dict[str, ToolStarted] = {}
        self._tool_since: dict[str, float] = {}
        self._stopping: float | None = None
        self._is_finished = False

    def update(self, event: Event, now: float) -> None:
        """Update the activity after an event.

        `now` is the time in seconds. If several `Text` events arrive together, it is enough to call
        this method for the last one.
        """
        if isinstance(event, Notice):
            self._update_from_notice(event, now)
            return
        if isinstance(event, TokensUsed) and event.is_http_error:
            return  # the notice before this event has already set the retry
        self._retry = self._wait = None
        if isinstance(event, Started):
            self._spawned = True
            # A warm CLI process has already received the prompt when `Started` comes.
            self._change_to("thinking" if event.transport == "warm" else "starting", now)
        elif isinstance(event, Text):
            self._change_to("thinking", now)
            self._last_text = now
        elif isinstance(event, Thought):
            subject = one_line(event.subject or "")
            self._change_to(f"thinking: {subject}" if subject else "thinking", now)
        elif isinstance(event, ToolStarted):
            self._change_to("thinking", now)
            self._tools[event.id] = event
            self._tool_since[event.id] = now
        elif isinstance(event, ToolFinished):
            self._tools.pop(event.id, None)
            self._tool_since.pop(event.id, None)
            self._change_to("thinking", now)
        elif isinstance(event, Finished):
            self._is_finished = True
        elif self._text == "starting":
            self._change_to("thinking", now)

    def stop(self, now: float) -> None:
        """Set the activity to "stopping", because the run was asked to stop."""
        if self._stopping is None:
            self._stopping = now

    def activity(self, now: float) -> RunActivity | None:
        """Return what the run is doing at the time `now`.

        Return None while the model's text arrives, and after the run has ended.
        """
        if self._is_finished:
            return None
        if self._stopping is not None:
            return RunActivity("stopping", now - self._stopping)
        if self._retry is not None:
            return RunActivity(self._retry[0], now - self._retry[1])
        if self._wait is not None and now < self._wait[2]:
            return RunActivity(self._wait[0], now - self._wait[1])
        if self._last_text is not None and now - self._last_text < _QUIET_S:
            return None
        if self._tools:
            return self._tool_activity(now)
        return RunActivity(self._text, now - self._since)

    def _tool_activity(self, now: float) -> RunActivity:
        """Return the activity "running <tool>" for the tool that the run waits for.

        A tool that runs a subagent waits for the tools of that subagent. So if several tools are
        running, choose the first tool that does not wait for another one.
        """
        parents = {tool.parent for tool in self._tools.values()}
        leaves = [tool for tool in self._tools.values() if tool.id not in parents]
        # In damaged input, two tools can be each other's parent. `leaves` can then be empty.
        tool = (leaves or list(self._tools.values()))[0]
        others = f" (and {len(leaves) - 1} more)" if len(leaves) > 1 else ""
        return RunActivity(
            f"running {one_line(tool.title or tool.name)}{others}", now - self._tool_since[tool.id]
        )

    def _change_to(self, text: str, now: float) -> None:
        """Set the activity to `text`, which starts at the time `now`.

        A new thought does not reset the start time, because the model was already thinking.
        """
        if not (text.startswith("thinking:") and self._text.startswith("thinking")):
            self._since = now
        self._text = text
        self._last_text = None

    def _update_from_notice(self, event: Notice, now: float) -> None:
        if event.code == "stall":
            return  # a stall does not change the activity
        # A notice after the start of the process comes from the CLI's output, so the CLI has
        # loaded. Earlier notices come from geminids.
        if self._spawned and self._text == "starting":
            self._change_to("thinking", now)
        if event.retry is not None:
            self._retry = (_retry_text(event.retry), now)
        elif event.code == "gave_up":
            self._retry = None
        elif event.wait_s is not None:
            # After this time, the next attempt starts or the request is sent.
            reason = one_line(with_flags(event.wait_reason or ""))
            text = f"waiting: {reason}" if reason else "waiting for the next attempt"
            self._retry, self._wait = None, (text, now, now + event.wait_s)


def _retry_text(retry: Retry) -> str:
    # The retry after failed attempt n is retry n, so the number is the same.
    number = "" if retry.attempt is None else f" {retry.attempt}"
    return f"retry{number} after {'no answer' if retry.http_status is None else f'HTTP {retry.http_status}'}"
