"""Stop a run: time-outs, the reason to stop, and the list of terminated processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from geminids.events.model import EndedProcess
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.log import get_logger
from geminids.options import Options
from geminids.redact import Redactor

if TYPE_CHECKING:
    import anyio

    from geminids.process.tree import Ended

__all__ = [
    "Deadlines",
    "StopKind",
    "StopReason",
    "Stopping",
    "listed",
    "stopped_ending",
    "wait_shielded",
]

_log = get_logger("run")

_LONGEST_COMMAND = 200

StopKind = Literal[
    "caller", "timeout", "start_timeout", "idle_timeout", "max_turns", "gateway", "lingering", "wrong_session"
]
"""What stopped a run.

`caller` includes an event loop that shuts down. `lingering` means that the CLI closed its output
but did not exit. `wrong_session` means that the CLI started a new session instead of resuming the
requested one.
"""
_TIMEOUTS: tuple[StopKind, ...] = ("timeout", "start_timeout", "idle_timeout")
_FAULTS: tuple[StopKind, ...] = ("lingering", "wrong_session")


class StopReason(msgspec.Struct, frozen=True):
    """Why a run is stopped.

    Code uses only `kind` for decisions; `text` is for people.
    """

    kind: StopKind
    text: str

    @property
    def is_silence(self) -> bool:
        """Whether the run is stopped because the CLI sent nothing for too long."""
        return self.kind in ("start_timeout", "idle_timeout")


def stopped_ending(reason: StopReason) -> Ending:
    """Return the ending of a run that was stopped before it had a result."""
    return Ending("timed_out" if reason.kind in _TIMEOUTS else "interrupted", reason.text)


class Stopping:
    """Stores the first reason to stop an attempt.

    `hurry` is True if the caller asked twice to stop: then the grace period is skipped.
    """

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.hurry = False
        self.asked = False

    def ask(self) -> None:
        """Record that the caller asked to stop. The second call sets `hurry`."""
        self.hurry = self.asked
        self.asked = True

    def begin(self, reason: StopReason) -> bool:
        """Store the reason to stop, and return True.

        Return False, and store nothing, if the attempt is already being stopped.
        """
        if self.reason is not None:
            return False
        _log.info("stopping the run (%s): %s", reason.kind, reason.text)
        self.reason = reason
        return True

    @property
    def wanted(self) -> StopReason | None:
        """The reason to stop. None if there is no reason, or if the reason is a fault of the CLI.

        The kinds `lingering` and `wrong_session` are faults of the CLI.
        """
        return None if self.reason is None or self.reason.kind in _FAULTS else self.reason


def listed(ended: list[Ended], redactor: Redactor) -> tuple[EndedProcess, ...]:
    """Convert the list of terminated processes to the type that events contain.

    Secrets are masked before a command is truncated, because a truncated secret would not be
    recognised.
    """
    return tuple(
        EndedProcess(
            process.pid,
            _truncate(redactor.text(process.command)),
            "KILL" if process.signal == "KILL" else "TERM",
        )
        for process in ended
    )


def _truncate(command: str) -> str:
    return command if len(command) <= _LONGEST_COMMAND else command[: _LONGEST_COMMAND - 3] + "..."


async def wait_shielded(over: anyio.Event, hurry: Callable[[], None] | None = None) -> None:
    """Wait until `over` is set, even if the caller is cancelled meanwhile.

    `hurry` is called at each cancellation. After the wait, the cancellation is raised again. A
    shielded anyio cancel scope alone is not enough, because asyncio's `task.cancel()` ignores it.
    """
    import anyio

    deferred: BaseException | None = None
    while not over.is_set():
        try:
            with anyio.CancelScope(shield=True):
                await over.wait()
        except anyio.get_cancelled_exc_class() as cancelled:
            deferred = cancelled
            if hurry is not None:
                hurry()
    if deferred is not None:
        raise deferred


_POLL = 0.25


class Deadlines:
    """The time-outs of one attempt.

    Call `note_output` for each output of the CLI. `watch` reports the first time-out that passes.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._began = self._last_output = time.monotonic()
        self._has_output = False
        self.last_stdout_at = self._began
        """The time (monotonic) of the last output on stdout, or of the start if there was none."""
        self._closed_at: float | None = None
        self.busy = False
        """Whether a tool is running. While a tool runs, `idle_timeout` does not stop the run."""

    def started(self, began: float | None = None) -> None:
        """Start all time-outs now.

        If `began` (monotonic) is set, `timeout` and `start_timeout` count from that earlier time.
        """
        self._last_output = self.last_stdout_at = time.monotonic()
        self._began = self._last_output if began is None else began

    def note_output(self, *, stdout: bool) -> None:
        """Record that the CLI has sent output. `stdout` says whether it was on stdout."""
        self._last_output = time.monotonic()
        if stdout:
            self._has_output, self.last_stdout_at = True, self._last_output

    def closed(self) -> None:
        """Record that the CLI has sent its result or closed its output, and should exit now."""
        if self._closed_at is None:
            self._closed_at = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the CLI has finished its work and only has to exit."""
        return self._closed_at is not None

    def silence_ends(self) -> float | None:
        """Return the time (monotonic) at which the run is stopped if the CLI stays silent.

        Return None if silence does not stop the run.
        """
        options = self._options
        if not self._has_output and options.start_timeout is not None:
            return self._began + options.start_timeout
        if options.idle_timeout is None or self.busy:
            return None
        return self._last_output + options.idle_timeout

    async def watch(self, stop: Callable[[StopReason], None]) -> None:
        """Wait until the first time-out passes, then call `stop` with the reason."""
        import anyio

        while True:
            now = time.monotonic()
            at, kind = min(self._deadlines(), key=lambda deadline: deadline[0])
            if now >= at:
                stop(self._reason(kind))
                return
            await anyio.sleep(min(at - now, _POLL))

    def _deadlines(self) -> Iterator[tuple[float, StopKind]]:
        options = self._options
        yield float("inf"), "timeout"
        if options.timeout is not None:
            yield self._began + options.timeout, "timeout"
        if self._closed_at is not None:
            # This time-out does not come from an option: the CLI only has to exit. It gets as much
            # time for that as after the signal TERM.
            yield self._closed_at + max(options.grace, 2.0), "lingering"
        elif not self._has_output and options.start_timeout is not None:
            # `idle_timeout` applies only after the first output.
            yield self._began + options.start_timeout, "start_timeout"
        elif options.idle_timeout is not None and not self.busy:
            yield self._last_output + options.idle_timeout, "idle_timeout"

    def _reason(self, kind: StopKind) -> StopReason:
        options = self._options
        if kind == "lingering":
            return StopReason(kind, "the CLI closed its output but did not exit")
        if kind == "start_timeout":
            return StopReason(
                kind, f"timed out: no output from the CLI in the first {options.start_timeout:g} s"
            )
        if kind == "idle_timeout":
            return StopReason(
                kind, f"timed out: no output and no running tool for {options.idle_timeout:g} s"
            )
        return StopReason(kind, f"timed out after {options.timeout:g} s")
