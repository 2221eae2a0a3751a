"""One turn of a chat. A caller uses it to read the turn's events and its result."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import TracebackType

import anyio
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
from geminids.run.schema.answer_schema import AnswerSchema
from geminids.run.session_claim import Claim
from geminids.run.starter import RunStarter
from geminids.run.stopping import StopReason, stopped_ending, wait_shielded
from geminids.run.stream import BY_CALLER, EventStream
from geminids.warm.attempt import WarmAttempt
from geminids.warm.conversation import WarmConversation
from geminids.warm.permissions.answer import OnPermission

__all__ = ["ChatTurn"]


class ChatTurn(EventStream):
    """A turn of a chat.

    It runs even if nobody reads its events. It ends when its prompt has been answered or has
    failed, when `stop` is called, or when the chat is closed.
    """

    _name = "turn"

    def __init__(
        self,
        conversation: WarmConversation,
        prompt: str,
        options: Options,
        on_permission: OnPermission | None,
        schema: AnswerSchema | None,
        on_end: Callable[[Result], None],
    ) -> None:
        recorder = RunRecorder()
        super().__init__(recorder)
        self.options = options
        self.began = time.monotonic()
        """The start time of the turn (monotonic), from which `duration_ms` counts.

        A caller may set it to an earlier time, before the chat was opened.
        """
        self.done: anyio.Event = anyio.Event()
        self._conversation = conversation
        self._on_end = on_end
        self._stop: StopReason | None = None
        self._starter = _TurnStarter(conversation, recorder, options, on_permission)
        self._loop = AttemptLoop(prompt, options, recorder, self._starter, schema)

    def stop(self, reason: str = BY_CALLER, *, by_deadline: bool = False) -> None:
        """Stop the turn. A second call skips the grace period. The chat stays open.

        `by_deadline` is True if a time-out is the reason.
        """
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
        await wait_shielded(self.done, self.stop)

    async def drive(self, turn_lock: anyio.Lock) -> None:
        """Wait for earlier turns, then run this turn to its end.

        The running turn holds `turn_lock`. If the caller is cancelled, the turn still runs to its
        end.
        """
        with anyio.CancelScope(shield=True):
            try:
                async with turn_lock:
                    if self._stop is not None:
                        self._finish(stopped_ending(self._stop))
                        return
                    # While this turn waited, set_model or set_mode may have changed the options.
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
                    self._finish(Ending("interrupted", "interrupted: the event loop was shut down"))
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
    """Creates the attempts that run one turn.

    An attempt runs in the chat's session, or headless if the chat cannot have a session.
    """

    def __init__(
        self,
        conversation: WarmConversation,
        recorder: RunRecorder,
        options: Options,
        on_permission: OnPermission | None,
    ) -> None:
        self._conversation = conversation
        self._recorder = recorder
        self._on_permission = on_permission
        self._headless: RunStarter | None = None
        self._cwd = os.path.realpath(options.cwd)
        self.clear_session = False
        """Whether a new session replaced the session that the caller asked to resume."""
        self._log = RequestLog(recorder.run_id, lambda: (self.session_id, self._cwd))

    @property
    def session_id(self) -> str | None:
        return self._conversation.session_id

    def first(self, prompt: str, options: Options) -> Attempt:
        """Create an attempt that runs this turn.

        No process is started yet: the attempt gets its session only when its `drive` is called.
        """
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
        """Do nothing, because the pool starts and runs the process."""

    async def close(self) -> tuple[EndedProcess, ...]:
        self._release()
        return ()

    async def _resume_headless(
        self, prompt: str, options: Options, session_id: str | None, is_wanted: Callable[[], bool]
    ) -> Attempt | Ending:
        self._release()
        self._conversation.release_claim()
        # The new lease uses the chat's budgets, so its options must not set the limits again.
        lease = RunLease(
            msgspec.structs.replace(options, **dict.fromkeys(LIMITS)),
            budgets=self._conversation.lease.share_budgets(),
            parent=self._conversation.lease,
        )
        starter = self._headless = RunStarter(self._recorder, Claim(self._recorder.run_id), lease)
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
