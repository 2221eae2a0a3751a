"""Run attempts until one ending stands: start one, drive it, decide what follows, wait, start the next."""

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

    from geminids.run.schema.answer_schema import Wanted

__all__ = ["AttemptLoop", "Starter"]

_log = get_logger("run")

# Reset for further prompts: the session has the template and the files already, and our own prompts are plain text.
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
        """The attempts are driven from now on."""

    def attempt_ended(self, prompt: str, facts: AttemptFacts, *, repeats: bool) -> None:
        """An attempt that sent `prompt` is over; `repeats` if the next one sends the same prompt again."""

    async def close(self) -> tuple[EndedProcess, ...]:
        """No further attempt follows: end what they shared, and return the processes that had to be terminated."""


class AttemptLoop:
    """The attempts of one run or chat turn. `attempt` is the last one, None before the first."""

    def __init__(
        self, prompt: str, options: Options, recorder: RunRecorder, starter: Starter, schema: Wanted | None
    ) -> None:
        self.retries = Retries(prompt, options, schema)
        self.attempt: Attempt | None = None
        self.facts: list[AttemptFacts] = []
        """Those of each attempt that is over."""
        self._recorder = recorder
        self._starter = starter
        self._prompt = self.retries.prompt
        self._sent = ""
        self._stop: StopReason | None = None
        self._pause: anyio.Event | None = None
        """There while the next attempt is waited for."""
        self._until: float | None = None

    def start(self, options: Options, began: float) -> None:
        """Start the first attempt of a run that began then (monotonic); raises `Refused` or OSError."""
        self.retries.begin(options)
        self._until = None if options.timeout is None else began + options.timeout
        self._sent = self._prompt
        if not self.retries.possible:
            self._prompt = ""  # it may be large, and is sent once
        self.attempt = self._starter.first(self._sent, options)
        if self._stop is not None:
            self.attempt.stop(self._stop)

    def stop(self, reason: StopReason) -> None:
        """Ask for the end; asked again, the attempt is ended at once. No further attempt follows."""
        self._stop = self._stop or reason
        if self._pause is not None:
            self._pause.set()
        elif self.attempt is not None:
            self.attempt.stop(reason)

    def leave(self, reason: StopReason) -> None:
        """The caller is gone: stop, unless that was asked for before."""
        if self._stop is None:
            self.stop(reason)

    async def drive(self) -> Ending:
        """Drive the first attempt and those that follow; the ending of the last one is the run's."""
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
                return self._of_the_whole(facts)
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
        """Drive the attempt; its facts are kept whatever happens to it."""
        assert self.attempt is not None
        try:
            await self.attempt.drive()
        except Exception as error:
            ending = our_fault(error, self._recorder.redact)
            try:
                facts = msgspec.structs.replace(self.attempt.facts(), ending=ending)
            except Exception as second:
                _log.error("the attempt has no facts", error=second)
                facts = AttemptFacts(ending=ending)
            self.facts.append(facts)
            return facts
        except BaseException:
            # The event loop is taken down.
            self.facts.append(self.attempt.facts())
            raise
        self.facts.append(self.attempt.facts())
        return self.facts[-1]

    async def _decide(self, facts: AttemptFacts) -> Decided:
        from functools import partial

        import anyio

        decide = partial(
            self.retries.decide,
            self._of_the_whole(facts),
            answer=self._recorder.redact(self._recorder.answer),
            session_id=facts.session_id,
            tool_calls=self._recorder.tool_calls,
            given_up=lambda: self._stop.text if self._stop is not None else None,
        )
        # In a thread: to check megabytes by a schema takes seconds, and the caller's other tasks go on.
        return await anyio.to_thread.run_sync(decide) if self.retries.has_schema else decide()

    def _of_the_whole(self, facts: AttemptFacts) -> Ending:
        """The ending with the run's whole `timeout`, not the time that was left for the last attempt."""
        whole = self.retries.options.timeout
        if facts.stop is None or facts.stop.kind != "timeout" or whole is None or len(self.facts) == 1:
            return facts.ending
        if self._time_left() or facts.ending.outcome != "timed_out":
            return facts.ending
        return msgspec.structs.replace(facts.ending, reason=f"timed out after {whole:g} s")

    async def _start_next(self, ending: Ending, after: NextAttempt) -> Ending | None:
        """Wait, and start the next attempt. Returns how the run ends if there is none."""
        import anyio

        left = self._time_left()
        if left is not None and after.delay >= left:
            text = f"it would begin in {after.delay:.1f} s, and the time-out leaves {left:.1f} s"
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
            text = f"the CLI could not be started: {error.strerror or error}"
        except Exception as error:
            # A mistake of ours must not cost the caller what the run had come to.
            _log.error("the next attempt could not be started", error=error)
            text = f"geminids itself failed: {type(error).__name__}: {error}"
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
        """`timeout` is the whole run's, however many attempts it takes."""
        return None if self._until is None else max(self._until - time.monotonic(), 0.0)

    def _notice(self, level: Level, text: str, *, wait_s: float | None = None) -> None:
        _log.info("%s", text)
        # Not the code `retry`: that is the CLI's own, which sends a request again.
        self._recorder.emit_notice(level, "next_attempt", text, wait_s=wait_s)
