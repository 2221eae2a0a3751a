"""The answer of the CLI to a prompt, and the cancellation of a prompt."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import Event
from geminids.gemini.protocol.acp.calls import Cancel, Stopped, stopped_of
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.gemini.protocol.outcome.judge_acp import TurnEvidence, judge_turn
from geminids.options import Options
from geminids.run.recorder import RunRecorder
from geminids.run.stopping import Stopping
from geminids.warm.connection import Gone, Pending, RpcFailed
from geminids.warm.session import AcpSession

if TYPE_CHECKING:
    import psutil

    from geminids.process.tree import Ended

__all__ = ["PromptAnswer", "cancel"]

_NO_ANSWER = "the CLI did not answer when it was asked to stop"
_MAX_STDERR = 65536


class PromptAnswer:
    """The answer to a prompt. `gone`: the process ended before it answered. `unanswered`: the CLI did not answer a
    cancel. `stderr`: the text that the process wrote during the turn."""

    def __init__(self, session: AcpSession, recorder: RunRecorder) -> None:
        self._session = session
        self._recorder = recorder
        self.stopped: Stopped | None = None
        self.failed: RpcFailed | None = None
        self.gone = False
        self.unanswered = False
        self.stderr: list[str] = []

    def take(self, pending: Pending) -> list[Event]:
        """Store the answer, or that none will come; returns notices to emit."""
        try:
            self.stopped = stopped_of(pending.result())
        except RpcFailed as failed:
            self.failed = failed
        except Gone:
            self.gone = not self.unanswered
            if self.unanswered:
                return [self._recorder.notice("error", "cancel", _NO_ANSWER)]
        except msgspec.DecodeError as error:
            text = f"the answer to the prompt cannot be read: {error}"
            return [self._recorder.notice("error", "protocol", text)]
        return []

    @property
    def is_end(self) -> bool:
        """Whether the agent ended the turn itself."""
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
        """Judge the outcome of a turn that was not stopped."""
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
                stderr="".join(self.stderr)[-_MAX_STDERR:] or (process.stderr_tail if self.gone else ""),
                gone=self.gone,
                exit_code=process.exit_code if self.gone else None,
            )
        )

    def _redacted(self, text: str | None) -> str | None:
        return None if text is None else self._session.process.redactor.text(text)


_SHELL_GRACE = 1.0


async def cancel(
    session: AcpSession,
    pending: Pending,
    answer: PromptAnswer,
    born_since: Callable[[float], list[psutil.Process]],
    options: Options,
    stopping: Stopping,
    *,
    shells_since: float | None,
    sent_at: float,
) -> list[Ended]:
    """Cancel the prompt, wait up to `grace` for its answer, then end its shells; returns the ended processes."""
    import anyio

    from geminids.process import terminate as stop

    since = shells_since
    session.process.connection.note(Cancel(session_id=session.session_id))
    until = time.monotonic() + options.grace
    while not pending.over and time.monotonic() < until and not stopping.hurry:
        with anyio.move_on_after(0.02):
            await pending.wait()
    if not pending.over:
        answer.unanswered = session.broken = True
        since = since or sent_at  # a tool may have started that was not reported yet
        session.process.last_update_at = 0.0  # the pool pings the process before its next use
    if since is None:
        return []
    began = since

    # The shells that the cancel did not end. Background shells of earlier turns keep running.
    def find() -> list[psutil.Process]:
        return born_since(began)

    return await stop.end_found(find, min(options.grace, _SHELL_GRACE))
