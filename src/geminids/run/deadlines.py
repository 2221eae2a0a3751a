"""The clocks of a run: start-up, silence, the whole, and a CLI that is done but does not go."""

from __future__ import annotations

import time
from collections.abc import Callable

from geminids.options import Options
from geminids.run.stopping import LINGERING

__all__ = ["Deadlines"]

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

    def started(self) -> None:
        self._began = self._heard = self.spoke_at = time.monotonic()

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

    async def watch(self, tell: Callable[[str], None]) -> None:
        """Wait for the first deadline to pass, and tell its reason."""
        import anyio

        while True:
            now = time.monotonic()
            at, reason = self._next(now)
            if now >= at:
                tell(reason)
                return
            await anyio.sleep(min(at - now, _LOOK))

    def _next(self, now: float) -> tuple[float, str]:
        options = self._options
        found: list[tuple[float, str]] = [(float("inf"), "")]
        if options.timeout is not None:
            found.append((self._began + options.timeout, f"timed out after {options.timeout:g} s"))
        if self._closed_at is not None:
            # Not a time-out: the run is over but for the process, which gets as long as after a TERM.
            found.append((self._closed_at + max(options.grace, 2.0), LINGERING))
            return min(found)
        if not self._spoke and options.start_timeout is not None:
            reason = f"timed out: the CLI said nothing in the first {options.start_timeout:g} s"
            found.append((self._began + options.start_timeout, reason))
            # A slow start is no silence: each clock has its own time.
            return min(found)
        if options.idle_timeout is not None and not self.busy:
            reason = f"timed out: {options.idle_timeout:g} s of silence in which no tool ran"
            found.append((self._heard + options.idle_timeout, reason))
        return min(found)
