"""A run as callers hold it: `async with open_run(…) as run: async for event in run: …`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from geminids.errors import GeminidsError, SessionError
from geminids.events.model import Event, Level
from geminids.gateway.request_log import RequestLog
from geminids.launch.errors import Refused
from geminids.launch.prepare import look_ahead
from geminids.log import get_logger
from geminids.options import Options
from geminids.run.attempting import Attempting, Lanes
from geminids.run.attempts import Attempts
from geminids.run.claim import Claim, busy
from geminids.run.lease import RunLease
from geminids.run.reading import OnLine
from geminids.run.recorder import EventStream, RunRecorder, finished_of
from geminids.run.result import Result, cannot_lock, our_fault, spawn_failed
from geminids.run.stopping import see_through
from geminids.wire.endings import Ending

if TYPE_CHECKING:
    import anyio
    from anyio.abc import TaskGroup

    from geminids.gateway.purse import Purse
    from geminids.run.wanted import Wanted
    from geminids.run.warm.permission import OnPermission

__all__ = ["Run"]

_log = get_logger("run")

_BY_CALLER = "interrupted by the caller"


class Run(EventStream):
    """One run. Iterate it for its events; `result` is there afterwards, also when cancelled."""

    def __init__(
        self,
        prompt: str,
        options: Options,
        *,
        on_line: OnLine | None = None,
        on_permission: OnPermission | None = None,
        notices: Sequence[tuple[Level, str, str]] = (),
        budgets: Sequence[Purse] = (),
        wanted: Wanted | None = None,
    ) -> None:
        self._recorder = recorder = RunRecorder()
        super().__init__(recorder.outbox)
        self.id = recorder.run_id
        self.options = options
        self._claim = Claim(self.id)
        self._waits = False
        self._stop_waiting: str | None = None
        self._began = time.monotonic()
        self._launched = False
        self._result: Result | None = None
        self._done: anyio.Event | None = None
        self._tasks: TaskGroup | None = None
        self._lease = RunLease(options, budgets=budgets)
        log = RequestLog(self.id, self._whereabouts, free=options.offline or options.replay is not None)
        if wanted is None and options.schema is not None:
            from geminids.run.wanted import wanted_of

            wanted = wanted_of(options.schema)
        self._attempts = Attempts(prompt, options, wanted)
        self._lanes = Lanes(recorder, self._on_session, on_line, on_permission, self._lease, log)
        self._tries = Attempting(self._attempts, self._lanes, self._claim, recorder)
        for notice in notices:
            recorder.notice(*notice)

    def launch(self) -> None:
        """Spawn the CLI now, before an event loop runs; entering the block does it otherwise."""
        if self._launched:
            return
        self._launched = True
        self._began = time.monotonic()
        try:
            self.options = self._claim.look_up(self.options)
            if self._claim.fresh is not None:
                told = f"a new session is begun: {self._claim.fresh}"
                self._recorder.notice("warning", "fresh_session", told)
            holder = self._claim.take(self._session)
            if holder is None:
                self._spawn()
            elif self.options.when_busy == "fail":
                failure = busy(str(self._session), holder)
                self._finish(Ending("failed", failure.message, failure))
            else:
                self._waits = True
                told = f"waiting for session {self._session}, in use by {holder}"
                self._recorder.notice("warning", "session_busy", told)
        except SessionError as error:
            self._finish(cannot_lock(error))
        except Refused as refused:
            self._finish(Ending("failed", refused.failure.message, refused.failure))
        except Exception as error:
            self._finish(our_fault(error, self._tries.redacted))

    @property
    def _session(self) -> str | None:
        """The session that the caller has named, to go on with it or to begin it."""
        return self.options.resume or self.options.session_id

    def _spawn(self) -> None:
        try:
            try:
                self._tries.begin(self.options, self._began)
            except OSError as error:
                self._finish(spawn_failed(error, self._lanes.cwd))
            else:
                self._lease.begin()
        except Refused as refused:
            self._finish(Ending("failed", refused.failure.message, refused.failure))
        except Exception as error:
            self._finish(our_fault(error, self._tries.redacted))

    def _on_session(self, session_id: str) -> list[Event]:
        """A new session has its id: nobody else shall resume it while this run goes on."""
        try:
            self._claim.take(session_id)
        except SessionError as error:
            return [self._recorder.ledger.notice("warning", "session_busy", error.message)]
        return []

    @property
    def pid(self) -> int | None:
        """The CLI's pid, or None where nothing was spawned."""
        return self._tries.lane.pid if self._tries.lane else None

    @property
    def mark(self) -> str | None:
        """What every process of this run carries in its environment."""
        return str(self._tries.lane.mark) if self._tries.lane else None

    @property
    def result(self) -> Result:
        """How the run ended; raises `GeminidsError` while it goes on."""
        if self._result is None:
            raise GeminidsError(
                "the run is not over yet", hint="Read its events to the end, or leave its block."
            )
        return self._result

    def stop(self, reason: str = _BY_CALLER) -> None:
        """Ask the run to end; asked again, it is ended at once. The events say when it has."""
        if self._tries.lane is not None:
            self._tries.stop(reason)
        elif self._waits:
            self._stop_waiting = self._stop_waiting or reason
        elif not self._launched:
            self._launched = True
            self._finish(Ending("interrupted", reason))

    async def __aenter__(self) -> Run:
        import anyio

        if not self._launched:
            # In a thread: an unknown CLI is asked for its version. Nothing of the run is spawned there, so that a
            # caller who is cancelled meanwhile leaves nothing behind.
            await anyio.to_thread.run_sync(look_ahead, self.options)
            self.launch()
        self._done = anyio.Event()
        if self._tries.lane is None and not self._waits:
            self._done.set()
            return self
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        tasks.start_soon(self._drive)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks is None:
            return
        assert self._done is not None
        if self._tries.lane is not None:
            self._tries.leave(_BY_CALLER)
        else:
            self.stop()
        try:
            # A caller in a hurry waits no grace, but is not let go before all is ended either.
            await see_through(self._done, self.stop)
        finally:
            # The block's own error is not handed to the task group, which would wrap it.
            await self._tasks.__aexit__(None, None, None)

    async def _drive(self) -> None:
        """See the lane through, whatever becomes of the consumer: leaving the block asks it to stop."""
        import anyio

        assert self._done is not None
        with anyio.CancelScope(shield=True):
            if self._waits:
                await self._wait_for_session()
            if self._tries.lane is None:
                self._done.set()
                return
            try:
                ending = await self._tries.through()
            except Exception as error:
                ending = our_fault(error, self._tries.redacted)
            except BaseException:
                # An event loop that is taken down: all was killed at once, and the run still says how it ended.
                self._finish(self._tries.lane.ending())
                self._done.set()
                raise
            try:
                self._finish(ending)
            finally:
                self._done.set()
                self._outbox.close()

    async def _wait_for_session(self) -> None:
        """Wait until the session is free, then spawn; the caller's patience and `timeout` hold here too."""
        timeout = self.options.timeout
        until = None if timeout is None else self._began + timeout
        try:
            free = await self._claim.wait(str(self._session), lambda: self._stop_waiting is None, until)
        except Exception as error:
            self._finish(our_fault(error, self._tries.redacted))
            return
        finally:
            self._waits = False
        if free:
            self._spawn()
        elif self._stop_waiting is not None:
            self._finish(Ending("interrupted", self._stop_waiting))
        else:
            self._finish(Ending("timed_out", f"timed out after {timeout:g} s of waiting for the session"))

    def _whereabouts(self) -> tuple[str | None, str | None]:
        return (lane.session_id if (lane := self._tries.lane) else None), self._lanes.cwd

    def _finish(self, ending: Ending) -> None:
        """Say how it ended, once, and let go of all that the run has held."""
        lane, recorder = self._tries.lane, self._recorder
        try:
            usage = self._attempts.usage(self._tries.usage())
            conversation = recorder.fold.conversation(lane.redacted) if lane else b""
        except Exception as error:
            # A mistake of ours about tokens must not cost the caller the ending.
            _log.error("the tokens of the run cannot be added up", error=error)
            recorder.notice("error", "protocol", f"tokens: {type(error).__name__}: {error}")
            usage, conversation = None, b""
        if self._lanes.scratch is not None:
            self._lanes.scratch.close()
        self._claim.release()
        fresh = self._claim.fresh is not None and self.options.fresh
        finished, self._result = finished_of(
            recorder,
            ending,
            lane.traces() if lane else None,
            usage,
            began=self._began,
            clear_session=fresh,
            conversation=conversation,
            value=self._attempts.plain,
        )
        finished = msgspec.structs.replace(finished, ended=(*self._tries.ended, *finished.ended))
        value = self._attempts.value if ending.outcome == "success" else None
        self._result = msgspec.structs.replace(self._result, ended=finished.ended, value=value)
        self._outbox.put([finished])
        self._outbox.close()
        self._lease.close()
