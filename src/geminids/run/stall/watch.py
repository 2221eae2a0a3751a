"""Watch a run for silence, and emit notices that explain it, at growing intervals."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Sequence

from geminids.events.model import Event, Notice
from geminids.events.stall import Stall
from geminids.log import get_logger
from geminids.options import Options
from geminids.run.recorder import RunRecorder
from geminids.run.stall.explain import Reason, level_of, reason_of
from geminids.run.stall.snapshot import (
    ProcessSnapshot,
    Situation,
    Span,
    StallSnapshot,
    key_of,
    needs_look,
)
from geminids.run.stopping import Deadlines, StopReason

__all__ = ["StallWatch"]

_log = get_logger("run")

# `_POLL` is the time in seconds between two checks. A check takes microseconds. Processes are
# inspected only for a notice: twice, with `_APART` seconds between the two inspections.
_POLL = 1.0
_APART = 1.0
_SHORTEST = 0.02
# A time-out uses the last explanation if this explanation is less than this many seconds old.
_FRESH = 3.0


class StallWatch:
    """Watches one attempt for silence, and emits notices that explain it.

    `situation` is a function that returns what is known about the attempt, or None while the
    attempt is being stopped. `put` emits events.

    An attempt is silent while it emits only notices, writes nothing to stdout, and receives no
    answer bytes through the gateway. Notices do not end the silence. Otherwise the notices about
    failed requests would hide the silence of an attempt for which the API fails again and again.
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
        """What the attempt waited for, if it was stopped because it was silent; otherwise None."""
        self._latest: tuple[Reason, float] | None = None

    def saw(self, events: Sequence[Event]) -> None:
        """Record that events were emitted. Events other than notices end the silence."""
        # Check the newest events first: a batch may be long, and most events are not notices.
        if any(type(event) is not Notice for event in reversed(events)):
            self._last_event = time.monotonic()

    def explained(self, reason: StopReason) -> StopReason:
        """Return the reason to stop, with an explanation added if the reason is the CLI's silence.

        The explanation says what the attempt waited for. If the reason is not silence, or no
        explanation is known, `reason` is returned unchanged.
        """
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
        """Watch the attempt for silence, until cancelled.

        An error in this code is reported only once, and does not affect the run.
        """
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
            text = self._recorder.redact(
                f"the stall watch failed, so stall notices may be missing: {type(error).__name__}: {error}"
            )
            self._put([self._recorder.notice("debug", "stall_watch", text)])

    async def _check(self) -> float:
        """Emit a notice if it is time for one. Return the seconds until the next check."""
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
            return 0.0  # the run has continued, or now waits for something else
        self._notices += 1
        if self._latest is not None:
            reason = self._latest[0]
            words = self._recorder.redact(reason.words)
            notice = self._recorder.notice(level_of(reason.stall), "stall", words, stall=reason.stall)
            self._put([notice])
        return 0.0

    def _note(self, situation: Situation, now: float) -> None:
        """Compare the situation with the previous one.

        If the run has made progress since then, or now waits for something else, the intervals
        between notices start again with the shortest one.
        """
        key = key_of(situation)
        if key != self._key:
            self._key, self._key_since, self._notices = key, now, 0
        if situation.permission is not None:
            self._allowed[situation.permission[0].id] = time.time()
        quiet = max(self._last_event, self._deadlines.last_stdout_at, *_bytes_at(situation))
        if quiet > self._quiet_since:
            self._quiet_since, self._notices = quiet, 0

    def _due(self) -> float | None:
        """Return the time (monotonic) of the next notice, or None if notices are off.

        N is the value of the option `stall_after`. The first notice is due N seconds after the last
        progress, the second 2 N seconds after the first, the third 4 N seconds after the second,
        and so on.
        """
        if self._after is None:
            return None
        return max(self._quiet_since, self._key_since) + self._after * ((2 << self._notices) - 1)

    async def _explain(self, situation: Situation, seconds: float) -> tuple[Reason, float] | None:
        """Wait for `seconds`, then explain the silence.

        The processes are inspected before and after the wait, unless the run waits for permission.
        Return the explanation and its time, or None if the reason is unknown.
        """
        from geminids.run.stall.processes import inspect_twice  # imported late: it imports psutil

        before, look, own = await inspect_twice(situation, seconds)
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
