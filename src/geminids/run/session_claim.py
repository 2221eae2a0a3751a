"""Find the session of a run before the CLI starts, and lock it until the run ends."""

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
from geminids.sessions.lock import Holder, Lock, still_writing, try_hold

if TYPE_CHECKING:
    from geminids.sessions.finder import SessionInfo

__all__ = ["Claim", "busy", "find_session"]

_POLL = 0.05


class Claim:
    """The lock that a run holds on its session, so that no other run uses the session.

    A session to resume is locked before the CLI starts. A new session is locked when its id is
    known. `file` is the file of the resumed session; None if no session is resumed. `fresh` says
    why the run starts a new session instead of the requested one; None if it does not.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._lock: Lock | None = None
        self._left_by: Holder | None = None
        self._is_ready = False
        self.file: Path | None = None
        self.fresh: str | None = None

    def look_up(self, options: Options) -> Options:
        """Return the options with the full id of the session to resume.

        If there is no such session, or if the CLI cannot resume it, the result depends on the
        options. If `fresh` is set, or `resume` is "latest", the returned options start a new
        session: their `resume` is None. Otherwise `Refused` is raised.
        """
        if options.resume is None:
            return options
        try:
            info = _locate(options.resume, options)
            if info.resumable is False and not self._is_used_elsewhere(info.id):
                raise _not_resumable(info, options.resume)
        except SessionError as error:
            if options.fresh or options.resume == "latest":
                self.fresh = error.message
                return msgspec.structs.replace(options, resume=None)
            hint = " ".join(filter(None, (error.hint, hint_for("session_not_found"))))
            raise Refused("session_not_found", error.message, hint) from None
        self.file = Path(info.file)
        return msgspec.structs.replace(options, resume=info.id)

    def _is_used_elsewhere(self, session_id: str) -> bool:
        """Return whether another run uses the session.

        Use this to check whether a session file without a prompt is really an empty session: another
        run that has just started may not have written its prompt yet.
        """
        if self._lock is not None and self._lock.session_id == session_id:
            return False
        lock = try_hold(session_id, "", places=Places.of())
        if isinstance(lock, Lock):
            lock.release()
            return False
        return True

    def take(self, session_id: str | None) -> Holder | None:
        """Lock the session with this id. If the id is None, do nothing and return None.

        Return None if this run can now use the session. Return the holder if another run uses it. A
        run that has died counts as the holder until its processes have ended.
        """
        if session_id is None:
            return None
        if self._lock is None:
            lock = try_hold(session_id, self._run_id, places=Places.of())
            if not isinstance(lock, Lock):
                return lock
            self._lock, self._left_by = lock, lock.left_by
        if self._left_by is not None and still_writing(self._left_by):
            # The previous holder died, and its processes will be ended soon. Keep the lock until
            # then: the lock file names that holder, and releasing the lock would lose the name.
            return self._left_by
        self._left_by = None
        self._make_ready()
        return None

    def _make_ready(self) -> None:
        """Repair the order of the records in the file of the resumed session.

        The CLI can then resume the session. Only files that a warm process (ACP) has written need
        this. The caller must hold the lock on the session.
        """
        if self.file is not None and not self._is_ready:
            # Imported late (9 ms), because few runs resume a session.
            from geminids.sessions.repair.reorder_acp import repair_order

            self._is_ready = True
            repair_order(self.file)

    async def wait(self, session_id: str, is_wanted: Callable[[], bool], until: float | None) -> bool:
        """Wait until no other run uses the session, then lock it and return True.

        Return False, without the lock, when `is_wanted` returns False or the time `until`
        (monotonic) has passed.
        """
        import anyio

        while is_wanted() and (until is None or time.monotonic() < until):
            if self.take(session_id) is None:
                return True
            await anyio.sleep(_POLL)
        return False

    def release(self) -> None:
        """Unlock the session. Call this when the run ends or continues with another session."""
        self.file, self._left_by, self._is_ready = None, None, False
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def find_session(session_id: str, options: Options) -> SessionInfo | None:
    """Return the stored session with this id, or None if it does not exist."""
    try:
        return _locate(session_id, options)
    except SessionError:
        return None


def _locate(session_id: str, options: Options) -> SessionInfo:
    from geminids.sessions.loader import locate  # imported late (6 ms): few runs resume a session

    return locate(session_id, options.cwd, home=options.home, environ={**os.environ, **options.env})


def _not_resumable(info: SessionInfo, session_id: str) -> SessionError:
    """Return the error for a session that exists, but that the CLI cannot resume."""
    if info.damaged:
        return SessionError(
            f"the file of session {session_id} is damaged: {info.file}",
            hint=f"To recover its messages, run: geminids sessions rescue {session_id}.",
        )
    if info.kind == "subagent":
        return SessionError(f"session {info.id} is the session of a subagent and cannot be resumed")
    return SessionError(f"session {info.id} has no messages to resume from")


def busy(session_id: str, holder: Holder) -> Failure:
    """Return the failure of a run that cannot start because `holder` uses its session."""
    return Failure(
        kind="session_busy",
        message=f"session {session_id} is in use by {holder}",
        retryable=True,
        hint=hint_for("session_busy"),
    )
