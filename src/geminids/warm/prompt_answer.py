"""How the CLI answered a prompt, and how a prompt is cancelled."""

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
_MOST_STDERR = 65536


class PromptAnswer:
    """What came back for a prompt. `gone`: its process ended under it; `unanswered`: the CLI was asked to stop, and
    said nothing; `stderr` is what it has written meanwhile."""

    def __init__(self, session: AcpSession, recorder: RunRecorder) -> None:
        self._session = session
        self._recorder = recorder
        self.stopped: Stopped | None = None
        self.failed: RpcFailed | None = None
        self.gone = False
        self.unanswered = False
        self.stderr: list[str] = []

    def take(self, pending: Pending) -> list[Event]:
        """The prompt is answered, or will never be; what is to be told of that."""
        try:
            self.stopped = stopped_of(pending.result())
        except RpcFailed as failed:
            self.failed = failed
        except Gone:
            self.gone = not self.unanswered
            if self.unanswered:
                return [self._recorder.notice("error", "cancel", _NO_ANSWER)]
        except msgspec.DecodeError as error:
            told = f"the answer to the prompt cannot be read: {error}"
            return [self._recorder.notice("error", "protocol", told)]
        return []

    @property
    def is_end(self) -> bool:
        """Whether the agent has come to its end by itself."""
        return self.stopped is not None and self.stopped.reason == "end_turn"

    def judged(
        self,
        options: Options,
        *,
        turns: int,
        tool_calls: int,
        thinking_only: bool,
        recorded: bool | None,
    ) -> Ending:
        """What the turn was, where nobody has stopped it."""
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
                stderr="".join(self.stderr)[-_MOST_STDERR:] or (process.stderr_tail if self.gone else ""),
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
    """Cancel the prompt and wait for its answer, at most the grace; then end its shells. What had to be ended."""
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
        since = since or sent_at  # a tool may have begun that we have not heard of
        session.process.last_update_at = 0.0  # whoever wants to sit there next asks whether it is well
    if since is None:
        return []
    began = since

    # What the CLI's own cancel has not ended; what earlier turns have left on purpose stays.
    def find() -> list[psutil.Process]:
        return born_since(began)

    return await stop.end_found(find, min(options.grace, _SHELL_GRACE))
