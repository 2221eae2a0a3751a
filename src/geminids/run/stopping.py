"""Stop a run: its deadlines, the reason to stop, and how its processes are terminated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from geminids.config.paths import Places, private_dir
from geminids.events.model import EndedProcess
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.log import get_logger
from geminids.options import Options
from geminids.process.child import Child
from geminids.process.marker import Mark
from geminids.redact import Redactor

if TYPE_CHECKING:
    import anyio

    from geminids.process.tree import Ended

__all__ = [
    "Deadlines",
    "StopKind",
    "StopReason",
    "Stopping",
    "end_processes",
    "end_processes_now",
    "listed",
    "see_through",
    "stopped_ending",
]

_log = get_logger("run")

_LONGEST_COMMAND = 200

StopKind = Literal[
    "caller", "timeout", "start_timeout", "idle_timeout", "max_turns", "gateway", "lingering", "wrong_session"
]
"""`caller` includes an event loop that shuts down. `lingering`: the CLI closed its output but did
not exit. `wrong_session`: the CLI started a new session instead of resuming the requested one."""
_TIMEOUTS: tuple[StopKind, ...] = ("timeout", "start_timeout", "idle_timeout")
_FAULTS: tuple[StopKind, ...] = ("lingering", "wrong_session")


class StopReason(msgspec.Struct, frozen=True):
    """Why a run is stopped. Code decides by `kind` only; `text` is for people."""

    kind: StopKind
    text: str

    @property
    def is_silence(self) -> bool:
        """Whether the run was stopped because the CLI sent nothing."""
        return self.kind in ("start_timeout", "idle_timeout")


def stopped_ending(reason: StopReason) -> Ending:
    """The ending of a run that was stopped before it had a result."""
    return Ending("timed_out" if reason.kind in _TIMEOUTS else "interrupted", reason.text)


class Stopping:
    """Keeps the first reason to stop. `hurry`: the caller asked twice, so skip the grace period."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.hurry = False
        self.asked = False

    def ask(self) -> None:
        """Record that the caller asked to stop; the second call sets `hurry`."""
        self.hurry = self.asked
        self.asked = True

    def begin(self, reason: StopReason) -> bool:
        """Keep the reason; return False if the run is already being stopped."""
        if self.reason is not None:
            return False
        _log.info("stopping the run (%s): %s", reason.kind, reason.text)
        self.reason = reason
        return True

    @property
    def wanted(self) -> StopReason | None:
        """The reason, unless the CLI misbehaved (`lingering`, `wrong_session`)."""
        return None if self.reason is None or self.reason.kind in _FAULTS else self.reason


async def end_processes(
    child: Child, mark: Mark, grace: float, stopping: Stopping, *, keep: bool
) -> list[Ended]:
    """End the CLI and its descendants, or what is left of them if the CLI has exited.

    `keep`: end only the CLI.
    """
    from geminids.process import terminate as stop  # imported late: psutil

    def hurry() -> bool:
        return stopping.hurry

    if keep:
        ended = await stop.end_child(child, grace, hurry=hurry) if child.exit_code is None else []
        _record_kept(mark)
        return ended
    if child.exit_code is None:
        return await stop.end_tree(child, mark, grace, hurry=hurry)
    return await stop.end_leftovers(mark, grace, hurry=hurry)


def end_processes_now(child: Child, mark: Mark) -> list[Ended]:
    """Kill all processes of the run at once. Needs no event loop."""
    from geminids.process import terminate as stop

    return stop.end_now(child, mark)


def listed(ended: list[Ended], redactor: Redactor) -> tuple[EndedProcess, ...]:
    """The ended processes as an event reports them.

    Redacts before it truncates: half a secret would not match.
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


def _record_kept(mark: Mark) -> None:
    """Mark the run's leftover processes as intended, so that they are not reported as orphans."""
    from geminids.process.tree import marked

    if marked(str(mark)):
        try:
            (private_dir(Places.of().kept) / mark.run_id).touch(mode=0o600)
        except OSError as error:
            # Do not fail a run that has succeeded.
            _log.warning("cannot record that run %s kept processes on purpose", mark.run_id, error=error)


async def see_through(over: anyio.Event, hurry: Callable[[], None] | None = None) -> None:
    """Wait for `over`. Cancellation is deferred until then and re-raised; each one calls `hurry`.

    A shield alone is not enough: asyncio's `task.cancel()` ignores anyio's shields.
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

    Call `heard` for each output; `watch` reports the first deadline that passes.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._began = self._last_output = time.monotonic()
        self._has_output = False
        self.spoke_at = self._began
        """Time of the last output on stdout, or of the start (monotonic)."""
        self._closed_at: float | None = None
        self.busy = False
        """Whether a tool runs: silence is then no reason to stop."""

    def started(self, began: float | None = None) -> None:
        """The clocks start now; that of `timeout` at `began` (monotonic) if the attempt began before."""
        self._last_output = self.spoke_at = time.monotonic()
        self._began = self._last_output if began is None else began

    def heard(self, *, stdout: bool) -> None:
        self._last_output = time.monotonic()
        if stdout:
            self._has_output, self.spoke_at = True, self._last_output

    def closed(self) -> None:
        """The CLI sent its result or closed its output, and should exit now."""
        if self._closed_at is None:
            self._closed_at = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether the CLI is done and only its exit is awaited."""
        return self._closed_at is not None

    def silence_ends(self) -> float | None:
        """When silence ends the run (monotonic); None if it does not."""
        options = self._options
        if not self._has_output and options.start_timeout is not None:
            return self._began + options.start_timeout
        if options.idle_timeout is None or self.busy:
            return None
        return self._last_output + options.idle_timeout

    async def watch(self, stop: Callable[[StopReason], None]) -> None:
        """Wait for the first deadline to pass, and call `stop` with its reason."""
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
            # Not a time-out: only the exit is missing, and the process gets as long for it as after
            # a TERM.
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
