"""A conversation on the warm transport: its current session, and how it moves to another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from geminids.errors import GeminidsError, SessionError
from geminids.events.model import Level
from geminids.gemini.protocol.acp.calls import SetMode, SetModel
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.gemini.protocol.outcome.judge_acp import judge_opening
from geminids.launch.errors import Refused
from geminids.launch.permissions.verdicts import Verdicts
from geminids.launch.plan import WarmPlan
from geminids.launch.route import route_notice
from geminids.launch.workspace import WorkspaceItem
from geminids.log import get_logger
from geminids.options import Approval, Options, make_options
from geminids.run.accounting.lease import RunLease
from geminids.run.attempt import AttemptFacts, workspace_notices
from geminids.run.recorder import RunRecorder
from geminids.run.result import ending_of_error
from geminids.run.session_claim import Claim
from geminids.warm.allow_always import AllowAlways
from geminids.warm.connection import RpcFailed
from geminids.warm.process import WarmProcess

if TYPE_CHECKING:
    from geminids.warm.handover import CutTurn

__all__ = ["AcpSession", "Conversation", "GoOn", "Processes"]

_log = get_logger("warm")

GoOn = Literal["handover", "resume"]
_GOES_HEADLESS = "the conversation continues on the headless transport, resumed from its session file"


class AcpSession(msgspec.Struct):
    """A session in a warm process, with the state that its turns share."""

    process: WarmProcess
    session_id: str
    cwd: str
    always: AllowAlways
    """The calls that the user allowed for the rest of the chat."""
    known: set[str]
    """The ids of the tool calls that were reported."""
    lease: RunLease
    default_model: str | None = None
    """The model that the session began with."""
    model: str | None = None
    """The model set with `set_model`; None for `default_model`."""
    is_model_known: bool = True
    """False while the CLI has not confirmed a change of the model."""
    journal: Path | None = None
    broken: bool = False
    """Whether the session can no longer be used, such as after the CLI ignored a cancel."""

    @property
    def is_usable(self) -> bool:
        return self.process.alive and not self.broken

    def find_journal(self, home: str) -> Path | None:
        """The path of the session's journal; None until the CLI has created it."""
        from geminids.sessions.finder import journal_of

        if self.journal is None:
            self.journal = journal_of(self.session_id, self.cwd, home=home, environ=self.process.plan.env)
        return self.journal

    async def set_model(self, model: str | None) -> None:
        """Use this model from the next prompt on; None for `default_model`."""
        model_id = model or self.default_model
        if (model != self.model or not self.is_model_known) and model_id is not None:
            self.is_model_known = False
            await self.process.connection.call(SetModel(session_id=self.session_id, model_id=model_id))
            self.model, self.is_model_known = model, True

    async def set_mode(self, mode: str) -> None:
        """Use this approval mode; raises `GeminidsError` if the folder forbids it."""
        try:
            await self.process.connection.call(SetMode(session_id=self.session_id, mode_id=mode))
        except RpcFailed as failed:
            message = f"the approval mode cannot be {mode}: {failed.error.details or failed.error.message}"
            hint = "In a folder that is not trusted, only the default mode is possible."
            raise GeminidsError(message, hint=hint) from None


class Processes(Protocol):
    """Provides processes to a conversation: a pool, or a single run with its own process."""

    @property
    def go_on(self) -> GoOn: ...
    def plan_for(self, options: Options, conversation: Conversation) -> WarmPlan:
        """Build the launch plan for these options; raises `Refused`."""

    async def acquire_process(self, conversation: Conversation) -> tuple[WarmPlan, WarmProcess]:
        """Return a process with capacity for one more session; waits for one. Raises the errors of `open`."""

    async def is_responsive(self, process: WarmProcess) -> bool: ...
    def left(self, process: WarmProcess) -> None:
        """The conversation no longer uses this process."""


class Conversation:
    """A conversation. It uses one session at a time: in a warm process, or a stored one resumed headless.

    `handover` is the earlier conversation as text, sent before each prompt until the new session has stored it.
    """

    def __init__(
        self,
        processes: Processes,
        options: Options,
        claim: Claim,
        lease: RunLease,
        *,
        asks: bool,
        environ: Mapping[str, str] | None = None,
        is_reported: bool = False,
    ) -> None:
        """`asks`: a callback answers permission requests. `is_reported`: the first plan was already reported."""
        self.options = options
        self.environ = environ
        self.asks = asks
        self.session_id: str | None = options.resume
        self.verdicts: Verdicts = Verdicts(options.approval, options.permissions)
        self.handover = ""
        self.lease = lease
        self.session: AcpSession | None = None
        self.process: WarmProcess | None = None
        self._processes = processes
        self._always = AllowAlways()
        self._claim = claim
        self._has_history = options.resume is not None
        self._is_headless = False
        self._cut: list[CutTurn] = []
        self._repeated: str | None = None
        """The prompt that the next attempt sends again; the handover leaves it out."""
        self._notices: list[tuple[Level, str, str]] = []
        self._ignored: tuple[WorkspaceItem, ...] = ()
        self._is_reported = is_reported

    async def begin(self) -> None:
        """Open a session before the first prompt. If that fails, the first turn tries again and reports why."""
        if self._has_history:
            return
        try:
            self.session = await self._open_session()
        except Exception as error:
            _log.warning("the session could not be opened early; the first turn tries again", error=error)
            await self.release_process()

    async def take(self) -> AcpSession | None:
        """Return the session for the next prompt; None if the conversation continues headless."""
        if self._is_headless:
            return None
        self._check_handover()
        if self.session is not None and self.session.is_usable:
            if not self.lease.is_dead and await self._processes.is_responsive(self.session.process):
                return self.session
            self.session.process.stop()
        if self._has_history or self._cut or self._has_begun():
            return await self._move()
        await self.release_process()
        self.session = await self._open_session()
        return self.session

    async def release_process(self) -> None:
        """End the session's shells and release the process."""
        import anyio

        session, self.session = self.session, None
        process, self.process = self.process, None
        try:
            with anyio.CancelScope(shield=True):
                if session is not None and session.process.alive:
                    await self._end_shells(session)
        finally:
            if process is not None:
                self._processes.left(process)

    async def _end_shells(self, session: AcpSession) -> None:
        shells = session.process.shells
        if not shells.had_any(session.session_id):
            return
        if self.options.leftovers == "end":
            from geminids.process import terminate as stop

            await stop.end_found(lambda: shells.of(session.session_id), self.options.grace)
        shells.forget(session.session_id)
        if shells.strays():
            # Their chat is unknown, so they end with the process: no new chat may keep it alive.
            session.process.retiring = True

    def close(self) -> None:
        """End the conversation: release the claim and the lease."""
        self.release_claim()
        self.lease.close()

    def release_claim(self) -> None:
        """Let other runs use the session."""
        self._claim.release()

    async def set_model(self, model: str) -> None:
        self.options = make_options(self.options, model=model)
        if self.session is not None and self.session.is_usable:
            await self.session.set_model(model)

    async def set_mode(self, mode: Approval) -> None:
        """Change the approval mode; raises `GeminidsError` if the folder forbids it."""
        options = make_options(self.options, approval=mode)
        session = self.session
        if session is not None and session.is_usable:
            try:
                plan = self._processes.plan_for(options, self)
            except Refused as refused:
                raise GeminidsError(refused.failure.message, hint=refused.failure.hint) from None
            if plan.key == session.process.plan.key:
                await session.set_mode(plan.mode)
            else:
                # The new mode needs other rules: continue in a process that was started with them.
                await self.release_process()
        self.options = options
        self.verdicts = msgspec.structs.replace(self.verdicts, approval=mode)

    async def _move(self) -> AcpSession | None:
        """Move to a new session, or to headless, because the current one cannot be used or lacks the history."""
        level: Level = "info" if self.session is not None and self.session.process.alive else "warning"
        await self.release_process()
        handover = self._text_so_far() if self._processes.go_on == "handover" else None
        if handover is None:
            self._is_headless = True
            self._notices.append(("warning", "lane", _GOES_HEADLESS))
            return None
        before = self.session_id
        self.session = await self._open_session()
        self.handover, self._cut = handover, []
        text = f"the conversation of session {before} was handed over to session {self.session_id}"
        self._notices.append((level, "lane", text))
        return self.session

    def switch_to_headless(self, refused: Refused) -> bool:
        """Switch to headless because the warm transport refused the options; False if headless cannot either."""
        if self.environ is not None or not refused.headless_can:
            # A headless run would use our own environment, not the `environ` of the caller.
            return False
        self._is_headless = True
        text = (
            f"using the headless transport, where tools cannot ask for permission: {refused.failure.message}"
        )
        self._notices.append(("warning", "lane", text))
        return True

    async def _open_session(self) -> AcpSession:
        import anyio

        plan, process = await self._processes.acquire_process(self)
        self.process = process
        self.verdicts = plan.verdicts
        if not self._is_reported:
            if (notice := route_notice(plan.route)) is not None:
                self._notices.append(notice)
            self._ignored = plan.neutralised
        self._is_reported = True
        with anyio.fail_after(self.options.start_timeout):
            await process.open()
            opened = await process.new_session(plan.cwd, self.lease.session_token)
            session = AcpSession(
                process, opened.session_id, plan.cwd, self._always, set(), self.lease, opened.model
            )
            try:
                if plan.mode != "default":
                    await session.set_mode(plan.mode)
            except GeminidsError as error:
                raise Refused(
                    "untrusted_folder", error.message, error.hint or "", headless_can=True
                ) from None
            if plan.model is not None:
                await session.set_model(plan.model)
        self._claim.release()
        self.session_id = opened.session_id
        self._hold(opened.session_id)
        return session

    def _hold(self, session_id: str) -> None:
        try:
            self._claim.take(session_id)
        except SessionError as error:
            self._notices.append(("warning", "session_busy", error.message))

    def _has_begun(self) -> bool:
        """Whether the session's file holds something, such as a first turn that was cut off."""
        return self.session is not None and self._text_so_far() is not None

    def _text_so_far(self) -> str | None:
        from geminids.warm.handover import conversation_text, with_more

        assert self.session_id is not None
        if self.handover:
            return with_more(self.handover, self._cut)
        return conversation_text(
            self.session_id, self.options, self.environ, self._cut, without=self._repeated
        )

    def _check_handover(self) -> None:
        """Stop sending the handover once the session has stored it.

        After an API error, or a stop before any answer, the CLI drops the prompt and the handover with it.
        """
        if self.handover and self.session_id is not None:
            from geminids.warm.handover import has_arrived

            if has_arrived(self.session_id, self.options, self.environ):
                self.handover = ""

    async def why_not_open(self, error: Exception) -> Ending:
        """Judge why no session could be opened, from the CLI's answer, stderr and exit code."""
        process = self.process
        if process is None:
            if isinstance(error, OSError):
                return ending_of_error(error, self.options.cwd, str)
            return judge_opening(None, str(error) or None, None, "", None)
        if not process.alive:
            await process.gone()
        if isinstance(error, RpcFailed):
            rpc = error.error
            return judge_opening(rpc.code, rpc.message, rpc.details, process.stderr_tail, process.exit_code)
        return judge_opening(None, str(error) or None, None, process.stderr_tail, process.exit_code)

    def attempt_ended(
        self, prompt: str, facts: AttemptFacts, recorder: RunRecorder, *, repeats: bool
    ) -> None:
        """Update the history after an attempt. `repeats`: the prompt is sent again, so do not hand it over."""
        ok = facts.ending.outcome == "success"
        self._repeated = prompt if repeats else None
        if ok:
            self.session_id = facts.session_id or self.session_id
            self._has_history = True
            self.handover, self._cut = "", []
            return
        turns = () if repeats or not facts.was_sent else recorder.turns()
        if any(turn.text or turn.tools for turn in turns):
            from geminids.warm.handover import CutTurn

            # Without text or tool calls there is nothing to resume.
            self.session_id = facts.session_id or self.session_id
            self._has_history = True
            # The CLI removes a stopped or failed turn from its history: hand it over, so that the model knows it.
            self._cut.append(CutTurn(prompt, turns, facts.ending.reason or facts.ending.outcome))
            if self.session is not None and self._processes.go_on == "handover":
                self.session.broken = True

    def take_notices(self) -> Sequence[tuple[Level, str, str]]:
        """Return and clear the notices to emit before the next prompt: level, code and text."""
        notices, self._notices = self._notices, []
        ignored, self._ignored = self._ignored, ()
        return [*workspace_notices(ignored), *notices]
