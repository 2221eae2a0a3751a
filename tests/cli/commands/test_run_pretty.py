"""`geminids run --output pretty` with the real CLI, in a real terminal and in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.real

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# The control codes that the view may send; see views/terminal/screen.py.
_CODES = re.compile(r"\x1b\[(?:[0-9;]*m|J)")
_TIMEOUT = 60.0


def _arguments(world: Any, *arguments: str) -> list[str]:
    fixed = ["--gemini", world.version, "--cwd", str(world.cwd), "--model", "flash", "--home", "isolated"]
    return [sys.executable, "-m", "geminids", "run", *fixed, *arguments]


def _environment(world: Any, **more: str) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    own = {"HOME": str(world.home), "TMPDIR": str(world.tmp), "TERM": "xterm-256color"}
    return {**inherited, **world.gateway.env, **own, **more}


class _Terminal:
    """A command in its own terminal, and everything that it has written."""

    def __init__(self, command: list[str], env: dict[str, str], columns: int = 100) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.process = subprocess.Popen(
            command, env=env, stdin=slave, stdout=slave, stderr=slave, preexec_fn=lambda: os.login_tty(slave)
        )
        os.close(slave)
        self.raw = b""

    @property
    def text(self) -> str:
        return _COLOURS.sub("", self.raw.decode("utf-8", "replace"))

    def read_until(self, condition: Callable[[str], object]) -> None:
        """Read output until `condition` is true for the text so far."""
        self._read(lambda: bool(condition(self.text)))
        assert condition(self.text), self.text

    def read_to_end(self) -> int:
        """Read all output and return the exit code."""
        self._read(lambda: False)
        os.close(self.master)
        return self.process.wait(_TIMEOUT)

    def _read(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while not is_done() and time.monotonic() < deadline:
            if select.select([self.master], [], [], 1)[0]:
                try:
                    chunk = os.read(self.master, 65536)
                except OSError:  # EIO: the other side is closed
                    return
                if not chunk:
                    return
                self.raw += chunk


def test_a_run_in_a_terminal(world: Any) -> None:
    """The status names the running tool and counts its seconds.

    Then come the tool's line and the footer, and only control codes of the view.
    """
    world.gateway.reply(text="Let me see.", calls=[("run_shell_command", {"command": "sleep 1.5"})])
    world.gateway.reply(text="All \x1b]0;owned\x07done.")
    terminal = _Terminal(_arguments(world, "--approval", "yolo", "go"), _environment(world))
    assert terminal.read_to_end() == 0
    assert "starting" in terminal.text
    assert len(set(re.findall(r"running sleep 1\.5  ([\d.]+) s", terminal.text))) > 3
    lines = terminal.text.replace("\r\n", "\n")
    assert re.search(r"✓ sleep 1\.5  \d\.\d s\n", lines)
    assert re.search(r"✓ success in [\d.]+ s · \S+\n  [\d,]+ tokens in", lines)
    assert re.search(r"resume: geminids run --home isolated --cwd \S+ --resume [0-9a-f]{8} ", lines)
    rest = _CODES.sub("", terminal.raw.decode())
    assert "\x1b" not in rest
    assert "\x07" not in rest


def test_ctrl_c_is_confirmed(world: Any) -> None:
    """After Ctrl-C the view shows `stopping` while a stubborn tool is ended.

    The footer lists the ended processes.
    """
    command = "trap '' TERM INT HUP; echo ready > ready; while :; do sleep 0.2; done"
    world.gateway.reply(text="Let me see.", calls=[("run_shell_command", {"command": command})])
    argv = _arguments(world, "--approval", "yolo", "--grace", "1", "go")
    terminal = _Terminal(argv, _environment(world))
    terminal.read_until(lambda _: (world.cwd / "ready").exists())
    os.write(terminal.master, b"\x03")
    assert terminal.read_to_end() == 130
    assert "stopping" in terminal.text
    assert "cancelled" in terminal.text
    assert re.search(r"■ interrupted after [\d.]+ s", terminal.text)
    assert re.search(r"ended \d+ processes: .*\(killed\)", terminal.text, re.DOTALL)


def test_retries_are_shown_in_the_status(world: Any) -> None:
    """A retry is shown in the status only.

    When the CLI gives up, the footer shows the kind of failure and a hint.
    """
    for _ in range(4):
        world.gateway.reply(status=503, error="busy", times=None)
    terminal = _Terminal(_arguments(world, "--max-attempts", "2", "go"), _environment(world))
    assert terminal.read_to_end() == 1
    assert "retry 1 after HTTP 503" in terminal.text
    assert "trying again" not in terminal.text
    assert "✗ failed (server)" in terminal.text
    assert "→ " in terminal.text


def test_offline_says_that_the_model_is_scripted(world: Any) -> None:
    """An offline run states at the top and in the footer that the model is scripted."""
    env = {name: value for name, value in _environment(world).items() if name not in world.gateway.env}
    terminal = _Terminal(_arguments(world, "--offline", "What is here?"), env)
    assert terminal.read_to_end() == 0
    assert "not from a model" in terminal.text
    assert "scripted, no real model" in terminal.text


@pytest.mark.parametrize(("columns", "term"), [(100, "dumb"), (32, "xterm-256color")])
def test_a_simple_terminal_gets_plain_lines(world: Any, columns: int, term: str) -> None:
    """A dumb terminal and a very narrow one get the same lines without control codes."""
    world.gateway.reply(text="Hello.")
    terminal = _Terminal(_arguments(world, "go"), _environment(world, TERM=term), columns)
    assert terminal.read_to_end() == 0
    assert b"\x1b" not in terminal.raw
    assert b"\r" not in terminal.raw.replace(b"\r\n", b"\n")
    assert terminal.text.startswith("Hello.\r\n\r\n✓ success in ")


def test_a_pipe_gets_plain_lines(world: Any) -> None:
    """In a pipe, `--output pretty` prints plain lines without status and control codes."""
    world.gateway.reply(text="Hello.")
    argv = _arguments(world, "--output", "pretty", "go")
    done = subprocess.run(argv, env=_environment(world), capture_output=True, timeout=_TIMEOUT)
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert done.stdout.decode().startswith("Hello.\n\n✓ success in ")


@pytest.mark.parametrize("output", ["pretty", "events", "text"])
def test_a_closed_pipe_ends_the_run_quietly(world: Any, output: str) -> None:
    """If the reader closes the pipe, the run exits with 141 and prints nothing on stderr."""
    tool = ("run_shell_command", {"command": "sleep 300"})
    # `--output text` prints only the answer, at the end: without one, nothing would be written.
    world.gateway.reply(text="Hello.", calls=[] if output == "text" else [tool])
    argv = _arguments(world, "--approval", "yolo", "--output", output, "go")
    with subprocess.Popen(
        argv, env=_environment(world), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout
        run.stdout.close()
        assert run.wait(_TIMEOUT) == 141
        assert run.stderr
        assert run.stderr.read() == b""
