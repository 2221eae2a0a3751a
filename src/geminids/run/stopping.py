"""The end of a run: its deadlines, who asked for the end, and how its processes are terminated."""

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
"""`caller` also stands for an event loop that is taken down. `lingering`: the CLI closed its output and did not exit.
`wrong_session`: the CLI began another session than the one to resume."""
_TIMEOUTS: tuple[StopKind, ...] = ("timeout", "start_timeout", "idle_timeout")
_FAULTS: tuple[StopKind, ...] = ("lingering", "wrong_session")


class StopReason(msgspec.Struct, frozen=True):
    """Why a run is stopped. Decisions depend on `kind` alone; `text` is for people."""

    kind: StopKind
    text: str

    @property
    def is_silence(self) -> bool:
        """Whether the run was stopped because nothing was heard from it."""
        return self.kind in ("start_timeout", "idle_timeout")


def stopped_ending(reason: StopReason) -> Ending:
    """The ending of a run that was stopped for this reason before it had a result."""
    return Ending("timed_out" if reason.kind in _TIMEOUTS else "interrupted", reason.text)


class Stopping:
    """Keeps the first reason to stop; only a caller who asks a second time is in a hurry."""

    def __init__(self) -> None:
        self.reason: StopReason | None = None
        self.hurry = False
        self.asked = False

    def ask(self) -> None:
        """The caller asks; asked again, the grace is cut short."""
        self.hurry = self.asked
        self.asked = True

    def begin(self, reason: StopReason) -> bool:
        """Keep the reason; False if the run is being stopped already."""
        if self.reason is not None:
            return False
        _log.info("stopping the run (%s): %s", reason.kind, reason.text)
        self.reason = reason
        return True

    @property
    def wanted(self) -> StopReason | None:
        """The reason, if somebody wanted the run to end; None if the CLI itself went wrong and was stopped for it."""
        return None if self.reason is None or self.reason.kind in _FAULTS else self.reason


async def end_processes(
    child: Child, mark: Mark, grace: float, stopping: Stopping, *, keep: bool
) -> list[Ended]:
    """End the tree where we stop it, and what is left where it ended by itself; `keep`: the CLI alone."""
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
    """Kill them all, without an event loop."""
    from geminids.process import terminate as stop

    return stop.end_now(child, mark)


def listed(ended: list[Ended], redactor: Redactor) -> tuple[EndedProcess, ...]:
    """What was ended, as the run tells it; redacted before it is cut: half a secret is not known for one."""
    return tuple(
        EndedProcess(one.pid, _cut(redactor.text(one.command)), "KILL" if one.signal == "KILL" else "TERM")
        for one in ended
    )


def _cut(command: str) -> str:
    return command if len(command) <= _LONGEST_COMMAND else command[: _LONGEST_COMMAND - 3] + "..."


def _record_kept(mark: Mark) -> None:
    """Leave word of what was left on purpose, for whoever looks for orphans later."""
    from geminids.process.tree import marked

    if marked(str(mark)):
        try:
            (private_dir(Places.of().kept) / mark.run_id).touch(mode=0o600)
        except OSError as error:
            # No reason to fail a run that has succeeded.
            _log.warning("cannot record that run %s left processes on purpose", mark.run_id, error=error)


async def see_through(over: anyio.Event, hurry: Callable[[], None] | None = None) -> None:
    """Wait until it is over. Who is cancelled meanwhile is let go then, and not before; `hurry` is called each time.

    asyncio's own `task.cancel()` knows no shield.
    """
    import anyio

    again: BaseException | None = None
    while not over.is_set():
        try:
            with anyio.CancelScope(shield=True):
                await over.wait()
        except anyio.get_cancelled_exc_class() as cancelled:
            again = cancelled
            if hurry is not None:
                hurry()
    if again is not None:
        raise again


_LOOK = 0.25


class Deadlines:
    """Told what is heard, it says when enough is enough, and of what."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._began = self._heard = time.monotonic()
        self._spoke = False
        self.spoke_at = self._began
        """When it was last heard on stdout, or began."""
        self._closed_at: float | None = None
        self.busy = False
        """A tool runs: silence means work."""

    def started(self, began: float | None = None) -> None:
        """The clocks start now; that of `timeout` at `began` (monotonic) if the attempt began before."""
        self._heard = self.spoke_at = time.monotonic()
        self._began = self._heard if began is None else began

    def heard(self, *, stdout: bool) -> None:
        self._heard = time.monotonic()
        if stdout:
            self._spoke, self.spoke_at = True, self._heard

    def closed(self) -> None:
        """The CLI has given its result or closed its output: it should go now."""
        if self._closed_at is None:
            self._closed_at = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether only the end of the process is waited for."""
        return self._closed_at is not None

    def silence_ends(self) -> float | None:
        """When the silence has lasted too long (monotonic); None where it may go on."""
        options = self._options
        if not self._spoke and options.start_timeout is not None:
            return self._began + options.start_timeout
        if options.idle_timeout is None or self.busy:
            return None
        return self._heard + options.idle_timeout

    async def watch(self, stop: Callable[[StopReason], None]) -> None:
        """Wait for the first deadline to pass, and call `stop` with its reason."""
        import anyio

        while True:
            now = time.monotonic()
            at, kind = min(self._deadlines(), key=lambda one: one[0])  # the first one of several at once
            if now >= at:
                stop(self._reason(kind))
                return
            await anyio.sleep(min(at - now, _LOOK))

    def _deadlines(self) -> Iterator[tuple[float, StopKind]]:
        options = self._options
        yield float("inf"), "timeout"
        if options.timeout is not None:
            yield self._began + options.timeout, "timeout"
        if self._closed_at is not None:
            # Not a time-out: the run is over but for the process, which gets as long as after a TERM.
            yield self._closed_at + max(options.grace, 2.0), "lingering"
        elif not self._spoke and options.start_timeout is not None:
            # A slow start is no silence: each clock has its own time.
            yield self._began + options.start_timeout, "start_timeout"
        elif options.idle_timeout is not None and not self.busy:
            yield self._heard + options.idle_timeout, "idle_timeout"

    def _reason(self, kind: StopKind) -> StopReason:
        options = self._options
        if kind == "lingering":
            return StopReason(kind, "the CLI closed its output and did not exit")
        if kind == "start_timeout":
            return StopReason(
                kind, f"timed out: the CLI said nothing in the first {options.start_timeout:g} s"
            )
        if kind == "idle_timeout":
            return StopReason(kind, f"timed out: {options.idle_timeout:g} s of silence in which no tool ran")
        return StopReason(kind, f"timed out after {options.timeout:g} s")
