"""A conversation that uses sessions of warm processes, and moves from one session to another.

A warm process is a CLI process that stays alive between prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import anyio
import msgspec

from geminids.errors import GeminidsError, SessionError
from geminids.events.model import Level
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
from geminids.warm.acp.connection import RpcFailed
from geminids.warm.acp.session import AcpSession
from geminids.warm.handover import CutTurn, append_cut_turns, is_handover_stored, render_session
from geminids.warm.permissions.allow_always import AllowAlways

if TYPE_CHECKING:
    from geminids.warm.acp.process import WarmProcess

__all__ = ["GoOn", "ProcessProvider", "WarmConversation"]

_log = get_logger("warm")

GoOn = Literal["handover", "resume"]
_GOES_HEADLESS = "the conversation continues on the headless transport, resumed from its session file"


class ProcessProvider(Protocol):
    """The interface of the object that gives a conversation its process.

    A pool of warm processes implements it, and so does a single run that has its own process.
    """

    @property
    def go_on(self) -> GoOn: ...
    def plan_for(self, options: Options, conversation: WarmConversation) -> WarmPlan:
        """Build the plan: all values that are needed to start a warm process and a session in it.

        Raises `Refused` if the options do not allow a warm process.
        """

    async def acquire_process(self, conversation: WarmConversation) -> tuple[WarmPlan, WarmProcess]:
        """Wait for a process that can take one more session. Return the plan and the process.

        Raises `Refused` if the options do not allow a warm process, and `OSError` if no process can
        be started. The errors of `WarmProcess.open` are also possible.
        """

    async def is_responsive(self, process: WarmProcess) -> bool: ...
    def release_process(self, process: WarmProcess) -> None:
        """Give back a process that the conversation no longer uses."""


class WarmConversation:
    """A conversation. It uses one session at a time.

    The session is in a warm process. If no warm process can be used, headless runs resume the
    session from its file.

    When the conversation moves to a new session, `handover` is the earlier conversation as text.
    This text is put before each prompt until the new session has stored it. At all other times,
    `handover` is "".
    """

    def __init__(
        self,
        processes: ProcessProvider,
        options: Options,
        claim: Claim,
        lease: RunLease,
        *,
        asks: bool,
        environ: Mapping[str, str] | None = None,
        is_reported: bool = False,
    ) -> None:
        """Create a conversation. `open_early` or `take_session` opens its session in a warm process.

        `claim` locks the stored session, so that no other run uses it. `lease` gives access to the
        gateway. `asks` is True if the caller answers permission requests. `is_reported` is True if
        the notices about the gateway, and about files of the workspace that are ignored, were
        already emitted.
        """
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
        self.allow_always = AllowAlways()
        """The calls that the user has allowed for the rest of the chat."""
        self._claim = claim
        self._has_history = options.resume is not None
        self._is_headless = False
        self._cut_turns: list[CutTurn] = []
        self._repeated_prompt: str | None = None
        """The prompt that the next attempt sends again, or None.

        The conversation that is handed over to a new session must not contain it.
        """
        self._notices: list[tuple[Level, str, str]] = []
        self._ignored: tuple[WorkspaceItem, ...] = ()
        self._is_reported = is_reported

    async def open_early(self) -> None:
        """Open a session before the first prompt, unless the conversation resumes an earlier
        session.

        If no session can be opened, do not raise an error. The first turn tries again, and reports
        the reason if it fails too.
        """
        if self._has_history:
            return
        try:
            self.session = await self._open_session()
        except Exception as error:
            _log.warning("the session could not be opened early; the first turn tries again", error=error)
            await self.release_process()

    async def take_session(self) -> AcpSession | None:
        """Return the session for the next prompt, or None if the conversation is now headless.

        Open a new session if the current one cannot be used. If that fails, raise `TimeoutError`,
        `Refused`, `OSError` or an error of `WarmProcess.open`.
        """
        if self._is_headless:
            return None
        self._check_handover()
        if self.session is not None and self.session.is_usable:
            if not self.lease.is_dead and await self._processes.is_responsive(self.session.process):
                return self.session
            self.session.process.stop()
        if self._has_history or self._cut_turns or self._has_stored_turns():
            return await self._move_on()
        await self.release_process()
        self.session = await self._open_session()
        return self.session

    async def release_process(self) -> None:
        """Give back the process. If the option `leftovers` is `end`, first end the session's
        shells.
        """
        session, self.session = self.session, None
        process, self.process = self.process, None
        try:
            with anyio.CancelScope(shield=True):
                if session is not None and session.process.alive:
                    await self._end_shells(session)
        finally:
            if process is not None:
                self._processes.release_process(process)

    async def _end_shells(self, session: AcpSession) -> None:
        shells = session.process.shells
        if not shells.has_run_shells(session.session_id):
            return
        if self.options.leftovers == "end":
            await session.process.end_shells(session.session_id, self.options.grace)
        shells.forget(session.session_id)
        if shells.stray_processes():
            # It is unknown to which chat these processes belong. They are ended together with the
            # warm process. New chats would keep the warm process alive, so it gets no new chats.
            session.process.retiring = True

    def close(self, *, keep_recording: bool) -> None:
        """End the conversation: unlock its session, and close its access to the gateway.

        If `keep_recording`, the recording becomes the cassette that the option `record` names.
        """
        self.release_claim()
        self.lease.close(keep_recording=keep_recording)

    def release_claim(self) -> None:
        """Release the lock on the session, so that other runs can use the session."""
        self._claim.release()

    async def set_model(self, model: str) -> None:
        self.options = make_options(self.options, model=model)
        if self.session is not None and self.session.is_usable:
            await self.session.set_model(model)

    async def set_mode(self, mode: Approval) -> None:
        """Change the approval mode. Raises `GeminidsError` if the mode cannot be used."""
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
                # The new mode needs other policy rules: continue in a process that has these rules.
                await self.release_process()
        self.options = options
        self.verdicts = msgspec.structs.replace(self.verdicts, approval=mode)

    async def _move_on(self) -> AcpSession | None:
        """Continue the conversation in a new session, or headless.

        Call this if the current session cannot be used, or does not contain the whole conversation.
        Return the new session, or None if the conversation continues headless.
        """
        level: Level = "info" if self.session is not None and self.session.process.alive else "warning"
        await self.release_process()
        handover = self._render_history() if self._processes.go_on == "handover" else None
        if handover is None:
            self._is_headless = True
            self._notices.append(("warning", "transport", _GOES_HEADLESS))
            return None
        before = self.session_id
        self.session = await self._open_session()
        self.handover, self._cut_turns = handover, []
        text = f"the conversation of session {before} was handed over to session {self.session_id}"
        self._notices.append((level, "transport", text))
        return self.session

    def switch_to_headless(self, refused: Refused) -> bool:
        """Continue headless, because a warm process refused the options. Return True.

        Do nothing and return False in two cases: a headless run cannot use the options either, or
        the conversation has its own environment variables, which a headless run would not use.
        """
        if self.environ is not None or not refused.headless_can:
            # A headless run would use the environment of this process instead of `environ`.
            return False
        self._is_headless = True
        text = (
            "the chat uses the headless transport, where tools cannot ask for permission, "
            f"because it cannot use a warm process: {refused.failure.message}"
        )
        self._notices.append(("warning", "transport", text))
        return True

    async def _open_session(self) -> AcpSession:
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
            session = AcpSession(process, opened.session_id, plan.cwd, set(), self.lease, opened.model)
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
        self._claim_session(opened.session_id)
        return session

    def _claim_session(self, session_id: str) -> None:
        try:
            self._claim.take(session_id)
        except SessionError as error:
            self._notices.append(("warning", "session_busy", error.message))

    def _has_stored_turns(self) -> bool:
        """Whether the current session has turns that can be handed over to a new session.

        The session may have such turns even if no turn has succeeded: for example, a first turn
        that was stopped.
        """
        return self.session is not None and self._render_history() is not None

    def _render_history(self) -> str | None:
        assert self.session_id is not None
        if self.handover:
            return append_cut_turns(self.handover, self._cut_turns)
        return render_session(
            self.session_id, self.options, self.environ, self._cut_turns, without=self._repeated_prompt
        )

    def _check_handover(self) -> None:
        """Clear the handover (the earlier conversation as text) if the session has stored it, so
        that it is not sent again.

        The handover is the earlier conversation as text. It is sent together with a prompt. If the
        API fails, or the turn is stopped before any answer, the CLI removes the prompt and the
        handover from the session. The handover must then be sent again with the next prompt.
        """
        if self.handover and self.session_id is not None:
            is_stored = is_handover_stored(self.session_id, self.options, self.environ)
            self.handover = "" if is_stored else self.handover

    async def judge_failed_opening(self, error: Exception) -> Ending:
        """Return the outcome of an attempt for which no session could be opened.

        The outcome contains the reason, which comes from `error`, from the CLI's stderr and from
        its exit code.
        """
        process = self.process
        if process is None:
            if isinstance(error, OSError):
                return ending_of_error(error, self.options.cwd, str)
            return judge_opening(None, str(error) or None, None, "", None)
        if not process.alive:
            await process.wait_gone()
        if isinstance(error, RpcFailed):
            rpc = error.error
            return judge_opening(rpc.code, rpc.message, rpc.details, process.stderr_tail, process.exit_code)
        return judge_opening(None, str(error) or None, None, process.stderr_tail, process.exit_code)

    def attempt_ended(
        self, prompt: str, facts: AttemptFacts, recorder: RunRecorder, *, repeats: bool
    ) -> None:
        """Update the history of the conversation after an attempt has ended.

        `repeats` is True if the next attempt sends the prompt again. If the conversation is then
        handed over to a new session, the text for that session must not contain the prompt.
        """
        ok = facts.ending.outcome == "success"
        self._repeated_prompt = prompt if repeats else None
        if ok:
            self.session_id = facts.session_id or self.session_id
            self._has_history = True
            self.handover, self._cut_turns = "", []
            return
        turns = () if repeats or not facts.was_sent else recorder.turns()
        if any(turn.text or turn.tools for turn in turns):
            # A turn without text or tool calls contains nothing to resume.
            self.session_id = facts.session_id or self.session_id
            self._has_history = True
            # The CLI removes a stopped or failed turn from its history. Add it to the next
            # handover, so that the model knows it.
            self._cut_turns.append(CutTurn(prompt, turns, facts.ending.reason or facts.ending.outcome))
            if self.session is not None and self._processes.go_on == "handover":
                self.session.is_broken = True

    def take_notices(self) -> Sequence[tuple[Level, str, str]]:
        """Return the notices to emit before the next prompt, and clear them.

        Each notice consists of a level, a code and a text.
        """
        notices, self._notices = self._notices, []
        ignored, self._ignored = self._ignored, ()
        return [*workspace_notices(ignored), *notices]
