"""`geminids run` in a terminal asks the user for permission and applies the answer."""

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
    """Use a release that supports the warm transport."""
    return "0.61.0"


class Terminal:
    """A `geminids run` process in its own terminal."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.fd, child_fd = pty.openpty()
        self.process = subprocess.Popen(
            argv,
            stdin=child_fd,
            stdout=child_fd,
            stderr=child_fd,
            env={**env, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(child_fd)
        self._raw = ""

    def wait_for(self, text: str, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while text not in self.screen_text:
            left = end - time.monotonic()
            assert left > 0, self.screen_text
            if select.select([self.fd], [], [], left)[0]:
                assert self._read(), self.screen_text

    def wait_for_exit(self) -> int:
        while self._read():
            pass
        return self.process.wait(20)

    def _read(self) -> bool:
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False  # the process has closed the terminal
        self._raw += data.decode("utf-8", "replace")
        return bool(data)

    @property
    def screen_text(self) -> str:
        """All output so far, without escape sequences such as colours."""
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
    """Return a function that starts `geminids run` in a terminal.

    Afterwards close the terminals and stop the warm processes."""
    terminals: list[Terminal] = []
    env = hosts.environ({})
    command = [sys.executable, "-m", "geminids"]

    def start(*flags: str) -> Terminal:
        world = hosts.world
        defaults = [f"--cwd={world.cwd}", f"--gemini={world.version}", "--model=flash", "--grace=1.5"]
        terminals.append(Terminal([*command, "run", "hello", *defaults, *flags], env))
        return terminals[-1]

    yield start
    for opened in terminals:
        opened.close()
    subprocess.run([*command, "warm", "stop"], env=env, check=True, timeout=60, capture_output=True)


@pytest.mark.parametrize(
    ("transport", "key", "is_allowed"),
    [
        ("--warm", "y", True),
        pytest.param("--warm", "n", False, marks=pytest.mark.deep),
        pytest.param("--warm", "\r", False, marks=pytest.mark.deep),
        pytest.param("--no-offline", "y", True, marks=pytest.mark.deep),
        pytest.param("--no-offline", "n", False, marks=pytest.mark.deep),
    ],
)
def test_a_key_decides(world: Any, terminal: Any, transport: str, key: str, is_allowed: bool) -> None:
    """The terminal shows the exact command before it runs. `y` runs the command; `n` and Enter deny
    it. This holds with `--warm` and without."""
    world.gateway.when("hello", calls=[("run_shell_command", {"command": "touch made.txt"})])
    world.gateway.when("hello", text="that was it")
    run = terminal("--approval=yolo", "--ask=shell", transport)
    run.wait_for("$ touch made.txt")
    run.wait_for("allow? ")
    assert not (world.cwd / "made.txt").exists()
    run.press(key)
    assert run.wait_for_exit() == 0
    assert "that was it" in run.screen_text
    assert (world.cwd / "made.txt").exists() == is_allowed


@pytest.mark.deep
def test_a_denial_can_have_a_reason(world: Any, terminal: Any) -> None:
    """The reason that the user types after `r` is recorded with the denial in
    `Finished.decisions`."""
    world.gateway.when("hello", calls=[("run_shell_command", {"command": "touch made.txt"})])
    world.gateway.when("hello", text="that was it")
    saved = world.root / "saved.jsonl"
    run = terminal("--approval=yolo", "--ask=shell", "--warm", f"--save-events={saved}")
    run.wait_for("allow? ")
    run.press("r")
    run.wait_for("because: ")
    run.press("not today\n")
    assert run.wait_for_exit() == 0
    assert not (world.cwd / "made.txt").exists()
    finished = decode_event(saved.read_bytes().splitlines()[-1])
    assert isinstance(finished, Finished)
    (decision,) = finished.decisions
    assert (decision.decision, decision.by, decision.reason) == ("deny", "person", "not today")


@pytest.mark.parametrize("transport", ["--warm", pytest.param("--no-offline", marks=pytest.mark.deep)])
def test_ctrl_c_at_a_question_interrupts_the_run(world: Any, terminal: Any, transport: str) -> None:
    """Ctrl-C while the terminal asks for permission interrupts the run, and the command does not
    run."""
    world.gateway.when("hello", calls=[("run_shell_command", {"command": "touch made.txt"})])
    run = terminal("--approval=yolo", "--ask=shell", transport)
    run.wait_for("allow? ")
    run.process.send_signal(signal.SIGINT)
    assert run.wait_for_exit() == 130
    assert "interrupted by SIGINT" in run.screen_text
    assert not (world.cwd / "made.txt").exists()
