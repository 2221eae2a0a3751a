"""`geminids sessions fork` and `rescue`: a session found as the command line names it, and made anew."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from geminids.cli.sessions_lookup import is_file, locate_session, open_session, project_of
from geminids.errors import SessionError
from geminids.ids import is_session_id
from geminids.sessions.copying import fork
from geminids.sessions.listing import SessionInfo
from geminids.sessions.rescuing import Rescue, rescue

__all__ = ["fork_session", "rescue_session"]


def fork_session(session: str, at: str | None, cwd: str | None, home: str) -> tuple[SessionInfo, SessionInfo]:
    """The copy and its original."""
    opened = open_session(session, cwd, home)
    last = None if at is None else _message_id(at, (one.id for one in opened.messages), opened.info.id)
    made = fork(Path(opened.info.file), at=last, home=home)
    return msgspec.structs.replace(made, project=opened.info.project), opened.info


def _message_id(at: str, ids: Iterable[str], session: str) -> str:
    alike = [one for one in ids if one.startswith(at)]
    if at in alike or len(alike) == 1:
        return at if at in alike else alike[0]
    if alike and at:
        several = ", ".join(alike[:5])
        raise SessionError(
            f"{len(alike)} messages of {session} begin with {at}: {several}", hint="Give more of the id."
        )
    raise SessionError(
        f"the session {session} has no message {at[:100]}",
        hint=f"Their ids: geminids sessions show {session} --json",
    )


def rescue_session(session: str, cwd: str | None, home: str, *, rewound: bool) -> tuple[Rescue, str | None]:
    """The new session, and the project that it is of, where that is known."""
    info = locate_session(session, cwd, home)
    if is_file(session) or not is_session_id(info.id):
        # One that lies among the sessions of a project stays there, unless another project is named.
        project = cwd if project_of(info) else cwd or "."
        made = rescue(Path(info.file), project, home=home, rewound=rewound)
    else:
        made = rescue(info.id, info.project, home=home, rewound=rewound)
    return made, project_of(locate_session(made.file, None, home))
