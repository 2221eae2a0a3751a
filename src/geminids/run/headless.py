"""The headless lane: one `gemini --output-format stream-json` process a run, from spawn to `Finished`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from geminids.events.fold import Fold
from geminids.events.from_stream import StreamTranslator
from geminids.events.ledger import Ledger
from geminids.events.model import Decision, EndedProcess, Event, Started, TokensUsed, Usage
from geminids.launch.plan import Plan
from geminids.options import Options
from geminids.outcome import Failure
from geminids.process.child import Child, spawn
from geminids.process.guard import guard_run, release_run
from geminids.process.marker import Mark, new_mark, with_mark
from geminids.redact import Redactor
from geminids.run.cost import Bill, bill_of, prepare
from geminids.run.deadlines import Deadlines
from geminids.run.merge import Merge
from geminids.run.outbox import Outbox
from geminids.run.overseer import Overseer, ending_of
from geminids.run.reading import OnLine, Reading
from geminids.run.stall import StallWatch
from geminids.run.stall_scene import situation_of
from geminids.run.stopping import LINGERING, WRONG_SESSION, Stopping, end_processes, end_processes_now, listed
from geminids.run.usage import differences, overseen, settled
from geminids.run.without_power import without_power
from geminids.wire.endings import Ending, Evidence, judge
from geminids.wire.stream_json import error_of, stats_of

if TYPE_CHECKING:
    import anyio

    from geminids.gateway.told import Halt
    from geminids.process.tree import Ended
    from geminids.run.gate import RunGate
    from geminids.run.journal import Journal
    from geminids.run.stall_situation import Situation

__all__ = ["HeadlessLane"]

_LINGERING_HINT = "Run again; if it stays so, try another release with `geminids install`."
# How long the pipes may stay open after the process is gone, where a process that was kept holds them.
_DRAIN = 0.3


class HeadlessLane:
    """Drives one attempt. `start` is synchronous, so that the CLI loads while Python still imports."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        run_id: str,
        ledger: Ledger,
        outbox: Outbox,
        fold: Fold,
        on_line: OnLine | None = None,
        on_session: Callable[[str], list[Event]] | None = None,
        gate: RunGate | None = None,
    ) -> None:
        self._on_session = on_session
        self._plan = plan
        self._options = options
        self._run_id = run_id
        self._ledger = ledger
        self._outbox = outbox
        self._fold = fold
        self._redactor = Redactor(plan.secrets)
        self._unsent = b""
        self._over: anyio.Event | None = None
        self._stopping = Stopping()
        self._result_came_first = False
        self._ended: list[Ended] = []
        self.deadlines = Deadlines(options)
        self._merge = Merge(self._put)
        self._tools_ended = 0
        self._spawned_at = 0
        overseen = gate is not None and gate.lease is not None
        self._overseer = Overseer(gate, ledger, self._put_seen, self._on_halt) if gate and overseen else None
        self._allowance = gate.allowance() if gate is not None else None
        self._reading = Reading(
            ledger,
            self._redactor,
            self.deadlines,
            self._put_read,
            line_limit=options.line_limit,
            on_line=on_line,
            why_not=plan.verdicts.why_not,
        )
        self._stall = StallWatch(
            options, self.deadlines, ledger, self._redactor, self._put_stall, self._situation
        )
        self._journal: Journal | None = None
        self.mark: Mark = new_mark(run_id)
        self.child: Child | None = None

    def start(self) -> None:
        """Spawn the CLI and hand it the prompt; raises OSError where the system says no."""
        guard_run(self.mark)
        self._spawned_at = int(time.time() * 1000)
        try:
            child = spawn(self._plan.argv, cwd=self._plan.cwd, env=with_mark(self._plan.env, self.mark))
        except BaseException:
            release_run(self.mark)
            raise
        self.child = child
        self.deadlines.started()
        # The CLI waits half a second for the first byte of its stdin: it is there before the CLI looks.
        self._unsent = child.write_now(self._plan.stdin)
        if not self._unsent:
            child.close_stdin()
        told = list(without_power(self._plan.neutralised, self._ledger))
        self._put(
            [
                *told,
                Started(
                    at=int(time.time() * 1000),
                    seq=self._ledger.next(),
                    attempt=self._ledger.attempt,
                    turn=self._ledger.turn,
                    run_id=self._run_id,
                    session_id=self._plan.session_id or self._options.resume,
                    model=self._options.model,
                    cwd=self._plan.cwd,
                    cli_version=self._plan.gemini.version,
                    lane="headless",
                    pid=child.pid,
                    approval=self._options.approval,
                    prompt=self._redactor.text(self._plan.prompt),
                ),
            ]
        )

    def stop(self, reason: str) -> None:
        """The caller asks for the end; asked a second time, the grace is cut short."""
        self._stopping.ask()
        self._begin_to_stop(reason, by_deadline=False)

    def leave(self, reason: str) -> None:
        """The caller is gone: stop, but whoever has asked for that before has not asked twice."""
        if not self._stopping.asked:
            self.stop(reason)

    def _on_halt(self, halt: Halt) -> None:
        self._begin_to_stop(halt.message, by_deadline=False)

    def _put_seen(self, events: list[Event]) -> None:
        self.deadlines.heard(stdout=False)
        self._merge.add(events, ends_tool=False)

    def _put_stall(self, events: list[Event]) -> None:
        self._merge.add(events, ends_tool=False)

    def _situation(self) -> Situation | None:
        """What is known now, for whoever asks why nothing is heard."""
        if self.child is None or self._stopping.reason is not None:
            return None
        return situation_of(
            self._options,
            self.child.pid,
            tools=self.stream.running,
            overseer=self._overseer,
            retried=self._reading.retried,
            spoke_at=self.deadlines.spoke_at,
        )

    def _on_deadline(self, reason: str) -> None:
        reason = self._stall.explained(reason)
        self._begin_to_stop(reason, by_deadline=reason != LINGERING)

    def _begin_to_stop(self, reason: str, *, by_deadline: bool) -> None:
        if self._over is not None and self._over.is_set():
            return  # it has ended by itself: what comes later does not change what it was
        if self._stopping.begin(reason, by_deadline=by_deadline):
            # What the CLI makes of being stopped is no result of its own.
            self._result_came_first = self.stream.result is not None
            if self._over is not None:
                self._over.set()

    async def drive(self) -> None:
        """See the child through to its end, and everything of it gone."""
        import anyio

        assert self.child is not None
        self._over = anyio.Event()
        if self._allowance is not None and (halt := self._allowance.begin()):
            self._on_halt(halt)  # before the CLI has loaded: nothing is asked
        if self._stopping.reason is not None:
            self._over.set()
        try:
            async with anyio.create_task_group() as tasks:
                stdout_read, stderr_read = anyio.Event(), anyio.Event()
                tasks.start_soon(self._reading.read_stdout, self.child, stdout_read)
                tasks.start_soon(self._reading.read_stderr, self.child, stderr_read, self._check_session)
                tasks.start_soon(self._watch_exit)
                self._follow()
                if self._journal is not None:
                    tasks.start_soon(self._journal.watch)
                tasks.start_soon(self.deadlines.watch, self._on_deadline)
                tasks.start_soon(self._stall.watch)
                if self._overseer is not None:
                    tasks.start_soon(self._overseer.watch)
                if self._unsent:
                    tasks.start_soon(self.child.feed, self._unsent)
                # psutil takes 34 ms: they pass while the CLI loads, not when it has gone.
                from geminids.process import stop  # noqa: F401

                await self._over.wait()
                if self.child.exit_code is not None:
                    # Its result may be in the pipe still, and decides what becomes of leftovers.
                    self._reading.drain(self.child)
                self._ended = await end_processes(
                    self.child, self.mark, self._options.grace, self._stopping, keep=self._keeps_leftovers()
                )
                with anyio.move_on_after(_DRAIN):
                    await stdout_read.wait()
                    await stderr_read.wait()
                if self._overseer is not None:
                    await self._overseer.settle()
                tasks.cancel_scope.cancel()
        except BaseException:
            # No time for grace: the event loop is being taken down, or we have made a mistake.
            self._end_now()
            raise
        finally:
            try:
                self._reading.drain(self.child)
                self._reading.finish()
                if self._journal is not None:
                    self._journal.finish()
                if self._overseer is not None:
                    self._overseer.look()
                self._merge.release(now=True)
            finally:
                self.child.close()
                release_run(self.mark)

    def ending(self) -> Ending:
        """What it was."""
        stopping = self._stopping
        if self._halted is not None and not self._said_success:
            # What the CLI makes of a request that was not let through is no ending of its own.
            return ending_of(self._halted)
        if stopping.reason == LINGERING and self.stream.result is None:
            failure = Failure(
                kind="cut_off",
                message=LINGERING,
                retryable=True,
                hint=_LINGERING_HINT,
                exit_code=self.exit_code,
                stderr_tail=self._reading.stderr_tail[-4000:] or None,
            )
            return Ending("failed", LINGERING, failure)
        if not stopping.wanted or self._result_came_first or self._said_success:
            ending = self._judge()
            return ending if self._overseer is None else self._overseer.explained(ending)
        return Ending("timed_out" if stopping.by_deadline else "interrupted", stopping.reason)

    @property
    def _halted(self) -> Halt | None:
        """What has stopped the run, where that was its budget or the gateway."""
        if self._overseer is not None:
            return self._overseer.halted
        halted = self._allowance.halted if self._allowance is not None else None
        # It counts to the end: what it finds when the run is over has stopped nothing.
        return halted if halted is not None and halted.message == self._stopping.reason else None

    def redacted(self, text: str) -> str:
        return self._redactor.text(text)

    def usage(
        self, known: Sequence[TokensUsed], written: Sequence[TokensUsed] | None
    ) -> tuple[list[TokensUsed], Usage | None]:
        """The requests that have not been told yet, and the usage; `written` are those of the telemetry."""
        result = self.stream.result
        stats = stats_of(result.stats) if result else None
        if self._overseer is None:
            return settled(stats, known, written, self._ledger)
        sums = (stats.input_tokens, stats.output_tokens) if stats is not None else None
        for text in differences(known, self._ledger.aside if self.complete else None, sums):
            self._put([self._ledger.notice("warning", "tokens", text)])
        return [], overseen(known)

    @property
    def pid(self) -> int | None:
        return self.child.pid if self.child else None

    @property
    def stream(self) -> StreamTranslator:
        return self._reading.stream

    @property
    def exit_code(self) -> int | None:
        return self.child.exit_code if self.child else None

    @property
    def session_id(self) -> str | None:
        """The session as the CLI has named it; one that was never begun has no id that anybody could resume."""
        init = self.stream.init
        return init.session_id if init else self._options.resume

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """None: nobody is asked on this lane."""
        return ()

    @property
    def bill(self) -> Bill:
        """Who pays; old releases name the model at the start alone."""
        model = (self.stream.init.model if self.stream.init else None) or self._options.model
        overseen = self._overseer is not None
        return bill_of(self._options, self._plan.auth.mode, model=model, overseen=overseen)

    @property
    def ended(self) -> tuple[EndedProcess, ...]:
        return listed(self._ended, self._redactor)

    def _judge(self) -> Ending:
        result = self.stream.result
        error = error_of(result.error) if result else None
        stats = stats_of(result.stats) if result else None
        return judge(
            Evidence(
                release=self._plan.release,
                exit_code=self.exit_code,
                result_status=result.status if result else None,
                error_type=error[0] if error else None,
                error_message=error[1] if error else None,
                error_lines=tuple((line.severity, line.message) for line in self.stream.errors),
                answer=self._fold.answer,
                stderr=self._reading.stderr_tail,
                resume=self._options.resume,
                total_tokens=stats.total_tokens if stats else None,
                tool_calls=stats.tool_calls if stats else None,
            )
        )

    def _end_now(self) -> None:
        assert self.child is not None
        self._stopping.begin("interrupted: the event loop was taken down", by_deadline=False)
        self._ended += end_processes_now(self.child, self.mark)

    @property
    def _said_success(self) -> bool:
        result = self.stream.result
        return result is not None and result.status == "success"

    def _keeps_leftovers(self) -> bool:
        """Only a run that succeeded, and that nobody stopped, may leave something on purpose."""
        if self._options.leftovers != "keep" or self._stopping.wanted or not self._said_success:
            return False
        return self._judge().outcome == "success"

    async def _watch_exit(self) -> None:
        assert self.child is not None and self._over is not None
        await self.child.wait()
        self._over.set()

    def _check_session(self) -> None:
        if self._reading.fresh_session and self._options.resume not in (None, "latest"):
            # Before it does anything in a conversation that nobody asked for (seen on 0.41.2).
            self._begin_to_stop(WRONG_SESSION, by_deadline=False)

    def _follow(self) -> None:
        """Follow the journal of the session, where this release writes one."""
        if self._plan.release.session_storage != "slug_journal":
            return
        from geminids.run.journal import Journal  # imported while the CLI loads
        from geminids.sessions.listing import journal_of

        plan, options = self._plan, self._options
        self._journal = Journal(
            self._merge,
            self.stream,
            self._ledger,
            self._redactor,
            lambda session_id: journal_of(session_id, plan.cwd, home=options.home, environ=plan.env),
            resumed=plan.resumed,
            resumed_id=options.resume,
            since=self._spawned_at,
        )

    def _put_read(self, events: list[Event], size: int = 0) -> None:
        """What the pipes said. A look at the journal follows, so that neither is far ahead of the other."""
        ended, self._tools_ended = self._tools_ended, self.stream.tools_ended
        has_ended = ended != self._tools_ended
        if self._journal is not None and has_ended:
            self._journal.find()
        self._merge.add(events, size, ends_tool=has_ended)
        if self.stream.init is not None:
            prepare(self._options)
        if self._on_session is not None and self.stream.init is not None:
            tell, self._on_session = self._on_session, None
            self._merge.add(tell(self.stream.init.session_id or ""), ends_tool=False)
        if self._journal is not None and has_ended:
            self._journal.look()

    @property
    def complete(self) -> bool:
        """Whether the events hold all that the journal does."""
        return self._journal is not None and self._journal.whole

    def _put(self, events: list[Event], size: int = 0) -> None:
        self._stall.saw(events)
        self._fold.add(events)
        self._outbox.put(events, size)
        if self._allowance is not None and (halt := self._allowance.hear(events)):
            self._on_halt(halt)
