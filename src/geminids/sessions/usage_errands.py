"""What the CLI asked for itself in runs of ours, as usage beside that of the session files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from geminids.config.places import Places
from geminids.sessions.errands import Errand, months, read_month, time_of
from geminids.sessions.usage import Request, Spent, StoredUsage, Trouble, contents

__all__ = ["with_errands"]


def with_errands(
    stored: Iterable[StoredUsage],
    places: Places,
    *,
    project: str | None = None,
    only: bool = False,
    since: datetime | None = None,
) -> list[StoredUsage]:
    """What session files tell, without what no real model was asked, and with what was written down; never raises.

    A session that is `stored` has its project from there. `project`: of this folder alone; `only`: of those that
    are stored alone.
    """
    stored = list(stored)
    found, troubles = _all(places, f"{since.astimezone(UTC):%Y-%m}" if since else "")
    told = _spent(stored, [one for one in found if one.free])
    known = {one.session: one.project for one in stored}
    agents = {one.session for one in stored if one.subagent}
    by_session: dict[tuple[str, str | None, bool], list[Request]] = {}
    for one in found:
        if one.free or (one.agent and (one.session not in known or one.session in agents)):
            # Never spent; or in a file that the subagent has of its own.
            continue
        if one.session in known:
            key = (one.session, known[one.session], one.agent)
        elif only or (project is not None and one.project not in (project, os.path.realpath(project))):
            continue
        else:
            key = (one.session or one.run, one.project, False)
        by_session.setdefault(key, []).append(_request(one))
    told += [_stored(places, *key, requests) for key, requests in by_session.items()]
    return [*told, _stored(places, "", None, False, [], troubles)] if troubles else told


def _spent(stored: list[StoredUsage], free: list[Errand]) -> list[StoredUsage]:
    """What is left without the requests of runs that asked no real model: each is known by its session and tokens."""
    if not free:
        return stored
    never = Counter((one.session, one.input, one.output, one.cached, one.thinking) for one in free)
    sessions = {one.session for one in free}
    left = []
    for one in stored:
        if one.session in sessions:
            requests = []
            for request in one.requests:
                tokens = request.tokens
                key = (one.session, tokens.input, tokens.output, tokens.cached, tokens.thinking)
                if never[key] > 0:
                    never[key] -= 1
                else:
                    requests.append(request)
            one = msgspec.structs.replace(one, requests=tuple(requests))
        left.append(one)
    return left


def _all(places: Places, first: str) -> tuple[list[Errand], list[Trouble]]:
    found: list[Errand] = []
    troubles = []
    for name in months(places):
        file = os.path.join(places.errands, name)
        try:
            errands, broken = read_month(contents(file)) if name >= first else ([], 0)
        except OSError as error:
            troubles.append(Trouble(file, f"cannot be read: {error.strerror or error}"))
            continue
        found += errands
        if broken:
            what = "1 line that cannot be read" if broken == 1 else f"{broken} lines that cannot be read"
            troubles.append(Trouble(file, what))
    return found, troubles


def _stored(
    places: Places,
    session: str,
    project: str | None,
    agent: bool,
    requests: list[Request],
    troubles: Iterable[Trouble] = (),
) -> StoredUsage:
    return StoredUsage(
        file=str(places.errands),
        session=session,
        project=project,
        subagent=agent,
        started=requests[0].at if requests else "",
        requests=tuple(requests),
        troubles=tuple(troubles),
        errands=not agent,
    )


def _request(one: Errand) -> Request:
    spent = Spent(one.input, one.output, one.cached, one.thinking, one.tool)
    at = time_of(one).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Request(f"{one.run}-{one.number}", at, one.model, spent)
