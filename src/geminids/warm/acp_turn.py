"""Run one prompt in a session of a warm process, from `session/prompt` to the end of the turn.

A warm process is a CLI process that stays alive and answers several prompts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio.abc import TaskGroup

from geminids.events.model import Event, Retry, ToolStarted, Usage
from geminids.events.translate.acp import AcpTranslator
from geminids.events.translate.acp_journal import WarmJournalTranslator
from geminids.gateway.messages import Halt
from geminids.gateway.request_log import RequestLog
from geminids.gemini.protocol.acp.calls import Content, SendPrompt
from geminids.gemini.protocol.acp.messages import RpcRequest, Unknown, Update
from geminids.gemini.protocol.outcome.judge import Ending, max_turns
from geminids.gemini.protocol.stderr import StderrNotice
from geminids.options import Options
from geminids.run.accounting.cost import Prices, load_prices_early, usage_of_requests
from geminids.run.attempt import AttemptFacts
from geminids.run.gateway_events import GatewayEvents, ending_of
from geminids.run.headless.reader import Reports
from geminids.run.recorder import RunRecorder
from geminids.run.stall.snapshot import Situation, situation_of
from geminids.run.stall.watch import StallWatch
from geminids.run.stopping import Deadlines, Stopping, StopReason, listed, stopped_ending
from geminids.warm.acp.connection import PendingRequest
from geminids.warm.acp.event_sources import WarmSources
from geminids.warm.acp.prompt_answer import PromptAnswer, cancel_prompt
from geminids.warm.acp.session import AcpSession
from geminids.warm.permissions.decide import PermissionDecider
from geminids.warm.permissions.pending import PendingPermissions

if TYPE_CHECKING:
    from geminids.process.tree import Ended

__all__ = ["AcpTurn"]

_SHELL = "run_shell_command"


class AcpTurn:
    """Sends one prompt to a session, and handles the CLI's messages until the turn ends.

    After a call of `stop`, the CLI gets a grace period to end the turn itself. If the caller stops
    the turn a second time, the rest of the grace period is skipped.
    """

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
                session.lease, recorder, self._prices, log, self._emit_from_gateway, self._on_halt
            )
        self._sources = WarmSources(session, options, recorder)
        self._updates = self._sources.updates
        self._shells = _TurnShells(session, self._updates, self._sources.journal_translator)
        self._permissions = PendingPermissions(
            session, decider, self._updates, recorder, self._shells.allowed
        )
        self._answer = PromptAnswer(session, recorder)
        self._stop_requested = anyio.Event()
        self._cleaned_up = anyio.Event()
        self._tasks: TaskGroup | None = None
        self._sent_at = 0.0
        self.deadlines = Deadlines(options)
        self._last_retry: tuple[StderrNotice, float] | None = None
        self._stall = StallWatch(options, self.deadlines, recorder, self._sources.emit, self._situation)
        recorder.observer = self._stall.saw
        self.ended: list[Ended] = []

    def stop(self, reason: StopReason) -> None:
        """Ask the CLI to end the turn. The chat stays open."""
        if reason.kind == "caller":
            self._stopping.ask()
        self._stopping.begin(reason)
        self._stop_requested.set()

    async def drive(self, blocks: Sequence[Content], began: float | None = None) -> None:
        """Send the prompt and run the turn to its end.

        `began` is the start time for the time-out (monotonic); None means now. If the turn is
        stopped, its tools are ended before this method returns.
        """
        process = self._session.process
        self.deadlines.started(began)
        self.deadlines.note_output(stdout=True)
        if self._stopping.reason is not None:
            return
        load_prices_early(self._options)
        process.turns += 1
        self._sent_at = time.time()
        process.attach(self._session.session_id, self)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                prompt = SendPrompt(session_id=self._session.session_id, prompt=tuple(blocks))
                pending = process.connection.begin(prompt)
                tasks.start_soon(self._sources.journal.watch)
                tasks.start_soon(self.deadlines.watch, self._on_deadline)
                tasks.start_soon(self._stall.watch)
                if self._gateway is not None:
                    tasks.start_soon(self._gateway.watch)
                tasks.start_soon(self._stop_when_asked, pending)
                await pending.wait()
                self._receive_answer(pending)
                if self._stop_requested.is_set():
                    await self._cleaned_up.wait()
                if self._gateway is not None:
                    await self._gateway.settle()
                tasks.cancel_scope.cancel()
        finally:
            process.detach(self._session.session_id)
            self._finish()

    def ending(self) -> Ending:
        """Return the outcome of the turn, with its reason and failure."""
        stopping, gateway = self._stopping, self._gateway
        if gateway is not None and gateway.halted is not None:
            return ending_of(gateway.halted)
        stop = stopping.wanted
        if stop is not None and stop.kind == "max_turns":
            return max_turns()
        if stop is not None and not self._answer.ended_turn:
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
        """Return the facts about this turn from which the result is built."""
        process = self._session.process
        return AttemptFacts(
            ending=self.ending(),
            stop=self._stopping.reason,
            session_id=self._session.session_id,
            # A process can also end because of another chat. Report its exit code only if it ended
            # during this turn.
            exit_code=process.exit_code if self._answer.process_gone else None,
            ended=listed(self.ended, process.redactor),
            complete=self._sources.complete,
            decisions=tuple(self._decider.decisions),
            usage=self._usage(),
            prices=self._prices,
            finish_reason=self._gateway.finish_reason if self._gateway is not None else None,
            stall=self._stall.stall,
        )

    def _usage(self) -> Usage | None:
        """Return the token counts of this turn. Return None if no request was reported.

        Without the gateway, the number of requests in the counts is None (unknown), because ACP
        does not report the requests of the CLI's model router.
        """
        usage = usage_of_requests(self._recorder.requests)
        if usage is None or self._gateway is not None:
            return usage
        return msgspec.structs.replace(usage, requests=None)

    @property
    def _turns(self) -> int:
        """The number of model turns (model requests with their tool calls) since the prompt was
        sent.
        """
        return self._recorder.turn - self._first_turn + 1

    # Handle the messages of the process.

    def on_update(self, update: Update | Unknown) -> None:
        self.deadlines.note_output(stdout=True)
        # Read the session file (the journal) first. It contains the results of tools before the
        # next answer begins, and ACP does not report all these results.
        self._sources.journal.look()
        self._add(self._updates.translate(update))

    def on_stderr(self, remarks: list[StderrNotice], text: str) -> None:
        self._answer.stderr.append(text)
        events: list[Event] = []
        for remark in remarks:
            retry = Retry(remark.attempt, remark.http_status) if remark.code == "retry" else None
            if retry is not None:
                self._last_retry = (remark, time.monotonic())
            events.append(self._recorder.notice(remark.level, remark.code, remark.message, retry))
        self._sources.emit(events)

    def on_permission_request(self, request: RpcRequest) -> None:
        assert request.permission is not None and self._tasks is not None
        self.deadlines.note_output(stdout=True)
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
                self._shells.started(event.id)
        self._sources.add_updates(events)
        self._shells.update()
        self.deadlines.busy = self._updates.tools_running or bool(self._permissions)
        self._check_turns()

    def _check_turns(self) -> None:
        limit = self._options.max_turns
        if limit is not None and self._turns > limit:
            self.stop(StopReason("max_turns", "the turn reached `max_turns`"))

    # End the turn.

    def _on_halt(self, halt: Halt) -> None:
        self.stop(StopReason("gateway", halt.message))

    def _emit_from_gateway(self, events: list[Event]) -> None:
        self.deadlines.note_output(stdout=False)
        self._sources.emit(events)

    def _situation(self) -> Situation | None:
        """Return what is currently known about the turn. Return None if the turn is being stopped.

        The stall watch, which explains why the CLI is silent, calls this method.
        """
        if self._stopping.reason is not None:
            return None
        return situation_of(
            self._options,
            self._session.process.pid,
            own=self._shells.pids if self._session.process.is_shared else None,
            permission=self._permissions.oldest,
            tools=self._updates.running,
            gateway=self._gateway,
            retried=self._last_retry,
            last_stdout_at=self.deadlines.last_stdout_at,
        )

    def _on_deadline(self, reason: StopReason) -> None:
        self.stop(self._stall.explained(reason))

    async def _stop_when_asked(self, pending: PendingRequest) -> None:
        """Wait until `stop` is called. Then cancel the prompt and end the shells of the turn."""
        await self._stop_requested.wait()
        since = self._shells.oldest_start
        if self._updates.tools_running or self._permissions:
            # After a cancel, the CLI's history contains a tool call without a result. The API
            # rejects every later request with this history, so do not use the session again.
            self._session.is_broken = True
        self._cancel_permissions()
        self.ended += await cancel_prompt(
            self._session,
            pending,
            self._answer,
            self._options,
            self._stopping,
            shells_since=since,
            sent_at=self._sent_at,
        )
        if not pending.is_done:
            pending.settle(None)
        self._cleaned_up.set()

    def _cancel_permissions(self) -> None:
        reason = self._stopping.reason
        self._permissions.cancel(None if reason is None else reason.text, self._sources.emit)

    def _receive_answer(self, pending: PendingRequest) -> None:
        if notices := self._answer.receive(pending):
            self._sources.emit(notices)
        if self._answer.failed is not None:
            self._restrict_reports()

    def _restrict_reports(self) -> None:
        """Make the CLI's error reports readable only for the user who runs this process.

        The reports contain the conversation, and the CLI makes them readable for all users.
        """
        reports = Reports(self._recorder.redactor)
        reports.look_in(self._session.process.plan.env.get("TMPDIR") or "/tmp", self._sent_at)
        reports.seal()

    def _finish(self) -> None:
        if self._permissions:
            self._cancel_permissions()
        self._sources.finish()
        if self._gateway is not None:
            self._gateway.finish()
        self._shells.update()
        self._sources.release()
        self._recorder.observer = None


class _TurnShells:
    """Records when the shell commands of one turn start and end.

    This information comes from the CLI's messages and from the session file.
    """

    def __init__(
        self, session: AcpSession, updates: AcpTranslator, journal_translator: WarmJournalTranslator
    ) -> None:
        self._session = session
        self._updates = updates
        self._journal_translator = journal_translator
        self._open: dict[str, None] = {}

    def started(self, call_id: str, *, now: bool = False) -> None:
        """Record the start of a shell command.

        `now` is True if we have just permitted the command: it then cannot have started earlier
        than now.
        """
        self._open[call_id] = None
        self._session.process.shells.shell_started(self._session.session_id, call_id, now=now)

    def allowed(self, call_id: str) -> None:
        """Record the start of a shell command that has just received our permission."""
        self.started(call_id, now=True)

    def update(self) -> None:
        """Record which shell commands have ended.

        Also record the process groups of shell commands, if the session file contains them.
        """
        shells, session_id = self._session.process.shells, self._session.session_id
        for group in self._journal_translator.groups:
            shells.add_group(session_id, group)
        self._journal_translator.groups.clear()
        for call_id in [call_id for call_id in self._open if not self._updates.is_open(call_id)]:
            del self._open[call_id]
            shells.shell_ended(session_id, call_id)

    @property
    def oldest_start(self) -> float | None:
        """The start time of the oldest running shell command; None if no command is running."""
        return self._session.process.shells.running_since(self._session.session_id)

    def pids(self) -> set[int]:
        """Return the ids of the processes that certainly belong to tools of this chat.

        This method is called from another thread.
        """
        return {
            process.pid for process in self._session.process.shells.processes_of(self._session.session_id)
        }
