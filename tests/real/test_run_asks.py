"""`geminids run` in a terminal: a person is asked where the permissions say so, and the world shows the answer."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from geminids.events.model import Finished, decode_event

pytestmark = pytest.mark.real


@pytest.fixture
def release() -> str:
    """A release that can be kept warm."""
    return "0.61.0"


class Terminal:
    """A `geminids run` in a terminal of its own."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.fd, there = pty.openpty()
        self.process = subprocess.Popen(
            argv,
            stdin=there,
            stdout=there,
            stderr=there,
            env={**env, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(there)
        self._raw = ""

    def until(self, text: str, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while text not in self.shown:
            left = end - time.monotonic()
            assert left > 0, self.shown
            if select.select([self.fd], [], [], left)[0]:
                assert self._read(), self.shown

    def to_the_end(self) -> int:
        while self._read():
            pass
        return self.process.wait(20)

    def _read(self) -> bool:
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False  # nobody has the terminal open any more
        self._raw += data.decode("utf-8", "replace")
        return bool(data)

    @property
    def shown(self) -> str:
        """What is there to be read: without colours."""
        return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", self._raw)

    def press(self, key: str) -> None:
        os.write(self.fd, key.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.fd)


@pytest.fixture
def terminal(hosts: Any) -> Iterator[Any]:
    """Starts `geminids run` in a terminal; ends it, and what is kept warm."""
    made: list[Terminal] = []
    env = hosts.environ({})
    command = [sys.executable, "-m", "geminids"]

    def start(*flags: str) -> Terminal:
        world = hosts.world
        given = [f"--cwd={world.cwd}", f"--gemini={world.version}", "--model=flash", "--grace=1.5"]
        made.append(Terminal([*command, "run", "hello", *given, *flags], env))
        return made[-1]

    yield start
    for one in made:
        one.close()
    subprocess.run([*command, "warm", "stop"], env=env, check=True, timeout=60, capture_output=True)


@pytest.mark.parametrize(
    ("lane", "key", "there"),
    [
        ("--warm", "y", True),
        pytest.param("--warm", "n", False, marks=pytest.mark.deep),
        pytest.param("--warm", "\r", False, marks=pytest.mark.deep),
        pytest.param("--no-offline", "y", True, marks=pytest.mark.deep),
        pytest.param("--no-offline", "n", False, marks=pytest.mark.deep),
    ],
)
def test_a_key_decides(world: Any, terminal: Any, lane: str, key: str, there: bool) -> None:
    """The exact command is shown; yes runs it, no does not; with the owner and without."""
    world.gateway.when("hello", calls=[("run_shell_command", {"command": "touch made.txt"})])
    world.gateway.when("hello", text="that was it")
    run = terminal("--approval=yolo", "--ask=shell", lane)
    run.until("$ touch made.txt")
    run.until("allow? ")
    assert not (world.cwd / "made.txt").exists()
    run.press(key)
    assert run.to_the_end() == 0
    assert "that was it" in run.shown
    assert (world.cwd / "made.txt").exists() == there


@pytest.mark.deep
def test_a_no_can_have_a_reason(world: Any, terminal: Any) -> None:
    """It stands in the audit trail."""
    world.gateway.when("hello", calls=[("run_shell_command", {"command": "touch made.txt"})])
    world.gateway.when("hello", text="that was it")
    saved = world.root / "saved.jsonl"
    run = terminal("--approval=yolo", "--ask=shell", "--warm", f"--save-events={saved}")
    run.until("allow? ")
    run.press("r")
    run.until("because: ")
    run.press("not today\n")
    assert run.to_the_end() == 0
    assert not (world.cwd / "made.txt").exists()
    finished = decode_event(saved.read_bytes().splitlines()[-1])
    assert isinstance(finished, Finished)
    (decision,) = finished.decisions
    assert (decision.decision, decision.by, decision.reason) == ("deny", "person", "not today")


@pytest.mark.parametrize("lane", ["--warm", pytest.param("--no-offline", marks=pytest.mark.deep)])
def test_ctrl_c_withdraws_the_question(world: Any, terminal: Any, lane: str) -> None:
    """The run ends as interrupted, and nothing was done."""
    world.gateway.when("hello", calls=[("run_shell_command", {"command": "touch made.txt"})])
    run = terminal("--approval=yolo", "--ask=shell", lane)
    run.until("allow? ")
    run.process.send_signal(signal.SIGINT)
    assert run.to_the_end() == 130
    assert "interrupted by SIGINT" in run.shown
    assert not (world.cwd / "made.txt").exists()
