"""Allow or deny permission requests.

The rules of the run are applied first. If no rule applies, the caller's function (callback)
decides. If there is no callback, or if it does not answer in time, the request is denied.
"""

from __future__ import annotations

import inspect
import os
import time
from typing import Any, get_args

import anyio
import anyio.lowlevel

from geminids.events.model import By, Choice, Decision, PermissionAsked, PermissionDecided
from geminids.launch.permissions.verdicts import Verdicts
from geminids.log import get_logger
from geminids.run.recorder import RunRecorder
from geminids.warm.permissions.allow_always import AllowAlways
from geminids.warm.permissions.answer import OnPermission, PermissionAnswer

__all__ = ["PermissionDecider"]

_log = get_logger("warm")


_NOBODY = "there is no user to ask"
_MAX_LENGTH = 200


class PermissionDecider:
    """Allows or denies the permission requests of one turn. `decisions` contains every decision."""

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
        """Allow or deny a request, and return the event of the decision.

        If the callback fails or takes too long, the request is denied.
        """
        began = time.monotonic()
        answer = self._by_rule(asked) or await self._by_callback(asked)
        return self.record(asked, answer, began)

    def record(self, asked: PermissionAsked, answer: PermissionAnswer, began: float) -> PermissionDecided:
        """Record the decision and return its event. Store an `allow_always` answer for later calls.

        `began` is the time at which the request arrived (monotonic).
        """
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

    def _by_rule(self, asked: PermissionAsked) -> PermissionAnswer | None:
        verdict = self._verdicts.answer(asked.tool, asked.command, _files(asked))
        scope = self._always.covers(asked)
        if scope is not None and (verdict is None or verdict.allow):
            return PermissionAnswer("allow", "rule", f"allowed for this chat: {scope}")
        if verdict is not None:
            return PermissionAnswer("allow" if verdict.allow else "deny", "rule", verdict.reason)
        if self._callback is None:
            reason = self._verdicts.why_not(asked.tool, {"command": asked.command} if asked.command else {})
            return PermissionAnswer("deny", "rule", reason or _NOBODY)
        return None

    async def _by_callback(self, asked: PermissionAsked) -> PermissionAnswer:
        assert self._callback is not None
        returned: Any = None
        with anyio.move_on_after(self._timeout) as scope:
            try:
                returned = self._callback(asked)
                if inspect.isawaitable(returned):
                    returned = await returned
            except anyio.get_cancelled_exc_class():
                # If the turn was cancelled or the time-out has passed, `checkpoint` raises the
                # cancellation again. Otherwise only the callback was cancelled.
                await anyio.lowlevel.checkpoint()
                return PermissionAnswer("deny", "callback", "the callback was cancelled")
            except Exception as error:
                _log.warning("the permission callback failed; the tool is denied", error=error)
                return PermissionAnswer(
                    "deny", "callback", f"the callback failed: {type(error).__name__}: {error}"
                )
        if scope.cancel_called:
            return PermissionAnswer("deny", "timeout", f"nobody answered within {self._timeout:g} s")
        answer = PermissionAnswer(returned) if isinstance(returned, str) else returned  # type: ignore[arg-type]
        is_valid = (
            isinstance(answer, PermissionAnswer)
            and answer.decision in get_args(Choice)
            and answer.by in get_args(By)
        )
        if not is_valid:
            text = f"the callback returned {returned!r}; expected 'allow', 'allow_always' or 'deny'"
            return PermissionAnswer("deny", "callback", text)
        if answer.decision == "allow_always" and AllowAlways.meaning(asked) is None:
            return PermissionAnswer(
                "allow",
                answer.by,
                answer.reason or "allowed once: allow_always is not available for this call",
            )
        return answer


def _files(asked: PermissionAsked) -> tuple[str, ...]:
    """Return the paths of a call twice: first unchanged, then with symbolic links resolved."""
    real = (os.path.realpath(os.path.join(asked.cwd or "", path.replace("\0", ""))) for path in asked.paths)
    return (*asked.paths, *real)


def _summary(asked: PermissionAsked) -> str:
    """Return the command of the call, or else its title. Shorten the text to 200 characters."""
    text = asked.command if asked.command is not None else asked.title
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 3] + "..."
