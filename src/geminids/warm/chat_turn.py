"""One turn of a chat, as callers see it: its events, its result, and `stop`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import EndedProcess
from geminids.gateway.request_log import RequestLog
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.options import Options
from geminids.options.validate import LIMITS
from geminids.run.accounting.lease import RunLease
from geminids.run.attempt import Attempt, AttemptFacts
from geminids.run.loop import AttemptLoop
from geminids.run.recorder import RunRecorder
from geminids.run.result import Result, ending_of_error
from geminids.run.retry import NextAttempt
from geminids.run.session_claim import Claim
from geminids.run.starter import RunStarter
from geminids.run.stopping import StopReason, see_through, stopped_ending
from geminids.run.stream import BY_CALLER, EventStream
from geminids.warm.attempt import WarmAttempt
from geminids.warm.permissions.decide import OnPermission
from geminids.warm.session import Conversation

if TYPE_CHECKING:
    import anyio

    from geminids.run.schema.answer_schema import AnswerSchema

__all__ = ["ChatTurn"]


class ChatTurn(EventStream):
    """A turn of a chat. It runs whether or not its events are read, until its end, `stop`, or the chat's end."""

    _name = "turn"

    def __init__(
        self,
        conversation: Conversation,
        prompt: str,
        options: Options,
        on_permission: OnPermission | None,
        schema: AnswerSchema | None,
        on_end: Callable[[Result], None],
    ) -> None:
        import anyio

        recorder = RunRecorder()
        super().__init__(recorder)
        self.options = options
        self.began = time.monotonic()
        """Start time for `duration_ms`; may be set earlier, to include the time that the chat took to open."""
        self.done: anyio.Event = anyio.Event()
        self._conversation = conversation
        self._on_end = on_end
        self._stop: StopReason | None = None
        self._starter = _TurnStarter(conversation, recorder, options, on_permission)
        self._loop = AttemptLoop(prompt, options, recorder, self._starter, schema)

    def stop(self, reason: str = BY_CALLER, *, by_deadline: bool = False) -> None:
        """Stop the turn; a second call skips the grace period. The chat stays open."""
        stop = StopReason("timeout" if by_deadline else "caller", reason)
        self._stop = self._stop or stop
        self._loop.stop(stop)

    async def __aenter__(self) -> ChatTurn:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end()

    async def end(self) -> None:
        """Stop the turn if it still runs, and wait until it has ended."""
        if not self.done.is_set():
            self.stop()
        await see_through(self.done, self.stop)

    async def drive(self, turn_lock: anyio.Lock) -> None:
        """Wait for earlier turns, then run this one to its end, also if the consumer is cancelled."""
        import anyio

        with anyio.CancelScope(shield=True):
            try:
                async with turn_lock:
                    if self._stop is not None:
                        self._finish(stopped_ending(self._stop))
                        return
                    # set_model or set_mode may have changed them while this turn waited.
                    chat = self._conversation.options
                    self.options = msgspec.structs.replace(
                        self.options, model=chat.model, approval=chat.approval
                    )
                    self._loop.start(self.options, time.monotonic())
                    self._finish(await self._loop.drive())
            except Exception as error:
                self._finish(ending_of_error(error, self.options.cwd, self._recorder.redact))
            finally:
                try:
                    self._finish(Ending("interrupted", "interrupted: the event loop was taken down"))
                finally:
                    self.done.set()
                    self._recorder.close()

    def _finish(self, ending: Ending) -> None:
        if self._result is not None:
            return
        retries = self._loop.retries
        facts = self._loop.facts or [AttemptFacts(ending=ending, session_id=self._starter.session_id)]
        finished = self._recorder.make_finished(
            ending,
            facts,
            began=self.began,
            clear_session=self._starter.clear_session,
            value=retries.plain,
        )
        value = retries.value if ending.outcome == "success" else None
        self._result = msgspec.structs.replace(self._recorder.finish(finished), value=value)
        self._on_end(self._result)


class _TurnStarter:
    """Starts the attempts of one turn: in the chat's session, or headless if it has none."""

    def __init__(
        self,
        conversation: Conversation,
        recorder: RunRecorder,
        options: Options,
        on_permission: OnPermission | None,
    ) -> None:
        self._conversation = conversation
        self._recorder = recorder
        self._on_permission = on_permission
        self._free = options.offline or options.replay is not None
        self._headless: RunStarter | None = None
        self._cwd = os.path.realpath(options.cwd)
        self.clear_session = False
        """A new session replaced the one that the caller asked to resume."""
        self._log = RequestLog(recorder.run_id, lambda: (self.session_id, self._cwd), free=self._free)

    @property
    def session_id(self) -> str | None:
        return self._conversation.session_id

    def first(self, prompt: str, options: Options) -> Attempt:
        """Create the attempt. It takes its session in `drive`; nothing is spawned here."""
        return WarmAttempt(
            self._conversation,
            prompt,
            options,
            self._recorder,
            self._log,
            self._on_permission,
            self._resume_headless,
        )

    def next(self, prompt: str, options: Options, after: NextAttempt) -> Attempt:
        return self.first(prompt, options)

    def attempt_ended(self, prompt: str, facts: AttemptFacts, *, repeats: bool) -> None:
        self._conversation.attempt_ended(prompt, facts, self._recorder, repeats=repeats)

    async def open(self) -> None:
        """Nothing to do: the pool serves the process."""

    async def close(self) -> tuple[EndedProcess, ...]:
        self._release()
        return ()

    async def _resume_headless(
        self, prompt: str, options: Options, session_id: str | None, is_wanted: Callable[[], bool]
    ) -> Attempt | Ending:
        self._release()
        self._conversation.release_claim()
        # The lease shares the chat's budgets, so the options must not set limits again.
        lease = RunLease(
            msgspec.structs.replace(options, **dict.fromkeys(LIMITS)),
            budgets=self._conversation.lease.share_budgets(),
        )
        starter = self._headless = RunStarter(
            self._recorder, Claim(self._recorder.run_id), lease, free=self._free
        )
        try:
            return await starter.resume_headless(prompt, options, session_id, is_wanted)
        finally:
            self.clear_session = starter.clear_session
            lease.begin()

    def _release(self) -> None:
        if self._headless is not None:
            self._headless.release()
            self._headless.lease.close()
            self._headless = None
