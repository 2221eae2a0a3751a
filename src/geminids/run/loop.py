"""Run attempts until one is final: start one, drive it, decide what follows, wait, repeat."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from geminids.errors import SessionError
from geminids.events.model import EndedProcess, Level
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.launch.errors import Refused
from geminids.log import get_logger
from geminids.options import Options
from geminids.run.attempt import Attempt, AttemptFacts
from geminids.run.recorder import RunRecorder
from geminids.run.result import our_fault
from geminids.run.retry import Decided, NextAttempt, Retries
from geminids.run.stopping import StopReason, stopped_ending

if TYPE_CHECKING:
    import anyio

    from geminids.run.schema.answer_schema import AnswerSchema

__all__ = ["AttemptLoop", "Starter"]

_log = get_logger("run")

# Options that later prompts reset: the session already has the template and the files, and our own
# prompts are plain text.
_SENT_BEFORE: dict[str, Any] = {
    "template": None,
    "variables": {},
    "instructions": None,
    "images": (),
    "videos": (),
    "files": (),
    "literal": True,
    "session_id": None,
    "fresh": False,
}


class Starter(Protocol):
    """Starts the attempts of a run or of a chat turn."""

    def first(self, prompt: str, options: Options) -> Attempt:
        """Start the first attempt; raises `Refused` or OSError."""

    def next(self, prompt: str, options: Options, after: NextAttempt) -> Attempt:
        """Start a further attempt; raises `Refused`, `SessionError` or OSError."""

    async def open(self) -> None:
        """Prepare to drive the attempts. Called once, after `first`."""

    def attempt_ended(self, prompt: str, facts: AttemptFacts, *, repeats: bool) -> None:
        """Report that an attempt ended; `repeats` if the next one sends the same prompt."""

    async def close(self) -> tuple[EndedProcess, ...]:
        """End what the attempts shared, and return the processes that had to be terminated."""


class AttemptLoop:
    """The attempts of one run or chat turn. `attempt` is the last one, None before the first."""

    def __init__(
        self,
        prompt: str,
        options: Options,
        recorder: RunRecorder,
        starter: Starter,
        schema: AnswerSchema | None,
    ) -> None:
        self.retries = Retries(prompt, options, schema)
        self.attempt: Attempt | None = None
        self.facts: list[AttemptFacts] = []
        """The facts of each attempt that has ended."""
        self._recorder = recorder
        self._starter = starter
        self._prompt = self.retries.prompt
        self._sent = ""
        self._stop: StopReason | None = None
        self._pause: anyio.Event | None = None
        """Set only while the loop waits before the next attempt."""
        self._until: float | None = None

    def start(self, options: Options, began: float) -> None:
        """Start the first attempt; raises `Refused` or OSError.

        `began` is when the run began (monotonic).
        """
        self.retries.begin(options)
        self._until = None if options.timeout is None else began + options.timeout
        self._sent = self._prompt
        if not self.retries.possible:
            self._prompt = ""  # it may be large, and is not sent again
        self.attempt = self._starter.first(self._sent, options)
        if self._stop is not None:
            self.attempt.stop(self._stop)

    def stop(self, reason: StopReason) -> None:
        """Stop the attempt and start no further one. A second call skips the grace period."""
        self._stop = self._stop or reason
        if self._pause is not None:
            self._pause.set()
        elif self.attempt is not None:
            self.attempt.stop(reason)

    def leave(self, reason: StopReason) -> None:
        """Stop because the caller left. No effect if `stop` was called before."""
        if self._stop is None:
            self.stop(reason)

    async def drive(self) -> Ending:
        """Drive the first attempt and those that follow; return the ending of the run."""
        await self._starter.open()
        try:
            return await self._drive()
        finally:
            ended = await self._starter.close()
            if ended and self.facts:
                last = self.facts[-1]
                self.facts[-1] = msgspec.structs.replace(last, ended=(*last.ended, *ended))

    async def _drive(self) -> Ending:
        while True:
            facts = await self._attempt_facts()
            if not self.retries.possible:
                self._starter.attempt_ended(self._sent, facts, repeats=False)
                return self._run_ending(facts)
            decided = await self._decide(facts)
            if decided.why_not is not None:
                self._notice("warning", f"no further attempt: {decided.why_not}")
            after = decided.next if self._stop is None else None
            if decided.is_given_up and self._stop is not None:
                ending: Ending | None = stopped_ending(self._stop)
            else:
                ending = decided.ending if after is None else await self._start_next(decided.ending, after)
            if ending is not None:
                self._starter.attempt_ended(self._sent, facts, repeats=False)
                return ending

    async def _attempt_facts(self) -> AttemptFacts:
        """Drive the attempt and keep its facts, also if it fails or is cancelled."""
        assert self.attempt is not None
        try:
            await self.attempt.drive()
        except Exception as error:
            ending = our_fault(error, self._recorder.redact)
            try:
                facts = msgspec.structs.replace(self.attempt.facts(), ending=ending)
            except Exception as second:
                _log.error("cannot collect the facts of the attempt", error=second)
                facts = AttemptFacts(ending=ending)
            self.facts.append(facts)
            return facts
        except BaseException:
            # The event loop is shutting down.
            self.facts.append(self.attempt.facts())
            raise
        self.facts.append(self.attempt.facts())
        return self.facts[-1]

    async def _decide(self, facts: AttemptFacts) -> Decided:
        from functools import partial

        import anyio

        decide = partial(
            self.retries.decide,
            self._run_ending(facts),
            answer=self._recorder.redact(self._recorder.answer),
            session_id=facts.session_id,
            tool_calls=self._recorder.tool_calls,
            given_up=lambda: self._stop.text if self._stop is not None else None,
        )
        # In a thread: validating megabytes against a schema takes seconds and would block the event
        # loop.
        return await anyio.to_thread.run_sync(decide) if self.retries.has_schema else decide()

    def _run_ending(self, facts: AttemptFacts) -> Ending:
        """The ending; a time-out names the run's `timeout`, not the last attempt's share of it."""
        timeout = self.retries.options.timeout
        if facts.stop is None or facts.stop.kind != "timeout" or timeout is None or len(self.facts) == 1:
            return facts.ending
        if self._time_left() or facts.ending.outcome != "timed_out":
            return facts.ending
        return msgspec.structs.replace(facts.ending, reason=f"timed out after {timeout:g} s")

    async def _start_next(self, ending: Ending, after: NextAttempt) -> Ending | None:
        """Wait, then start the next attempt. Return the run's ending if it could not be started."""
        import anyio

        left = self._time_left()
        if left is not None and after.delay >= left:
            text = f"it would start in {after.delay:.1f} s, but only {left:.1f} s of the time-out are left"
            self._notice("warning", f"no further attempt: {text}; {after.why.partition(';')[0]}")
            return ending
        when = f", in {after.delay:.1f} s" if after.delay else ""
        self._notice(
            "info" if after.is_correction else "warning", after.why + when, wait_s=after.delay or None
        )
        self._pause = anyio.Event()
        with anyio.move_on_after(after.delay):
            await self._pause.wait()
        self._pause = None
        if self._stop is not None:
            return stopped_ending(self._stop)
        try:
            self._begin(after)
            return None
        except (Refused, SessionError) as error:
            text = error.failure.message if isinstance(error, Refused) else error.message
        except OSError as error:
            text = f"cannot start the CLI: {error.strerror or error}"
        except Exception as error:
            # A bug of ours must not lose the result of the attempts so far.
            _log.error("cannot start the next attempt", error=error)
            text = f"internal error in geminids: {type(error).__name__}: {error}"
        self._notice("error", f"no further attempt: {text}")
        return ending

    def _begin(self, after: NextAttempt) -> None:
        prompt = after.prompt or self._prompt
        self._recorder.attempt += 1
        try:
            self.attempt = self._starter.next(prompt, self._options_for(after), after)
        except BaseException:
            self._recorder.attempt -= 1
            raise
        self._starter.attempt_ended(self._sent, self.facts[-1], repeats=after.prompt is None)
        self._sent = prompt
        self.retries.started(after)

    def _options_for(self, after: NextAttempt) -> Options:
        left = self._time_left()
        options = msgspec.structs.replace(
            self.retries.options, model=after.model, timeout=None if left is None else max(left, 0.001)
        )
        if after.prompt is None:
            return options
        return msgspec.structs.replace(options, resume=after.resume, **_SENT_BEFORE)

    def _time_left(self) -> float | None:
        """Seconds until the run's `timeout`, which all attempts share; None if it has none."""
        return None if self._until is None else max(self._until - time.monotonic(), 0.0)

    def _notice(self, level: Level, text: str, *, wait_s: float | None = None) -> None:
        _log.info("%s", text)
        # Not the code `retry`: that one means that the CLI sends a request again.
        self._recorder.emit_notice(level, "next_attempt", text, wait_s=wait_s)
