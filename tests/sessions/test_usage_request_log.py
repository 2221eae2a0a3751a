"""Usage from the request log beside that of the session files."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminids.config.paths import Places
from geminids.gateway.request_log import LoggedRequest, RequestLog
from geminids.sessions.usage import Request, Spent, StoredUsage, with_request_log

NOVEMBER = int(datetime(2026, 11, 16, 10, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "geminids")


def facts(request: int = 1, role: str = "router", at: int = NOVEMBER, **fields: Any) -> LoggedRequest:
    counts = {"input": 100 + request, "cached": 40, "output": 7, "thinking": 3, "tool": 2}
    known: dict[str, Any] = {**counts, "model": "gemini-2.5-flash", "status": 200, **fields}
    return LoggedRequest(at=at, run="", request=request, role=role, **known)


def log_of(
    places: Places, *, session: str | None = "s1", project: str = "/repo/app", free: bool = False
) -> RequestLog:
    return RequestLog("r1", lambda: (session, project), free=free, places=places)


def of_session(session: str, project: str | None, *spent: Spent) -> StoredUsage:
    requests = tuple(
        Request(str(at), "2026-11-16T10:00:00.000Z", "m", tokens) for at, tokens in enumerate(spent)
    )
    return StoredUsage(
        file="f", session=session, project=project, subagent=False, started="", requests=requests
    )


def test_other_requests(places: Places) -> None:
    """Requests outside the conversation come with their session, time, model and tokens."""
    log = log_of(places)
    log.add(facts(1))
    log.add(facts(2, "search"))
    (one,) = with_request_log([], places)
    assert (one.session, one.project, one.kind, one.are_tokens_known) == ("s1", "/repo/app", "other", True)
    assert [request.id for request in one.requests] == ["r1-1", "r1-2"]
    first = one.requests[0]
    assert (first.at, first.model) == ("2026-11-16T10:00:00.000Z", "gemini-2.5-flash")
    spent = first.tokens
    assert (spent.input, spent.cached, spent.output, spent.thinking, spent.tool) == (101, 40, 7, 3, 2)
    assert spent.total == 113


def test_nothing_there(places: Places) -> None:
    """Without a log there is nothing to add, and reading creates no folder."""
    assert with_request_log([], places) == []
    assert not places.root.exists()


def test_kinds(places: Places) -> None:
    """Discarded answers and answers without tokens are groups of their own; the later line of a request counts."""
    nothing: dict[str, Any] = dict.fromkeys(("input", "cached", "output", "thinking", "tool"))
    log = log_of(places)
    log.add(facts(1, "main"))
    log.add(facts(2, "router"))
    log.add(facts(3, "subagent", **nothing))
    log.add(facts(4, "main", **nothing))
    log.add(facts(5, "fetch", **nothing))
    log.discarded(1)
    log.discarded(4)
    found = with_request_log([of_session("s1", "/repo/app")], places)[1:]
    assert sorted(
        (one.kind, one.are_tokens_known, [request.id for request in one.requests]) for one in found
    ) == [
        ("conversation", False, ["r1-3"]),
        ("discarded", False, ["r1-4"]),
        ("discarded", True, ["r1-1"]),
        ("other", False, ["r1-5"]),
        ("other", True, ["r1-2"]),
    ]


def test_a_copied_log(places: Places) -> None:
    """A file that was put together of two copies counts once."""
    log_of(places).add(facts(1))
    places.request_log.write_bytes(places.request_log.read_bytes() * 2)
    (one,) = with_request_log([], places)
    assert len(one.requests) == 1


def test_a_time_out_of_range(places: Places) -> None:
    """A number that is not a time is on an unknown day, and not an error."""
    log_of(places).add(facts(1, at=2**62))
    (one,) = with_request_log([], places)
    assert one.requests[0].at == ""


def test_broken_lines_are_reported(places: Places) -> None:
    """Lines that cannot be read are a trouble with the file's name; the others count."""
    log_of(places).add(facts(1))
    with places.request_log.open("ab") as file:
        file.write(b"broken\n")
    whole, troubled = with_request_log([], places)
    assert len(whole.requests) == 1 and whole.troubles == ()
    (trouble,) = troubled.troubles
    assert (trouble.file, trouble.what) == (str(places.request_log), "1 line that cannot be read")


def test_not_a_file(places: Places) -> None:
    """A FIFO in its place is reported, and nobody waits for it."""
    places.request_log.parent.mkdir(parents=True)
    os.mkfifo(places.request_log)
    (one,) = with_request_log([], places)
    assert len(one.troubles) == 1 and one.requests == ()


def test_sessions_and_projects(places: Places) -> None:
    """A stored session has its project from its file, others from the log; without a session the run counts."""
    for number, session in enumerate(["s1", "s2", None]):
        log_of(places, session=session, project=f"/repo/{session}").add(facts(number))
    known = [of_session("s1", "/repo/known")]

    def found(**only: Any) -> set[tuple[str, str | None]]:
        return {(one.session, one.project) for one in with_request_log(known, places, **only) if one.requests}

    assert found() == {("s1", "/repo/known"), ("s2", "/repo/s2"), ("r1", "/repo/None")}
    assert found(only_stored=True) == {("s1", "/repo/known")}
    assert found(project="/repo/s2") == {("s1", "/repo/known"), ("s2", "/repo/s2")}


def test_since(places: Places) -> None:
    """Requests before the given time are left out."""
    log = log_of(places)
    log.add(facts(1, at=NOVEMBER - 40 * 86_400_000))
    log.add(facts(2))
    (one,) = with_request_log([], places, since=datetime(2026, 11, 1, tzinfo=UTC))
    assert [request.id for request in one.requests] == ["r1-2"]


def test_free_requests(places: Places) -> None:
    """A request of a scripted model is removed from its session once; one with equal tokens stays."""
    spent = [Spent(101, 7, 40, 3), Spent(101, 7, 40, 3), Spent(5000, 7, 40, 3)]
    here, other = of_session("s1", "/repo/app", *spent), of_session("s2", "/repo/app", *spent)
    log = log_of(places, free=True)
    log.add(facts(1, "main"))
    log.add(facts(9, "main"))
    found = with_request_log([here, other], places)
    assert [[request.id for request in one.requests] for one in found] == [["1", "2"], ["0", "1", "2"]]


def test_free_and_discarded(places: Places) -> None:
    """No session file holds a discarded answer of a scripted model: nothing is removed for it."""
    log = log_of(places, free=True)
    log.add(facts(1, "main"))
    log.discarded(1)
    stored = of_session("s1", "/repo/app", Spent(101, 7, 40, 3))
    assert with_request_log([stored], places) == [stored]


def test_many_lines(places: Places) -> None:
    """100,000 lines are read in seconds: the time grows with the number of lines, not with its square."""
    places.request_log.parent.mkdir(parents=True)
    line = msgspec.structs.replace(facts(1), run="r", session="s", project="/repo/app")
    with places.request_log.open("wb") as file:
        for number in range(100_000):
            file.write(msgspec.json.encode(msgspec.structs.replace(line, request=number)) + b"\n")
    (one,) = with_request_log([], places)
    assert len(one.requests) == 100_000
