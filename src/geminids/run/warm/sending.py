"""One prompt of a chat as callers hold it: `async for event in chat.send(…)`, and its result afterwards."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from geminids.errors import GeminidsError
from geminids.events.model import Event, Started
from geminids.gateway.request_log import RequestLog
from geminids.launch.errors import Refused
from geminids.options import Options
from geminids.options.checks import LIMITS
from geminids.run.recorder import EventStream, RunRecorder, Traces, finished_of, without_power
from geminids.run.result import Result, our_fault
from geminids.run.stopping import StopReason, listed, see_through
from geminids.run.warm.connection import Gone, RpcFailed
from geminids.run.warm.permission import Desk
from geminids.run.warm.prompt import blocks_of, is_command
from geminids.run.warm.seat import Seat
from geminids.run.warm.turn import WarmTurn
from geminids.wire.endings import Ending

if TYPE_CHECKING:
    import anyio

    from geminids.run.run import Run
    from geminids.run.warm.chat import Chat

__all__ = ["Sending"]

_BY_CALLER = "interrupted by the caller"


class Sending(EventStream):
    """A turn of a chat. It goes on whether it is read or not; `stop` or the end of the chat ends it."""

    def __init__(self, chat: Chat, prompt: str, options: Options) -> None:
        import anyio

        self._recorder = RunRecorder()
        super().__init__(self._recorder.outbox)
        self.id = self._recorder.run_id
        self.options = options
        self._chat = chat
        self._prompt = prompt
        self.began = time.monotonic()
        """When it began, for `duration_ms`: whoever has waited for the chat to open may say so."""
        self._turn: WarmTurn | None = None
        self._seat: Seat | None = None
        self._run: Run | None = None
        self._reason: str | None = None
        self._waiting: anyio.CancelScope | None = None
        self._result: Result | None = None
        self.done: anyio.Event = anyio.Event()

    @property
    def result(self) -> Result:
        """How the turn ended; raises `GeminidsError` while it goes on."""
        if self._result is None:
            raise GeminidsError(
                "the turn is not over yet", hint="Read its events to the end, or await `ask`."
            )
        return self._result

    def stop(self, reason: str = _BY_CALLER, *, by_deadline: bool = False) -> None:
        """Ask the turn to end; asked again, it is ended at once. The chat goes on."""
        self._reason = self._reason or reason
        if self._run is not None:
            self._run.stop(reason)
        elif self._turn is not None:
            self._turn.stop(StopReason("timeout" if by_deadline else "caller", reason))
        elif self._waiting is not None:
            self._waiting.cancel()

    async def __aenter__(self) -> Sending:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    async def end(self) -> None:
        """Stop it where it still goes on, and wait until nothing of it is left."""
        if not self.done.is_set():
            self.stop()
        await see_through(self.done, self.stop)

    async def drive(self) -> None:
        """See the turn through, whatever becomes of the consumer."""
        import anyio

        with anyio.CancelScope(shield=True):
            try:
                await self._through()
            except Exception as error:
                self._finish(our_fault(error, self.redacted))
            finally:
                if self._result is None:
                    self._finish(Ending("interrupted", "interrupted: the event loop was taken down"))
                self.done.set()
                self._outbox.close()

    async def _through(self) -> None:
        import anyio

        async with self._chat.turns:
            if self._reason is not None:
                self._finish(Ending("interrupted", self._reason))
                return
            seat: Seat | None = None
            with anyio.move_on_after(self.options.timeout) as self._waiting:
                seat = await self._seated()
            if self._result is not None:
                return
            if self._waiting.cancel_called:
                self._finish(self._never_sent())
            elif seat is None:
                await self._headless()
            else:
                await self._warm(seat)

    async def _seated(self) -> Seat | None:
        """A session for the prompt; None where the other lane takes it, or where it is over before it began."""
        seating = self._chat.seating
        try:
            return await seating.take()
        except Refused as refused:
            if not seating.goes_cold(refused):
                self._finish(Ending("failed", refused.failure.message, refused.failure))
        except (Gone, RpcFailed, OSError, TimeoutError) as error:
            self._finish(seating.why_not(error))
        return None

    def _never_sent(self) -> Ending:
        if self._reason is not None:
            return Ending("interrupted", self._reason)
        return Ending("timed_out", f"timed out after {self.options.timeout:g} s of waiting for a session")

    async def _warm(self, seat: Seat) -> None:
        self._seat = seat
        chat = self._chat
        try:
            blocks = blocks_of(self._prompt, self.options, seat.cwd, self.id, chat.seating.handover)
        except Refused as refused:
            self._finish(Ending("failed", refused.failure.message, refused.failure))
            return
        self._recorder.put([*self._opening(), self._started(seat)])
        desk = Desk(
            self._recorder.ledger,
            seat.process.redactor,
            chat.seating.verdicts,
            seat.always,
            chat.on_permission,
            self.options.permission_timeout,
        )
        free = self.options.offline or self.options.replay is not None
        log = RequestLog(self.id, lambda: (seat.session_id, seat.cwd), free=free)
        turn = self._turn = WarmTurn(seat, self.options, self._recorder, desk, log)
        if self._reason is not None:
            turn.stop(StopReason("caller", self._reason))
        await turn.drive(blocks)
        if not seat.process.alive:
            await seat.process.gone()
        self._finish(turn.ending())

    async def _headless(self) -> None:
        """The conversation goes on by the other lane, which resumes it from its file."""
        from geminids.run.run import Run

        options = msgspec.structs.replace(self.options, resume=self._chat.session_id)
        seating = self._chat.seating
        # What the chat may spend is spent on this lane too.
        options = msgspec.structs.replace(options, **dict.fromkeys(LIMITS))
        budgets = seating.lease.budgets
        run = self._run = Run(self._prompt, options, notices=seating.take_notices(), budgets=budgets)
        self._chat.seating.let_go()
        if self._reason is not None:
            run.stop(self._reason)
        async with run:
            while (batch := await run.next_batch()) is not None:
                self._outbox.put(batch)
        self._result = run.result
        self._chat.went_on(self._prompt, run.result)

    def _opening(self) -> list[Event]:
        ledger = self._recorder.ledger
        told = [ledger.notice(*notice) for notice in self._chat.seating.take_notices()]
        if is_command(self._prompt) and not self.options.literal:
            what = "commands are not run on the warm lane: it was sent as a text"
            told.append(ledger.notice("warning", "command", what))
        return [*without_power(self._chat.seating.take_neutralised(), ledger), *told]

    def _started(self, seat: Seat) -> Started:
        plan = seat.process.plan
        return self._recorder.started(
            session_id=seat.session_id,
            model=self._chat.model,
            cwd=seat.cwd,
            cli_version=plan.gemini.version,
            lane="warm",
            pid=seat.process.pid,
            approval=self._chat.mode,
            prompt=seat.process.redactor.text(self._prompt),
        )

    def _finish(self, ending: Ending) -> None:
        if self._result is not None:
            return
        turn, fold = self._turn, self._recorder.fold
        usage = turn.usage(fold.tokens) if turn is not None else None
        finished, self._result = finished_of(
            self._recorder,
            ending,
            self._traces(),
            usage,
            began=self.began,
            conversation=fold.conversation(self.redacted) if turn else b"",
        )
        self._chat.ended(self._prompt, self._result)
        self._outbox.put([finished])

    def redacted(self, text: str) -> str:
        return self._seat.process.redactor.text(text) if self._seat is not None else text

    def _traces(self) -> Traces:
        """What it leaves behind."""
        if self._seat is None:
            return Traces(session_id=self._chat.session_id)
        session_id, process, turn = self._seat.session_id, self._seat.process, self._turn
        if turn is None:
            return Traces(session_id=session_id, exit_code=process.exit_code, redacted=self.redacted)
        ended = listed(turn.ended, process.redactor)
        return turn.traces(session_id=session_id, exit_code=process.exit_code, ended=ended)
