"""One prompt in a session of a warm process, from `session/prompt` to its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import Event, Retry, ToolStarted, Usage
from geminids.events.translate.acp import AcpTranslator
from geminids.events.translate.acp_journal import WarmJournalTranslator
from geminids.gateway.request_log import RequestLog
from geminids.gemini.protocol.acp.calls import Content, Prompt
from geminids.gemini.protocol.acp.messages import Note, Unknown, Update
from geminids.gemini.protocol.outcome.judge import Ending, max_turns
from geminids.gemini.protocol.stderr import Remark
from geminids.options import Options
from geminids.run.accounting.cost import Prices, load_prices_early, usage_of_requests
from geminids.run.attempt import AttemptFacts
from geminids.run.gateway_events import GatewayEvents, ending_of
from geminids.run.recorder import RunRecorder
from geminids.run.stall.snapshot import situation_of
from geminids.run.stall.watch import StallWatch
from geminids.run.stopping import Deadlines, Stopping, StopReason, listed, stopped_ending
from geminids.warm.connection import Pending
from geminids.warm.event_sources import WarmSources
from geminids.warm.permissions.decide import PermissionDecider
from geminids.warm.permissions.pending import PendingPermissions
from geminids.warm.prompt_answer import PromptAnswer, cancel
from geminids.warm.session import AcpSession

if TYPE_CHECKING:
    import anyio
    import psutil
    from anyio.abc import TaskGroup

    from geminids.gateway.messages import Halt
    from geminids.process.tree import Ended
    from geminids.run.stall.snapshot import Situation

__all__ = ["AcpTurn"]

_SHELL = "run_shell_command"


class AcpTurn:
    """Sends one prompt and handles its messages until it ends. A second `stop` skips the grace period."""

    def __init__(
        self,
        session: AcpSession,
        options: Options,
        recorder: RunRecorder,
        decider: PermissionDecider,
        log: RequestLog,
    ) -> None:
        self._session = session
        self._options = options
        self._recorder = recorder
        recorder.redactor = session.process.redactor
        recorder.has_gateway = metered = session.lease.is_open
        self._first_turn = recorder.turn
        self._tools_before = recorder.tool_calls
        self._decider = decider
        self._stopping = Stopping()
        self._prices = Prices(options, session.process.plan.auth.mode, metered=metered)
        self._gateway: GatewayEvents | None = None
        if metered:
            session.lease.begin_turn()
            self._gateway = GatewayEvents(
                session.lease, recorder, self._prices, log, self._put_from_gateway, self._on_halt
            )
        self._sources = WarmSources(session, options, recorder)
        self._updates = self._sources.updates
        self._shells = _TurnShells(session, self._updates, self._sources.journal_translator)
        self._permissions = PendingPermissions(
            session, decider, self._updates, recorder, self._shells.allowed
        )
        self._answer = PromptAnswer(session, recorder)
        self._stop: anyio.Event | None = None
        self._tasks: TaskGroup | None = None
        self._sent_at = 0.0
        self.deadlines = Deadlines(options)
        self._retried: tuple[Remark, float] | None = None
        self._stall = StallWatch(options, self.deadlines, recorder, self._sources.emit, self._situation)
        recorder.observer = self._stall.saw
        self.ended: list[Ended] = []

    def stop(self, reason: StopReason) -> None:
        """Request the end of the turn; the chat stays open."""
        if reason.kind == "caller":
            self._stopping.ask()
        self._stopping.begin(reason)
        if self._stop is not None:
            self._stop.set()

    async def drive(self, blocks: Sequence[Content], began: float | None = None) -> None:
        """Send the prompt and run the turn to its end. After a stop, none of its tools is left running."""
        import anyio

        process = self._session.process
        self._stop, self._cleaned = anyio.Event(), anyio.Event()
        self.deadlines.started(began)
        self.deadlines.heard(stdout=True)
        if self._stopping.reason is not None:
            return
        load_prices_early(self._options)
        process.turns += 1
        self._sent_at = time.time()
        process.attach(self._session.session_id, self)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                prompt = Prompt(session_id=self._session.session_id, prompt=tuple(blocks))
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
            process.detach(self._session.session_id)
            self._finish()

    def ending(self) -> Ending:
        """The outcome of the turn."""
        stopping, gateway = self._stopping, self._gateway
        if gateway is not None and gateway.halted is not None:
            return ending_of(gateway.halted)
        stop = stopping.wanted
        if stop is not None and stop.kind == "max_turns":
            return max_turns()
        if stop is not None and not self._answer.is_end:
            return stopped_ending(stop)
        ending = self._answer.judge(
            self._options,
            turns=self._turns,
            tool_calls=self._recorder.tool_calls - self._tools_before,
            thinking_only=self._updates.thinking_only,
            recorded=self._sources.journal_translator.answered if self._sources.complete else None,
        )
        return ending if gateway is None else gateway.explain(ending, answer=self._recorder.answer)

    def facts(self) -> AttemptFacts:
        """The facts of this attempt, for the result."""
        process = self._session.process
        return AttemptFacts(
            ending=self.ending(),
            stop=self._stopping.reason,
            session_id=self._session.session_id,
            # A shared process can exit for another turn: report its code only if it ended during this one.
            exit_code=process.exit_code if self._answer.gone else None,
            ended=listed(self.ended, process.redactor),
            complete=self._sources.complete,
            decisions=tuple(self._decider.decisions),
            usage=self._usage(),
            prices=self._prices,
            finish_reason=self._gateway.finish_reason if self._gateway is not None else None,
            stall=self._stall.stall,
        )

    def _usage(self) -> Usage | None:
        """The tokens of this turn. With the gateway off, the router's are missing: ACP does not report them."""
        usage = usage_of_requests(self._recorder.requests)
        if usage is None or self._gateway is not None:
            return usage
        return msgspec.structs.replace(usage, requests=None)

    @property
    def _turns(self) -> int:
        """The number of model turns since the prompt was sent."""
        return self._recorder.turn - self._first_turn + 1

    # Messages of the process.

    def on_update(self, update: Update | Unknown) -> None:
        self.deadlines.heard(stdout=True)
        # The journal has tool results before the next answer begins, and some are only there.
        self._sources.journal.look()
        self._add(self._updates.translate(update))

    def on_stderr(self, remarks: list[Remark], text: str) -> None:
        self._answer.stderr.append(text)
        events: list[Event] = []
        for remark in remarks:
            retry = Retry(remark.attempt, remark.http_status) if remark.code == "retry" else None
            if retry is not None:
                self._retried = (remark, time.monotonic())
            events.append(self._recorder.notice(remark.level, remark.code, remark.message, retry))
        self._sources.emit(events)

    def on_permission_request(self, request: Note) -> None:
        assert request.permission is not None and self._tasks is not None
        self.deadlines.heard(stdout=True)
        self._sources.journal.look()
        asked, events = self._permissions.add(request)
        self._add(events)
        if self._stopping.reason is not None:
            self._cancel_permissions()
        else:
            self._tasks.start_soon(self._permissions.decide, asked, self._add)

    def _add(self, events: list[Event]) -> None:
        for event in events:
            if type(event) is ToolStarted and event.name == _SHELL and event.id not in self._permissions:
                self._shells.began(event.id)
        self._sources.add_updates(events)
        self._shells.look()
        self.deadlines.busy = self._updates.tools_running or bool(self._permissions)
        self._check_turns()

    def _check_turns(self) -> None:
        limit = self._options.max_turns
        if limit is not None and self._turns > limit:
            self.stop(StopReason("max_turns", "the turn reached max_turns"))

    # The end of the turn.

    def _on_halt(self, halt: Halt) -> None:
        self.stop(StopReason("gateway", halt.message))

    def _put_from_gateway(self, events: list[Event]) -> None:
        self.deadlines.heard(stdout=False)
        self._sources.emit(events)

    def _situation(self) -> Situation | None:
        """A snapshot of the turn for the stall watch; None after a stop."""
        if self._stopping.reason is not None:
            return None
        return situation_of(
            self._options,
            self._session.process.pid,
            own=self._shells.pids if self._session.process.is_shared else None,
            permission=self._permissions.oldest,
            tools=self._updates.running,
            gateway=self._gateway,
            retried=self._retried,
            spoke_at=self.deadlines.spoke_at,
        )

    def _on_deadline(self, reason: StopReason) -> None:
        self.stop(self._stall.explained(reason))

    async def _stop_when_asked(self, pending: Pending) -> None:
        """After a stop: cancel the prompt, then end the shells that the CLI left running."""
        assert self._stop is not None
        await self._stop.wait()
        since = self._shells.since
        if self._updates.tools_running or self._permissions:
            # After a cancel the history has a tool call without a result, and the API rejects every later request.
            self._session.broken = True
        self._cancel_permissions()
        self.ended += await cancel(
            self._session,
            pending,
            self._answer,
            self._shells.born_since,
            self._options,
            self._stopping,
            shells_since=since,
            sent_at=self._sent_at,
        )
        if not pending.over:
            pending.settle(None)
        self._cleaned.set()

    def _cancel_permissions(self) -> None:
        reason = self._stopping.reason
        self._permissions.cancel(None if reason is None else reason.text, self._sources.emit)

    def _settle(self, pending: Pending) -> None:
        if notices := self._answer.take(pending):
            self._sources.emit(notices)
        if self._answer.failed is not None:
            self._seal_reports()

    def _seal_reports(self) -> None:
        """Restrict access to the CLI's error reports: they hold the conversation and are world-readable."""
        from geminids.run.headless.reader import Reports

        reports = Reports(self._recorder.redactor)
        reports.look_in(self._session.process.plan.env.get("TMPDIR") or "/tmp", self._sent_at)
        reports.seal()

    def _finish(self) -> None:
        if self._permissions:
            self._cancel_permissions()
        self._sources.finish()
        if self._gateway is not None:
            self._gateway.finish()
        self._shells.look()
        self._sources.release()
        self._recorder.observer = None


class _TurnShells:
    """Reports the shell commands of one turn to the shell tracker, from the updates and the journal."""

    def __init__(
        self, session: AcpSession, updates: AcpTranslator, journal_translator: WarmJournalTranslator
    ) -> None:
        self._session = session
        self._updates = updates
        self._journal_translator = journal_translator
        self._open: dict[str, None] = {}

    def began(self, call_id: str, *, now: bool = False) -> None:
        """A shell starts; `now`: it waited for our permission, so it did not start earlier."""
        self._open[call_id] = None
        self._session.process.shells.began(self._session.session_id, call_id, now=now)

    def allowed(self, call_id: str) -> None:
        """A shell that waited for our permission starts."""
        self.began(call_id, now=True)

    def look(self) -> None:
        """Report shells that ended and process groups that the journal named."""
        shells, session_id = self._session.process.shells, self._session.session_id
        for group in self._journal_translator.groups:
            shells.group(session_id, group)
        self._journal_translator.groups.clear()
        for call_id in [call_id for call_id in self._open if not self._updates.is_open(call_id)]:
            del self._open[call_id]
            shells.ended(session_id, call_id)

    @property
    def since(self) -> float | None:
        """Start time of the oldest shell that still runs."""
        return self._session.process.shells.running_since(self._session.session_id)

    def born_since(self, since: float) -> list[psutil.Process]:
        """The processes of this chat that started after `since`."""
        return self._session.process.shells.of(self._session.session_id, since)

    def pids(self) -> set[int]:
        """The pids that certainly belong to tools of this chat. Called from another thread."""
        return {process.pid for process in self._session.process.shells.of(self._session.session_id)}
