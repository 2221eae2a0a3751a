"""Usage from the request log, added to that of the session files."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminids.config.paths import Places
from geminids.gateway.request_log import LoggedRequest, RequestLog
from geminids.sessions.usage import RequestTokens, StoredRequest, StoredUsage, with_request_log

NOVEMBER = int(datetime(2026, 11, 16, 10, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "geminids")


def logged_request(
    request: int = 1, role: str = "router", at: int = NOVEMBER, **fields: Any
) -> LoggedRequest:
    counts = {"input": 100 + request, "cached": 40, "output": 7, "thinking": 3, "tool": 2}
    known: dict[str, Any] = {**counts, "model": "gemini-2.5-flash", "status": 200, **fields}
    return LoggedRequest(at=at, run="", request=request, role=role, **known)


def log_of(places: Places, *, session: str | None = "s1", project: str = "/repo/app") -> RequestLog:
    return RequestLog("r1", lambda: (session, project), places=places)


def session_usage(session: str, project: str | None, *spent: RequestTokens) -> StoredUsage:
    requests = tuple(
        StoredRequest(str(at), "2026-11-16T10:00:00.000Z", "m", tokens) for at, tokens in enumerate(spent)
    )
    return StoredUsage(
        file="f", session=session, project=project, subagent=False, started="", requests=requests
    )


def test_other_requests(places: Places) -> None:
    """Requests outside the conversation have their session, project, time, model and tokens."""
    log = log_of(places)
    log.add(logged_request(1))
    log.add(logged_request(2, "search"))
    (usage,) = with_request_log([], places)
    assert (usage.session, usage.project, usage.kind, usage.are_tokens_known) == (
        "s1",
        "/repo/app",
        "other",
        True,
    )
    assert [request.id for request in usage.requests] == ["r1-1", "r1-2"]
    first = usage.requests[0]
    assert (first.at, first.model) == ("2026-11-16T10:00:00.000Z", "gemini-2.5-flash")
    spent = first.tokens
    assert (spent.input, spent.cached, spent.output, spent.thinking, spent.tool) == (101, 40, 7, 3, 2)
    assert spent.total == 113


def test_no_log(places: Places) -> None:
    """Without a log there is nothing to add, and reading creates no folder."""
    assert with_request_log([], places) == []
    assert not places.root.exists()


def test_groups_of_requests(places: Places) -> None:
    """Requests are grouped by kind (conversation, discarded, other) and by whether their tokens are
    known.
    """
    no_tokens: dict[str, Any] = dict.fromkeys(("input", "cached", "output", "thinking", "tool"))
    log = log_of(places)
    log.add(logged_request(1, "main"))
    log.add(logged_request(2, "router"))
    log.add(logged_request(3, "subagent", **no_tokens))
    log.add(logged_request(4, "main", **no_tokens))
    log.add(logged_request(5, "fetch", **no_tokens))
    log.discarded(1)
    log.discarded(4)
    logged = with_request_log([session_usage("s1", "/repo/app")], places)[1:]
    assert sorted(
        (usage.kind, usage.are_tokens_known, [request.id for request in usage.requests]) for usage in logged
    ) == [
        ("conversation", False, ["r1-3"]),
        ("discarded", False, ["r1-4"]),
        ("discarded", True, ["r1-1"]),
        ("other", False, ["r1-5"]),
        ("other", True, ["r1-2"]),
    ]


def test_a_copied_log(places: Places) -> None:
    """A log whose lines were duplicated counts once."""
    log_of(places).add(logged_request(1))
    places.request_log.write_bytes(places.request_log.read_bytes() * 2)
    (usage,) = with_request_log([], places)
    assert len(usage.requests) == 1


def test_a_time_out_of_range(places: Places) -> None:
    """A time out of range becomes an empty time and raises no error."""
    log_of(places).add(logged_request(1, at=2**62))
    (usage,) = with_request_log([], places)
    assert usage.requests[0].at == ""


def test_broken_lines_are_reported(places: Places) -> None:
    """Unreadable lines are reported with the name of the file; the others count."""
    log_of(places).add(logged_request(1))
    with places.request_log.open("ab") as file:
        file.write(b"broken\n")
    whole, troubled = with_request_log([], places)
    assert len(whole.requests) == 1 and whole.troubles == ()
    (trouble,) = troubled.troubles
    assert (trouble.file, trouble.what) == (str(places.request_log), "1 line that cannot be read")


def test_not_a_file(places: Places) -> None:
    """A FIFO in place of the log is reported, and reading does not block."""
    places.request_log.parent.mkdir(parents=True)
    os.mkfifo(places.request_log)
    (usage,) = with_request_log([], places)
    assert len(usage.troubles) == 1 and usage.requests == ()


def test_sessions_and_projects(places: Places) -> None:
    """A stored session has its project from its file, another one from the log.

    A request without a session counts for its run.
    """
    for number, session in enumerate(["s1", "s2", None]):
        log_of(places, session=session, project=f"/repo/{session}").add(logged_request(number))
    known = [session_usage("s1", "/repo/known")]

    def counted(**filters: Any) -> set[tuple[str, str | None]]:
        return {
            (usage.session, usage.project)
            for usage in with_request_log(known, places, **filters)
            if usage.requests
        }

    assert counted() == {("s1", "/repo/known"), ("s2", "/repo/s2"), ("r1", "/repo/None")}
    assert counted(only_stored=True) == {("s1", "/repo/known")}
    assert counted(project="/repo/s2") == {("s1", "/repo/known"), ("s2", "/repo/s2")}


def test_since(places: Places) -> None:
    """Requests before the given time are left out."""
    log = log_of(places)
    log.add(logged_request(1, at=NOVEMBER - 40 * 86_400_000))
    log.add(logged_request(2))
    (usage,) = with_request_log([], places, since=datetime(2026, 11, 1, tzinfo=UTC))
    assert [request.id for request in usage.requests] == ["r1-2"]


def test_free_requests(places: Places) -> None:
    """A request of a scripted model is removed from its session once; another one with equal tokens
    stays. If free requests are asked for, it is counted as free.
    """
    spent = [RequestTokens(101, 7, 40, 3), RequestTokens(101, 7, 40, 3), RequestTokens(5000, 7, 40, 3)]
    here, other = session_usage("s1", "/repo/app", *spent), session_usage("s2", "/repo/app", *spent)
    log = log_of(places)
    log.add(logged_request(1, "main", free=True))
    log.add(logged_request(9, "main", free=True))
    log.add(logged_request(3, "router", free=True))
    usages = with_request_log([here, other], places)
    assert [[request.id for request in usage.requests] for usage in usages] == [["1", "2"], ["0", "1", "2"]]
    *usages, conversation, router = with_request_log([here, other], places, free=True)
    assert [usage.is_free for usage in usages] == [False, False]
    assert [request.id for request in conversation.requests] == ["r1-1", "r1-9"]
    assert (router.kind, router.is_free, conversation.is_free) == ("other", True, True)


def test_free_requests_of_a_plain_cli(places: Places) -> None:
    """A line without a session is that of the request with the same tokens and the same time, in any
    session. A request with equal tokens at another time stays."""
    spent = RequestTokens(101, 7, 40, 3)
    here, other = session_usage("s1", "/repo/app", spent), session_usage("s2", "/repo/app", spent)
    (late,) = other.requests
    late = msgspec.structs.replace(late, at="2026-11-16T10:01:00.000Z")
    other = msgspec.structs.replace(other, requests=(late,))
    for number, at in ((1, NOVEMBER - 200), (2, NOVEMBER - 60_000)):
        log_of(places, session=None, project="").add(logged_request(number, "main", at, free=True))
    log_of(places, session=None).add(logged_request(3, "router", free=True))
    usages = with_request_log([other, here], places)
    assert [usage.requests for usage in usages] == [(late,), ()]


def test_the_nearest_request_of_a_plain_cli(places: Places) -> None:
    """If two requests have the tokens of a free one, the one that is nearer in time is free."""
    log_of(places, session=None).add(logged_request(1, "main", NOVEMBER + 2900, free=True))
    early = session_usage("s1", "/repo/app", RequestTokens(101, 7, 40, 3))
    near = msgspec.structs.replace(early.requests[0], at="2026-11-16T10:00:03.000Z")
    later = msgspec.structs.replace(early, session="s2", requests=(near,))
    assert [usage.requests for usage in with_request_log([early, later], places)] == [early.requests, ()]


def test_the_session_of_a_plain_cli(places: Places) -> None:
    """A free request without a session counts for the session in which its tokens were found."""
    log_of(places, session=None, project="").add(logged_request(1, "main", NOVEMBER + 200, free=True))
    stored = session_usage("s1", "/repo/app", RequestTokens(101, 7, 40, 3))
    _, found = with_request_log([stored], places, project="/repo/app", free=True)
    assert (found.session, found.project, found.is_free) == ("s1", "/repo/app", True)


def test_free_and_discarded(places: Places) -> None:
    """A discarded answer of a scripted model is in no session file, so nothing is removed for it."""
    log = log_of(places)
    log.add(logged_request(1, "main", free=True))
    log.discarded(1)
    stored = session_usage("s1", "/repo/app", RequestTokens(101, 7, 40, 3))
    assert with_request_log([stored], places) == [stored]


def test_many_lines(places: Places) -> None:
    """A log of 100,000 lines is read, and each request counts."""
    places.request_log.parent.mkdir(parents=True)
    line = msgspec.structs.replace(logged_request(1), run="r", session="s", project="/repo/app")
    with places.request_log.open("wb") as file:
        for number in range(100_000):
            file.write(msgspec.json.encode(msgspec.structs.replace(line, request=number)) + b"\n")
    (usage,) = with_request_log([], places)
    assert len(usage.requests) == 100_000
