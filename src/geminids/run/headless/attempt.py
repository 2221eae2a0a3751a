"""One headless attempt: it runs `gemini --output-format stream-json` in its own process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from geminids.events.model import Event, Usage
from geminids.events.translate.stream_json import StreamTranslator
from geminids.gateway.request_log import RequestLog
from geminids.gemini.protocol.outcome.judge import Ending, Evidence, judge
from geminids.gemini.protocol.stream_json import error_of, stats_of
from geminids.launch.plan import Plan
from geminids.log import mask_in_logs
from geminids.options import Options
from geminids.outcome import Failure
from geminids.process.child import Child, spawn
from geminids.process.guard import guard_run, release_run
from geminids.process.marker import Mark, new_mark, with_mark
from geminids.redact import Redactor
from geminids.run.accounting.cost import Prices, usage_of_requests, usage_of_stats
from geminids.run.accounting.lease import RunLease
from geminids.run.attempt import AttemptFacts, workspace_notices
from geminids.run.gateway_events import GatewayEvents, ending_of
from geminids.run.headless.event_sources import OnSession, Sources
from geminids.run.headless.reader import OutputCallbacks, PipeReader
from geminids.run.recorder import RunRecorder
from geminids.run.stall.snapshot import situation_of
from geminids.run.stall.watch import StallWatch
from geminids.run.stopping import (
    Deadlines,
    Stopping,
    StopReason,
    listed,
    stopped_ending,
)

if TYPE_CHECKING:
    import anyio

    from geminids.gateway.messages import Halt
    from geminids.process.tree import Ended
    from geminids.run.stall.snapshot import Situation

__all__ = ["HeadlessAttempt"]


# If a process that was left running keeps the pipes open after the CLI has exited, read the pipes
# for this many seconds.
_DRAIN = 0.3


class HeadlessAttempt:
    """One attempt of a run that starts its own CLI process."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        recorder: RunRecorder,
        lease: RunLease,
        log: RequestLog,
        callbacks: OutputCallbacks,
        on_session: OnSession | None = None,
    ) -> None:
        self._plan = plan
        self._options = options
        self._recorder = recorder
        recorder.redactor = mask_in_logs(Redactor(plan.secrets))
        recorder.has_gateway = lease.is_open
        self._unsent = b""
        self._over: anyio.Event | None = None
        self._stopping = Stopping()
        self._ended: list[Ended] = []
        self.deadlines = Deadlines(options)
        self._spawned_at = 0
        self._sources = Sources(
            plan, options, recorder, self.deadlines, self._stopping, callbacks, on_session
        )
        self._reader = self._sources.reader
        self._prices = Prices(options, plan.auth.mode, metered=lease.is_open)
        self._gateway: GatewayEvents | None = None
        if lease.is_open:
            self._gateway = GatewayEvents(
                lease, recorder, self._prices, log, self._put_from_gateway, self._on_halt
            )
        self._judge = _Judge(plan, options, recorder, self._reader, self._stopping, self._gateway)
        self._stall = StallWatch(options, self.deadlines, recorder, self._sources.emit, self._situation)
        self.mark: Mark = new_mark(recorder.run_id)
        self.child: Child | None = None

    def start(self) -> None:
        """Start the CLI and write the prompt to its stdin.

        Raises `OSError` if the process cannot be started.
        """
        plan, options, recorder = self._plan, self._options, self._recorder
        guard_run(self.mark)
        self._spawned_at = int(time.time() * 1000)
        try:
            child = spawn(plan.argv, cwd=plan.cwd, env=with_mark(plan.env, self.mark))
        except BaseException:
            release_run(self.mark)
            raise
        self.child = child
        self.deadlines.started()
        # Write now: the CLI waits only half a second for the first byte on stdin.
        self._unsent = child.write_now(plan.stdin)
        if not self._unsent:
            child.close_stdin()
        recorder.observer = self._stall.saw
        notices = [recorder.notice(*notice) for notice in workspace_notices(plan.neutralised)]
        started = recorder.make_started(
            session_id=plan.session_id or options.resume,
            model=options.model,
            cwd=plan.cwd,
            cli_version=plan.gemini.version,
            transport="headless",
            pid=child.pid,
            approval=options.approval,
            prompt=recorder.redact(plan.prompt),
        )
        recorder.emit([*notices, started])

    def stop(self, reason: StopReason) -> None:
        """Stop the attempt.

        The CLI gets a grace period in which it can exit by itself. The second call with a reason of
        the kind `caller` skips the grace period.
        """
        if reason.kind == "caller":
            self._stopping.ask()
        self._begin_to_stop(reason)

    def _on_halt(self, halt: Halt) -> None:
        self._begin_to_stop(StopReason("gateway", halt.message))

    def _put_from_gateway(self, events: list[Event]) -> None:
        self.deadlines.note_output(stdout=False)
        self._sources.emit(events)

    def _situation(self) -> Situation | None:
        """Return what is known about the attempt now, or None while the attempt is being stopped.

        The stall watch, which explains why the CLI is silent, calls this.
        """
        if self.child is None or self._stopping.reason is not None:
            return None
        return situation_of(
            self._options,
            self.child.pid,
            tools=self.stream.running,
            gateway=self._gateway,
            retried=self._reader.retried,
            last_stdout_at=self.deadlines.last_stdout_at,
        )

    def _on_deadline(self, reason: StopReason) -> None:
        self._begin_to_stop(self._stall.explained(reason))

    def _begin_to_stop(self, reason: StopReason) -> None:
        if self._over is not None and self._over.is_set():
            return  # the attempt has already ended by itself
        if self._stopping.begin(reason):
            # Ignore a result line that arrives after we asked the CLI to stop.
            self._judge.result_came_first = self.stream.result is not None
            if self._over is not None:
                self._over.set()

    async def drive(self) -> None:
        """Wait until the CLI has exited or must stop, then terminate the attempt's processes.

        Meanwhile, events are emitted for everything that the CLI reports.
        """
        if self.child is None:
            return
        import anyio

        # This import takes 34 ms (psutil). Do it now, while the CLI loads, and not when it exits.
        from geminids.process.terminate import end_now, end_processes

        self._over = anyio.Event()
        if self._stopping.reason is not None:
            self._over.set()
        try:
            async with anyio.create_task_group() as tasks:
                stdout_read, stderr_read = anyio.Event(), anyio.Event()
                tasks.start_soon(self._reader.read_stdout, self.child, stdout_read)
                tasks.start_soon(self._reader.read_stderr, self.child, stderr_read, self._check_session)
                tasks.start_soon(self._watch_exit)
                self._sources.follow(tasks, since=self._spawned_at)
                tasks.start_soon(self.deadlines.watch, self._on_deadline)
                tasks.start_soon(self._stall.watch)
                if self._gateway is not None:
                    tasks.start_soon(self._gateway.watch)
                if self._unsent:
                    tasks.start_soon(self.child.feed, self._unsent)
                await self._over.wait()
                if self.child.exit_code is not None:
                    # The result may still be in the pipe. Read it now, because it decides whether
                    # processes that are still running are left running.
                    self._sources.drain(self.child)
                self._ended = await end_processes(
                    self.child,
                    self.mark,
                    self._options.grace,
                    keep=self._judge.keeps_leftovers(self.exit_code),
                    hurry=lambda: self._stopping.hurry,
                )
                with anyio.move_on_after(_DRAIN):
                    await stdout_read.wait()
                    await stderr_read.wait()
                if self._gateway is not None:
                    await self._gateway.settle()
                tasks.cancel_scope.cancel()
        except BaseException:
            # The event loop is shutting down, or geminids has a bug: there is no time for a grace
            # period.
            self._stopping.begin(StopReason("caller", "interrupted: the event loop was shut down"))
            self._ended += end_now(self.child, self.mark)
            raise
        finally:
            try:
                self._sources.finish(self.child)
                if self._gateway is not None:
                    self._gateway.finish()
                self._sources.release()
            finally:
                self.child.close()
                release_run(self.mark)
                self._recorder.observer = None

    def facts(self) -> AttemptFacts:
        return AttemptFacts(
            ending=self._judge.ending(self.exit_code),
            stop=self._stopping.reason,
            session_id=self.session_id,
            exit_code=self.exit_code,
            ended=listed(self._ended, self._recorder.redactor),
            complete=self._sources.complete,
            usage=self._usage(),
            prices=self._prices,
            finish_reason=self._gateway.finish_reason if self._gateway is not None else None,
            stall=self._stall.stall,
        )

    def _usage(self) -> Usage | None:
        """Return the token counts of the attempt, or None if they are unknown.

        With the gateway, the counts are the sums over the attempt's requests. Without the gateway,
        the counts are the CLI's own totals or, if the CLI reported none, the sums over the requests
        in the session file.
        """
        requests = usage_of_requests(self._recorder.requests)
        if self._gateway is not None:
            return requests
        result = self.stream.result
        return usage_of_stats(stats_of(result.stats) if result else None) or requests

    @property
    def pid(self) -> int | None:
        return self.child.pid if self.child else None

    @property
    def stream(self) -> StreamTranslator:
        return self._sources.stream

    @property
    def exit_code(self) -> int | None:
        return self.child.exit_code if self.child else None

    @property
    def session_id(self) -> str | None:
        """The session id that the CLI reported.

        Before the CLI has reported it, this is the id of the session to resume, or None.
        """
        init = self.stream.init
        return init.session_id if init else self._options.resume

    async def _watch_exit(self) -> None:
        assert self.child is not None and self._over is not None
        await self.child.wait()
        self._over.set()

    def _check_session(self) -> None:
        if self._reader.fresh_session and self._options.resume not in (None, "latest"):
            # Stop before the CLI does anything in the wrong session (observed with CLI 0.41.2).
            text = "the CLI started a new session instead of resuming the requested one"
            self._begin_to_stop(StopReason("wrong_session", text))


_LINGERING_HINT = "Run again; if it happens again, try another release of the CLI with `geminids install`."


class _Judge:
    """Finds out how an attempt ended.

    `result_came_first` is True if the CLI sent its result before geminids stopped it.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        recorder: RunRecorder,
        reader: PipeReader,
        stopping: Stopping,
        gateway: GatewayEvents | None,
    ) -> None:
        self._plan = plan
        self._options = options
        self._recorder = recorder
        self._reader = reader
        self._stopping = stopping
        self._gateway = gateway
        self.result_came_first = False

    @property
    def halted(self) -> Halt | None:
        """The message with which the gateway stopped the run; None if the gateway did not stop the
        run.
        """
        return self._gateway.halted if self._gateway is not None else None

    def ending(self, exit_code: int | None) -> Ending:
        """Return how the attempt ended: its outcome, the reason, and the failure, if any."""
        stopping, halted = self._stopping, self.halted
        if halted is not None and not self._has_succeeded:
            # The gateway blocked a request: report our reason, not the error that the CLI derives
            # from it.
            return ending_of(halted)
        reason = stopping.reason
        if reason is not None and reason.kind == "lingering" and self._reader.stream.result is None:
            failure = Failure(
                kind="cut_off",
                message=reason.text,
                retryable=True,
                hint=_LINGERING_HINT,
                exit_code=exit_code,
                stderr_tail=self._reader.stderr_tail[-4000:] or None,
            )
            return Ending("failed", reason.text, failure)
        requested = stopping.wanted
        if requested is None or self.result_came_first or self._has_succeeded:
            ending = self._judged(exit_code)
            if self._gateway is None:
                return ending
            return self._gateway.explain(ending, answer=self._recorder.answer)
        return stopped_ending(requested)

    def keeps_leftovers(self, exit_code: int | None) -> bool:
        """Return whether processes that are still running after the CLI has ended are left running.

        They are left running only if the option is `leftovers="keep"`, and the run has succeeded
        and was not stopped.
        """
        if self._options.leftovers != "keep" or self._stopping.wanted or not self._has_succeeded:
            return False
        return self._judged(exit_code).outcome == "success"

    @property
    def _has_succeeded(self) -> bool:
        result = self._reader.stream.result
        return result is not None and result.status == "success"

    def _judged(self, exit_code: int | None) -> Ending:
        stream = self._reader.stream
        result = stream.result
        error = error_of(result.error) if result else None
        stats = stats_of(result.stats) if result else None
        return judge(
            Evidence(
                exit_code=exit_code,
                result_status=result.status if result else None,
                error_type=error[0] if error else None,
                error_message=error[1] if error else None,
                error_lines=tuple((line.severity, line.message) for line in stream.errors),
                answer=self._recorder.answer,
                stderr=self._reader.stderr_tail,
                resume=self._options.resume,
                total_tokens=stats.total_tokens if stats else None,
                tool_calls=stats.tool_calls if stats else None,
            )
        )
