"""Decide permission requests: by rules first, then by the callback, then by the timeout."""

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
from geminids.warm.allow_always import AllowAlways

__all__ = ["OnPermission", "PermissionDecider", "Said"]

_log = get_logger("warm")


class Said(msgspec.Struct, frozen=True):
    """An answer of a permission callback, with who decided and why."""

    decision: Choice
    by: By = "callback"
    reason: str | None = None


OnPermission = Callable[[PermissionAsked], "Awaitable[Choice | Said] | Choice | Said"]

_NOBODY = "there is nobody to ask"
_MAX_LENGTH = 200


class PermissionDecider:
    """Decides the permission requests of one turn; `decisions` has every decision."""

    def __init__(
        self,
        recorder: RunRecorder,
        verdicts: Verdicts,
        always: AllowAlways,
        callback: OnPermission | None,
        timeout: float | None,
    ) -> None:
        self._recorder = recorder
        self._verdicts = verdicts
        self._always = always
        self._callback = callback
        self._timeout = timeout
        self.decisions: list[Decision] = []

    async def decide(self, asked: PermissionAsked) -> PermissionDecided:
        """Decide a request. A callback that fails or takes too long means deny."""
        began = time.monotonic()
        answer = self._by_rule(asked) or await self._by_callback(asked)
        return self.record(asked, answer, began)

    def record(self, asked: PermissionAsked, answer: Said, began: float) -> PermissionDecided:
        """Record the decision and return its event; remember an `allow_always`."""
        reason = None if answer.reason is None else self._recorder.redact(answer.reason)
        if answer.decision == "allow_always":
            self._always.remember(asked)
        now = int(time.time() * 1000)
        self.decisions.append(
            Decision(
                id=asked.id,
                tool=asked.tool,
                what=_summary(asked),
                decision=answer.decision,
                by=answer.by,
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
            decision=answer.decision,
            by=answer.by,
            reason=reason,
        )

    def _by_rule(self, asked: PermissionAsked) -> Said | None:
        verdict = self._verdicts.answer(asked.tool, asked.command, _files(asked))
        scope = self._always.covers(asked)
        if scope is not None and (verdict is None or verdict.allow):
            return Said("allow", "rule", f"allowed for this chat: {scope}")
        if verdict is not None:
            return Said("allow" if verdict.allow else "deny", "rule", verdict.reason)
        if self._callback is None:
            reason = self._verdicts.why_not(asked.tool, {"command": asked.command} if asked.command else {})
            return Said("deny", "rule", reason or _NOBODY)
        return None

    async def _by_callback(self, asked: PermissionAsked) -> Said:
        import anyio

        assert self._callback is not None
        returned: Any = None
        with anyio.move_on_after(self._timeout) as scope:
            try:
                returned = self._callback(asked)
                if inspect.isawaitable(returned):
                    returned = await returned
            except anyio.get_cancelled_exc_class():
                # If the turn or the timeout cancelled the callback, this raises again.
                await anyio.lowlevel.checkpoint()
                return Said("deny", "callback", "the callback was cancelled")
            except Exception as error:
                _log.warning("the permission callback failed; the tool is denied", error=error)
                return Said("deny", "callback", f"the callback failed: {type(error).__name__}: {error}")
        if scope.cancel_called:
            return Said("deny", "timeout", f"nobody answered within {self._timeout:g} s")
        answer = Said(returned) if isinstance(returned, str) else returned  # type: ignore[arg-type]
        is_valid = (
            isinstance(answer, Said) and answer.decision in get_args(Choice) and answer.by in get_args(By)
        )
        if not is_valid:
            text = f"the callback returned {returned!r}; expected allow, allow_always or deny"
            return Said("deny", "callback", text)
        if answer.decision == "allow_always" and AllowAlways.meaning(asked) is None:
            return Said(
                "allow", answer.by, answer.reason or "once: allow_always is not available for this call"
            )
        return answer


def _files(asked: PermissionAsked) -> tuple[str, ...]:
    """The paths of a call, as named and with symbolic links resolved."""
    real = (os.path.realpath(os.path.join(asked.cwd or "", path.replace("\0", ""))) for path in asked.paths)
    return (*asked.paths, *real)


def _summary(asked: PermissionAsked) -> str:
    """The command or the title of the call, shortened."""
    text = asked.command if asked.command is not None else asked.title
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 3] + "..."
