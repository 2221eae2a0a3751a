"""Which processes are which chat's: real ones, by their group, by when they were born, and by who started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from geminids.process.marker import new_mark, with_mark
from geminids.warm.shell_tracker import ShellTracker

# Says that it is up, waits for the end of its stdin, and starts what it is told to before that.
_PROGRAM = """
import subprocess, sys
children = []
print("up", flush=True)
for line in sys.stdin:
    own = line.strip() == "own group"
    wait = [sys.executable, "-ISc", "import sys; sys.stdin.read()"]
    # A pipe of its own: it would read the lines that are meant for this process.
    children.append(subprocess.Popen(wait, stdin=subprocess.PIPE, start_new_session=own))
    print(children[-1].pid, flush=True)
"""


class Scene:
    """A process that stands for the warm one, and tools beside it, all with its mark."""

    def __init__(self) -> None:
        self.mark = new_mark("run-of-shells")
        self._started: list[subprocess.Popen[str]] = []
        self.warm = self.start()
        self.shells = ShellTracker(self.warm.pid, self.mark)

    def start(self, *, marked: bool = True) -> subprocess.Popen[str]:
        """A process in a session of its own, as the CLI starts a shell tool."""
        env = with_mark(os.environ, self.mark) if marked else dict(os.environ)
        process = subprocess.Popen(
            [sys.executable, "-ISc", _PROGRAM],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        return process

    def child_of(self, process: subprocess.Popen[str], how: str = "same group") -> int:
        """Have a process start another one; its pid."""
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(how + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def of(self, chat: str, since: float = 0.0) -> set[int]:
        return {process.pid for process in self.shells.of(chat, since)}

    def unclear(self) -> set[int]:
        return {process.pid for process in self.shells.unclear()}

    def close(self) -> None:
        for process in self._started:
            below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.kill()
            for one in below:
                one.kill()
            process.communicate()
            psutil.wait_procs(below, 10)


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def _later(seconds: float = 0.2) -> None:
    """Until what begins now can be told from what began before."""
    until = time.time() + seconds
    while time.time() < until:
        time.sleep(0.01)


def test_a_process_belongs_to_the_chat_whose_tool_ran_when_it_was_born(scene: Scene) -> None:
    """Also when the tool is over; what was born before or after belongs to none that is known."""
    before = scene.start()
    _later()
    scene.shells.began("a", "1", now=True)
    own = scene.start()
    scene.shells.ended("a", "1")
    _later()
    after = scene.start()
    assert scene.of("a") == {own.pid} and scene.of("b") == set()
    assert scene.unclear() == {before.pid, after.pid}


def test_two_chats_at_once_make_it_unclear(scene: Scene) -> None:
    """Nobody's, so that no neighbour's process is ended for another chat; it ends with the warm process."""
    scene.shells.began("a", "1", now=True)
    scene.shells.began("b", "2", now=True)
    both = scene.start()
    assert scene.of("a") == scene.of("b") == set() and scene.unclear() == {both.pid}
    scene.shells.ended("a", "1")
    _later()
    alone = scene.start()
    assert scene.of("b") == {alone.pid} and scene.unclear() == {both.pid}


def test_two_tools_of_one_chat_are_clear(scene: Scene) -> None:
    """Whichever of them it was, it is this chat's."""
    scene.shells.began("a", "1", now=True)
    scene.shells.began("a", "2", now=True)
    own = scene.start()
    assert scene.of("a") == {own.pid}


def test_the_group_tells_before_the_time_does(scene: Scene) -> None:
    """The CLI names the group of a tool: that holds against whatever else was running then."""
    scene.shells.began("a", "1", now=True)
    scene.shells.began("b", "2", now=True)
    own = scene.start()
    child = scene.child_of(own)
    scene.shells.group("a", os.getpgid(own.pid))
    assert scene.of("a") == {own.pid, child} and scene.of("b") == set() and scene.unclear() == set()


def test_a_group_that_two_chats_name_is_unclear(scene: Scene) -> None:
    """A number that was given twice by the system, or a lie."""
    own = scene.start()
    scene.shells.group("a", own.pid)
    scene.shells.group("b", own.pid)
    assert scene.of("a") == scene.of("b") == set() and scene.unclear() == {own.pid}


def test_a_child_belongs_to_whom_its_parent_does(scene: Scene) -> None:
    """A daemon in a group of its own, born while others were running too, is known by who started it."""
    scene.shells.began("a", "1", now=True)
    own = scene.start()
    _later()
    scene.shells.began("b", "2", now=True)
    child = scene.child_of(own, "own group")
    assert scene.of("a") == {own.pid, child} and scene.of("b") == set()


def test_what_a_server_of_one_chat_starts_is_not_its_neighbours(scene: Scene) -> None:
    """It is born while a tool of another chat alone is running, and comes from a process that is known."""
    scene.shells.began("a", "1", now=True)
    server = scene.start()
    scene.shells.ended("a", "1")
    _later()
    scene.shells.began("b", "2", now=True)
    worker = scene.child_of(server, "own group")
    deeper = scene.child_of(server)
    assert scene.of("a") == {server.pid, worker, deeper}
    assert scene.of("b") == scene.unclear() == set()


def test_the_warm_process_and_its_session_are_no_tools(scene: Scene) -> None:
    """An MCP server that it starts while a tool runs is nobody's to end; one in a session of its own is a tool."""
    scene.shells.began("a", "1", now=True)
    server = scene.child_of(scene.warm)
    tool = scene.child_of(scene.warm, "own group")
    assert psutil.pid_exists(server)
    assert scene.of("a") == {tool} and scene.unclear() == set()


def test_a_process_without_the_mark_is_none_of_ours(scene: Scene) -> None:
    """Whenever it was born."""
    scene.shells.began("a", "1", now=True)
    scene.start(marked=False)
    assert scene.of("a") == set() == scene.unclear()


def test_what_earlier_turns_have_left_can_be_told_apart(scene: Scene) -> None:
    """A server that was started on purpose stays, when a later turn is stopped."""
    scene.shells.began("a", "1", now=True)
    first = scene.start()
    scene.shells.ended("a", "1")
    assert scene.shells.running_since("a") is None
    _later()
    scene.shells.began("a", "2", now=True)
    since = scene.shells.running_since("a")
    second = scene.start()
    assert since is not None and scene.shells.running_since("b") is None
    assert scene.of("a") == {first.pid, second.pid} and scene.of("a", since) == {second.pid}


def test_a_dead_process_is_not_found(scene: Scene) -> None:
    """Gone is gone."""
    scene.shells.began("a", "1", now=True)
    own = scene.start()
    own.kill()
    own.communicate()
    assert scene.of("a") == set() and scene.shells.had_any("a") and not scene.shells.had_any("b")


def test_a_daemon_that_nobody_knows_is_unclear(scene: Scene, tmp_path: Path) -> None:
    """Forked twice, by a tool of one of two chats: its parent is gone, and so is what could tell."""
    scene.shells.began("a", "1", now=True)
    scene.shells.began("b", "2", now=True)
    told = tmp_path / "pid"
    script = f"(setsid sh -c 'echo $$ > {told}; exec sleep 60' &) ; true"
    subprocess.run(
        ["sh", "-c", script], env=with_mark(os.environ, scene.mark), start_new_session=True, check=True
    )
    until = time.monotonic() + 10
    while not (told.exists() and told.read_text()) and time.monotonic() < until:
        time.sleep(0.01)
    daemon = int(told.read_text())
    try:
        assert scene.of("a") == scene.of("b") == set() and scene.unclear() == {daemon}
    finally:
        psutil.Process(daemon).kill()
