"""The request log: what is written, by whom, and what a reader makes of any content."""

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

import pytest

from geminids.config.paths import Places
from geminids.gateway.request_log import LoggedRequest, RequestLog, read_request_log

AT = 1_794_800_000_000
OTHER_ROLES = ("router", "compression", "loop_check", "search", "fetch", "other")


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path / "geminids")


def used(request: int, role: str = "router", **fields: Any) -> LoggedRequest:
    counts = {"input": 100 + request, "cached": 40, "output": 7, "thinking": 3, "tool": 0}
    names = {"model": "gemini-2.5-flash-001", "requested_model": "gemini-2.5-flash", "status": 200}
    return LoggedRequest(at=AT, run="", request=request, role=role, **{**counts, **names, **fields})


def unknown(request: int, role: str) -> LoggedRequest:
    """An answer that was cut off before it reported its tokens."""
    return used(request, role, **dict.fromkeys(("input", "cached", "output", "thinking", "tool")))


def log_of(places: Places, *, free: bool = False, session: str | None = "s1") -> RequestLog:
    return RequestLog("r1", lambda: (session, "/repo/app"), free=free, places=places)


def read(places: Places) -> list[LoggedRequest]:
    return list(read_request_log(places))


def test_what_is_written_is_read(places: Places) -> None:
    """A line has the run, the session, the folder, both model names, the status and the tokens."""
    assert log_of(places).add(used(3, "search")) is None
    (one,) = read(places)
    assert one == LoggedRequest(
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
    assert one.is_counted


def test_private(places: Places) -> None:
    """Only the owner can read the log, whatever the umask is."""
    before = os.umask(0)
    try:
        log_of(places).add(used(1))
    finally:
        os.umask(before)
    assert stat.S_IMODE(places.request_log.stat().st_mode) == 0o600
    assert stat.S_IMODE(places.request_log.parent.stat().st_mode) == 0o700


def test_nothing_there(places: Places) -> None:
    """Without a log there is nothing to read, and reading creates nothing."""
    assert read(places) == []
    log = log_of(places)
    log.add(used(1, "main"))
    assert not places.root.exists()


@pytest.mark.parametrize("role", OTHER_ROLES)
def test_requests_outside_the_conversation(places: Places, role: str) -> None:
    """No session file holds them: each is written, also with unknown tokens."""
    log = log_of(places)
    log.add(used(1, role))
    log.add(unknown(2, role))
    assert [(one.request, one.role, one.is_counted) for one in read(places)] == [
        (1, role, True),
        (2, role, False),
    ]


@pytest.mark.parametrize("role", ["main", "subagent"])
def test_the_conversation(places: Places, role: str) -> None:
    """Session files hold accepted answers: only discarded ones and those without tokens are written."""
    log = log_of(places)
    for number in (1, 2, 3):
        log.add(used(number, role))
    assert read(places) == []
    assert log.discarded(2) is None
    log.add(unknown(4, role))
    assert [(one.request, one.role, one.discarded, one.input) for one in read(places)] == [
        (2, role, True, 102),
        (4, role, False, None),
    ]


def test_discarded_without_tokens(places: Places) -> None:
    """A request that was written without tokens gets a second line when it turns out to be discarded."""
    log = log_of(places)
    log.add(unknown(1, "main"))
    log.discarded(1)
    assert [(one.request, one.discarded) for one in read(places)] == [(1, False), (1, True)]


def test_discarded_twice_or_unheard_of(places: Places) -> None:
    """A second report of a discarded answer, and one of a request that is already in the log, write nothing."""
    log = log_of(places)
    log.add(used(1, "main"))
    log.add(used(2, "router"))
    for number in (1, 1, 2, 9):
        assert log.discarded(number) is None
    assert [(one.request, one.discarded) for one in read(places)] == [(2, False), (1, True)]


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
def test_what_costs_nothing(places: Places, role: str, fields: dict[str, Any]) -> None:
    """Failed requests and those with zero tokens are not written, not even as discarded."""
    log = log_of(places)
    log.add(used(1, role, **fields))
    log.discarded(1)
    assert read(places) == []


def test_a_run_inside_a_run(places: Places) -> None:
    """The inner run writes its own lines: the outer one must not count them again."""
    log = log_of(places)
    log.add(used(1, "nested"))
    log.discarded(1)
    assert read(places) == []


def test_free(places: Places) -> None:
    """For a scripted or replayed model, the requests that session files hold are written; the others cost nothing."""
    log = log_of(places, free=True)
    log.add(used(1, "main"))
    log.add(used(2, "subagent"))
    log.add(used(3, "router"))
    log.add(unknown(4, "main"))
    log.discarded(1)
    assert [(one.request, one.free, one.discarded) for one in read(places)] == [
        (1, True, False),
        (2, True, False),
        (1, True, True),
    ]


def test_the_session_of_the_moment(places: Places) -> None:
    """Session and folder are those that are known when the line is written."""
    known: list[tuple[str | None, str | None]] = [(None, None)]
    log = RequestLog("r1", lambda: known[0], free=False, places=places)
    log.add(used(1, "main"))
    log.add(used(2))
    known[0] = ("s1", "/repo/app")
    log.discarded(1)
    assert [(one.request, one.session, one.project) for one in read(places)] == [
        (2, None, None),
        (1, "s1", "/repo/app"),
    ]


def test_many_processes(places: Places) -> None:
    """50 processes that write at once lose no line and mix none."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom geminids.config.paths import Places\n"
        "from geminids.gateway.request_log import LoggedRequest, RequestLog\n"
        "where = ('s', '/repo/' + 'x' * 3000)\n"
        "log = RequestLog(sys.argv[2], lambda: where, free=False, places=Places(Path(sys.argv[1])))\n"
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
    found = list(read_request_log(places, lambda: broken.append(None)))
    assert sorted((one.run, one.request) for one in found) == sorted(
        (f"r{at}", n) for at in range(50) for n in range(20)
    )
    assert broken == []


def test_torn(places: Places) -> None:
    """An unfinished last line is no error and does not damage the next one; after that it is a broken line."""
    log = log_of(places)
    log.add(used(1))
    with places.request_log.open("ab") as file:
        file.write(b'{"at":1794')
    broken: list[None] = []
    assert len(list(read_request_log(places, lambda: broken.append(None)))) == 1 and broken == []
    log.add(used(2))
    assert [one.request for one in read_request_log(places, lambda: broken.append(None))] == [1, 2]
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
def test_any_bytes(places: Places, line: bytes) -> None:
    """Whatever a line contains, it is one broken line, and the others are read."""
    places.request_log.parent.mkdir(parents=True)
    good = b'{"at":1,"run":"r","request":%d,"role":"router"}'
    places.request_log.write_bytes(b"\n".join([good % 1, line, good % 2, b""]))
    broken: list[None] = []
    found = list(read_request_log(places, lambda: broken.append(None)))
    assert ([one.request for one in found], len(broken)) == ([1, 2], 1)


def test_a_reader_takes_little_memory(places: Places) -> None:
    """The log is read line by line, also where it has no line breaks: 64 MB of zeros do not need 64 MB."""
    places.request_log.parent.mkdir(parents=True)
    with places.request_log.open("wb") as file:
        file.truncate(64 << 20)
    code = (
        "import sys, tracemalloc\nfrom pathlib import Path\nfrom geminids.config.paths import Places\n"
        "from geminids.gateway.request_log import read_request_log\ntracemalloc.start()\n"
        "assert list(read_request_log(Places(Path(sys.argv[1])))) == []\n"
        "print(tracemalloc.get_traced_memory()[1])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(places.root)], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 2 << 20


def test_not_a_file(places: Places) -> None:
    """A FIFO or a folder in its place is an error for reader and writer, and nobody waits for it."""
    places.request_log.parent.mkdir(parents=True)
    os.mkfifo(places.request_log)
    with pytest.raises(OSError):
        read(places)
    assert log_of(places).add(used(1)) is not None
    places.request_log.unlink()
    places.request_log.mkdir()
    with pytest.raises(OSError):
        read(places)
    assert log_of(places).add(used(1)) is not None


def test_a_link_is_not_followed(places: Places, tmp_path: Path) -> None:
    """The writer does not write through a symbolic link."""
    places.request_log.parent.mkdir(parents=True)
    places.request_log.symlink_to(tmp_path / "elsewhere")
    assert log_of(places).add(used(1)) is not None
    assert not (tmp_path / "elsewhere").exists()


def test_one_problem_is_returned(places: Places, caplog: pytest.LogCaptureFixture) -> None:
    """A log that cannot be written returns its problem once; each lost line is in the log of the program."""
    places.root.write_text("a file in place of the folder")
    log = log_of(places)
    with caplog.at_level(logging.WARNING, "geminids.gateway"):
        problem = log.add(used(1))
        assert log.add(used(2)) is None
    assert problem is not None and "geminids usage" in problem and str(places.root) in problem
    assert [record.name for record in caplog.records] == ["geminids.gateway"] * 2


def test_it_recovers(places: Places) -> None:
    """A later request is written once the log can be written again."""
    places.root.write_text("a file in place of the folder")
    log = log_of(places)
    assert log.add(used(1)) is not None
    places.root.unlink()
    assert log.add(used(2)) is None
    assert [one.request for one in read(places)] == [2]


def test_a_read_only_folder(places: Places) -> None:
    """A folder in which nothing can be created costs one problem and no exception."""
    places.root.mkdir(mode=0o500)
    # Permissions do not stop root, but nobody can create a folder in /proc.
    where = Places(Path("/proc/geminids")) if os.geteuid() == 0 else places
    problem = log_of(where).add(used(1))
    assert problem is not None and str(where.root) in problem


def test_a_full_disk(places: Places) -> None:
    """A line that does not fit is a problem, and the next line is still readable."""
    log = log_of(places)
    log.add(used(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (places.request_log.stat().st_size + 50, hard))
    try:
        problem = log.add(used(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert problem is not None and "disk full" in problem
    log.add(used(3))
    assert [one.request for one in read(places)] == [1, 3]


def test_where_that_fails(places: Places) -> None:
    """An error of the caller's function does not end the run either."""

    def where() -> tuple[str | None, str | None]:
        raise RuntimeError("no session yet")

    problem = RequestLog("r1", where, free=False, places=places).add(used(1))
    assert problem is not None and "no session yet" in problem


@pytest.mark.parametrize("project", ["/repo/" + "x" * 5000, "/repo/\udcff", "/repo/" + "\x01" * 1000])
def test_a_folder_that_does_not_fit(places: Places, project: str) -> None:
    """A folder whose name is too long or not UTF-8 is left out: the session identifies it."""
    log = RequestLog("r1", lambda: ("s1", project), free=False, places=places)
    assert log.add(used(1, model="m" * 5000)) is None
    (one,) = read(places)
    assert (one.session, one.project, len(one.model or "")) == ("s1", None, 200)
    assert len(places.request_log.read_bytes()) <= 4096


def test_the_default_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `places`, the log is in the data folder of geminids."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    assert RequestLog("r1", lambda: (None, None), free=False).add(used(1)) is None
    assert len(read(Places.of())) == 1
