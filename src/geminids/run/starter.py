"""Start the attempts of one run: headless, or in a warm process.

A headless attempt starts its own CLI process. A warm process stays alive between prompts.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from geminids.errors import SessionError
from geminids.events.model import EndedProcess, Event
from geminids.gateway.request_log import RequestLog
from geminids.gateway.route import Route
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.launch.build import build_headless
from geminids.launch.prepare import prepare
from geminids.launch.route import route_notice
from geminids.launch.scratch import Scratch
from geminids.launch.write import write
from geminids.options import Options
from geminids.run.accounting.cost import check_prices
from geminids.run.accounting.lease import RunLease, attempts_per_request
from geminids.run.attempt import Attempt, AttemptFacts
from geminids.run.headless.attempt import HeadlessAttempt
from geminids.run.headless.reader import OutputCallbacks
from geminids.run.recorder import RunRecorder
from geminids.run.retry import NextAttempt
from geminids.run.session_claim import Claim, busy, find_session
from geminids.sessions.lock import Holder

__all__ = ["MakeWarm", "ResumeHeadless", "RunStarter", "WarmRun", "with_one_try_per_request"]

ResumeHeadless = Callable[[str, Options, str | None, Callable[[], bool]], Awaitable[Attempt | Ending]]
"""A function that starts a headless attempt.

Its arguments are the prompt, the options, the id of a stored session (None for a new session), and
a function that returns whether the attempt is still wanted. It returns the attempt, or an `Ending`
if another run uses the session.
"""


class WarmRun(Protocol):
    """Starts the attempts of one run in a warm process. `geminids.warm` implements it."""

    cwd: str

    def first(self, prompt: str, options: Options, resume_headless: ResumeHeadless) -> Attempt | str:
        """Start the first attempt, and return it.

        If the run cannot use a warm process, start nothing and return the reason as text.
        """

    def next(self, prompt: str, options: Options, resume_headless: ResumeHeadless) -> Attempt: ...
    def attempt_ended(self, prompt: str, facts: AttemptFacts, *, repeats: bool) -> None: ...
    async def open(self) -> None: ...
    async def close(self) -> tuple[EndedProcess, ...]: ...


MakeWarm = Callable[[RunRecorder, Claim, RunLease, RequestLog], WarmRun]


def with_one_try_per_request(options: Options) -> Options:
    """Return options with which the CLI sends each request only once, if geminids retries the run
    (see `attempts_per_request`).

    By default, the CLI tries a request up to ten times, so each retry of the run could send a
    request ten times.
    """
    attempts = attempts_per_request(options)
    return options if attempts is None else msgspec.structs.replace(options, max_attempts=attempts)


class RunStarter:
    """Starts the attempts of one run.

    It owns what the attempts share: the lock on the session, the access to the gateway and the
    private temporary files.
    """

    def __init__(
        self,
        recorder: RunRecorder,
        claim: Claim,
        lease: RunLease,
        *,
        callbacks: OutputCallbacks | None = None,
        make_warm: MakeWarm | None = None,
    ) -> None:
        """Store what the attempts share. No attempt is started yet.

        `claim` is the run's lock on its session, `lease` its access to the gateway. `make_warm`
        creates the object that starts attempts in a warm process; if it is None, all attempts are
        headless.
        """
        self.claim = claim
        self.lease = lease
        self.cwd = ""
        self.clear_session = False
        """Whether the option `fresh` made the run start a new session instead of the requested one.
        """
        self._recorder = recorder
        self._callbacks = callbacks or OutputCallbacks()
        self._make_warm = make_warm
        self._warm: WarmRun | None = None
        self._attempt: Attempt | None = None
        self._scratch: Scratch | None = None
        self._since = datetime.now(UTC)
        self._log = RequestLog(recorder.run_id, self._session_and_folder)

    def first(self, prompt: str, options: Options) -> Attempt:
        """Start the first attempt.

        It uses a warm process if `make_warm` is set and the run allows it. Otherwise it is
        headless.
        """
        self._since = datetime.now(UTC)
        check_prices(options)
        options = with_one_try_per_request(options)
        if self._make_warm is not None:
            self._attempt = self._start_warm(prompt, options, self._make_warm)
            if self._attempt is not None:
                return self._attempt
        return self._start_headless(prompt, options)

    def next(self, prompt: str, options: Options, after: NextAttempt) -> Attempt:
        """Start a further attempt, in a warm process if the first attempt used one.

        `after` says how to start it, such as which session to resume.
        """
        options = with_one_try_per_request(options)
        if self._warm is None:
            return self._start_headless(prompt, self._claim_for(options, after))
        self._attempt = self._warm.next(prompt, options, self.resume_headless)
        return self._attempt

    def claim_session(self, options: Options) -> tuple[Options, Holder | None]:
        """Find the session that the options name, and lock it.

        The options name a session to resume, the id of a new session, or no session. Return the
        options, with the full id of the session to resume, and the holder of the lock if another
        run uses the session, otherwise None.

        If the session to resume does not exist or cannot be resumed, the result depends on the
        options. If `fresh` is set, or `resume` is "latest", the returned options start a new
        session. Otherwise `Refused` is raised.
        """
        options = self.claim.look_up(options)
        if self.claim.fresh is not None:
            self._recorder.emit_notice(
                "warning", "fresh_session", f"starting a new session: {self.claim.fresh}"
            )
        self.clear_session = self.claim.fresh is not None and options.fresh
        session_id = options.resume or options.session_id
        holder = self.claim.take(session_id)
        if holder is not None and options.when_busy == "wait":
            text = f"waiting for session {session_id}, which is in use by {holder}"
            self._recorder.emit_notice("warning", "session_busy", text)
        return options, holder

    async def resume_headless(
        self, prompt: str, options: Options, session_id: str | None, is_wanted: Callable[[], bool]
    ) -> Attempt | Ending:
        """Start a headless attempt in a stored session. If `session_id` is None, use a new session.

        If another run uses the session, the option `when_busy` decides whether to wait. The wait
        ends when `is_wanted` returns False, because the attempt is no longer needed. Return the
        attempt, or an `Ending` if the session did not become free.
        """
        check_prices(options)
        options = msgspec.structs.replace(
            with_one_try_per_request(options), resume=session_id, session_id=None
        )
        until = None if options.timeout is None else time.monotonic() + options.timeout
        options, holder = self.claim_session(options)
        if holder is not None:
            if options.when_busy == "fail":
                failure = busy(str(options.resume), holder)
                return Ending("failed", failure.message, failure)
            if not await self.claim.wait(str(options.resume), is_wanted, until):
                # `WarmAttempt` replaces this ending if the attempt was stopped.
                return Ending("timed_out", f"timed out while waiting for session {options.resume}")
        return self._start_headless(prompt, options)

    def attempt_ended(self, prompt: str, facts: AttemptFacts, *, repeats: bool) -> None:
        if self._warm is not None:
            self._warm.attempt_ended(prompt, facts, repeats=repeats)

    async def open(self) -> None:
        if self._warm is not None:
            await self._warm.open()

    async def close(self) -> tuple[EndedProcess, ...]:
        return await self._warm.close() if self._warm is not None else ()

    def release(self) -> None:
        """Unlock the session and remove the private temporary files."""
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None
        self.claim.release()

    def hold(self, session_id: str) -> list[Event]:
        """Lock a new session as soon as its id is known, so that no other run can resume it.

        Return the events to emit: one notice if locking raised an error, otherwise an empty list.
        """
        try:
            self.claim.take(session_id)
        except SessionError as error:
            return [self._recorder.notice("warning", "session_busy", error.message)]
        return []

    def _start_headless(self, prompt: str, options: Options) -> HeadlessAttempt:
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None
        context = prepare(
            options,
            transport="headless",
            prompt=prompt,
            run_id=self._recorder.run_id,
            budget=self.lease.has_budget,
        )
        plan = build_headless(context, self.lease.endpoint_for(context), resumed=self.claim.file)
        self._scratch, self.cwd = write(plan), plan.cwd
        self._report_route(plan.route)
        if plan.session_id is not None and (events := self.hold(plan.session_id)):
            self._recorder.emit(events)
        attempt = HeadlessAttempt(
            plan, options, self._recorder, self.lease, self._log, self._callbacks, self.hold
        )
        attempt.start()
        self._attempt = attempt
        return attempt

    def _start_warm(self, prompt: str, options: Options, make_warm: MakeWarm) -> Attempt | None:
        """Start an attempt in a warm process, and return it.

        If the run cannot use a warm process, emit a notice and return None.
        """
        warm = make_warm(self._recorder, self.claim, self.lease, self._log)
        started = warm.first(prompt, options, self.resume_headless)
        if isinstance(started, str):
            text = (
                "the run uses the headless transport, which cannot ask for permission, "
                f"because it cannot use a warm process: {started}"
            )
            self._recorder.emit_notice("warning", "transport", text)
            return None
        self._warm, self.cwd = warm, warm.cwd
        return started

    def _report_route(self, route: Route) -> None:
        """Emit a notice about the route, if the route needs one.

        The route is the way in which requests reach the API. It needs a notice if tools of the
        agent can read the credentials, or if the token counts are inexact. Only the first attempt
        emits the notice.
        """
        if self._recorder.attempt == 1 and (notice := route_notice(route)) is not None:
            self._recorder.emit_notice(*notice)

    def _session_and_folder(self) -> tuple[str | None, str | None]:
        return self._attempt.session_id if self._attempt is not None else None, self.cwd

    # The methods below lock the session of a further headless attempt.

    def _claim_for(self, options: Options, after: NextAttempt) -> Options:
        if after.prompt is not None:
            return self._claim_stored(options)
        if options.resume is not None:
            return self._claim_stored(msgspec.structs.replace(options, fresh=False))
        if options.session_id is None:
            self.claim.release()
            return options
        return self._claim_named(options, options.session_id)

    def _claim_named(self, options: Options, session_id: str) -> Options:
        """Return the options for a further attempt in a session whose id the caller chose.

        If the session can be resumed, the returned options resume it. If the previous attempt
        created the session, but the session contains no prompt, the session's file is deleted, so
        that the CLI can create a session with this id. Raises `SessionError` if an older session
        has this id and cannot be resumed, or if the session's file is damaged.
        """
        info = find_session(session_id, options)
        if info is None:
            return options
        if info.resumable is not False:
            resumed = msgspec.structs.replace(options, resume=session_id, session_id=None, fresh=False)
            return self._claim_stored(resumed)
        if info.damaged or info.started is None or info.started < self._since:
            raise SessionError(
                f"session {session_id} already exists and cannot be resumed", hint="Use another `session_id`."
            )
        # The previous attempt created this session, and the session contains no prompt. This
        # attempt creates the session again and sends the prompt again.
        Path(info.file).unlink(missing_ok=True)
        return options

    def _claim_stored(self, options: Options) -> Options:
        options = self.claim.look_up(options)
        holder = self.claim.take(options.resume)
        if holder is not None:
            raise SessionError(
                f"session {options.resume} is in use by {holder}",
                hint="Wait until that run ends, or stop it.",
            )
        return options
