"""The session that a run works in: looked up before anything is spawned, and held until the run is over."""

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
    """A run's claim to its session. A new run makes it when its id is known, a resumed one before it starts.

    `fresh` says why a new session was begun in place of the one that was asked for.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._lock: Lock | None = None
        self._left_by: Holder | None = None
        self._is_ready = False
        self.file: Path | None = None
        self.fresh: str | None = None

    def look_up(self, options: Options) -> Options:
        """The same options with the full id of the session to resume; raises `Refused` where it is gone."""
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
        """Hold the session from now on; who has it, where another does."""
        if session_id is None:
            return None
        from geminids.sessions.lock import Lock, still_writing, try_hold

        if self._lock is None:
            got = try_hold(session_id, self._run_id, places=Places.of())
            if not isinstance(got, Lock):
                return got
            self._lock, self._left_by = got, got.left_by
        if self._left_by is not None and still_writing(self._left_by):
            # Its host has died, and what it started is about to be ended. The lock is kept meanwhile: to let go
            # of it would be to forget who died.
            return self._left_by
        self._left_by = None
        self._make_ready()
        return None

    def _make_ready(self) -> None:
        """Nobody else has the session now: one that was made on ACP is put in order for the CLI."""
        if self.file is not None and not self._is_ready:
            from geminids.sessions.repair.reorder_acp import repair_order

            self._is_ready = True
            repair_order(self.file)

    async def wait(self, session_id: str, wanted: Callable[[], bool], until: float | None) -> bool:
        """Wait for the session; False where it is not `wanted` any more, or the time is over."""
        import anyio

        while wanted() and (until is None or time.monotonic() < until):
            if self.take(session_id) is None:
                return True
            await anyio.sleep(_POLL)
        return False

    def release(self) -> None:
        """Let go of the session: the run is over, or begins another one."""
        self.file, self._left_by, self._is_ready = None, None, False
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def busy(session_id: str, holder: Holder) -> Failure:
    """Why a run did not wait."""
    return Failure(
        kind="session_busy",
        message=f"session {session_id} is in use by {holder}",
        retryable=True,
        hint=hint_for("session_busy"),
    )
