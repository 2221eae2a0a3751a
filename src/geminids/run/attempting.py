"""Run one attempt after the other: choose its transport, start it, and wait before the next one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from geminids.errors import SessionError
from geminids.events.model import EndedProcess, Event, Level, Usage
from geminids.gateway.request_log import RequestLog
from geminids.gateway.route import Route
from geminids.launch.build import build_headless, build_warm
from geminids.launch.errors import Refused
from geminids.launch.prepare import prepare, too_cold
from geminids.launch.route import route_notice
from geminids.launch.scratch import Scratch
from geminids.launch.write import write
from geminids.log import get_logger
from geminids.options import Options
from geminids.run.attempts import After, Attempts
from geminids.run.claim import Claim
from geminids.run.cost import check_prices
from geminids.run.headless import HeadlessLane
from geminids.run.lease import RunLease
from geminids.run.reading import OnLine
from geminids.run.recorder import RunRecorder
from geminids.run.stopping import StopReason
from geminids.wire.endings import Ending

if TYPE_CHECKING:
    import anyio

    from geminids.run.attempts import Again
    from geminids.run.headless import HeadlessLane
    from geminids.run.warm.lane import WarmLane
    from geminids.run.warm.permission import OnPermission
    from geminids.sessions.listing import SessionInfo

__all__ = ["Attempting", "Lanes", "for_one_attempt"]

_log = get_logger("run")

# What was put around the caller's prompt is in the session; and our own words are text and nothing else.
_SAID_BEFORE: dict[str, Any] = {
    "template": None,
    "variables": {},
    "instructions": None,
    "images": (),
    "videos": (),
    "files": (),
    "literal": True,
    "session_id": None,
    "fresh": False,
}


class Attempting:
    """Begins attempts and sees them through. `lane` is that of the last one; None before the first."""

    def __init__(
        self,
        attempts: Attempts,
        lanes: Lanes,
        claim: Claim,
        recorder: RunRecorder,
    ) -> None:
        self._attempts = attempts
        self._lanes = lanes
        self._claim = claim
        self._recorder = recorder
        self._ledger = recorder.ledger
        self._fold = recorder.fold
        self._prompt = attempts.prompt
        self._stop: str | None = None
        self._between: anyio.Event | None = None
        """There while the next attempt is waited for."""
        self._until: float | None = None
        self._since = datetime.now(UTC)
        self.lane: HeadlessLane | WarmLane | None = None
        self.ended: tuple[EndedProcess, ...] = ()
        """What had to be ended in the attempts before the last."""

    def begin(self, options: Options, began: float) -> None:
        """The first attempt, of a run that began then; raises `Refused`, or OSError where the system says no."""
        self._attempts.options = options
        self._since = datetime.now(UTC)
        self._until = None if options.timeout is None else began + options.timeout
        prompt = self._prompt
        if not self._attempts.may_be_several:
            self._prompt = ""  # it may be large, and is said once
        lane = self._lanes.choose(prompt, options, self._claim.file)
        lane.start()
        self.lane = lane

    def stop(self, reason: str) -> None:
        """Ask for the end; asked again, the attempt is ended at once."""
        self._end(reason, lambda lane: lane.stop(reason))

    def leave(self, reason: str) -> None:
        """The caller is gone."""
        self._end(reason, lambda lane: lane.leave(reason))

    def _end(self, reason: str, end: Callable[[HeadlessLane | WarmLane], None]) -> None:
        # Also for a lane that is over already and does not hear it: no other one follows.
        self._stop = self._stop or reason
        if self._between is not None:
            self._between.set()
        elif self.lane is not None:
            end(self.lane)

    async def through(self) -> Ending:
        """See one attempt after the other through; the last one's ending is the run's."""
        while True:
            assert self.lane is not None
            await self.lane.drive()
            if not self._attempts.may_be_several:
                return self.lane.ending()
            after = await self._over(self.lane)
            if after.why_not is not None:
                self._tell("warning", f"no further attempt: {after.why_not}")
            if after.again is None or self._stop is not None:
                return after.ending
            ended = await self._goes_on(after.ending, after.again)
            if ended is not None:
                return ended

    async def _over(self, lane: HeadlessLane | WarmLane) -> After:
        from functools import partial

        import anyio

        ending = self._of_the_whole(lane.ending(), lane.stop_reason)
        over = partial(
            self._attempts.over,
            ending,
            answer=lane.redacted(self._fold.answer),
            session_id=lane.session_id,
            tool_calls=self._fold.tool_calls,
            given_up=lambda: self._stop,
        )
        # In a thread: megabytes are checked by a schema for seconds, and the caller's other tasks go on.
        return await anyio.to_thread.run_sync(over) if self._attempts.has_form else over()

    def _of_the_whole(self, ending: Ending, stop: StopReason | None) -> Ending:
        """A later attempt had what was left of `timeout`; the caller knows the whole."""
        whole = self._attempts.options.timeout
        if ending.outcome != "timed_out" or whole is None or self._ledger.attempt == 1:
            return ending
        if self._time_left() or stop is None or stop.kind != "timeout":
            return ending
        return msgspec.structs.replace(ending, reason=f"timed out after {whole:g} s")

    async def _goes_on(self, ending: Ending, again: Again) -> Ending | None:
        """Wait, and begin the next attempt; how the run ends where nobody wants it any more, or it cannot be."""
        import anyio

        left = self._time_left()
        if left is not None and again.delay >= left:
            told = f"it would begin in {again.delay:.1f} s, and the time-out leaves {left:.1f} s"
            self._tell("warning", f"no further attempt: {told}; {again.why.partition(';')[0]}")
            return ending
        when = f", in {again.delay:.1f} s" if again.delay else ""
        self._tell("info" if again.is_correction else "warning", again.why + when, wait_s=again.delay or None)
        self._between = anyio.Event()
        with anyio.move_on_after(again.delay):
            await self._between.wait()
        self._between = None
        if self._stop is not None:
            return Ending("interrupted", self._stop)
        try:
            return self._begin_again(again)
        except (Refused, SessionError) as error:
            text = error.failure.message if isinstance(error, Refused) else error.message
        except OSError as error:
            text = f"the CLI could not be started: {error.strerror or error}"
        except Exception as error:
            # A mistake of ours must not cost the caller what the run had come to.
            _log.error("the next attempt could not be started", error=error)
            text = f"geminids itself failed: {type(error).__name__}: {error}"
        self._tell("error", f"no further attempt: {text}")
        return ending

    def _begin_again(self, again: Again) -> Ending | None:
        before = self.lane
        assert before is not None
        usage = self.usage()
        options = self._options_for(again)
        self._ledger.attempt += 1
        try:
            lane = self._lanes.choose(again.prompt or self._prompt, options, self._claim.file)
            lane.start()
        except BaseException:
            self._ledger.attempt -= 1
            raise
        self.ended += before.ended
        self._attempts.begun(again, usage)
        self.lane = lane
        return None

    def _options_for(self, again: Again) -> Options:
        """The options of the next attempt, whose session is looked up and held."""
        left = self._time_left()
        options = msgspec.structs.replace(
            self._attempts.options, model=again.model, timeout=None if left is None else max(left, 0.001)
        )
        if again.prompt is not None:
            return self._held(msgspec.structs.replace(options, resume=again.resume, **_SAID_BEFORE))
        if options.resume is not None:
            return self._held(msgspec.structs.replace(options, fresh=False))
        if options.session_id is None:
            self._claim.release()
            return options
        return self._named(options, options.session_id)

    def _named(self, options: Options, session_id: str) -> Options:
        """The session whose id the caller has chosen: the CLI begins none twice."""
        info = _found(session_id, options)
        if info is None:
            return options
        if info.resumable is not False:
            resumed = msgspec.structs.replace(options, resume=session_id, session_id=None, fresh=False)
            return self._held(resumed)
        if info.damaged or info.started is None or info.started < self._since:
            raise SessionError(f"session {session_id} is there already, and cannot be gone on with")
        # The attempt before has begun it, and has taken back its only prompt, which is said again now.
        Path(info.file).unlink(missing_ok=True)
        return options

    def _held(self, options: Options) -> Options:
        options = self._claim.look_up(options)
        holder = self._claim.take(options.resume)
        if holder is not None:
            raise SessionError(f"session {options.resume} is in use by {holder}")
        info = _found(str(options.resume), options)
        if info is not None and info.resumable is False:
            raise SessionError(f"session {options.resume} holds nothing to go on with")
        return options

    def _time_left(self) -> float | None:
        """`timeout` is the whole run's, however many attempts it takes."""
        return None if self._until is None else max(self._until - time.monotonic(), 0.0)

    def _tell(self, level: Level, text: str, *, wait_s: float | None = None) -> None:
        _log.info("%s", text)
        # Not `attempt`: that is the CLI's own, which tries a request again.
        notice = self._recorder.ledger.notice(level, "next_attempt", self.redacted(text), wait_s=wait_s)
        self._recorder.put([notice])

    def redacted(self, text: str) -> str:
        return self.lane.redacted(text) if self.lane is not None else text

    def usage(self) -> Usage | None:
        """The tokens of the last attempt."""
        return self.lane.usage(self._fold.tokens) if self.lane is not None else None


def _found(session_id: str, options: Options) -> SessionInfo | None:
    from geminids.sessions.loading import locate  # imported late: few runs resume

    try:
        return locate(session_id, options.cwd, home=options.home, environ={**os.environ, **options.env})
    except SessionError:
        return None


def for_one_attempt(options: Options) -> Options:
    """Where we try a run again, the CLI tries each request once: its own ten attempts and ours would multiply."""
    if (options.retries or options.fallback_models) and options.max_attempts is None:
        return msgspec.structs.replace(options, max_attempts=1)
    return options


class Lanes:
    """Chooses and makes the lane of a run; `scratch` and `cwd` are what its plan has made and found."""

    def __init__(
        self,
        recorder: RunRecorder,
        on_session: Callable[[str], list[Event]],
        on_line: OnLine | None,
        on_permission: OnPermission | None,
        lease: RunLease,
        log: RequestLog,
    ) -> None:
        self._recorder = recorder
        self._on_session = on_session
        self._on_line = on_line
        self._on_permission = on_permission
        self._lease = lease
        self._log = log
        self.scratch: Scratch | None = None
        self.cwd = ""

    def choose(self, prompt: str, options: Options, resumed: Path | None) -> HeadlessLane | WarmLane:
        """A lane that is ready to start; raises `Refused` where none can work."""
        if self.scratch is not None:
            self.scratch.close()
            self.scratch = None
        check_prices(options)
        options = for_one_attempt(options)
        lane = self._warm(prompt, options) if self._on_permission is not None else None
        return self._headless(prompt, options, resumed) if lane is None else lane

    def _headless(self, prompt: str, options: Options, resumed: Path | None) -> HeadlessLane:
        context = prepare(
            options,
            transport="headless",
            prompt=prompt,
            run_id=self._recorder.run_id,
            budget=self._lease.has_budget,
        )
        plan = build_headless(context, self._lease.endpoint_for(context), resumed=resumed)
        self.scratch, self.cwd = write(plan), plan.cwd
        self._report_route(plan.route)
        if plan.session_id is not None and (told := self._on_session(plan.session_id)):
            self._recorder.put(told)
        return HeadlessLane(
            plan, options, self._recorder, self._on_line, self._on_session, lease=self._lease, log=self._log
        )

    def _report_route(self, route: Route) -> None:
        """Say once what the route means for the caller's secrets and numbers."""
        if self._recorder.ledger.attempt == 1 and (notice := route_notice(route)) is not None:
            self._recorder.notice(*notice)

    def _warm(self, prompt: str, options: Options) -> WarmLane | None:
        """The lane on which somebody is asked; None, and a notice, where this run cannot take it."""
        from geminids.run.warm.lane import WarmLane  # imported late: most runs ask nobody
        from geminids.run.warm.prompt import blocks_of, is_command

        why = too_cold(options)
        if why is None and is_command(prompt) and not options.literal:
            why = "commands are not run on the warm lane"
        if why is None:
            try:
                context = prepare(options, transport="warm", asks=True, budget=self._lease.has_budget)
            except Refused as refused:
                if not refused.headless_can:
                    raise
                why = refused.failure.message
        if why is not None:
            told = f"the headless lane is taken, on which nobody is asked: {why}"
            self._recorder.notice("warning", "lane", told)
            return None
        blocks = blocks_of(prompt, options, context.cwd, self._recorder.run_id)
        plan = build_warm(context, self._lease.endpoint_for(context))
        self.scratch, self.cwd = write(plan), plan.cwd
        self._report_route(plan.route)
        asked = self._on_permission
        return WarmLane(
            plan, prompt, blocks, options, self._recorder, self._on_session, asked, self._lease, self._log
        )
