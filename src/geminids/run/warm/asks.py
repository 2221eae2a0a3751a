"""A request for permission as whoever decides sees it: the exact command, the exact change, and what "always" means."""

from __future__ import annotations

import os

import msgspec

from geminids.events.from_acp import unified
from geminids.events.ledger import Ledger
from geminids.events.model import Change, PermissionAsked, ToolStarted
from geminids.redact import Redactor
from geminids.run.warm.always import Always
from geminids.wire.acp import Permission, ToolCall

__all__ = ["asked_of", "option_of"]

_SHELL = "run_shell_command"


def asked_of(
    permission: Permission, started: ToolStarted, ledger: Ledger, cwd: str, redactor: Redactor
) -> PermissionAsked:
    """The event for a request of the agent's."""
    call, clean = permission.tool_call, redactor.text
    is_shell = started.name == _SHELL
    changes = tuple(
        Change(clean(path), "edited" if old else "created", clean(unified(path, old, new)))
        for path, old, new in call.diffs
    )
    # What the CLI adds to a shell command names the folder of its own process, where nothing runs.
    told = None if is_shell or changes or call.text is None else clean(call.text)
    asked = PermissionAsked(
        at=started.at,
        seq=ledger.next(),
        attempt=ledger.attempt,
        turn=started.turn,
        id=started.id,
        tool=started.name,
        kind=started.kind,
        title=started.title,
        command=clean(call.title or "") if is_shell else None,
        details=told,
        cwd=_folder(call, cwd, redactor) if is_shell else cwd,
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


def _folder(call: ToolCall, cwd: str, redactor: Redactor) -> str:
    """Where a command would run: the model may name another folder than the chat's."""
    return cwd if call.folder is None else os.path.normpath(os.path.join(cwd, redactor.text(call.folder)))
