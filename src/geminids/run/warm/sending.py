"""One prompt of a chat as callers hold it: `async for event in chat.send(…)`, and its result afterwards."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from geminids.errors import GeminidsError
from geminids.events.fold import Fold
from geminids.events.ledger import Ledger
from geminids.events.model import Decision, EndedProcess, Event, Started
from geminids.ids import new_run_id
from geminids.launch.refused import Refused
from geminids.options import Options
from geminids.options.checks import LIMITS
from geminids.run.cost import Bill
from geminids.run.errands import Errands
from geminids.run.finishing import finished_of
from geminids.run.mishaps import our_fault
from geminids.run.outbox import Events, Outbox
from geminids.run.patience import see_through
from geminids.run.result import Result
from geminids.run.stopping import listed
from geminids.run.warm.connection import Gone, RpcFailed
from geminids.run.warm.permission import Desk
from geminids.run.warm.prompt import blocks_of, is_command
from geminids.run.warm.seat import Seat
from geminids.run.warm.turn import WarmTurn
from geminids.run.without_power import without_power
from geminids.wire.endings import Ending

if TYPE_CHECKING:
    import anyio

    from geminids.run.run import Run
    from geminids.run.warm.chat import Chat

__all__ = ["Sending"]

_BY_CALLER = "interrupted by the caller"


class Sending:
    """A turn of a chat. It goes on whether it is read or not; `stop` or the end of the chat ends it."""

    def __init__(self, chat: Chat, prompt: str, options: Options) -> None:
        import anyio

        self.id = new_run_id()
        self.options = options
        self._chat = chat
        self._prompt = prompt
        self._ledger = Ledger()
        self._outbox = Outbox()
        self._fold = Fold()
        self._events = Events(self._outbox)
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
            self._turn.stop(reason, by_deadline=by_deadline)
        elif self._waiting is not None:
            self._waiting.cancel()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events

    async def next_batch(self) -> Sequence[Event] | None:
        """The events that have come since the last batch; waits for one, None after the last."""
        return await self._outbox.take()

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
        self._put([*self._opening(seat), self._started(seat)])
        desk = Desk(
            self._ledger,
            seat.process.redactor,
            chat.seating.verdicts,
            seat.always,
            chat.on_permission,
            self.options.permission_timeout,
        )
        if seat.gate is not None:
            where = (seat.session_id, seat.cwd)
            seat.gate.errands = Errands.of(self.id, self.options, self._ledger, lambda: where)
        turn = self._turn = WarmTurn(seat, self.options, self._ledger, self._outbox, self._fold, desk)
        if self._reason is not None:
            turn.stop(self._reason)
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
        budgets = seating.gate.purses
        run = self._run = Run(self._prompt, options, notices=seating.take_notices(), budgets=budgets)
        self._chat.seating.let_go()
        if self._reason is not None:
            run.stop(self._reason)
        async with run:
            while (batch := await run.next_batch()) is not None:
                self._outbox.put(batch)
        self._result = run.result
        self._chat.went_on(self._prompt, run.result)

    def _opening(self, seat: Seat) -> list[Event]:
        told = [self._ledger.notice(*notice) for notice in self._chat.seating.take_notices()]
        if is_command(self._prompt) and not self.options.literal:
            what = "commands are not run on the warm lane: it was sent as a text"
            told.append(self._ledger.notice("warning", "command", what))
        return [*without_power(self._chat.seating.take_neutralised(), self._ledger), *told]

    def _started(self, seat: Seat) -> Started:
        plan = seat.process.plan
        return Started(
            at=int(time.time() * 1000),
            seq=self._ledger.next(),
            attempt=self._ledger.attempt,
            turn=self._ledger.turn,
            run_id=self.id,
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
        turn = self._turn
        new, usage = turn.usage(self._fold.tokens) if turn is not None else ([], None)
        self._put(list(new))
        finished, self._result = finished_of(
            self.id,
            ending,
            self,
            self._fold,
            self._ledger,
            usage,
            began=self.began,
            conversation=self._fold.conversation(self.redacted) if turn else b"",
        )
        self._chat.ended(self._prompt, self._result)
        self._outbox.put([finished])

    # What it leaves behind.

    def redacted(self, text: str) -> str:
        return self._seat.process.redactor.text(text) if self._seat is not None else text

    @property
    def session_id(self) -> str | None:
        return self._seat.session_id if self._seat is not None else self._chat.session_id

    @property
    def exit_code(self) -> int | None:
        return self._seat.process.exit_code if self._seat is not None else None

    @property
    def ended(self) -> tuple[EndedProcess, ...]:
        if self._seat is None or self._turn is None:
            return ()
        return listed(self._turn.ended, self._seat.process.redactor)

    @property
    def bill(self) -> Bill | None:
        return self._turn.bill if self._turn is not None else None

    @property
    def complete(self) -> bool:
        return self._turn is not None and self._turn.complete

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return self._turn.decisions if self._turn is not None else ()

    def _put(self, events: list[Event]) -> None:
        self._fold.add(events)
        self._outbox.put(events)
