"""One prompt in a session of a warm process, from `session/prompt` to its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from geminids.events.fold import Fold
from geminids.events.from_acp import AcpTranslator
from geminids.events.from_acp_journal import WarmJournalTranslator
from geminids.events.ledger import Ledger
from geminids.events.model import (
    Decision,
    Event,
    PermissionAsked,
    Retry,
    TokensUsed,
    ToolFinished,
    ToolStarted,
    Usage,
)
from geminids.options import Options
from geminids.run.cost import Bill, bill_of, prepare
from geminids.run.deadlines import Deadlines
from geminids.run.journal import Journal
from geminids.run.merge import Merge
from geminids.run.outbox import Outbox
from geminids.run.overseer import Overseer, ending_of
from geminids.run.stall import StallWatch
from geminids.run.stall_scene import situation_of
from geminids.run.stopping import Stopping
from geminids.run.usage import counted, differences, overseen
from geminids.run.warm.asks import asked_of, option_of
from geminids.run.warm.connection import Gone, Pending, RpcFailed
from geminids.run.warm.permission import Desk, Said
from geminids.run.warm.seat import Seat
from geminids.wire.acp import Note, Unknown, Update
from geminids.wire.acp_answers import Stopped, stopped_of
from geminids.wire.acp_calls import Cancel, Content, Prompt
from geminids.wire.acp_endings import TurnEvidence, judge_turn
from geminids.wire.endings import Ending, max_turns
from geminids.wire.stderr import Remark
from geminids.wire.tools import told

if TYPE_CHECKING:
    import anyio
    import psutil
    from anyio.abc import TaskGroup

    from geminids.gateway.told import Halt
    from geminids.process.tree import Ended
    from geminids.run.stall_situation import Situation

__all__ = ["WarmTurn"]

_SHELL = "run_shell_command"
_SHELL_GRACE = 1.0
# Tools that ask a model themselves.
_ASK_MODELS = ("google_web_search", "web_fetch")
_TOO_MANY_TURNS = "the turn took all the model turns that max_turns allows"
_NO_ANSWER = "the CLI did not answer when it was asked to stop"


class WarmTurn:
    """Drives one prompt. `stop` asks for its end; asked again, the grace is cut short."""

    def __init__(
        self, seat: Seat, options: Options, ledger: Ledger, outbox: Outbox, fold: Fold, desk: Desk
    ) -> None:
        self._seat = seat
        self._options = options
        self._ledger = ledger
        self._outbox = outbox
        self._fold = fold
        self._desk = desk
        self._redactor = seat.process.redactor
        self._merge = Merge(self._put)
        self._updates = AcpTranslator(
            ledger,
            self._redactor,
            seat.session_id,
            seat.cwd,
            seat.process.plan.verdicts.why_not,
            self._merge.excuse,
        )
        self._books = WarmJournalTranslator(ledger, self._redactor, self._updates, seat.known)
        self._journal = self._follow()
        gate = seat.gate
        overseen = gate is not None and gate.lease is not None
        self._overseer = Overseer(gate, ledger, self._put_seen, self._on_halt) if gate and overseen else None
        self._allowance = gate.allowance() if gate is not None else None
        self._stopping = Stopping()
        self._asks: dict[str, tuple[Note, PermissionAsked, float]] = {}
        self._shells: dict[str, None] = {}
        self._stop: anyio.Event | None = None
        self._tasks: TaskGroup | None = None
        self._stderr: list[str] = []
        self._stopped: Stopped | None = None
        self._failed: RpcFailed | None = None
        self._gone = False
        self._sent_at = 0.0
        self._unanswered = False
        self._asked_models = False
        self.deadlines = Deadlines(options)
        self._retried: tuple[Remark, float] | None = None
        self._stall = StallWatch(
            options, self.deadlines, ledger, self._redactor, self._put_stall, self._situation
        )
        self.ended: list[Ended] = []

    def stop(self, reason: str, *, by_deadline: bool = False) -> None:
        """Ask for the end of the turn, and not of the chat."""
        if not by_deadline:
            self._stopping.ask()
        self._stopping.begin(reason, by_deadline=by_deadline)
        if self._stop is not None:
            self._stop.set()

    async def drive(self, blocks: Sequence[Content]) -> None:
        """Send the prompt and see it through to its end; nothing of it is left running when it was stopped."""
        import anyio

        process = self._seat.process
        self._stop, self._cleaned = anyio.Event(), anyio.Event()
        self.deadlines.started()
        self.deadlines.heard(stdout=True)
        if self._allowance is not None and (halt := self._allowance.begin()):
            self._on_halt(halt)
        if self._stopping.reason is not None:
            return
        prepare(self._options)
        process.turns += 1
        self._sent_at = time.time()
        process.attach(self._seat.session_id, self)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                prompt = Prompt(session_id=self._seat.session_id, prompt=tuple(blocks))
                pending = process.connection.begin(prompt)
                tasks.start_soon(self._journal.watch)
                tasks.start_soon(self.deadlines.watch, self._on_deadline)
                tasks.start_soon(self._stall.watch)
                if self._overseer is not None:
                    tasks.start_soon(self._overseer.watch)
                tasks.start_soon(self._stop_when_asked, pending)
                await pending.wait()
                self._settle(pending)
                if self._stop.is_set():
                    await self._cleaned.wait()
                if self._overseer is not None:
                    await self._overseer.settle()
                tasks.cancel_scope.cancel()
        finally:
            process.detach(self._seat.session_id)
            self._finish()

    def ending(self) -> Ending:
        """What it was."""
        stopping = self._stopping
        if self._halted is not None:
            return ending_of(self._halted)
        if stopping.reason == _TOO_MANY_TURNS:
            return max_turns()
        if stopping.wanted and not (self._stopped and self._stopped.reason == "end_turn"):
            return Ending("timed_out" if stopping.by_deadline else "interrupted", stopping.reason)
        error = self._failed.error if self._failed else None
        counts = self._stopped.counts if self._stopped else None
        ending = judge_turn(
            TurnEvidence(
                stop_reason=self._stopped.reason if self._stopped else None,
                code=error.code if error else None,
                message=self._redacted(error.message) if error else None,
                data=self._redacted(error.details) if error else None,
                answer=self._fold.answer,
                text=self._fold.text,
                turns=self._ledger.turn,
                max_turns=self._options.max_turns,
                tool_calls=self._fold.tool_calls,
                tokens=(counts.input_tokens or 0) + (counts.output_tokens or 0) if counts else None,
                thinking_only=self._updates.thinking_only,
                recorded=self._books.answered if self.complete else None,
                stderr="".join(self._stderr)[-65536:]
                or (self._seat.process.stderr_tail if self._gone else ""),
                gone=self._gone,
                exit_code=self._seat.process.exit_code if self._gone else None,
            )
        )
        return ending if self._overseer is None else self._overseer.explained(ending)

    @property
    def _halted(self) -> Halt | None:
        """What has stopped the turn, where that was its budget or the gateway."""
        if self._overseer is not None:
            return self._overseer.halted
        halted = self._allowance.halted if self._allowance is not None else None
        # It counts to the end: what it finds when the turn is over has stopped nothing.
        return halted if halted is not None and halted.message == self._stopping.reason else None

    @property
    def bill(self) -> Bill:
        """Who pays."""
        options, mode = self._options, self._seat.process.plan.auth.mode
        return bill_of(options, mode, model=options.model, overseen=self._overseer is not None)

    def usage(self, known: Sequence[TokensUsed]) -> tuple[list[TokensUsed], Usage | None]:
        """The requests that have not been told yet, and the usage."""
        if self._overseer is None:
            # The router of `auto` is told nowhere on this lane: then nobody can say how many requests there were.
            return counted(known, self.counts, self._ledger, each=self.tells_each)
        for text in differences(known, self._ledger.aside if self.complete else None, None):
            self._put([self._ledger.notice("warning", "tokens", text)])
        return [], overseen(known)

    @property
    def counts(self) -> tuple[int | None, int | None]:
        """Input and output as the answer tells them."""
        counts = self._stopped.counts if self._stopped else None
        return (counts.input_tokens, counts.output_tokens) if counts else (None, None)

    @property
    def lost_process(self) -> bool:
        """Whether the process ended under the turn."""
        return self._gone

    @property
    def complete(self) -> bool:
        return self._journal.whole

    @property
    def tells_each(self) -> bool:
        """Whether each request to a model is known: those of the router and of such tools are told by no source."""
        return self.complete and self._options.model not in (None, "auto") and not self._asked_models

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(self._desk.trail)

    # What the process says.

    def heard(self, update: Update | Unknown) -> None:
        self.deadlines.heard(stdout=True)
        # The results of tools are in the journal before the next answer begins: some are told nowhere else.
        self._journal.look()
        self._add(self._updates.translate(update))

    def remarked(self, remarks: list[Remark], text: str) -> None:
        self._stderr.append(text)
        events: list[Event] = []
        for remark in remarks:
            retry = Retry(remark.attempt, remark.http_status) if remark.code == "retry" else None
            if retry is not None:
                self._retried = (remark, time.monotonic())
            events.append(self._ledger.notice(remark.level, remark.code, remark.message, retry))
        self._merge.add(events)

    def asked(self, ask: Note) -> None:
        assert ask.permission is not None and self._tasks is not None
        self.deadlines.heard(stdout=True)
        self._journal.look()
        started, events = self._updates.asked(ask.permission.tool_call)
        asked = asked_of(ask.permission, started, self._ledger, self._seat.cwd, self._redactor)
        self._asks[asked.id] = (ask, asked, time.monotonic())
        self._add([*events, asked])
        if self._stopping.reason is not None:
            self._leave_asks()
        else:
            self._tasks.start_soon(self._decide, asked)

    async def _decide(self, asked: PermissionAsked) -> None:
        decided = await self._desk.decide(asked)
        ask, _, _ = self._asks.pop(asked.id, (None, None, None))
        if ask is None or ask.permission is None:
            return  # the turn was stopped meanwhile: that was the answer
        option = option_of(ask.permission, yes=decided.decision != "deny")
        events: list[Event] = [decided]
        if decided.decision == "deny" or option is None:
            events += self._updates.refused(asked.id, decided.reason or f"denied by the {decided.by}")
        else:
            self._updates.allowed(asked.id)
            if asked.command is not None:
                self._began_shell(asked.id, now=True)
        # First the answer: the tool need not wait for whoever reads the events.
        self._seat.process.connection.answer(ask, option)
        self._add(events)

    def _add(self, events: list[Event]) -> None:
        for event in events:
            if type(event) is ToolStarted and event.name == _SHELL and event.id not in self._asks:
                self._began_shell(event.id)
        ends = self._updates.tools_ended
        self._merge.add(events)
        if ends and self._merge.held:
            self._journal.look()
        self._end_shells()
        self.deadlines.busy = self._updates.tools_running or bool(self._asks)
        self._check_turns()

    def _began_shell(self, call_id: str, *, now: bool = False) -> None:
        self._shells[call_id] = None
        self._seat.process.shells.began(self._seat.session_id, call_id, now=now)

    def _end_shells(self) -> None:
        for group in self._books.groups:
            self._seat.process.shells.group(self._seat.session_id, group)
        self._books.groups.clear()
        for call_id in [one for one in self._shells if not self._updates.is_open(one)]:
            del self._shells[call_id]
            self._seat.process.shells.ended(self._seat.session_id, call_id)

    def _check_turns(self) -> None:
        most = self._options.max_turns
        if most is not None and self._ledger.turn > most:
            self.stop(_TOO_MANY_TURNS, by_deadline=True)

    # Its end.

    def _on_halt(self, halt: Halt) -> None:
        self.stop(halt.message, by_deadline=True)

    def _put_seen(self, events: list[Event]) -> None:
        self.deadlines.heard(stdout=False)
        self._merge.add(events)

    def _put_stall(self, events: list[Event]) -> None:
        self._merge.add(events)

    def _situation(self) -> Situation | None:
        """What is known now, for whoever asks why nothing is heard."""
        if self._stopping.reason is not None:
            return None
        return situation_of(
            self._options,
            self._seat.process.pid,
            permission=next(((asked, began) for _, asked, began in self._asks.values()), None),
            tools=self._updates.running,
            overseer=self._overseer,
            retried=self._retried,
            spoke_at=self.deadlines.spoke_at,
        )

    def _on_deadline(self, reason: str) -> None:
        self.stop(self._stall.explained(reason), by_deadline=True)

    async def _stop_when_asked(self, pending: Pending) -> None:
        """Cancel in the CLI's own way, then see to what that has not ended; its neighbours notice nothing."""
        import anyio

        from geminids.process import stop

        assert self._stop is not None
        await self._stop.wait()
        seat = self._seat
        since = seat.process.shells.running_since(seat.session_id)
        if self._updates.tools_running or self._asks:
            # The CLI keeps the call in its history and adds no answer to it, which the API refuses from then on.
            seat.broken = True
        self._leave_asks()
        seat.process.connection.note(Cancel(session_id=seat.session_id))
        until = time.monotonic() + self._options.grace
        while not pending.over and time.monotonic() < until and not self._stopping.hurry:
            with anyio.move_on_after(0.02):
                await pending.wait()
        if not pending.over:
            self._unanswered = seat.broken = True
            since = since or self._sent_at  # a tool may have begun that we have not heard of
            seat.process.heard_at = 0.0  # whoever wants to sit there next asks whether it is well
        if since is not None:
            # What the CLI's own cancel has not ended; what earlier turns have left on purpose stays.
            def find() -> list[psutil.Process]:
                return seat.process.shells.of(seat.session_id, since)

            self.ended += await stop.end_found(find, min(self._options.grace, _SHELL_GRACE))
        if not pending.over:
            pending.settle(None)
        self._cleaned.set()

    def _leave_asks(self) -> None:
        """Nobody's answer is waited for any longer."""
        for ask, asked, began in list(self._asks.values()):
            decided = self._desk.note(asked, Said("deny", "cancel", self._stopping.reason), began)
            self._seat.process.connection.answer(ask, None)
            events = self._updates.refused(asked.id, "the turn was stopped before anybody answered")
            self._merge.add([decided, *events])
        self._asks.clear()

    def _settle(self, pending: Pending) -> None:
        try:
            self._stopped = stopped_of(pending.result())
        except RpcFailed as failed:
            self._failed = failed
            self._seal_reports()
        except Gone:
            self._gone = not self._unanswered
            if self._unanswered:
                self._merge.add([self._ledger.notice("error", "cancel", _NO_ANSWER)])
        except msgspec.DecodeError as error:
            told = f"the answer to the prompt cannot be read: {error}"
            self._merge.add([self._ledger.notice("error", "protocol", told)])

    def _seal_reports(self) -> None:
        """The CLI has left the conversation in a file that anybody can read."""
        from geminids.run.reports import Reports

        reports = Reports(self._redactor)
        reports.look_in(self._seat.process.plan.env.get("TMPDIR") or "/tmp", self._sent_at)
        reports.seal()

    def _finish(self) -> None:
        if self._asks:
            self._leave_asks()
        self._journal.look()
        self._merge.add(self._updates.finish())
        self._journal.finish()
        if self._overseer is not None:
            self._overseer.look()
        self._end_shells()
        self._merge.release(now=True)

    def _follow(self) -> Journal:
        home = self._options.home
        return Journal(
            self._merge,
            self._updates,
            self._ledger,
            self._redactor,
            lambda _: self._seat.find_journal(home),
            resumed=self._seat.find_journal(home),
            resumed_id=self._seat.session_id,
            translator=self._books,
        )

    def _redacted(self, text: str | None) -> str | None:
        return None if text is None else self._redactor.text(text)

    def _explained(self, event: Event) -> Event:
        """A call that a rule denied, with our own reason: that needs the arguments, which the journal has told."""
        if type(event) is not ToolFinished or event.status != "denied" or event.input is None:
            return event
        why = self._seat.process.plan.verdicts.why_not(event.name, event.input)
        if why is None or (event.error or "").startswith(why):
            return event
        return msgspec.structs.replace(event, error=told(why, event.error))

    def _put(self, events: list[Event], size: int = 0) -> None:
        events = [self._explained(event) for event in events]
        self._asked_models |= any(
            type(one) is ToolFinished and one.name in _ASK_MODELS and one.status != "denied" for one in events
        )
        self._stall.saw(events)
        self._fold.add(events)
        self._outbox.put(events, size)
        if self._allowance is not None and (halt := self._allowance.hear(events)):
            self._on_halt(halt)
