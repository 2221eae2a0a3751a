"""One prompt in a session of a warm process, from `session/prompt` to its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import EndedProcess, Event, Retry, TokensUsed, ToolStarted, Usage
from geminids.gateway.request_log import RequestLog
from geminids.options import Options
from geminids.run.cost import Prices, load_prices_early, usage_of_requests
from geminids.run.gateway_events import GatewayEvents, ending_of
from geminids.run.recorder import RunRecorder, Traces
from geminids.run.stall.snapshot import situation_of
from geminids.run.stall.watch import StallWatch
from geminids.run.stopping import Deadlines, Stopping, StopReason, stopped_ending
from geminids.run.warm.connection import Pending
from geminids.run.warm.open_asks import OpenAsks
from geminids.run.warm.permission import Desk
from geminids.run.warm.prompt_answer import PromptAnswer, cancel
from geminids.run.warm.seat import Seat
from geminids.run.warm.shells import OwnShells
from geminids.run.warm.sources import WarmSources
from geminids.wire.acp import Note, Unknown, Update
from geminids.wire.acp_calls import Content, Prompt
from geminids.wire.endings import Ending, max_turns
from geminids.wire.stderr import Remark

if TYPE_CHECKING:
    import anyio
    from anyio.abc import TaskGroup

    from geminids.gateway.told import Halt
    from geminids.process.tree import Ended
    from geminids.run.stall.snapshot import Situation

__all__ = ["WarmTurn"]

_SHELL = "run_shell_command"


class WarmTurn:
    """Drives one prompt. `stop` asks for its end; asked again, the grace is cut short."""

    def __init__(
        self,
        seat: Seat,
        options: Options,
        recorder: RunRecorder,
        desk: Desk,
        log: RequestLog,
    ) -> None:
        self._seat = seat
        self._options = options
        self._recorder = recorder
        self._ledger = ledger = recorder.ledger
        self._desk = desk
        self._stopping = Stopping()
        self._redactor = seat.process.redactor
        metered = seat.lease.is_open
        self._prices = Prices(options, seat.process.plan.auth.mode, metered=metered)
        self._gateway: GatewayEvents | None = None
        if metered:
            seat.lease.begin_turn()
            self._gateway = GatewayEvents(
                seat.lease, ledger, self._redactor, self._prices, log, self._put_from_gateway, self._on_halt
            )
        self._sources = WarmSources(seat, options, ledger, self._put)
        self._updates = self._sources.updates
        self._shells = OwnShells(seat, self._updates, self._sources.books)
        self._asks = OpenAsks(seat, desk, self._updates, ledger, self._shells.allowed)
        self._answer = PromptAnswer(seat, ledger)
        self._stop: anyio.Event | None = None
        self._tasks: TaskGroup | None = None
        self._sent_at = 0.0
        self.deadlines = Deadlines(options)
        self._retried: tuple[Remark, float] | None = None
        self._stall = StallWatch(
            options, self.deadlines, ledger, self._redactor, self._sources.tell, self._situation
        )
        self.ended: list[Ended] = []

    def stop(self, reason: StopReason) -> None:
        """Ask for the end of the turn, and not of the chat."""
        if reason.kind == "caller":
            self._stopping.ask()
        self._stopping.begin(reason)
        if self._stop is not None:
            self._stop.set()

    async def drive(self, blocks: Sequence[Content]) -> None:
        """Send the prompt and see it through to its end; nothing of it is left running when it was stopped."""
        import anyio

        process = self._seat.process
        self._stop, self._cleaned = anyio.Event(), anyio.Event()
        self.deadlines.started()
        self.deadlines.heard(stdout=True)
        if self._stopping.reason is not None:
            return
        load_prices_early(self._options)
        process.turns += 1
        self._sent_at = time.time()
        process.attach(self._seat.session_id, self)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                prompt = Prompt(session_id=self._seat.session_id, prompt=tuple(blocks))
                pending = process.connection.begin(prompt)
                tasks.start_soon(self._sources.journal.watch)
                tasks.start_soon(self.deadlines.watch, self._on_deadline)
                tasks.start_soon(self._stall.watch)
                if self._gateway is not None:
                    tasks.start_soon(self._gateway.watch)
                tasks.start_soon(self._stop_when_asked, pending)
                await pending.wait()
                self._settle(pending)
                if self._stop.is_set():
                    await self._cleaned.wait()
                if self._gateway is not None:
                    await self._gateway.settle()
                tasks.cancel_scope.cancel()
        finally:
            process.detach(self._seat.session_id)
            self._finish()

    def ending(self) -> Ending:
        """What it was."""
        stopping, gateway = self._stopping, self._gateway
        if gateway is not None and gateway.halted is not None:
            return ending_of(gateway.halted)
        wanted = stopping.wanted
        if wanted is not None and wanted.kind == "max_turns":
            return max_turns()
        if wanted is not None and not self._answer.is_end:
            return stopped_ending(wanted)
        ending = self._answer.judged(
            self._recorder.fold,
            self._options,
            thinking_only=self._updates.thinking_only,
            recorded=self._sources.books.answered if self.complete else None,
        )
        return ending if gateway is None else gateway.explain(ending, answer=self._recorder.fold.answer)

    def traces(
        self, *, session_id: str | None, exit_code: int | None, ended: tuple[EndedProcess, ...]
    ) -> Traces:
        """What it leaves behind."""
        return Traces(
            session_id=session_id,
            exit_code=exit_code,
            ended=ended,
            complete=self.complete,
            decisions=tuple(self._desk.trail),
            prices=self._prices,
            finish_reason=self._gateway.finish_reason if self._gateway is not None else None,
            redacted=self._redactor.text,
        )

    def usage(self, requests: Sequence[TokensUsed]) -> Usage | None:
        """The tokens of this turn. With the gateway off, the router's are missing: ACP does not report them."""
        usage = usage_of_requests(requests)
        if usage is None or self._gateway is not None:
            return usage
        return msgspec.structs.replace(usage, requests=None)

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it was stopped, if it was."""
        return self._stopping.reason

    @property
    def lost_process(self) -> bool:
        """Whether the process ended under the turn."""
        return self._answer.gone

    @property
    def complete(self) -> bool:
        return self._sources.complete

    # What the process says.

    def heard(self, update: Update | Unknown) -> None:
        self.deadlines.heard(stdout=True)
        # The results of tools are in the journal before the next answer begins: some are told nowhere else.
        self._sources.journal.look()
        self._add(self._updates.translate(update))

    def remarked(self, remarks: list[Remark], text: str) -> None:
        self._answer.stderr.append(text)
        events: list[Event] = []
        for remark in remarks:
            retry = Retry(remark.attempt, remark.http_status) if remark.code == "retry" else None
            if retry is not None:
                self._retried = (remark, time.monotonic())
            events.append(self._ledger.notice(remark.level, remark.code, remark.message, retry))
        self._sources.tell(events)

    def asked(self, ask: Note) -> None:
        assert ask.permission is not None and self._tasks is not None
        self.deadlines.heard(stdout=True)
        self._sources.journal.look()
        asked, events = self._asks.take(ask)
        self._add(events)
        if self._stopping.reason is not None:
            self._leave_asks()
        else:
            self._tasks.start_soon(self._asks.decide, asked, self._add)

    def _add(self, events: list[Event]) -> None:
        for event in events:
            if type(event) is ToolStarted and event.name == _SHELL and event.id not in self._asks:
                self._shells.began(event.id)
        self._sources.take(events)
        self._shells.look()
        self.deadlines.busy = self._updates.tools_running or bool(self._asks)
        self._check_turns()

    def _check_turns(self) -> None:
        most = self._options.max_turns
        if most is not None and self._ledger.turn > most:
            self.stop(StopReason("max_turns", "the turn took all the model turns that max_turns allows"))

    # Its end.

    def _on_halt(self, halt: Halt) -> None:
        self.stop(StopReason("gateway", halt.message))

    def _put_from_gateway(self, events: list[Event]) -> None:
        self.deadlines.heard(stdout=False)
        self._sources.tell(events)

    def _situation(self) -> Situation | None:
        """What is known now, for whoever asks why nothing is heard."""
        if self._stopping.reason is not None:
            return None
        return situation_of(
            self._options,
            self._seat.process.pid,
            own=self._shells.pids if self._seat.process.is_shared else None,
            permission=self._asks.oldest,
            tools=self._updates.running,
            gateway=self._gateway,
            retried=self._retried,
            spoke_at=self.deadlines.spoke_at,
        )

    def _on_deadline(self, reason: StopReason) -> None:
        self.stop(self._stall.explained(reason))

    async def _stop_when_asked(self, pending: Pending) -> None:
        """Cancel in the CLI's own way, then see to what that has not ended."""
        assert self._stop is not None
        await self._stop.wait()
        since = self._shells.since
        if self._updates.tools_running or self._asks:
            # The CLI keeps the call in its history and adds no answer to it, which the API refuses from then on.
            self._seat.broken = True
        self._leave_asks()
        self.ended += await cancel(
            self._seat,
            pending,
            self._answer,
            self._shells,
            self._options,
            self._stopping,
            shells_since=since,
            sent_at=self._sent_at,
        )
        if not pending.over:
            pending.settle(None)
        self._cleaned.set()

    def _leave_asks(self) -> None:
        reason = self._stopping.reason
        self._asks.leave(None if reason is None else reason.text, self._sources.tell)

    def _settle(self, pending: Pending) -> None:
        if told := self._answer.take(pending):
            self._sources.tell(told)
        if self._answer.failed is not None:
            self._seal_reports()

    def _seal_reports(self) -> None:
        """The CLI has left the conversation in a file that anybody can read."""
        from geminids.run.reading import Reports

        reports = Reports(self._redactor)
        reports.look_in(self._seat.process.plan.env.get("TMPDIR") or "/tmp", self._sent_at)
        reports.seal()

    def _finish(self) -> None:
        if self._asks:
            self._leave_asks()
        self._sources.finish()
        if self._gateway is not None:
            self._gateway.finish()
        self._shells.look()
        self._sources.release()

    def _put(self, events: list[Event], size: int = 0) -> None:
        self._stall.saw(events)
        self._recorder.put(events, size)
