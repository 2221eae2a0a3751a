"""Receive the CLI's answer to a prompt, and cancel a prompt."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import anyio
import msgspec

from geminids.events.model import Event
from geminids.gemini.protocol.acp.calls import Cancel, PromptResult, prompt_result
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.gemini.protocol.outcome.judge_acp import TurnEvidence, judge_turn
from geminids.options import Options
from geminids.run.recorder import RunRecorder
from geminids.run.stopping import Stopping
from geminids.warm.acp.connection import PendingRequest, ProcessGone, RpcFailed
from geminids.warm.acp.session import AcpSession

if TYPE_CHECKING:
    from geminids.process.tree import Ended

__all__ = ["PromptAnswer", "cancel_prompt"]

_NO_ANSWER = "the CLI did not answer when it was asked to stop"
_MAX_STDERR = 65536
# Seconds between two checks whether the caller asked to stop a second time. The second request
# skips the grace period.
_POLL = 0.02
_SHELL_GRACE = 1.0


class PromptAnswer:
    """The CLI's answer to a prompt, or why there is none.

    `process_gone` is True if the process ended before it answered. `cancel_ignored` is True if the
    CLI did not answer after the prompt was cancelled. `stderr` is the text that the process wrote
    to stderr during the turn.
    """

    def __init__(self, session: AcpSession, recorder: RunRecorder) -> None:
        self._session = session
        self._recorder = recorder
        self.stopped: PromptResult | None = None
        self.failed: RpcFailed | None = None
        self.process_gone = False
        self.cancel_ignored = False
        self.stderr: list[str] = []

    def receive(self, pending: PendingRequest) -> list[Event]:
        """Store the CLI's answer, or the reason why there is none. Return the notices to emit."""
        try:
            self.stopped = prompt_result(pending.result())
        except RpcFailed as failed:
            self.failed = failed
        except ProcessGone:
            self.process_gone = not self.cancel_ignored
            if self.cancel_ignored:
                return [self._recorder.notice("error", "cancel", _NO_ANSWER)]
        except msgspec.DecodeError as error:
            text = f"the answer to the prompt cannot be read: {error}"
            return [self._recorder.notice("error", "protocol", text)]
        return []

    @property
    def ended_turn(self) -> bool:
        """Whether the agent itself ended the turn."""
        return self.stopped is not None and self.stopped.reason == "end_turn"

    def judge(
        self,
        options: Options,
        *,
        turns: int,
        tool_calls: int,
        thinking_only: bool,
        recorded: bool | None,
    ) -> Ending:
        """Return the outcome of a turn that was not stopped.

        `turns` and `tool_calls` are the numbers of model turns and tool calls in this turn.
        `thinking_only` is True if the model sent thoughts, but no text, after the last tool call.
        `recorded` is True if the session file contains an answer after the last tool call or
        prompt; None if this was not checked.
        """
        error, process = self.failed.error if self.failed else None, self._session.process
        return judge_turn(
            TurnEvidence(
                stop_reason=self.stopped.reason if self.stopped else None,
                code=error.code if error else None,
                message=self._redacted(error.message) if error else None,
                data=self._redacted(error.details) if error else None,
                answer=self._recorder.answer,
                text=self._recorder.text,
                turns=turns,
                max_turns=options.max_turns,
                tool_calls=tool_calls,
                thinking_only=thinking_only,
                recorded=recorded,
                stderr="".join(self.stderr)[-_MAX_STDERR:]
                or (process.stderr_tail if self.process_gone else ""),
                gone=self.process_gone,
                exit_code=process.exit_code if self.process_gone else None,
            )
        )

    def _redacted(self, text: str | None) -> str | None:
        return None if text is None else self._session.process.redactor.text(text)


async def cancel_prompt(
    session: AcpSession,
    pending: PendingRequest,
    answer: PromptAnswer,
    options: Options,
    stopping: Stopping,
    *,
    shells_since: float | None,
    sent_at: float,
) -> list[Ended]:
    """Cancel the prompt, wait for the CLI's answer, then end the shells of the turn.

    Wait at most `options.grace` seconds. Return the processes that were ended. Shells of earlier
    turns, which still run in the background, are not ended.

    `shells_since` is the start time of the turn's oldest running shell, or None if no shell is
    running. `sent_at` is the time at which the prompt was sent. Both are Unix times.
    """
    session.process.connection.notify(Cancel(session_id=session.session_id))
    until = time.monotonic() + options.grace
    while not pending.is_done and time.monotonic() < until and not stopping.hurry:
        with anyio.move_on_after(_POLL):
            await pending.wait()
    if not pending.is_done:
        answer.cancel_ignored = session.is_broken = True
        shells_since = shells_since or sent_at  # a tool may run that was not reported yet
        session.process.last_update_at = 0.0  # the pool then checks that the process answers
    if shells_since is None:
        return []
    grace = min(options.grace, _SHELL_GRACE)
    return await session.process.end_shells(session.session_id, grace, shells_since)
