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
_NOT_ALL = "(the CLI tells no more of it: there may be other addresses behind)"


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
    folder = _folder(call, cwd) if is_shell else cwd
    # What the CLI adds to a shell command names the folder of its own process, where nothing runs.
    is_told = call.text is not None and not changes and (folder is None or not is_shell)
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
