"""The states in which a run is stopped, reached for sure: each is awaited, none is slept for."""

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
# The shell waits for its daemon: its own end would take along a child that has no session of its own yet.
_UP = "until test -s daemon.pid; do sleep 0.02; done;"
_DAEMON = f"setsid sh -c 'echo $$ > daemon.pid; exec sleep 300' >/dev/null 2>&1 & {_UP}"
# What the shell tool does; each shell writes its pid where the test finds it.
_TOOL = {
    "stubborn": "trap '' TERM; sh -c 'echo $$ > tool.pid; exec sleep 300'",
    "daemon": f"{_DAEMON} echo $$ > tool.pid; sleep 300",
    # The same for a tool that is over: what it started lives on, and the CLI is back at the API.
    "stubborn, left": f"setsid sh -c 'trap \"\" TERM; echo $$ > daemon.pid; exec sleep 300' >/dev/null 2>&1 & {_UP}",
    "daemon, left": _DAEMON,
}


@dataclass
class Stage:
    """One state of a run: scripted, awaited, and looked at afterwards."""

    world: Any
    state: str
    left: bool = False
    """The tool is over, and the API stalls: the state for an idle time-out, which a running tool prevents."""
    prompt: str = "hello"
    """The replies are for this prompt alone, so that a second try finds its own."""
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
            # The CLI then strips a tool's environment of all names but a few.
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
        """Whether our KILL ends the stubborn one."""
        return self.state == "stubborn"

    @property
    def last_request(self) -> int:
        """The number of the request that the state is reached with."""
        return self.before + (2 if self.files and self.left else 1)

    def is_there(self) -> bool:
        return len(self.world.gateway.requests) >= self.last_request and all(
            self.pid_in(name) for name in self.files
        )

    def pid_in(self, name: str) -> int | None:
        """The pid that a shell of the run has written into its folder."""
        try:
            text = (self.world.cwd / name).read_text()
        except FileNotFoundError:
            return None
        return int(text) if text.endswith("\n") else None

    async def reached(self) -> None:
        """Wait for the state."""
        with anyio.fail_after(90):
            while not self.is_there():
                await anyio.sleep(0.02)

    def wait(self) -> None:
        assert holds_soon(self.is_there, 90), "the state was never reached"

    def assert_gone(self, mark: str | None = None) -> None:
        """Nothing of the run is left, in the eyes of the system and not in ours alone."""
        assert marked(mark or os.environ[MARKER]) == []
        for name in self.files:
            pid = self.pid_in(name)
            assert pid is not None
            assert not carries_the_tests_mark(pid), f"{name}: {pid} lives"
        gateway = self.world.gateway
        assert gateway.wait_until(lambda: gateway.open_connections == 0, 5), "the connection is still open"
        if self.state == "api" or self.left:
            assert gateway.gone[-1].n == self.last_request


def carries_the_tests_mark(pid: int) -> bool:
    """Whether this very process lives: a pid that was given to a stranger has not our mark."""
    try:
        return os.environ[MARKER] in psutil.Process(pid).environ().get(MARKER, "").split()
    except psutil.Error:
        return False


def holds_soon(holds: Callable[[], object], seconds: float) -> bool:
    """Whether something comes to hold within so many seconds."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@dataclass
class Hosts:
    """`geminids run` in processes of its own, as a user starts it."""

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
        """Start `geminids run` with these flags; its stdout and stderr go into files."""
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
    """Starts hosts; whichever the test has not waited for is ended."""
    hosts = Hosts(world)
    yield hosts
    for host in hosts.started:
        if host.poll() is None:
            host.kill()
            host.wait()
    for file in (hosts.events, hosts.errors):  # shown where the test has failed
        if file.exists():
            print(f"{file.name} ends with: {file.read_text(errors='replace')[-1500:]}")


@pytest.fixture
def stage(world: Any) -> Callable[..., Stage]:
    """Makes a state to stop a run in: `stage("stubborn")`."""
    return lambda state, **how: Stage(world, state, **how)


@pytest.fixture
def soon() -> Callable[[Callable[[], object], float], bool]:
    """`soon(holds, seconds)`: whether something comes to hold in time."""
    return holds_soon


@pytest.fixture
def lives() -> Callable[[int], bool]:
    """`lives(pid)`: whether that process, started in this test, still runs."""
    return carries_the_tests_mark


@pytest.fixture
def stand_in(tmp_path: Path) -> Callable[[str], str]:
    """Makes a program that stands in for the CLI, for what the real one cannot be brought to do."""

    def make(script: str) -> str:
        file = tmp_path / "stand-in-gemini"
        file.write_text(f'#!/bin/sh\ncase "$*" in *--version*) echo 0.61.0; exit;; esac\n{script}\n')
        file.chmod(0o755)
        return str(file)

    return make
