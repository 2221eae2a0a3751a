"""Use a warm process for a single run.

A run that asks for permission needs a warm process, because a headless CLI cannot ask for
permission.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from geminids.events.model import EndedProcess
from geminids.gateway.request_log import RequestLog
from geminids.gemini.protocol.acp.calls import Content
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
from geminids.warm.acp.prompt import encode_prompt, is_command
from geminids.warm.acp.spawn import spawn_warm
from geminids.warm.permissions.answer import OnPermission

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from geminids.warm.acp.process import WarmProcess
    from geminids.warm.attempt import WarmAttempt
    from geminids.warm.conversation import GoOn, WarmConversation

__all__ = ["SingleRun"]


class SingleRun:
    """Starts the attempts of one run in one warm process.

    If the process ends before the run does, a new process replaces it.
    """

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
        self._conversation: WarmConversation | None = None
        self._plan: WarmPlan | None = None
        self._processes: list[WarmProcess] = []
        self._tasks: TaskGroup | None = None

    def first(self, prompt: str, options: Options, resume_headless: ResumeHeadless) -> WarmAttempt | str:
        """Start the process and return the first attempt.

        If this run cannot use a warm process but can run headless, return the reason as text.
        Raises `Refused` if the run cannot start at all, and `OSError` if a file cannot be written
        or the process cannot be started.
        """
        reason = why_not_warm(options)
        if reason is None and is_command(prompt) and not options.literal:
            reason = "a warm process cannot run a slash command of the CLI"
        if reason is not None:
            return reason
        try:
            context = self._prepare(options)
        except Refused as refused:
            if not refused.headless_can:
                raise
            return refused.failure.message
        recorder, self.cwd = self._recorder, context.cwd
        blocks = encode_prompt(prompt, options, context.cwd, recorder.run_id)
        plan = self._plan = self._write_plan(context)
        if (notice := route_notice(plan.route)) is not None:
            recorder.emit_notice(*notice)
        process = self._spawn(plan, options)
        # Imported only now, because it imports anyio. The CLI was started before, and loads at the
        # same time.
        from geminids.warm.conversation import WarmConversation

        self._conversation = conversation = WarmConversation(
            self, options, self._claim, self._lease, asks=True, is_reported=True
        )
        conversation.process = process
        recorder.redactor = process.redactor
        notices = [recorder.notice(*notice) for notice in workspace_notices(plan.neutralised)]
        started = recorder.make_started(
            session_id=None,
            model=options.model,
            cwd=plan.cwd,
            cli_version=plan.gemini.version,
            transport="warm",
            pid=process.pid,
            approval=options.approval,
            prompt=recorder.redact(prompt),
        )
        recorder.emit([*notices, started])
        return self._make_attempt(prompt, options, resume_headless, blocks)

    def next(self, prompt: str, options: Options, resume_headless: ResumeHeadless) -> WarmAttempt:
        """Create another attempt in the same conversation."""
        return self._make_attempt(prompt, options, resume_headless)

    def _make_attempt(
        self,
        prompt: str,
        options: Options,
        resume_headless: ResumeHeadless,
        blocks: Sequence[Content] | None = None,
    ) -> WarmAttempt:
        """Create an attempt.

        `blocks` is the encoded prompt. Pass it only for the first attempt: if it is set, the event
        `Started` is not emitted again.
        """
        from geminids.warm.attempt import WarmAttempt  # imported late: it imports anyio

        assert self._conversation is not None
        return WarmAttempt(
            self._conversation,
            prompt,
            options,
            self._recorder,
            self._log,
            self._on_permission,
            resume_headless,
            blocks=blocks,
            is_started_emitted=blocks is not None,
        )

    def attempt_ended(self, prompt: str, facts: AttemptFacts, *, repeats: bool) -> None:
        assert self._conversation is not None
        self._conversation.attempt_ended(prompt, facts, self._recorder, repeats=repeats)

    async def open(self) -> None:
        """Start reading the messages of the process."""
        import anyio

        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._processes[-1].serve)

    async def close(self) -> tuple[EndedProcess, ...]:
        """End the CLI and all its processes.

        Return the processes that had to be terminated. The CLI itself is not among them.
        """
        import anyio

        try:
            with anyio.CancelScope(shield=True):
                for process in self._processes:
                    process.stop()
                for process in self._processes:
                    await process.wait_gone()
        finally:
            if self._tasks is not None:
                await self._tasks.__aexit__(None, None, None)
        return tuple(
            ended
            for process in self._processes
            for ended in listed(process.ended, process.redactor)
            if ended.pid != process.pid
        )

    # These methods are called by the conversation.

    def plan_for(self, options: Options, conversation: WarmConversation) -> WarmPlan:
        return self._write_plan(self._prepare(options))

    def _prepare(self, options: Options) -> Context:
        return prepare(options, transport="warm", asks=True, budget=self._lease.has_budget)

    def _write_plan(self, context: Context) -> WarmPlan:
        plan = build_warm(context, self._lease.endpoint_for(context))
        write(plan)
        return plan

    async def acquire_process(self, conversation: WarmConversation) -> tuple[WarmPlan, WarmProcess]:
        assert self._plan is not None and self._tasks is not None
        process = self._processes[-1]
        if not process.alive or self._lease.is_dead:
            self._plan = self.plan_for(conversation.options, conversation)
            process = self._spawn(self._plan, conversation.options)
            self._tasks.start_soon(process.serve)
        conversation.process = process
        return self._plan, process

    async def is_responsive(self, process: WarmProcess) -> bool:
        return process.alive

    def release_process(self, process: WarmProcess) -> None:
        """Do nothing, because the process ends with the run."""

    def _spawn(self, plan: WarmPlan, options: Options) -> WarmProcess:
        cli = spawn_warm(plan)
        # Imported only now, because it imports anyio and psutil. The CLI was started before, and
        # loads at the same time.
        from geminids.warm.acp.process import WarmProcess

        process = WarmProcess(plan, cli, grace=options.grace, line_limit=options.line_limit)
        self._processes.append(process)
        return process
