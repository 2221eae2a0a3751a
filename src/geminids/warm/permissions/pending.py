"""The permissions that the agent asks for in one turn. Each is answered once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec

from geminids.events.model import Change, Event, PermissionAsked, ToolStarted
from geminids.events.translate.acp import AcpTranslator, unified
from geminids.gemini.protocol.acp.messages import Note, Permission, ToolCall
from geminids.redact import Redactor
from geminids.run.recorder import RunRecorder
from geminids.warm.allow_always import Always
from geminids.warm.permissions.decide import Desk, Said
from geminids.warm.session import AcpSession

__all__ = ["OpenAsks", "asked_of", "option_of"]

_STOPPED = "the turn was stopped before anybody answered"


class OpenAsks:
    """Keeps what was asked until it is answered. `began` is told of a command that may run now."""

    def __init__(
        self,
        session: AcpSession,
        desk: Desk,
        updates: AcpTranslator,
        recorder: RunRecorder,
        began: Callable[[str], None],
    ) -> None:
        self._session = session
        self._desk = desk
        self._updates = updates
        self._recorder = recorder
        self._began = began
        self._open: dict[str, tuple[Note, PermissionAsked, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._open

    @property
    def oldest(self) -> tuple[PermissionAsked, float] | None:
        """What has been waited for longest, and since when (monotonic)."""
        return next(((asked, began) for _, asked, began in self._open.values()), None)

    def take(self, ask: Note) -> tuple[PermissionAsked, list[Event]]:
        """The agent asks: what it wants, and the events that say so."""
        assert ask.permission is not None
        started, events = self._updates.asked(ask.permission.tool_call)
        asked = asked_of(
            ask.permission, started, self._recorder, self._session.cwd, self._session.process.redactor
        )
        self._open[asked.id] = (ask, asked, time.monotonic())
        return asked, [*events, asked]

    async def decide(self, asked: PermissionAsked, add: Callable[[list[Event]], None]) -> None:
        """Have it decided, and answer."""
        decided = await self._desk.decide(asked)
        ask, _, _ = self._open.pop(asked.id, (None, None, None))
        if ask is None or ask.permission is None:
            return  # the turn was stopped meanwhile: that was the answer
        option = option_of(ask.permission, yes=decided.decision != "deny")
        events: list[Event] = [decided]
        if decided.decision == "deny" or option is None:
            events += self._updates.refused(asked.id, decided.reason or f"denied by the {decided.by}")
        else:
            self._updates.allowed(asked.id)
            if asked.command is not None:
                self._began(asked.id)
        # First the answer: the tool need not wait for whoever reads the events.
        self._session.process.connection.answer(ask, option)
        add(events)

    def leave(self, reason: str | None, add: Callable[[list[Event]], None]) -> None:
        """Nobody's answer is waited for any longer."""
        for ask, asked, began in list(self._open.values()):
            decided = self._desk.note(asked, Said("deny", "cancel", reason), began)
            self._session.process.connection.answer(ask, None)
            add([decided, *self._updates.refused(asked.id, _STOPPED)])
        self._open.clear()


_SHELL = "run_shell_command"
_NOT_ALL = "(the CLI tells no more of it: there may be other addresses behind)"


def asked_of(
    permission: Permission, started: ToolStarted, recorder: RunRecorder, cwd: str, redactor: Redactor
) -> PermissionAsked:
    """The event for a request of the agent's."""
    call, clean = permission.tool_call, redactor.text
    is_shell = started.name == _SHELL
    changes = tuple(
        Change(clean(path), "edited" if old else "created", clean(unified(path, old, new)))
        for path, old, new in call.diffs
    )
    folder = _folder(call, cwd) if is_shell else cwd
    # What the CLI adds to a shell command names the folder of its own process, where nothing runs.
    is_told = call.text is not None and not changes and (folder is None or not is_shell)
    asked = PermissionAsked(
        at=started.at,
        seq=recorder.next(),
        attempt=recorder.attempt,
        turn=started.turn,
        id=started.id,
        tool=started.name,
        kind=started.kind,
        title=started.title,
        command=clean(call.title or "") if is_shell else None,
        details=clean(call.text or "") if is_told else _cut(call, started, redactor),
        cwd=clean(folder) if folder is not None else None,
        changes=changes,
        paths=started.paths,
    )
    meaning = Always.meaning(asked)
    options = asked.options if meaning else ("allow", "deny")
    return msgspec.structs.replace(asked, always=meaning, options=options)


def option_of(permission: Permission, *, yes: bool) -> str | None:
    """The CLI's own word for a yes to this call alone, or for a no."""
    kind = "allow_once" if yes else "reject_once"
    return next((one.option_id for one in permission.options if one.kind == kind), None)


def _cut(call: ToolCall, started: ToolStarted, redactor: Redactor) -> str | None:
    """A prompt with addresses, of which the CLI tells the first 97 characters and nobody the rest."""
    title = call.title or ""
    is_cut = started.kind == "fetch" and title.endswith('..."')
    return f"{redactor.text(title)} {_NOT_ALL}" if is_cut else None


def _folder(call: ToolCall, cwd: str) -> str | None:
    """Where a command would run: the model may name another folder than the chat's; None where nobody can tell."""
    named = [os.path.normpath(os.path.join(cwd, folder)) for folder in call.folders]
    if len(named) > 1:
        named = [folder for folder in named if os.path.isdir(folder)]
        return named[0] if len(named) == 1 else None
    return named[0] if named else cwd
