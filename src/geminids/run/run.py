"""The object that a caller uses for one run.

async with open_run(…) as run:
    async for event in run: …
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import Level
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.launch.prepare import probe_gemini
from geminids.options import Options
from geminids.run.accounting.lease import RunLease
from geminids.run.headless.reader import OutputCallbacks
from geminids.run.loop import AttemptLoop
from geminids.run.recorder import RunRecorder
from geminids.run.result import ending_of_error
from geminids.run.schema.answer_schema import AnswerSchema, answer_schema_of
from geminids.run.session_claim import Claim, busy
from geminids.run.starter import MakeWarm, RunStarter
from geminids.run.stopping import StopReason, wait_shielded
from geminids.run.stream import BY_CALLER, EventStream

if TYPE_CHECKING:
    import anyio
    from anyio.abc import TaskGroup

    from geminids.spending.budget import BaseBudget

__all__ = ["Run"]


class Run(EventStream):
    """One run of the CLI.

    Iterate over it to get its events, then read `result`. A cancelled run also has a result.
    """

    def __init__(
        self,
        prompt: str,
        options: Options,
        *,
        callbacks: OutputCallbacks | None = None,
        make_warm: MakeWarm | None = None,
        notices: Sequence[tuple[Level, str, str]] = (),
        budgets: Sequence[BaseBudget] = (),
        schema: AnswerSchema | None = None,
    ) -> None:
        recorder = RunRecorder()
        super().__init__(recorder)
        self.options = options
        self._began = time.monotonic()
        self._launched = False
        self._waits = False
        self._stop_waiting: str | None = None
        self._done: anyio.Event | None = None
        self._tasks: TaskGroup | None = None
        if schema is None and options.schema is not None:
            schema = answer_schema_of(options.schema)
        self._starter = RunStarter(
            recorder,
            Claim(self.id),
            RunLease(options, budgets=budgets),
            callbacks=callbacks,
            make_warm=make_warm,
        )
        self._loop = AttemptLoop(prompt, options, recorder, self._starter, schema)
        for notice in notices:
            recorder.emit_notice(*notice)

    def launch(self) -> None:
        """Start the CLI now, without an event loop.

        Calling this is optional, because `async with` also starts the CLI. If another run uses the
        session, the option `when_busy` decides: the run waits until the session is free, or fails.
        The wait takes place in `async with`, not in this method.
        """
        if self._launched:
            return
        self._launched = True
        self._began = time.monotonic()
        try:
            self.options, holder = self._starter.claim_session(self.options)
            if holder is None:
                self._start()
            elif self.options.when_busy == "fail":
                failure = busy(str(self._session), holder)
                self._finish(Ending("failed", failure.message, failure))
            else:
                self._waits = True
        except Exception as error:
            self._finish(ending_of_error(error, self._starter.cwd, self._recorder.redact))

    @property
    def _session(self) -> str | None:
        """The id of the session that the caller wants to resume or to create, or None."""
        return self.options.resume or self.options.session_id

    def _start(self) -> None:
        try:
            self._loop.start(self.options, self._began)
            self._starter.lease.begin()
        except Exception as error:
            self._finish(ending_of_error(error, self._starter.cwd, self._recorder.redact))

    @property
    def pid(self) -> int | None:
        """The process id of the CLI, or None if no process was started yet."""
        return self._loop.attempt.pid if self._loop.attempt else None

    @property
    def mark(self) -> str | None:
        """A value in the environment of every process of this run. It is used to find them.

        None before the run has started.
        """
        mark = self._loop.attempt.mark if self._loop.attempt else None
        return None if mark is None else str(mark)

    def redact(self, text: str) -> str:
        """Return the text with every known secret of the run masked."""
        return self._recorder.redact(text)

    def stop(self, reason: str = BY_CALLER) -> None:
        if self._loop.attempt is not None:
            self._loop.stop(StopReason("caller", reason))
        elif self._waits:
            self._stop_waiting = self._stop_waiting or reason
        elif not self._launched:
            self._launched = True
            self._finish(Ending("interrupted", reason))

    async def __aenter__(self) -> Run:
        import anyio

        if not self._launched:
            # Use a thread, because `probe_gemini` may run the CLI to get its version. The thread
            # does not start the run: if the caller is cancelled now, no process remains.
            await anyio.to_thread.run_sync(probe_gemini, self.options)
            self.launch()
        self._done = anyio.Event()
        if self._loop.attempt is None and not self._waits:
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
        if self._loop.attempt is not None:
            self._loop.leave(StopReason("caller", BY_CALLER))
        else:
            self.stop()
        try:
            # If the caller is cancelled, skip the grace period, but still wait until every process
            # has ended.
            await wait_shielded(self._done, self.stop)
        finally:
            # Do not pass the error of the caller's block: the task group would wrap it in an
            # exception group.
            await self._tasks.__aexit__(None, None, None)

    async def _drive(self) -> None:
        """Run the attempts to their end.

        A cancellation does not interrupt the attempts. Instead, they are stopped when the caller
        leaves the `async with` block.
        """
        import anyio

        assert self._done is not None
        with anyio.CancelScope(shield=True):
            try:
                if self._waits:
                    await self._wait_for_session()
                if self._loop.attempt is not None:
                    self._finish(await self._loop.drive())
            except Exception as error:
                self._finish(ending_of_error(error, self._starter.cwd, self._recorder.redact))
            finally:
                try:
                    # This call has an effect only if the event loop is shutting down. In that case,
                    # all processes have already been killed.
                    facts = self._loop.facts
                    self._finish(facts[-1].ending if facts else Ending("interrupted", BY_CALLER))
                finally:
                    self._done.set()
                    self._recorder.close()

    async def _wait_for_session(self) -> None:
        """Wait until no other run uses the session, then start the CLI.

        If `stop` is called, or the time of the option `timeout` has passed, the run ends instead.
        """
        timeout = self.options.timeout
        until = None if timeout is None else self._began + timeout
        try:
            claim = self._starter.claim
            free = await claim.wait(str(self._session), lambda: self._stop_waiting is None, until)
        finally:
            self._waits = False
        if free:
            self._start()
        elif self._stop_waiting is not None:
            self._finish(Ending("interrupted", self._stop_waiting))
        else:
            self._finish(Ending("timed_out", f"timed out after {timeout:g} s of waiting for the session"))

    def _finish(self, ending: Ending) -> None:
        """Emit the last event, and release the session, the files and the access to the gateway.

        A second call has no effect.
        """
        if self._result is not None:
            return
        retries = self._loop.retries
        self._starter.release()
        lease = self._starter.lease
        failed = ending.outcome != "success"
        if failed and lease.failed_recording is not None:
            text = f"the run did not succeed: its recording is in {lease.failed_recording}"
            self._recorder.emit_notice("warning", "record", text)
        finished = self._recorder.make_finished(
            ending,
            self._loop.facts,
            began=self._began,
            clear_session=self._starter.clear_session,
            value=retries.plain,
        )
        value = retries.value if ending.outcome == "success" else None
        self._result = msgspec.structs.replace(self._recorder.finish(finished), value=value)
        lease.close(keep_recording=not failed)
