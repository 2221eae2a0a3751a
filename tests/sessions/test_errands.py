"""Our ledger of what the CLI asked for itself."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from geminids.config.places import Places
from geminids.sessions.errands import Errand, months, read_month, write_down
from geminids.sessions.usage import Request, Spent, StoredUsage
from geminids.sessions.usage_errands import with_errands

_NOVEMBER = int(datetime(2026, 11, 16, 10, tzinfo=UTC).timestamp() * 1000)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "geminids")


def errand(
    number: int = 1, at: int = _NOVEMBER, session: str | None = "s1", project: str = "/repo/app"
) -> Errand:
    return Errand(at, "r1", number, session, project, "gemini-2.5-flash", 100 + number, 40, 7, 3, 2)


def of_session(session: str, project: str | None) -> StoredUsage:
    return StoredUsage(file="f", session=session, project=project, subagent=False, started="", requests=())


def test_written_and_read(places: Places) -> None:
    """What is written down is read again, tokens and time, in a file that only its owner can read."""
    write_down(errand(1), places)
    write_down(errand(2), places)
    (one,) = with_errands([], places)
    assert (one.session, one.project, one.errands) == ("s1", "/repo/app", True)
    assert [request.id for request in one.requests] == ["r1-1", "r1-2"]
    first = one.requests[0]
    assert (first.at, first.model) == ("2026-11-16T10:00:00.000Z", "gemini-2.5-flash")
    spent = first.tokens
    assert (spent.input, spent.cached, spent.output, spent.thinking, spent.tool) == (101, 40, 7, 3, 2)
    assert spent.total == 113
    assert months(places) == ["2026-11.jsonl"]
    assert stat.S_IMODE((places.errands / "2026-11.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE(places.errands.stat().st_mode) == 0o700


def test_nothing_there(places: Places) -> None:
    """Where nothing was written down there is nothing, and reading makes no folder."""
    assert with_errands([], places) == []
    assert not places.root.exists()


def test_many_processes(places: Places) -> None:
    """Lines of processes that write at once are whole, all of them."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom geminids.config.places import Places\n"
        "from geminids.sessions.errands import Errand, write_down\n"
        "sys.stdin.read()\n"
        "for n in range(200):\n"
        f"    write_down(Errand({_NOVEMBER}, sys.argv[2], n, 's', '/repo/' + 'x' * 3000), Places(Path(sys.argv[1])))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(places.root), f"r{at}"], stdin=subprocess.PIPE)
        for at in range(4)
    ]
    for process in started:
        process.communicate(timeout=60)
        assert process.returncode == 0
    (one,) = with_errands([], places)
    assert len(one.requests) == 800 and one.troubles == ()


def test_torn(places: Places) -> None:
    """A last line that was cut is passed over, and costs the next one nothing; then it is told."""
    write_down(errand(1), places)
    file = places.errands / "2026-11.jsonl"
    with file.open("ab") as opened:
        opened.write(b'{"at":1794')
    (one,) = with_errands([], places)
    assert len(one.requests) == 1 and one.troubles == ()
    write_down(errand(2), places)
    told = with_errands([], places)
    assert [len(one.requests) for one in told] == [2, 0]
    assert "1 line that cannot be read" in told[1].troubles[0].what


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"at":"x"}',
        b"null",
        b"\0" * 99,
        b'{"at":1e400}',
        b'{"at":1,"run":"r","number":2,"input":-5}',
    ],
)
def test_any_bytes(line: bytes) -> None:
    """Nothing that may be in the file raises."""
    found, broken = read_month(b"\n".join([line, b'{"at":1,"run":"r","number":1}', b""]))
    assert (len(found), broken) == (1, 1)


def test_a_time_that_is_none(places: Places) -> None:
    """A number that is no time is of an unknown day, and not an error."""
    write_down(errand(1, at=2**62), places)
    (one,) = with_errands([], places)
    assert one.requests[0].at.startswith("1970-01-01")


def test_not_a_file(places: Places) -> None:
    """A pipe or a folder with such a name is told, and nobody waits for it."""
    places.errands.mkdir(parents=True)
    os.mkfifo(places.errands / "2026-10.jsonl")
    (places.errands / "2026-11.jsonl").mkdir()
    (one,) = with_errands([], places)
    assert len(one.troubles) == 2 and one.requests == ()


def test_a_link_is_not_followed(places: Places, tmp_path: Path) -> None:
    """What somebody has put there as a link is not written through."""
    places.errands.mkdir(parents=True)
    (places.errands / "2026-11.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        write_down(errand(), places)
    assert not (tmp_path / "elsewhere").exists()


def test_whose(places: Places) -> None:
    """A stored session has its project from there; others have the run's own; one project, or stored ones alone."""
    for at, session in enumerate(["s1", "s2", None]):
        write_down(errand(at, session=session, project=f"/repo/{session}"), places)
    known = [of_session("s1", "/repo/known")]

    def whose(**only: object) -> set[tuple[str, str | None]]:
        return {(one.session, one.project) for one in with_errands(known, places, **only) if one.errands}  # type: ignore[arg-type]

    assert whose() == {("s1", "/repo/known"), ("s2", "/repo/s2"), ("r1", "/repo/None")}
    assert whose(only=True) == {("s1", "/repo/known")}
    assert whose(project="/repo/s2") == {("s1", "/repo/known"), ("s2", "/repo/s2")}


def test_since(places: Places) -> None:
    """Months that are over before the day that was asked for are not read."""
    write_down(errand(1, at=_NOVEMBER - 40 * 86_400_000), places)
    write_down(errand(2), places)
    (one,) = with_errands([], places, since=datetime(2026, 11, 1, tzinfo=UTC))
    assert [request.id for request in one.requests] == ["r1-2"]


def test_what_is_old_goes(places: Places) -> None:
    """When a month begins, the newest thirteen are kept, and nothing else is touched."""
    places.errands.mkdir(parents=True)
    for year in (2024, 2025):
        for month in range(1, 13):
            (places.errands / f"{year}-{month:02}.jsonl").touch()
    (places.errands / "notes.txt").touch()
    write_down(errand(), places)
    kept = months(places)
    assert len(kept) == 13 and kept[-1] == "2026-11.jsonl" and kept[0] == "2025-01.jsonl"
    assert (places.errands / "notes.txt").exists()
    write_down(errand(2), places)
    assert months(places) == kept


def test_the_same_line_twice(places: Places) -> None:
    """A file that was put together of two copies counts once."""
    write_down(errand(1), places)
    file = places.errands / "2026-11.jsonl"
    file.write_bytes(file.read_bytes() * 2)
    (one,) = with_errands([], places)
    assert len(one.requests) == 1


def test_what_was_never_spent(places: Places) -> None:
    """A request that no real model was asked is not counted; one with the same tokens that was asked is."""
    spent = [Spent(101, 7, 40, 3), Spent(101, 7, 40, 3), Spent(5000, 7, 40, 3)]
    requests = tuple(Request(str(at), "2026-11-16T10:00:00.000Z", "m", one) for at, one in enumerate(spent))
    here = msgspec.structs.replace(of_session("s1", "/repo/app"), requests=requests)
    other = msgspec.structs.replace(of_session("s2", "/repo/app"), requests=requests)
    write_down(msgspec.structs.replace(errand(1), free=True), places)
    write_down(msgspec.structs.replace(errand(9), free=True), places)
    found = with_errands([here, other], places)
    assert [[request.id for request in one.requests] for one in found] == [["1", "2"], ["0", "1", "2"]]


def test_subagents(places: Places) -> None:
    """A subagent that has a file of its own is counted by that; one that has none, by what was written down."""
    agent = msgspec.structs.replace(errand(1), agent=True)
    write_down(agent, places)
    write_down(msgspec.structs.replace(agent, session="s2"), places)
    write_down(msgspec.structs.replace(agent, session="gone"), places)
    with_file = msgspec.structs.replace(of_session("s2", "/repo/app"), subagent=True)
    stored = [of_session("s1", "/repo/app"), of_session("s2", "/repo/app"), with_file]
    (one,) = with_errands(stored, places)[3:]
    assert (one.session, one.project, one.subagent, one.errands) == ("s1", "/repo/app", True, False)
