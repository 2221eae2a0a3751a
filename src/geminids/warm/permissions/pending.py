"""The open permission requests of one turn. Each request is answered exactly once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import msgspec

from geminids.events.model import Change, Event, PermissionAsked, ToolStarted
from geminids.events.translate.acp import AcpTranslator, unified
from geminids.gemini.protocol.acp.messages import AcpToolCall, Permission, RpcRequest
from geminids.redact import Redactor
from geminids.run.recorder import RunRecorder
from geminids.warm.acp.session import AcpSession
from geminids.warm.permissions.allow_always import AllowAlways
from geminids.warm.permissions.answer import PermissionAnswer
from geminids.warm.permissions.decide import PermissionDecider

__all__ = ["PendingPermissions", "find_option", "make_asked"]

_STOPPED = "the turn was stopped before anybody answered"


class PendingPermissions:
    """Stores permission requests until they are answered.

    `on_shell_start` is called with the call's id when a shell command has been allowed.
    """

    def __init__(
        self,
        session: AcpSession,
        decider: PermissionDecider,
        updates: AcpTranslator,
        recorder: RunRecorder,
        on_shell_start: Callable[[str], None],
    ) -> None:
        self._session = session
        self._decider = decider
        self._updates = updates
        self._recorder = recorder
        self._on_shell_start = on_shell_start
        self._open: dict[str, tuple[RpcRequest, PermissionAsked, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._open

    @property
    def oldest(self) -> tuple[PermissionAsked, float] | None:
        """The oldest open request and its arrival time (monotonic); None if no request is open."""
        return next(((asked, began) for _, asked, began in self._open.values()), None)

    def add(self, request: RpcRequest) -> tuple[PermissionAsked, list[Event]]:
        """Add a request of the agent. Return the request's event, and all events to emit.

        The events to emit include the request's event and the start of the tool call.
        """
        assert request.permission is not None
        started, events = self._updates.begin_asked(request.permission.tool_call)
        asked = make_asked(
            request.permission, started, self._recorder, self._session.cwd, self._session.process.redactor
        )
        self._open[asked.id] = (request, asked, time.monotonic())
        return asked, [*events, asked]

    async def decide(self, asked: PermissionAsked, add: Callable[[list[Event]], None]) -> None:
        """Get the decision on a permission request, and send it to the CLI.

        Then pass the event of the decision to `add`. If the call was denied, also pass the event of
        the call's end. If `cancel` has answered the request in the meantime, only record the
        decision: emit nothing.
        """
        decided = await self._decider.decide(asked)
        request, _, _ = self._open.pop(asked.id, (None, None, None))
        if request is None or request.permission is None:
            return  # the turn was stopped, and `cancel` has already answered
        option = find_option(request.permission, yes=decided.decision != "deny")
        events: list[Event] = [decided]
        if decided.decision == "deny" or option is None:
            events += self._updates.deny(asked.id, decided.reason or f"denied by the {decided.by}")
        else:
            self._updates.allow(asked.id)
            if asked.command is not None:
                self._on_shell_start(asked.id)
        # Answer before the events are emitted, so that the tool can start.
        self._session.process.connection.answer(request, option)
        add(events)

    def cancel(self, reason: str | None, add: Callable[[list[Event]], None]) -> None:
        """Deny all open requests, because the turn ends.

        For each request, pass the events of the decision and of the call's end to `add`. `reason`
        is the reason that each decision contains.
        """
        for request, asked, began in list(self._open.values()):
            decided = self._decider.record(asked, PermissionAnswer("deny", "cancel", reason), began)
            self._session.process.connection.answer(request, None)
            add([decided, *self._updates.deny(asked.id, _STOPPED)])
        self._open.clear()


_SHELL = "run_shell_command"
_TRUNCATED = "(cut off by the CLI: more addresses may follow)"


def make_asked(
    permission: Permission, started: ToolStarted, recorder: RunRecorder, cwd: str, redactor: Redactor
) -> PermissionAsked:
    """Build the event for a permission request. `cwd` is the folder of the session."""
    call, clean = permission.tool_call, redactor.text
    is_shell = started.name == _SHELL
    changes = tuple(
        Change(clean(path), "edited" if old else "created", clean(unified(path, old, new)))
        for path, old, new in call.diffs
    )
    folder = _folder(call, cwd) if is_shell else cwd
    # For a shell command, the CLI's text contains the folder of the CLI's own process, but the
    # command does not run there.
    has_details = call.text is not None and not changes and (folder is None or not is_shell)
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
        details=clean(call.text or "") if has_details else _truncated_title(call, started, redactor),
        cwd=clean(folder) if folder is not None else None,
        changes=changes,
        paths=started.paths,
    )
    meaning = AllowAlways.meaning(asked)
    options = asked.options if meaning else ("allow", "deny")
    return msgspec.structs.replace(asked, always=meaning, options=options)


def find_option(permission: Permission, *, yes: bool) -> str | None:
    """Return the id of the CLI's option that allows a call once. If `yes` is False, return the id
    of the option that rejects the call.

    Return None if the CLI offers no option of this kind.
    """
    kind = "allow_once" if yes else "reject_once"
    return next((option.option_id for option in permission.options if option.kind == kind), None)


def _truncated_title(call: AcpToolCall, started: ToolStarted, redactor: Redactor) -> str | None:
    """Return the title of a web fetch, with a note that it is incomplete, if the CLI has cut it off;
    otherwise None.

    The title contains the prompt of the fetch. The CLI reports only its first 97 characters.
    """
    title = call.title or ""
    is_cut = started.kind == "fetch" and title.endswith('..."')
    return f"{redactor.text(title)} {_TRUNCATED}" if is_cut else None


def _folder(call: AcpToolCall, cwd: str) -> str | None:
    """Return the folder in which a command would run. The model can choose this folder.

    Return None if the CLI's description of the call is ambiguous.
    """
    named = [os.path.normpath(os.path.join(cwd, folder)) for folder in call.folders]
    if len(named) > 1:
        named = [folder for folder in named if os.path.isdir(folder)]
        return named[0] if len(named) == 1 else None
    return named[0] if named else cwd
