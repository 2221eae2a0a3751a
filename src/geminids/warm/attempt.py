"""One attempt of a run or turn in a session of a warm process.

A warm process is a CLI process that stays alive and answers several prompts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import anyio
import msgspec

from geminids.errors import SessionError
from geminids.events.model import SessionStart
from geminids.gateway.request_log import RequestLog
from geminids.gemini.protocol.acp.calls import Content
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.launch.errors import Refused
from geminids.options import Options
from geminids.process.marker import Mark
from geminids.run.attempt import Attempt, AttemptFacts
from geminids.run.recorder import RunRecorder
from geminids.run.result import ending_of_error
from geminids.run.starter import ResumeHeadless
from geminids.run.stopping import Stopping, StopReason, stopped_ending
from geminids.warm.acp.connection import ProcessGone, RpcFailed
from geminids.warm.acp.prompt import encode_prompt, is_command
from geminids.warm.acp.session import AcpSession
from geminids.warm.acp_turn import AcpTurn
from geminids.warm.conversation import WarmConversation
from geminids.warm.permissions.answer import OnPermission
from geminids.warm.permissions.decide import PermissionDecider

__all__ = ["WarmAttempt"]

_AS_TEXT = "a warm process cannot run a slash command of the CLI: the prompt was sent as plain text"


class WarmAttempt:
    """One attempt to answer a prompt.

    It sends the prompt to the conversation's session in a warm process. If the conversation cannot
    use a warm process, the attempt runs headless: it starts its own CLI process.
    """

    def __init__(
        self,
        conversation: WarmConversation,
        prompt: str,
        options: Options,
        recorder: RunRecorder,
        log: RequestLog,
        on_permission: OnPermission | None,
        resume_headless: ResumeHeadless,
        *,
        blocks: Sequence[Content] | None = None,
        is_started_emitted: bool = False,
    ) -> None:
        """Create the attempt. `drive` runs it.

        `blocks` is the encoded prompt; None means that the attempt encodes the prompt.
        `is_started_emitted` is True if the event `Started` was already emitted.
        """
        self._conversation = conversation
        self._prompt = prompt
        self._options = options
        self._recorder = recorder
        self._log = log
        self._on_permission = on_permission
        self._resume_headless = resume_headless
        self._blocks = blocks
        self._is_started_emitted = is_started_emitted
        self._stopping = Stopping()
        self._opening: anyio.CancelScope | None = None
        self._turn: AcpTurn | None = None
        self._headless: Attempt | None = None
        self._ending: Ending | None = None

    def start(self) -> None:
        """Do nothing. The attempt gets its session only when `drive` is called."""

    def stop(self, reason: StopReason) -> None:
        if reason.kind == "caller":
            self._stopping.ask()
        self._stopping.begin(reason)
        if self._headless is not None:
            self._headless.stop(reason)
        elif self._turn is not None:
            self._turn.stop(reason)
        elif self._opening is not None:
            self._opening.cancel()

    async def drive(self) -> None:
        began = time.monotonic()
        session = await self._open()
        if self._ending is not None:
            self._emit_started_of_failure()
            return
        if session is not None:
            await self._send(session, began)
            return
        if self._options.timeout is not None:
            left = max(0.001, self._options.timeout - (time.monotonic() - began))
            self._options = msgspec.structs.replace(self._options, timeout=left)
        await self._continue_headless()

    async def _open(self) -> AcpSession | None:
        """Return the conversation's session, to which this attempt sends its prompt.

        Return None if the conversation continues headless. If no session can be opened, or if the
        attempt is stopped in the meantime, set `_ending`. The caller must then ignore the returned
        value, and must not send the prompt.
        """
        options, conversation = self._options, self._conversation
        session: AcpSession | None = None
        with anyio.move_on_after(options.timeout) as self._opening:
            if self._stopping.reason is not None:
                self._opening.cancel()
            try:
                session = await conversation.take_session()
                if session is not None:
                    with anyio.fail_after(options.start_timeout):
                        await session.set_model(options.model)
            except Refused as refused:
                if not conversation.switch_to_headless(refused):
                    self._ending = ending_of_error(refused, options.cwd, self._recorder.redact)
            except TimeoutError:
                text = f"timed out: the CLI did not open a session within {options.start_timeout:g} s"
                self._stopping.begin(StopReason("start_timeout", text))
            except (ProcessGone, RpcFailed, OSError, msgspec.DecodeError) as error:
                self._ending = await conversation.judge_failed_opening(error)
        timed_out = self._opening.cancelled_caught and self._stopping.reason is None
        self._opening = None
        if timed_out:
            text = f"timed out after {options.timeout:g} s of waiting for a session"
            self._stopping.begin(StopReason("timeout", text))
        if self._stopping.reason is not None and self._ending is None:
            self._ending = stopped_ending(self._stopping.reason)
        return session

    async def _send(self, session: AcpSession, began: float) -> None:
        conversation, recorder, options = self._conversation, self._recorder, self._options
        process = session.process
        try:
            blocks = self._blocks or encode_prompt(
                self._prompt, options, session.cwd, recorder.run_id, conversation.handover
            )
        except Refused as refused:
            self._ending = ending_of_error(refused, options.cwd, recorder.redact)
            return
        decider = PermissionDecider(
            recorder,
            conversation.verdicts,
            conversation.allow_always,
            self._on_permission,
            options.permission_timeout,
        )
        self._emit_started(session)
        self._turn = AcpTurn(session, options, recorder, decider, self._log)
        await self._turn.drive(blocks, began)
        if not process.alive:
            await process.wait_gone()

    def _emit_started(self, session: AcpSession) -> None:
        recorder, options, process = self._recorder, self._options, session.process
        recorder.redactor = process.redactor
        notices = [recorder.notice(*notice) for notice in self._conversation.take_notices()]
        if self._is_started_emitted:
            start = SessionStart(session.session_id, options.model or "auto")
            text = f"session {start.session_id}, model {start.model}"
            recorder.emit([*notices, recorder.notice("debug", "session", text, session=start)])
            return
        if is_command(self._prompt) and not options.literal:
            notices.append(recorder.notice("warning", "command", _AS_TEXT))
        started = recorder.make_started(
            session_id=session.session_id,
            model=options.model,
            cwd=session.cwd,
            cli_version=process.plan.gemini.version,
            transport="warm",
            pid=process.pid,
            approval=options.approval,
            prompt=recorder.redact(self._prompt),
        )
        recorder.emit([*notices, started])

    def _emit_started_of_failure(self) -> None:
        """Emit the event `Started` for an attempt that could not send its prompt.

        Every attempt after the first must emit this event, even if it fails so early. Do nothing
        for the first attempt, or if the event was already emitted.
        """
        if self._is_started_emitted or self._recorder.attempt == 1:
            return
        process, options = self._conversation.process, self._options
        started = self._recorder.make_started(
            session_id=None,
            model=options.model,
            cwd=options.cwd,
            cli_version=process.plan.gemini.version if process is not None else None,
            transport="warm",
            pid=process.pid if process is not None else 0,
            approval=options.approval,
            prompt=self._recorder.redact(self._prompt),
        )
        self._recorder.emit([started])

    async def _continue_headless(self) -> None:
        """Run this attempt headless: a new CLI resumes the conversation from its session file."""
        conversation = self._conversation
        for notice in conversation.take_notices():
            self._recorder.emit_notice(*notice)
        try:
            attempt = await self._resume_headless(
                self._prompt, self._options, conversation.session_id, lambda: self._stopping.reason is None
            )
        except (Refused, SessionError, OSError) as error:
            attempt = ending_of_error(error, self._options.cwd, self._recorder.redact)
        if isinstance(attempt, Ending):
            stop = self._stopping.reason
            self._ending = attempt if stop is None else stopped_ending(stop)
            self._emit_started_of_failure()
            return
        self._headless = attempt
        if self._stopping.reason is not None:
            attempt.stop(self._stopping.reason)
        await attempt.drive()

    def facts(self) -> AttemptFacts:
        if self._headless is not None:
            return self._headless.facts()
        if self._turn is not None:
            return self._turn.facts()
        reason, process = self._stopping.reason, self._conversation.process
        ending = self._ending or stopped_ending(
            reason or StopReason("caller", "interrupted: the event loop was shut down")
        )
        return AttemptFacts(
            ending=ending,
            stop=reason,
            session_id=self._conversation.session_id,
            exit_code=process.exit_code if process is not None else None,
            was_sent=False,
        )

    @property
    def pid(self) -> int | None:
        if self._headless is not None:
            return self._headless.pid
        process = self._conversation.process
        return process.pid if process is not None else None

    @property
    def mark(self) -> Mark | None:
        if self._headless is not None:
            return self._headless.mark
        process = self._conversation.process
        return process.mark if process is not None else None

    @property
    def session_id(self) -> str | None:
        return self._conversation.session_id
