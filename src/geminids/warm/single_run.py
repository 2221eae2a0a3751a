"""A single run on the warm transport, in its own process: for runs with a permission callback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminids.events.model import EndedProcess
from geminids.gateway.request_log import RequestLog
from geminids.launch.build import build_warm
from geminids.launch.errors import Refused
from geminids.launch.plan import WarmPlan
from geminids.launch.prepare import Context, prepare, why_not_warm
from geminids.launch.route import route_notice
from geminids.launch.write import write
from geminids.options import Options
from geminids.run.accounting.lease import RunLease
from geminids.run.attempt import AttemptFacts, workspace_notices
from geminids.run.recorder import RunRecorder
from geminids.run.session_claim import Claim
from geminids.run.starter import ResumeHeadless
from geminids.run.stopping import listed
from geminids.warm.attempt import WarmAttempt
from geminids.warm.permissions.decide import OnPermission
from geminids.warm.process import WarmProcess
from geminids.warm.prompt import blocks_of, is_command
from geminids.warm.session import Conversation, GoOn

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

__all__ = ["SingleRun"]


class SingleRun:
    """Starts the attempts of one run in one process. The process is replaced if it ends before the run does."""

    go_on: GoOn = "handover"

    def __init__(
        self,
        on_permission: OnPermission,
        recorder: RunRecorder,
        claim: Claim,
        lease: RunLease,
        log: RequestLog,
    ) -> None:
        self.cwd = ""
        self._recorder = recorder
        self._claim = claim
        self._lease = lease
        self._log = log
        self._on_permission = on_permission
        self._conversation: Conversation | None = None
        self._plan: WarmPlan | None = None
        self._processes: list[WarmProcess] = []
        self._tasks: TaskGroup | None = None

    def first(self, prompt: str, options: Options, resume_headless: ResumeHeadless) -> WarmAttempt | str:
        """Spawn the process; returns the reason if this run cannot be warm. Raises `Refused` or OSError."""
        reason = why_not_warm(options)
        if reason is None and is_command(prompt) and not options.literal:
            reason = "the warm transport does not run CLI commands"
        if reason is not None:
            return reason
        self._conversation = conversation = Conversation(
            self, options, self._claim, self._lease, asks=True, is_reported=True
        )
        try:
            context = self._prepare(options)
        except Refused as refused:
            if not refused.headless_can:
                raise
            return refused.failure.message
        recorder, self.cwd = self._recorder, context.cwd
        blocks = blocks_of(prompt, options, context.cwd, recorder.run_id)
        plan = self._plan = self._write_plan(context)
        if (notice := route_notice(plan.route)) is not None:
            recorder.emit_notice(*notice)
        process = conversation.process = self._spawn(plan)
        recorder.redactor = process.redactor
        notices = [recorder.notice(*notice) for notice in workspace_notices(plan.neutralised)]
        started = recorder.make_started(
            session_id=None,
            model=options.model,
            cwd=plan.cwd,
            cli_version=plan.gemini.version,
            lane="warm",
            pid=process.pid,
            approval=options.approval,
            prompt=recorder.redact(prompt),
        )
        recorder.emit([*notices, started])
        return WarmAttempt(
            conversation,
            prompt,
            options,
            recorder,
            self._log,
            self._on_permission,
            resume_headless,
            blocks=blocks,
            is_announced=True,
        )

    def next(self, prompt: str, options: Options, resume_headless: ResumeHeadless) -> WarmAttempt:
        """Create a further attempt in the same conversation."""
        assert self._conversation is not None
        return WarmAttempt(
            self._conversation,
            prompt,
            options,
            self._recorder,
            self._log,
            self._on_permission,
            resume_headless,
        )

    def attempt_ended(self, prompt: str, facts: AttemptFacts, *, repeats: bool) -> None:
        assert self._conversation is not None
        self._conversation.attempt_ended(prompt, facts, self._recorder, repeats=repeats)

    async def open(self) -> None:
        """Start to serve the process."""
        import anyio

        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._processes[-1].serve)

    async def close(self) -> tuple[EndedProcess, ...]:
        """End the process and everything that it started; returns the other processes that had to be ended."""
        import anyio

        try:
            with anyio.CancelScope(shield=True):
                for process in self._processes:
                    process.stop()
                for process in self._processes:
                    await process.gone()
        finally:
            if self._tasks is not None:
                await self._tasks.__aexit__(None, None, None)
        return tuple(
            ended
            for process in self._processes
            for ended in listed(process.ended, process.redactor)
            if ended.pid != process.pid
        )

    # Called by the conversation.

    def plan_for(self, options: Options, conversation: Conversation) -> WarmPlan:
        return self._write_plan(self._prepare(options))

    def _prepare(self, options: Options) -> Context:
        return prepare(options, transport="warm", asks=True, budget=self._lease.has_budget)

    def _write_plan(self, context: Context) -> WarmPlan:
        plan = build_warm(context, self._lease.endpoint_for(context))
        write(plan)
        return plan

    async def acquire_process(self, conversation: Conversation) -> tuple[WarmPlan, WarmProcess]:
        assert self._plan is not None and self._tasks is not None
        process = self._processes[-1]
        if not process.alive or self._lease.is_dead:
            self._plan = self.plan_for(conversation.options, conversation)
            process = self._spawn(self._plan)
            self._tasks.start_soon(process.serve)
        conversation.process = process
        return self._plan, process

    async def is_responsive(self, process: WarmProcess) -> bool:
        return process.alive

    def left(self, process: WarmProcess) -> None:
        """Nothing to do: the process ends with the run."""

    def _spawn(self, plan: WarmPlan) -> WarmProcess:
        assert self._conversation is not None
        options = self._conversation.options
        process = WarmProcess(plan, grace=options.grace, line_limit=options.line_limit)
        process.start()
        self._processes.append(process)
        return process
