"""Claim the session of a run: look it up before the spawn, and lock it until the run ends."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from geminids.config.paths import Places
from geminids.errors import SessionError
from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.launch.errors import Refused
from geminids.options import Options
from geminids.outcome import Failure

if TYPE_CHECKING:
    from geminids.sessions.lock import Holder, Lock

__all__ = ["Claim", "busy"]

_POLL = 0.05


class Claim:
    """The lock on a run's session.

    A resumed session is locked before the start, a new one when its id is known.

    `fresh` is the reason why the run starts a new session instead of the requested one.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._lock: Lock | None = None
        self._left_by: Holder | None = None
        self._is_ready = False
        self.file: Path | None = None
        self.fresh: str | None = None

    def look_up(self, options: Options) -> Options:
        """Return the options with the session's full id; raises `Refused` if there is none."""
        if options.resume is None:
            return options
        from geminids.sessions.loader import locate  # imported late: few runs resume

        environ = {**os.environ, **options.env}
        try:
            info = locate(options.resume, options.cwd, home=options.home, environ=environ)
        except SessionError as error:
            if options.fresh or options.resume == "latest":
                self.fresh = error.message
                return msgspec.structs.replace(options, resume=None)
            hint = " ".join(filter(None, (error.hint, hint_for("session_not_found"))))
            raise Refused("session_not_found", error.message, hint) from None
        self.file = Path(info.file)
        return msgspec.structs.replace(options, resume=info.id)

    def take(self, session_id: str | None) -> Holder | None:
        """Lock the session; return the holder if another run has it."""
        if session_id is None:
            return None
        from geminids.sessions.lock import Lock, still_writing, try_hold

        if self._lock is None:
            lock = try_hold(session_id, self._run_id, places=Places.of())
            if not isinstance(lock, Lock):
                return lock
            self._lock, self._left_by = lock, lock.left_by
        if self._left_by is not None and still_writing(self._left_by):
            # The previous holder died, and its processes are about to be ended. Keep the lock
            # meanwhile: releasing it would lose the record of that holder.
            return self._left_by
        self._left_by = None
        self._make_ready()
        return None

    def _make_ready(self) -> None:
        """Repair a session that was written over ACP so that the CLI can resume it.

        Needs the lock.
        """
        if self.file is not None and not self._is_ready:
            from geminids.sessions.repair.reorder_acp import repair_order

            self._is_ready = True
            repair_order(self.file)

    async def wait(self, session_id: str, is_wanted: Callable[[], bool], until: float | None) -> bool:
        """Wait for the session and lock it; False if no longer wanted, or after `until`."""
        import anyio

        while is_wanted() and (until is None or time.monotonic() < until):
            if self.take(session_id) is None:
                return True
            await anyio.sleep(_POLL)
        return False

    def release(self) -> None:
        """Unlock the session: the run has ended or starts another session."""
        self.file, self._left_by, self._is_ready = None, None, False
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def busy(session_id: str, holder: Holder) -> Failure:
    """The failure of a run that does not wait for its session."""
    return Failure(
        kind="session_busy",
        message=f"session {session_id} is in use by {holder}",
        retryable=True,
        hint=hint_for("session_busy"),
    )
