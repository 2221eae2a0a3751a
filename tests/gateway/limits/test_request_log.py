"""Tests of the request log: which requests are written, and how damaged content is read."""

from __future__ import annotations

import logging
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminids.config.paths import Places
from geminids.gateway.request_log import LoggedRequest, RequestLog, read_request_log

AT = 1_794_800_000_000
OTHER_ROLES = ("router", "compression", "loop_check", "search", "fetch", "other")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "geminids")


def make_entry(request: int, role: str = "router", **fields: Any) -> LoggedRequest:
    counts = {"input": 100 + request, "cached": 40, "output": 7, "thinking": 3, "tool": 0}
    names = {"model": "gemini-2.5-flash-001", "requested_model": "gemini-2.5-flash", "status": 200}
    return LoggedRequest(at=AT, run="", request=request, role=role, **{**counts, **names, **fields})


def make_entry_without_tokens(request: int, role: str) -> LoggedRequest:
    """Build the entry of an answer that was cut off before it reported its tokens."""
    return make_entry(request, role, **dict.fromkeys(("input", "cached", "output", "thinking", "tool")))


def log_of(places: Places, *, session: str | None = "s1") -> RequestLog:
    return RequestLog("r1", lambda: (session, "/repo/app"), places=places)


def read(places: Places) -> list[LoggedRequest]:
    return list(read_request_log(places))


def test_entry_is_read_back(places: Places) -> None:
    """An entry has the run, the session, the folder, both model names, the
    status and the tokens."""
    assert log_of(places).add(make_entry(3, "search")) is None
    (entry,) = read(places)
    assert entry == LoggedRequest(
        at=AT,
        run="r1",
        request=3,
        role="search",
        session="s1",
        project="/repo/app",
        model="gemini-2.5-flash-001",
        requested_model="gemini-2.5-flash",
        status=200,
        input=103,
        cached=40,
        output=7,
        thinking=3,
        tool=0,
    )
    assert entry.is_counted


def test_log_is_private(places: Places) -> None:
    """Only the owner can read the log and its folder, whatever the umask is."""
    before = os.umask(0)
    try:
        log_of(places).add(make_entry(1))
    finally:
        os.umask(before)
    assert stat.S_IMODE(places.request_log.stat().st_mode) == 0o600
    assert stat.S_IMODE(places.request_log.parent.stat().st_mode) == 0o700


def test_missing_log(places: Places) -> None:
    """A missing log is read as empty, and reading does not create it."""
    assert read(places) == []
    log = log_of(places)
    log.add(make_entry(1, "main"))
    assert not places.root.exists()


@pytest.mark.parametrize("role", OTHER_ROLES)
def test_utility_requests_are_written(places: Places, role: str) -> None:
    """Utility requests are in no session file, so each one is written, even
    without token counts."""
    log = log_of(places)
    log.add(make_entry(1, role))
    log.add(make_entry_without_tokens(2, role))
    assert [(entry.request, entry.role, entry.is_counted) for entry in read(places)] == [
        (1, role, True),
        (2, role, False),
    ]


@pytest.mark.parametrize("role", ["main", "subagent"])
def test_conversation_requests(places: Places, role: str) -> None:
    """Of the conversation, only discarded answers and answers without token counts are written.
    The session files contain all others."""
    log = log_of(places)
    for number in (1, 2, 3):
        log.add(make_entry(number, role))
    assert read(places) == []
    assert log.discarded(2) is None
    log.add(make_entry_without_tokens(4, role))
    assert [(entry.request, entry.role, entry.discarded, entry.input) for entry in read(places)] == [
        (2, role, True, 102),
        (4, role, False, None),
    ]


def test_discarded_without_tokens(places: Places) -> None:
    """If a request without token counts is discarded later, a second line is written for it."""
    log = log_of(places)
    log.add(make_entry_without_tokens(1, "main"))
    log.discarded(1)
    assert [(entry.request, entry.discarded) for entry in read(places)] == [(1, False), (1, True)]


def test_repeated_or_unknown_discards_write_nothing(places: Places) -> None:
    """A repeated discard, or one of an unknown or already written request, writes nothing."""
    log = log_of(places)
    log.add(make_entry(1, "main"))
    log.add(make_entry(2, "router"))
    for number in (1, 1, 2, 9):
        assert log.discarded(number) is None
    assert [(entry.request, entry.discarded) for entry in read(places)] == [(2, False), (1, True)]


@pytest.mark.parametrize(
    "fields",
    [
        {"status": 429},
        {"status": 500},
        {"status": None},
        {"input": 0, "cached": 0, "output": 0, "thinking": 0, "tool": 0},
    ],
)
@pytest.mark.parametrize("role", ["main", "router"])
def test_free_requests_are_not_written(places: Places, role: str, fields: dict[str, Any]) -> None:
    """Failed requests and requests with zero tokens are not written, not even as discarded."""
    log = log_of(places)
    log.add(make_entry(1, role, **fields))
    log.discarded(1)
    assert read(places) == []


def test_nested_requests_are_not_written(places: Places) -> None:
    """Requests of a nested run are not written, because the inner run writes them itself."""
    log = log_of(places)
    log.add(make_entry(1, "nested"))
    log.discarded(1)
    assert read(places) == []


def test_scripted_model(places: Places) -> None:
    """Each answer of a script or a cassette with tokens is written, as free."""
    log = log_of(places)
    log.add(make_entry(1, "main", free=True))
    log.add(make_entry(2, "subagent", free=True))
    log.add(make_entry(3, "router", free=True))
    log.add(msgspec.structs.replace(make_entry_without_tokens(4, "main"), free=True))
    log.discarded(1)
    assert [(entry.request, entry.free, entry.discarded) for entry in read(places)] == [
        (1, True, False),
        (2, True, False),
        (3, True, False),
        (1, True, True),
    ]


@pytest.mark.parametrize(
    ("known_as", "named"),
    [
        ("gateway-7-12", ("gateway-7", 12)),
        ("", ("r1", 1)),
        ("12", ("r1", 1)),
        ("gateway-x", ("r1", 1)),
    ],
)
def test_an_answer_that_another_gateway_logged(places: Places, known_as: str, named: Any) -> None:
    """An answer that the gateway of a script has logged keeps its name, so that it counts once. A name
    that is not valid is ignored."""
    log_of(places).add(make_entry(1, "main", free=True), known_as=known_as)
    assert [(entry.run, entry.request, entry.session) for entry in read(places)] == [(*named, "s1")]


def test_session_is_read_when_the_line_is_written(places: Places) -> None:
    """An entry has the session and folder that are known when its line is written."""
    known: list[tuple[str | None, str | None]] = [(None, None)]
    log = RequestLog("r1", lambda: known[0], places=places)
    log.add(make_entry(1, "main"))
    log.add(make_entry(2))
    known[0] = ("s1", "/repo/app")
    log.discarded(1)
    assert [(entry.request, entry.session, entry.project) for entry in read(places)] == [
        (2, None, None),
        (1, "s1", "/repo/app"),
    ]


def test_many_processes(places: Places) -> None:
    """If 50 processes write at the same time, no line is lost or mixed with another."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom geminids.config.paths import Places\n"
        "from geminids.gateway.request_log import LoggedRequest, RequestLog\n"
        "where = ('s', '/repo/' + 'x' * 3000)\n"
        "log = RequestLog(sys.argv[2], lambda: where, places=Places(Path(sys.argv[1])))\n"
        "sys.stdin.read()\n"
        "for n in range(20):\n"
        f"    facts = LoggedRequest(at={AT}, run='', request=n, role='router', status=200, input=1)\n"
        "    assert log.add(facts) is None"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(places.root), f"r{at}"], stdin=subprocess.PIPE)
        for at in range(50)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait(120) for process in started] == [0] * 50
    broken: list[None] = []
    entries = list(read_request_log(places, lambda: broken.append(None)))
    assert sorted((entry.run, entry.request) for entry in entries) == sorted(
        (f"r{at}", n) for at in range(50) for n in range(20)
    )
    assert broken == []


def test_unfinished_last_line(places: Places) -> None:
    """An unfinished last line is ignored. The next entry starts a new line and stays readable."""
    log = log_of(places)
    log.add(make_entry(1))
    with places.request_log.open("ab") as file:
        file.write(b'{"at":1794')
    broken: list[None] = []
    assert len(list(read_request_log(places, lambda: broken.append(None)))) == 1 and broken == []
    log.add(make_entry(2))
    assert [entry.request for entry in read_request_log(places, lambda: broken.append(None))] == [1, 2]
    assert len(broken) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"at":1,"run":"r","request":2,"role":"x","y":' + b"[" * 3000,
        b"\xff\xfe",
        b'{"at":"x"}',
        b"null",
        b"\0" * 99,
        b"x" * 1_000_000,
        b'{"at":1e400}',
        b'{"at":1,"run":"r","request":2,"role":"main","input":-5}',
        b'{"at":1,"run":"\xff","request":2,"role":"main"}',
    ],
)
def test_broken_line(places: Places, line: bytes) -> None:
    """A line with any invalid content counts as one broken line. The other lines are read."""
    places.request_log.parent.mkdir(parents=True)
    good = b'{"at":1,"run":"r","request":%d,"role":"router"}'
    places.request_log.write_bytes(b"\n".join([good % 1, line, good % 2, b""]))
    broken: list[None] = []
    entries = list(read_request_log(places, lambda: broken.append(None)))
    assert ([entry.request for entry in entries], len(broken)) == ([1, 2], 1)


def test_reader_needs_little_memory(places: Places) -> None:
    """Reading a log of 64 MB without line breaks needs less than 2 MB of memory."""
    places.request_log.parent.mkdir(parents=True)
    with places.request_log.open("wb") as file:
        file.truncate(64 << 20)
    code = (
        "import sys, tracemalloc\nfrom pathlib import Path\nfrom geminids.config.paths import Places\n"
        "from geminids.gateway.request_log import read_request_log\ntracemalloc.start()\n"
        "assert list(read_request_log(Places(Path(sys.argv[1])))) == []\n"
        "print(tracemalloc.get_traced_memory()[1])"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, str(places.root)], capture_output=True, text=True, check=True
    )
    assert int(completed.stdout) < 2 << 20


def test_log_is_not_a_regular_file(places: Places) -> None:
    """A named pipe or a folder in place of the log is an error for reader and writer.
    Neither of them blocks."""
    places.request_log.parent.mkdir(parents=True)
    os.mkfifo(places.request_log)
    with pytest.raises(OSError):
        read(places)
    assert log_of(places).add(make_entry(1)) is not None
    places.request_log.unlink()
    places.request_log.mkdir()
    with pytest.raises(OSError):
        read(places)
    assert log_of(places).add(make_entry(1)) is not None


def test_symbolic_link_is_not_followed(places: Places, tmp_path: Path) -> None:
    """The writer does not write through a symbolic link."""
    places.request_log.parent.mkdir(parents=True)
    places.request_log.symlink_to(tmp_path / "elsewhere")
    assert log_of(places).add(make_entry(1)) is not None
    assert not (tmp_path / "elsewhere").exists()


def test_write_problem_is_returned_once(places: Places, caplog: pytest.LogCaptureFixture) -> None:
    """If the log cannot be written, the problem is returned once. Every lost line is logged."""
    places.root.write_text("a file in place of the folder")
    log = log_of(places)
    with caplog.at_level(logging.WARNING, "geminids.gateway"):
        problem = log.add(make_entry(1))
        assert log.add(make_entry(2)) is None
    assert problem is not None and "geminids usage" in problem and str(places.root) in problem
    assert [record.name for record in caplog.records] == ["geminids.gateway"] * 2


def test_log_recovers(places: Places) -> None:
    """Later requests are written as soon as the log can be written again."""
    places.root.write_text("a file in place of the folder")
    log = log_of(places)
    assert log.add(make_entry(1)) is not None
    places.root.unlink()
    assert log.add(make_entry(2)) is None
    assert [entry.request for entry in read(places)] == [2]


def test_unwritable_folder(places: Places) -> None:
    """If the folder of the log cannot be created, `add` returns a problem
    and raises no exception."""
    places.root.mkdir(mode=0o500)
    # Permissions do not stop root, but nobody can create a folder in /proc.
    where = Places(Path("/proc/geminids")) if os.geteuid() == 0 else places
    problem = log_of(where).add(make_entry(1))
    assert problem is not None and str(where.root) in problem


def test_full_disk(places: Places) -> None:
    """If a line does not fit on the disk, `add` returns a problem. The next line is readable."""
    log = log_of(places)
    log.add(make_entry(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (places.request_log.stat().st_size + 50, hard))
    try:
        problem = log.add(make_entry(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert problem is not None and "the disk may be full" in problem
    log.add(make_entry(3))
    assert [entry.request for entry in read(places)] == [1, 3]


def test_failing_where_function(places: Places) -> None:
    """If the caller's function for the session raises an error, `add` returns it as a problem."""

    def where() -> tuple[str | None, str | None]:
        raise RuntimeError("no session yet")

    problem = RequestLog("r1", where, places=places).add(make_entry(1))
    assert problem is not None and "no session yet" in problem


@pytest.mark.parametrize("project", ["/repo/" + "x" * 5000, "/repo/\udcff", "/repo/" + "\x01" * 1000])
def test_project_that_cannot_be_written(places: Places, project: str) -> None:
    """A project path that is too long or not UTF-8 is left out of the entry."""
    log = RequestLog("r1", lambda: ("s1", project), places=places)
    assert log.add(make_entry(1, model="m" * 5000)) is None
    (entry,) = read(places)
    assert (entry.session, entry.project, len(entry.model or "")) == ("s1", None, 200)
    assert len(places.request_log.read_bytes()) <= 4096


def test_default_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `places`, the log is in the data folder of geminids."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    assert RequestLog("r1", lambda: (None, None)).add(make_entry(1)) is None
    assert len(read(Places.of())) == 1
