"""Decides what the agent may do when it asks: by rules first, then by whoever answers, then by the clock."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, get_args

import msgspec

from geminids.events.model import By, Choice, Decision, PermissionAsked, PermissionDecided
from geminids.launch.permissions.verdicts import Verdicts
from geminids.log import get_logger
from geminids.run.recorder import RunRecorder
from geminids.warm.allow_always import Always

__all__ = ["Desk", "OnPermission", "Said"]

_log = get_logger("warm")


class Said(msgspec.Struct, frozen=True):
    """An answer with more in it than the choice: who gave it, and why."""

    decision: Choice
    by: By = "callback"
    reason: str | None = None


OnPermission = Callable[[PermissionAsked], "Awaitable[Choice | Said] | Choice | Said"]

_NOBODY = "there is nobody to ask"
_LONGEST = 200


class Desk:
    """Where a chat's permissions are decided; `trail` has every decision of the turn."""

    def __init__(
        self,
        recorder: RunRecorder,
        verdicts: Verdicts,
        always: Always,
        ask: OnPermission | None,
        patience: float | None,
    ) -> None:
        self._recorder = recorder
        self._verdicts = verdicts
        self._always = always
        self._ask = ask
        self._patience = patience
        self.trail: list[Decision] = []

    async def decide(self, asked: PermissionAsked) -> PermissionDecided:
        """The decision; a callback that fails or takes too long is a no."""
        began = time.monotonic()
        said = self._by_rule(asked) or await self._by_somebody(asked)
        return self.note(asked, said, began)

    def note(self, asked: PermissionAsked, said: Said, began: float) -> PermissionDecided:
        """Write it down, and remember an "always"."""
        reason = None if said.reason is None else self._recorder.redact(said.reason)
        if said.decision == "allow_always":
            self._always.give(asked)
        now = int(time.time() * 1000)
        self.trail.append(
            Decision(
                id=asked.id,
                tool=asked.tool,
                what=_what(asked),
                decision=said.decision,
                by=said.by,
                reason=reason,
                at=now,
                waited_ms=int((time.monotonic() - began) * 1000),
            )
        )
        recorder = self._recorder
        return PermissionDecided(
            at=now,
            seq=recorder.next(),
            attempt=recorder.attempt,
            turn=asked.turn,
            id=asked.id,
            tool=asked.tool,
            decision=said.decision,
            by=said.by,
            reason=reason,
        )

    def _by_rule(self, asked: PermissionAsked) -> Said | None:
        answer = self._verdicts.answer(asked.tool, asked.command, _files(asked))
        given = self._always.covers(asked)
        if given is not None and (answer is None or answer.allow):
            return Said("allow", "rule", f"allowed for this chat: {given}")
        if answer is not None:
            return Said("allow" if answer.allow else "deny", "rule", answer.reason)
        if self._ask is None:
            why = self._verdicts.why_not(asked.tool, {"command": asked.command} if asked.command else {})
            return Said("deny", "rule", why or _NOBODY)
        return None

    async def _by_somebody(self, asked: PermissionAsked) -> Said:
        import anyio

        assert self._ask is not None
        found: Any = None
        with anyio.move_on_after(self._patience) as scope:
            try:
                found = self._ask(asked)
                if inspect.isawaitable(found):
                    found = await found
            except anyio.get_cancelled_exc_class():
                # Raises again where it is our own turn, or the clock, that has cancelled it.
                await anyio.lowlevel.checkpoint()
                return Said("deny", "callback", "whoever should decide was cancelled")
            except Exception as error:
                _log.warning("the permission callback failed; the tool is denied", error=error)
                return Said("deny", "callback", f"the callback failed: {type(error).__name__}: {error}")
        if scope.cancel_called:
            return Said("deny", "timeout", f"nobody answered within {self._patience:g} s")
        said = Said(found) if isinstance(found, str) else found  # type: ignore[arg-type]
        if not isinstance(said, Said) or said.decision not in get_args(Choice) or said.by not in get_args(By):
            return Said(
                "deny", "callback", f"the callback answered {found!r}: no allow, allow_always or deny"
            )
        if said.decision == "allow_always" and Always.meaning(asked) is None:
            return Said("allow", said.by, said.reason or "once: always is not to be had for this")
        return said


def _files(asked: PermissionAsked) -> tuple[str, ...]:
    """The files of a call, by their names and by what these lead to."""
    real = (os.path.realpath(os.path.join(asked.cwd or "", path.replace("\0", ""))) for path in asked.paths)
    return (*asked.paths, *real)


def _what(asked: PermissionAsked) -> str:
    what = asked.command if asked.command is not None else asked.title
    return what if len(what) <= _LONGEST else what[: _LONGEST - 3] + "..."
