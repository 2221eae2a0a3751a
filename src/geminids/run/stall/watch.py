"""The stall watch: emit a notice of what a silent run waits for, at growing intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import TYPE_CHECKING

from geminids.events.model import Event, Notice
from geminids.events.stall import Stall
from geminids.log import get_logger
from geminids.options import Options
from geminids.run.recorder import RunRecorder
from geminids.run.stall.explain import EARLY, Reason, level_of, reason_of
from geminids.run.stall.snapshot import Situation, Span, StallSnapshot, key_of, needs_look
from geminids.run.stopping import Deadlines, StopReason

if TYPE_CHECKING:
    from geminids.run.stall.processes import ProcessSnapshot

__all__ = ["StallWatch"]

_log = get_logger("run")

# Seconds between two checks whether the reason changed, which cost microseconds. Processes are
# inspected only for a notice: twice, `_APART` seconds apart.
_POLL = 1.0
_APART = 1.0
_CLOSEST = 0.1
_SHORTEST = 0.02
# A time-out may use an explanation that is at most this old (seconds).
_FRESH = 3.0


class StallWatch:
    """Watches one attempt.

    `situation` returns what the transport knows now, or None while the attempt is stopped.

    Silence means no events except notices, nothing on stdout, and no byte of an answer through the
    gateway. Notices do not end it, so that an API that keeps failing counts as a stall.
    """

    def __init__(
        self,
        options: Options,
        deadlines: Deadlines,
        recorder: RunRecorder,
        put: Callable[[list[Event]], None],
        situation: Callable[[], Situation | None],
    ) -> None:
        self._after = options.stall_after
        self._deadlines = deadlines
        self._recorder = recorder
        self._put = put
        self._situation = situation
        self._last_event = self._quiet_since = time.monotonic()
        self._key: Hashable = None
        self._key_since = self._last_event
        self._notices = 0
        self._failed = False
        self._prepared: float | None = None
        self._allowed: dict[str, float] = {}
        self.stall: Stall | None = None
        """What the attempt waited for when its silence ended it."""
        self._latest: tuple[Reason, float] | None = None

    def saw(self, events: Sequence[Event]) -> None:
        """Take emitted events into account."""
        # Newest first: a batch may be long, and most events are not notices.
        if any(type(event) is not Notice for event in reversed(events)):
            self._last_event = time.monotonic()

    def explained(self, reason: StopReason) -> StopReason:
        """Return the reason of a time-out; if silence caused it, add what the run waited for."""
        if not reason.is_silence:
            return reason
        try:
            explanation = self._current_reason()
        except Exception as error:
            _log.warning("cannot explain the stall", error=error)
            return reason
        if explanation is None:
            return reason
        self.stall = explanation.stall
        return StopReason(reason.kind, f"{reason.text}; {self._recorder.redact(explanation.words)}")

    async def watch(self) -> None:
        """Watch until cancelled. An error here is reported once and does not affect the run."""
        import anyio

        self._last_event = self._quiet_since = self._key_since = time.monotonic()
        poll = _POLL if self._after is None else min(_POLL, self._after / 8)
        while True:
            try:
                wait = await self._check()
            except Exception as error:
                wait = poll
                _log.warning("cannot explain the stall", error=error)
                self._report_error(error)
            await anyio.sleep(max(min(wait, poll), _SHORTEST))

    def _report_error(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            text = self._recorder.redact(f"the stall watch failed: {type(error).__name__}: {error}")
            self._put([self._recorder.notice("debug", "stall_watch", text)])

    async def _check(self) -> float:
        """Emit a notice if one is due; return the seconds until the next check is needed."""
        now = time.monotonic()
        situation = None if self._deadlines.is_over else self._situation()
        if situation is None:
            return _POLL
        self._note(situation, now)
        due, end = self._due(), self._deadlines.silence_ends()
        apart = _APART if self._after is None else min(_APART, self._after / 2)
        if end is not None and end != self._prepared and end - now <= apart + 0.3:
            self._prepared = end
            self._latest = await self._explain(situation, max(end - now - 0.3, 0.0))
            return 0.0
        if due is None:
            return _POLL if end is None else end - now - apart - 0.2
        lead = apart if needs_look(situation) else 0.0
        if now < due - lead:
            return due - lead - now
        return await self._emit_notice(situation, due - now)

    async def _emit_notice(self, situation: Situation, seconds: float) -> float:
        key, quiet = self._key, self._quiet_since
        self._latest = await self._explain(situation, seconds)
        after = self._situation()
        if after is not None:
            self._note(after, time.monotonic())
        if after is None or self._deadlines.is_over or (key, quiet) != (self._key, self._quiet_since):
            return 0.0  # the run made progress, or waits for something else now
        self._notices += 1
        if self._latest is not None:
            reason = self._latest[0]
            words = self._recorder.redact(reason.words)
            notice = self._recorder.notice(level_of(reason.stall), "stall", words, stall=reason.stall)
            self._put([notice])
        return 0.0

    def _note(self, situation: Situation, now: float) -> None:
        """Restart the intervals if the run made progress or waits for something else."""
        key = key_of(situation)
        if key != self._key:
            self._key, self._key_since, self._notices = key, now, 0
        if situation.permission is not None:
            self._allowed[situation.permission[0].id] = time.time()
        quiet = max(self._last_event, self._deadlines.spoke_at, *_bytes_at(situation))
        if quiet > self._quiet_since:
            self._quiet_since, self._notices = quiet, 0

    def _due(self) -> float | None:
        """When the next notice is due: N s after the last progress, then 2 N, then 4 N later."""
        if self._after is None:
            return None
        return max(self._quiet_since, self._key_since) + self._after * ((2 << self._notices) - 1)

    async def _explain(self, situation: Situation, seconds: float) -> tuple[Reason, float] | None:
        """Wait so many seconds and explain the stall; inspect the processes twice if that helps."""
        import anyio

        until = time.monotonic() + seconds
        before = look = own = None
        if needs_look(situation) and situation.pid is not None:
            # In a thread: inspecting many processes takes milliseconds.
            before, _ = await anyio.to_thread.run_sync(_inspect, situation, False, abandon_on_cancel=True)
            await anyio.sleep(max(until - time.monotonic(), _CLOSEST))
            look, own = await anyio.to_thread.run_sync(_inspect, situation, True, abandon_on_cancel=True)
        else:
            await anyio.sleep(max(seconds, 0.0))
        latest = self._situation() or situation
        reason = self._reason(latest, before, look, own)
        return None if reason is None else (reason, time.monotonic())

    def _current_reason(self) -> Reason | None:
        now, latest = time.monotonic(), self._latest
        situation = self._situation()
        if latest is not None and now - latest[1] < _FRESH and (situation is None or needs_look(situation)):
            return latest[0]
        return None if situation is None else self._reason(situation, None, None, None)

    def _reason(
        self,
        situation: Situation,
        before: ProcessSnapshot | None,
        look: ProcessSnapshot | None,
        own: Collection[int] | None,
    ) -> Reason | None:
        return reason_of(
            StallSnapshot(
                situation=situation,
                span=Span(max(self._quiet_since, self._last_event), time.monotonic(), time.time()),
                clean=self._recorder.redact,
                before=before,
                look=look,
                own=own,
                allowed=self._allowed,
            )
        )


def _bytes_at(situation: Situation) -> list[float]:
    return [request.last for request in situation.requests if request.last is not None]


def _inspect(situation: Situation, closely: bool) -> tuple[ProcessSnapshot | None, Collection[int] | None]:
    """Inspect the processes; if chats share the CLI, also return this chat's own pids."""
    from geminids.run.stall.processes import inspect_processes

    assert situation.pid is not None
    since = situation.shells[0].at / 1000 - EARLY if closely and situation.shells else None
    look = inspect_processes(situation.pid, peers=closely, shell_since=since)
    if situation.own is None or not closely:
        return look, None
    try:
        return look, situation.own()
    except Exception as error:
        _log.debug("the tracked shells changed while they were read", error=error)
        return look, ()  # then no pid certainly belongs to this chat
