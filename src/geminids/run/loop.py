"""Run the attempts of a run. After each attempt, decide whether another attempt follows."""

from __future__ import annotations

import time
from functools import partial
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
from geminids.run.schema.answer_schema import AnswerSchema
from geminids.run.stopping import StopReason, stopped_ending

if TYPE_CHECKING:
    import anyio

__all__ = ["AttemptLoop", "Starter"]

_log = get_logger("run")

# The options for a prompt that geminids itself sends to a session. The session already contains
# the template and the files, and prompts of geminids are plain text.
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
    """Starts the attempts of a run or of a turn of a chat."""

    def first(self, prompt: str, options: Options) -> Attempt:
        """Start the first attempt.

        Raises `Refused` if the options do not allow the run to start, and `OSError` if the process
        cannot be started.
        """

    def next(self, prompt: str, options: Options, after: NextAttempt) -> Attempt:
        """Start a further attempt. `after` says how to start it, such as which session to resume.

        Raises `Refused` if the attempt is not possible, `SessionError` if its session cannot be
        used, and `OSError` if the process cannot be started.
        """

    async def open(self) -> None:
        """Prepare to run the attempts. Called once, after `first`."""

    def attempt_ended(self, prompt: str, facts: AttemptFacts, *, repeats: bool) -> None:
        """Record that an attempt ended.

        `prompt` is the prompt of the attempt. `repeats` is True if the next attempt sends the same
        prompt again.
        """

    async def close(self) -> tuple[EndedProcess, ...]:
        """Close what the attempts shared, such as a warm process.

        Return the processes that had to be terminated.
        """


class AttemptLoop:
    """Runs the attempts of one run, or of one turn of a chat.

    `attempt` is the attempt that was started last; None if none was started yet.
    """

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
        """The facts about each attempt that has ended, oldest first."""
        self._recorder = recorder
        self._starter = starter
        self._prompt = self.retries.prompt
        self._sent = ""
        self._stop: StopReason | None = None
        self._pause: anyio.Event | None = None
        """An event that ends the wait before the next attempt. None while the loop does not wait."""
        self._until: float | None = None

    def start(self, options: Options, began: float) -> None:
        """Start the first attempt. `began` is the start time of the run (monotonic).

        Raises `Refused` if the options do not allow the run to start, and `OSError` if the process
        cannot be started.
        """
        self.retries.begin(options)
        self._until = None if options.timeout is None else began + options.timeout
        self._sent = self._prompt
        if not self.retries.possible:
            self._prompt = ""  # free the memory: a prompt may be large, and is not sent again
        self.attempt = self._starter.first(self._sent, options)
        if self._stop is not None:
            self.attempt.stop(self._stop)

    def stop(self, reason: StopReason) -> None:
        """Stop the current attempt, and start no further one.

        The CLI gets a grace period in which it can exit by itself. A second call skips this period.
        """
        self._stop = self._stop or reason
        if self._pause is not None:
            self._pause.set()
        elif self.attempt is not None:
            self.attempt.stop(reason)

    def leave(self, reason: StopReason) -> None:
        """Stop the run, because the caller left the `async with` block.

        This has no effect if `stop` was called before.
        """
        if self._stop is None:
            self.stop(reason)

    async def drive(self) -> Ending:
        """Run all attempts, one after the other, to their end. Return the ending of the run."""
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
        """Run the current attempt to its end. Store and return how it ended.

        An error that the attempt raises is a bug of geminids. It is not raised again: the stored
        ending is an internal error. If the attempt is cancelled, its ending is stored, and the
        cancellation is raised again.
        """
        assert self.attempt is not None
        try:
            await self.attempt.drive()
        except Exception as error:
            ending = our_fault(error, self._recorder.redact)
            try:
                facts = msgspec.structs.replace(self.attempt.facts(), ending=ending)
            except Exception as second:
                _log.error("cannot find out how the attempt ended", error=second)
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
        import anyio

        decide = partial(
            self.retries.decide,
            self._run_ending(facts),
            answer=self._recorder.redact(self._recorder.answer),
            session_id=facts.session_id,
            tool_calls=self._recorder.tool_calls,
            given_up=lambda: self._stop.text if self._stop is not None else None,
        )
        # Use a thread: validating megabytes against a schema takes seconds, and would block the
        # event loop.
        return await anyio.to_thread.run_sync(decide) if self.retries.has_schema else decide()

    def _run_ending(self, facts: AttemptFacts) -> Ending:
        """Return the ending that the run has if no attempt follows this one.

        If the attempt ended because the run's `timeout` has passed, the message of the ending names
        this `timeout`, and not the shorter time that was left for this attempt.
        """
        timeout = self.retries.options.timeout
        if facts.stop is None or facts.stop.kind != "timeout" or timeout is None or len(self.facts) == 1:
            return facts.ending
        if self._time_left() or facts.ending.outcome != "timed_out":
            return facts.ending
        return msgspec.structs.replace(facts.ending, reason=f"timed out after {timeout:g} s")

    async def _start_next(self, ending: Ending, after: NextAttempt) -> Ending | None:
        """Wait, then start the next attempt.

        `after` says how long to wait and how to start. `ending` is the ending of the previous
        attempt. Return None if the next attempt was started, otherwise the ending of the run.
        """
        import anyio

        left = self._time_left()
        if left is not None and after.delay >= left:
            text = (
                f"the next attempt would start in {after.delay:.1f} s, "
                f"but only {left:.1f} s of `timeout` are left"
            )
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
            # After a bug in geminids, still report the result of the attempts so far.
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
        """Return the seconds that are left of the run's `timeout`, or None if it has no `timeout`.

        All attempts share the `timeout`.
        """
        return None if self._until is None else max(self._until - time.monotonic(), 0.0)

    def _notice(self, level: Level, text: str, *, wait_s: float | None = None) -> None:
        _log.info("%s", text)
        # Do not use the code `retry`: it means that the CLI sends a request again.
        self._recorder.emit_notice(level, "next_attempt", text, wait_s=wait_s)
