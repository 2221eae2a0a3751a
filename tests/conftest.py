"""Shared fixtures: the installed CLI releases, and an isolated environment for each test that runs
one."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

import geminids
from geminids import Options, Result
from geminids.config.paths import Places
from geminids.gateway import Gateway
from geminids.process.marker import MARKER, new_mark
from geminids.process.tree import marked
from proofs import ROOT, reject_skipped_proof
from slow_tests import OLDER, is_deep, is_matrix

# These tests need packages of other projects in a separate environment: `make referees`.
collect_ignore = ["referees"]

# No deadline, because the machine may be busy. A quarter of the usual examples, because there are
# hundreds of such tests, which run many times a day.
hypothesis.settings.register_profile("geminids", deadline=None, database=None, max_examples=25)
hypothesis.settings.load_profile("geminids")

# In the background of a shell SIGINT is ignored, under `nohup` SIGHUP is, and child processes would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

NEWEST = "0.61.0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that `slow_tests` lists as `deep` or `matrix`."""
    for item in items:
        if is_deep(item.path, item.name):
            item.add_marker(pytest.mark.deep)
        if item.get_closest_marker("deep") is not None and is_matrix(item.path, item.name):
            item.add_marker(pytest.mark.matrix)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skipped test that docs/reference/seeds.md names as a proof."""
    report = yield
    reject_skipped_proof(report, f"{item.path.relative_to(ROOT).as_posix()}::{item.name.partition('[')[0]}")
    return report


@pytest.fixture(scope="session")
def installs() -> Places:
    """The paths of the installed releases: `GEMINIDS_HOME`, or `.geminids` in the repository."""
    return Places(Path(os.environ.get("GEMINIDS_HOME") or Path(__file__).parents[1] / ".geminids").absolute())


@pytest.fixture(scope="session")
def node(installs: Places) -> Path:
    """A Node that works: the one on PATH, or one that geminids installs."""
    from geminids.gemini.install.node import install_node

    path = shutil.which("node")
    return Path(path) if path else install_node(installs, print).path


@dataclass
class World:
    """An isolated environment for one release: working folder, home, temporary folder and a
    scripted model."""

    version: str
    root: Path
    gateway: Gateway
    env: dict[str, str] = field(default_factory=dict)

    @property
    def cwd(self) -> Path:
        return self.root / "work"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def tmp(self) -> Path:
        return self.root / "tmp"

    @property
    def places(self) -> Places:
        return Places(self.root / "geminids")

    def options(self, **fields: Any) -> Options:
        """Options for this world; `env` is merged over the world's variables."""
        env = {**self.gateway.env, "HOME": str(self.home), "TMPDIR": str(self.tmp), **self.env}
        env.update(fields.pop("env", {}))
        defaults = {"cwd": str(self.cwd), "gemini": self.version, "model": "flash", "env": env, "grace": 2.0}
        return Options(**{**defaults, **fields})

    def ask(self, prompt: str = "hello", **fields: Any) -> Result:
        return geminids.ask_sync(prompt, self.options(**fields))

    def events(self, prompt: str = "hello", **fields: Any) -> list[Any]:
        return list(geminids.stream_sync(prompt, self.options(**fields)))


@pytest.fixture(params=[pytest.param(NEWEST), pytest.param(OLDER, marks=pytest.mark.deep)])
def release(request: pytest.FixtureRequest) -> str:
    """A version of the real CLI: the newest in all tests, and an older one in deep tests."""
    version: str = request.param
    return version


@pytest.fixture
def make_world(
    tmp_path: Path, installs: Places, geminids_gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """A function that creates a world for a release, and installs the release if needed."""

    def make(version: str) -> World:
        from geminids.gemini.install.cli import install

        install(version, places=installs)
        world = World(version, tmp_path, geminids_gateway)
        for folder in (world.cwd, world.home, world.tmp, world.places.root):
            folder.mkdir()
        for shared in (installs.releases, installs.node, installs.root / "compile-cache"):
            shared.mkdir(exist_ok=True)
            (world.places.root / shared.name).symlink_to(shared)
        monkeypatch.setenv("GEMINIDS_HOME", str(world.places.root))
        return world

    return make


@pytest.fixture
def world(make_world: Any, release: str) -> World:
    """A world with the real CLI, once for each release."""
    world: World = make_world(release)
    return world


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore the user's own configuration file in all tests."""
    monkeypatch.setenv("GEMINIDS_CONFIG", os.devnull)


@pytest.fixture(autouse=True)
def no_process_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that no test leaves a process: everything that a test starts carries the test's
    mark."""
    mark = new_mark("run-of-a-test")
    monkeypatch.setenv(MARKER, str(mark))
    yield
    leftovers = marked(str(mark))
    descriptions = [f"{process.pid} {_command_of(process)}" for process in leftovers]
    for process in leftovers:
        try:
            process.kill()
        except psutil.Error:
            pass
    assert not descriptions, f"left running: {descriptions}"


def _command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


FakeCli = Callable[..., Options]

_HEAD = """\
#!{python} -IS
import json, os, subprocess, sys, time
if "--version" in sys.argv:
    print("0.61.0")
    sys.exit()
def out(data, fd=1):
    view = memoryview(data.encode() if isinstance(data, str) else data)
    while view:
        view = view[os.write(fd, view):]
def line(kind, **fields):
    stamp = "2026-11-16T03:27:52.123Z"
    return json.dumps({{"type": kind, "timestamp": stamp, **fields}}, separators=(",", ":")) + "\\n"
def say(text):
    return line("message", role="assistant", content=text, delta=True)
INIT = line("init", session_id="s-1", model="auto") + line("message", role="user", content="hi")
DONE = line("result", status="success", stats=dict(total_tokens=3, input_tokens=1, output_tokens=2))
"""


@pytest.fixture
def fake_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCli:
    """A function that makes a CLI from a Python body and returns options for it.

    The body can use `out`, `line`, `say`, `INIT` and `DONE`.
    """
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    work = tmp_path / "work"
    work.mkdir()

    def make(body: str, **fields: Any) -> Options:
        script = tmp_path / f"gemini-{len(list(tmp_path.glob('gemini-*')))}"
        script.write_text(_HEAD.format(python=sys.executable) + body)
        script.chmod(0o755)
        defaults = {"gemini": str(script), "home": "isolated", "cwd": str(work), "grace": 1.0}
        return Options(**{**defaults, **fields})

    return make
