"""Tests of `ShellTracker` with real processes: which process belongs to which chat."""

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

# Prints "up", then starts one child for each line of stdin, and ends with its stdin.
_PROGRAM = """
import subprocess, sys
children = []
print("up", flush=True)
for line in sys.stdin:
    own = line.strip() == "own group"
    wait = [sys.executable, "-ISc", "import sys; sys.stdin.read()"]
    # The child gets its own stdin; otherwise it would read the lines that are meant for this process.
    children.append(subprocess.Popen(wait, stdin=subprocess.PIPE, start_new_session=own))
    print(children[-1].pid, flush=True)
"""


class Processes:
    """A process that plays the warm process, and marked processes that play its shell tools."""

    def __init__(self) -> None:
        self.mark = new_mark("run-of-shells")
        self._started: list[subprocess.Popen[str]] = []
        self.warm = self.start()
        self.tracker = ShellTracker(self.warm.pid, self.mark)

    def start(self, *, marked: bool = True) -> subprocess.Popen[str]:
        """Start a process in its own process session, as the CLI starts a shell tool."""
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
        """Make `process` start a child, and return the child's pid."""
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(how + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def pids_of(self, chat: str, since: float = 0.0) -> set[int]:
        return {process.pid for process in self.tracker.processes_of(chat, since)}

    def unclear_pids(self) -> set[int]:
        return {process.pid for process in self.tracker.unclear_processes()}

    def close(self) -> None:
        for process in self._started:
            descendants = (
                psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            )
            process.kill()
            for descendant in descendants:
                descendant.kill()
            process.communicate()
            psutil.wait_procs(descendants, 10)


@pytest.fixture
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    processes.close()


def _wait_a_moment(seconds: float = 0.2) -> None:
    """Wait until a new process has a start time clearly after all earlier ones."""
    until = time.time() + seconds
    while time.time() < until:
        time.sleep(0.01)


def test_a_process_belongs_to_the_chat_whose_tool_was_running(processes: Processes) -> None:
    """A process that started while a tool of one chat ran belongs to that chat, also after the tool
    ended. Processes from before or after are unclear."""
    before = processes.start()
    _wait_a_moment()
    processes.tracker.shell_started("a", "1", now=True)
    during = processes.start()
    processes.tracker.shell_ended("a", "1")
    _wait_a_moment()
    after = processes.start()
    assert processes.pids_of("a") == {during.pid} and processes.pids_of("b") == set()
    assert processes.unclear_pids() == {before.pid, after.pid}


def test_a_process_started_during_tools_of_two_chats_is_unclear(processes: Processes) -> None:
    """A process that started while tools of two chats ran belongs to neither, so that no chat ends
    a process of the other."""
    processes.tracker.shell_started("a", "1", now=True)
    processes.tracker.shell_started("b", "2", now=True)
    both = processes.start()
    assert processes.pids_of("a") == processes.pids_of("b") == set() and processes.unclear_pids() == {
        both.pid
    }
    processes.tracker.shell_ended("a", "1")
    _wait_a_moment()
    alone = processes.start()
    assert processes.pids_of("b") == {alone.pid} and processes.unclear_pids() == {both.pid}


def test_a_process_started_during_two_tools_of_one_chat_is_clear(processes: Processes) -> None:
    """A process that started while two tools of the same chat ran belongs to that chat."""
    processes.tracker.shell_started("a", "1", now=True)
    processes.tracker.shell_started("a", "2", now=True)
    own = processes.start()
    assert processes.pids_of("a") == {own.pid}


def test_the_process_group_outranks_the_start_time(processes: Processes) -> None:
    """The process group that the CLI reports for a tool decides, even if another chat ran a tool at
    that time."""
    processes.tracker.shell_started("a", "1", now=True)
    processes.tracker.shell_started("b", "2", now=True)
    own = processes.start()
    child = processes.child_of(own)
    processes.tracker.add_group("a", os.getpgid(own.pid))
    assert (
        processes.pids_of("a") == {own.pid, child}
        and processes.pids_of("b") == set()
        and processes.unclear_pids() == set()
    )


def test_a_group_that_two_chats_report_is_unclear(processes: Processes) -> None:
    """A process is unclear if two chats report its process group: the system may have reused the
    number, or one report is wrong."""
    own = processes.start()
    processes.tracker.add_group("a", own.pid)
    processes.tracker.add_group("b", own.pid)
    assert processes.pids_of("a") == processes.pids_of("b") == set() and processes.unclear_pids() == {own.pid}


def test_a_child_belongs_to_the_chat_of_its_parent(processes: Processes) -> None:
    """A child in its own process group belongs to the chat of its parent, even if another chat ran
    a tool when it started."""
    processes.tracker.shell_started("a", "1", now=True)
    own = processes.start()
    _wait_a_moment()
    processes.tracker.shell_started("b", "2", now=True)
    child = processes.child_of(own, "own group")
    assert processes.pids_of("a") == {own.pid, child} and processes.pids_of("b") == set()


def test_a_worker_belongs_to_the_chat_of_its_server(processes: Processes) -> None:
    """A server of one chat starts workers while only another chat runs a tool: the workers belong
    to the server's chat."""
    processes.tracker.shell_started("a", "1", now=True)
    server = processes.start()
    processes.tracker.shell_ended("a", "1")
    _wait_a_moment()
    processes.tracker.shell_started("b", "2", now=True)
    worker = processes.child_of(server, "own group")
    deeper = processes.child_of(server)
    assert processes.pids_of("a") == {server.pid, worker, deeper}
    assert processes.pids_of("b") == processes.unclear_pids() == set()


def test_processes_in_the_session_of_the_warm_process_are_no_tools(processes: Processes) -> None:
    """A child in the warm process's own process session, such as an MCP server, is not a tool.

    A child in a session of its own is a tool.
    """
    processes.tracker.shell_started("a", "1", now=True)
    server = processes.child_of(processes.warm)
    tool = processes.child_of(processes.warm, "own group")
    assert psutil.pid_exists(server)
    assert processes.pids_of("a") == {tool} and processes.unclear_pids() == set()


def test_a_process_without_the_mark_is_ignored(processes: Processes) -> None:
    """A process without the run's mark is ignored, even if it starts while a tool runs."""
    processes.tracker.shell_started("a", "1", now=True)
    processes.start(marked=False)
    assert processes.pids_of("a") == set() == processes.unclear_pids()


def test_since_leaves_out_processes_of_earlier_turns(processes: Processes) -> None:
    """`since` leaves out processes that tools of earlier turns started: they survive when a later
    turn is stopped."""
    processes.tracker.shell_started("a", "1", now=True)
    first = processes.start()
    processes.tracker.shell_ended("a", "1")
    assert processes.tracker.running_since("a") is None
    _wait_a_moment()
    processes.tracker.shell_started("a", "2", now=True)
    since = processes.tracker.running_since("a")
    second = processes.start()
    assert since is not None and processes.tracker.running_since("b") is None
    assert processes.pids_of("a") == {first.pid, second.pid} and processes.pids_of("a", since) == {second.pid}


def test_a_dead_process_is_not_listed(processes: Processes) -> None:
    """A process that has ended is not listed; `has_run_shells` still remembers that the chat ran a
    tool."""
    processes.tracker.shell_started("a", "1", now=True)
    own = processes.start()
    own.kill()
    own.communicate()
    assert (
        processes.pids_of("a") == set()
        and processes.tracker.has_run_shells("a")
        and not processes.tracker.has_run_shells("b")
    )


def test_a_daemon_without_a_parent_is_unclear(processes: Processes, tmp_path: Path) -> None:
    """A daemon without a living parent is unclear if tools of two chats ran when it started."""
    processes.tracker.shell_started("a", "1", now=True)
    processes.tracker.shell_started("b", "2", now=True)
    pid_file = tmp_path / "pid"
    script = f"(setsid sh -c 'echo $$ > {pid_file}; exec sleep 60' &) ; true"
    subprocess.run(
        ["sh", "-c", script], env=with_mark(os.environ, processes.mark), start_new_session=True, check=True
    )
    deadline = time.monotonic() + 10
    while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)
    daemon = int(pid_file.read_text())
    try:
        assert processes.pids_of("a") == processes.pids_of("b") == set() and processes.unclear_pids() == {
            daemon
        }
    finally:
        psutil.Process(daemon).kill()
