"""Fixtures that bring a run into a known state before a test stops it, and that start host
processes.

Each state is awaited; no test sleeps for it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from geminids.process.marker import MARKER
from geminids.process.tree import marked

STATES = ("api", "stubborn", "daemon", "daemon_ci")
# The shell waits until the daemon has written its pid. If the shell ended earlier, the child would
# not yet have its own session (setsid), and would end with the shell.
_UP = "until test -s daemon.pid; do sleep 0.02; done;"
_DAEMON = f"setsid sh -c 'echo $$ > daemon.pid; exec sleep 300' >/dev/null 2>&1 & {_UP}"
# The command of the shell tool in each state. Each shell writes its pid to a file, for the test.
_TOOL = {
    "stubborn": "trap '' TERM; sh -c 'echo $$ > tool.pid; exec sleep 300'",
    "daemon": f"{_DAEMON} echo $$ > tool.pid; sleep 300",
    # With `left`: the tool has ended, its background process still runs, and the CLI waits for the
    # API.
    "stubborn, left": f"setsid sh -c 'trap \"\" TERM; echo $$ > daemon.pid; exec sleep 300' >/dev/null 2>&1 & {_UP}",
    "daemon, left": _DAEMON,
}


@dataclass
class StopState:
    """A state in which a test stops a run: it scripts the model, waits for the state, and checks
    afterwards that nothing is left."""

    world: Any
    state: str
    left: bool = False
    """The tool has ended, its background process still runs, and the API stalls. Tests of the idle
    time-out need this state, because a running tool prevents that time-out."""
    prompt: str = "hello"
    """The scripted replies answer only this prompt, so that a second state has its own replies."""
    before: int = 0
    files: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kind = self.state.removesuffix("_ci")
        when = self.world.gateway.when
        self.before = len(self.world.gateway.requests)
        for name in ("tool.pid", "daemon.pid"):
            (self.world.cwd / name).unlink(missing_ok=True)
        self.options = {"approval": "yolo", "grace": 1.5}
        if self.state == "daemon_ci":
            # With this variable, the CLI removes all but a few variables from a tool's environment.
            self.options["env"] = {"GITHUB_SHA": "0123456789abcdef"}
        if kind == "api":
            when(self.prompt, stall=True)
            return
        command = _TOOL[f"{kind}, left" if self.left else kind]
        when(self.prompt, calls=[("run_shell_command", {"command": command})])
        when(self.prompt, stall=True)
        self.files = ("tool.pid",) if kind == "stubborn" else ("daemon.pid", "tool.pid")
        if self.left:
            self.files = ("daemon.pid",)

    @property
    def must_be_killed(self) -> bool:
        """True if the tool ignores SIGTERM, so that only SIGKILL ends it."""
        return self.state == "stubborn"

    @property
    def last_request(self) -> int:
        """Number of the last request that the CLI has sent when the state is reached."""
        return self.before + (2 if self.files and self.left else 1)

    def is_there(self) -> bool:
        return len(self.world.gateway.requests) >= self.last_request and all(
            self.pid_in(name) for name in self.files
        )

    def pid_in(self, name: str) -> int | None:
        """Return the pid that a shell of the run wrote to this file, or None if it is not complete
        yet."""
        try:
            text = (self.world.cwd / name).read_text()
        except FileNotFoundError:
            return None
        return int(text) if text.endswith("\n") else None

    async def reached(self) -> None:
        """Wait until the run has reached the state."""
        with anyio.fail_after(90):
            while not self.is_there():
                await anyio.sleep(0.02)

    def wait(self) -> None:
        assert wait_until_true(self.is_there, 90), "the state was never reached"

    def assert_gone(self, mark: str | None = None) -> None:
        """Check that no process of the run is left, by its marker and by the pids in its files, and
        that its connection is closed."""
        assert marked(mark or os.environ[MARKER]) == []
        for name in self.files:
            pid = self.pid_in(name)
            assert pid is not None
            assert not has_test_marker(pid), f"{name}: {pid} lives"
        gateway = self.world.gateway
        assert gateway.wait_until(lambda: gateway.open_connections == 0, 5), "the connection is still open"
        if self.state == "api" or self.left:
            assert gateway.gone[-1].n == self.last_request


def has_test_marker(pid: int) -> bool:
    """Return whether a process runs and has this test's marker; a reused pid belongs to a process
    without it."""
    try:
        return os.environ[MARKER] in psutil.Process(pid).environ().get(MARKER, "").split()
    except psutil.Error:
        return False


def wait_until_true(holds: Callable[[], object], seconds: float) -> bool:
    """Wait until `holds()` is true, and return whether that happened within `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@dataclass
class Hosts:
    """Starts host processes such as `geminids run`, as a user does."""

    world: Any
    started: list[psutil.Popen] = field(default_factory=list)

    @property
    def events(self) -> Path:
        return Path(self.world.root / "events.jsonl")

    @property
    def errors(self) -> Path:
        return Path(self.world.root / "errors.txt")

    def environ(self, extra: dict[str, str]) -> dict[str, str]:
        world = self.world
        own = {"HOME": str(world.home), "TMPDIR": str(world.tmp), **world.gateway.env, **world.env}
        return {**os.environ, **own, **extra}

    def run(self, *flags: str, env: dict[str, str] | None = None, output: str = "events") -> psutil.Popen:
        """Start `geminids run` with these flags; its stdout and stderr go to files."""
        world = self.world
        argv = [
            sys.executable,
            "-m",
            "geminids",
            "run",
            "hello",
            f"--cwd={world.cwd}",
            f"--gemini={world.version}",
        ]
        argv += ["--model=flash", f"--output={output}", *flags]
        return self.start(argv, env or {})

    def start(self, argv: list[str], env: dict[str, str]) -> psutil.Popen:
        with self.events.open("wb") as out, self.errors.open("wb") as err:
            host = psutil.Popen(argv, stdout=out, stderr=err, stdin=-3, cwd="/", env=self.environ(env))
        self.started.append(host)
        return host


@pytest.fixture
def hosts(world: Any) -> Iterator[Hosts]:
    """Start host processes; after the test, kill those that still run."""
    hosts = Hosts(world)
    yield hosts
    for host in hosts.started:
        if host.poll() is None:
            host.kill()
            host.wait()
    for file in (hosts.events, hosts.errors):  # pytest shows this if the test failed
        if file.exists():
            print(f"{file.name} ends with: {file.read_text(errors='replace')[-1500:]}")


@pytest.fixture
def stop_state(world: Any) -> Callable[..., StopState]:
    """Make a state in which a run is stopped, for example `stop_state("stubborn")`."""
    return lambda state, **fields: StopState(world, state, **fields)


@pytest.fixture
def wait_until() -> Callable[[Callable[[], object], float], bool]:
    """`wait_until(holds, seconds)` waits until `holds()` is true and returns whether that happened
    in time."""
    return wait_until_true


@pytest.fixture
def is_running() -> Callable[[int], bool]:
    """`is_running(pid)` returns whether this process, started in the test, still runs."""
    return has_test_marker


@pytest.fixture
def fake_cli(tmp_path: Path) -> Callable[[str], str]:
    """Make a shell script that replaces the CLI, for cases that the real CLI cannot produce."""

    def make(script: str) -> str:
        file = tmp_path / "stand-in-gemini"
        file.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo 0.61.0; exit;; esac\n{script}\n')
        file.chmod(0o755)
        return str(file)

    return make
