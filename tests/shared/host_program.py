"""Run geminids in a separate host process, for tests that limit or protect that process.

    report = host(Task(options=options, prompts=("hello",)), unprivileged=True)
    report.events     # one list of events for each prompt
    report.stderr

Each prompt is a headless run or, with `warm`, a chat of one pool. All of them run at the same time.
`before` is Python code that the host runs first, such as `resource.setrlimit(...)`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from geminids import Options
from geminids.events.model import decode_event, encode_event
from geminids.process.marker import MARKER
from unprivileged import without_privileges

__all__ = ["HostReport", "Task", "host_argv", "run_host"]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The options and prompts that a host process runs."""

    options: Options
    prompts: tuple[str, ...] = ("hello",)
    warm: bool = False
    protect: bool = False
    """Whether the host calls `protect_host()` first."""
    before: str = ""


@dataclass
class HostReport:
    """The exit code of a host process, the events of each prompt, and its output."""

    code: int
    events: list[list[Any]]
    stdout: str
    stderr: str


def host_argv() -> list[str]:
    return [sys.executable, str(Path(__file__))]


def run_host(
    task: Task,
    *,
    unprivileged: bool = False,
    prefix: Sequence[str] = (),
    env: dict[str, str] | None = None,
    timeout: float = 120,
) -> HostReport:
    """Run the task in a host process and report its exit code, events and output.

    `unprivileged`: the host has no capabilities of root. `prefix`: a command that starts the
    host."""
    argv = [*prefix, *host_argv()]
    inherited = {name: value for name, value in os.environ.items() if name != MARKER or not task.protect}
    completed = subprocess.run(
        without_privileges(argv) if unprivileged else argv,
        input=msgspec.json.encode(task),
        env={**inherited, **(env or {})},
        capture_output=True,
        timeout=timeout,
    )
    events: list[list[Any]] = [[] for _ in task.prompts]
    stdout = completed.stdout.decode()
    for line in stdout.splitlines():
        if line.startswith("{"):
            message = json.loads(line)
            events[message["prompt"]].append(decode_event(json.dumps(message["event"]).encode()))
    return HostReport(completed.returncode, events, stdout, completed.stderr.decode())


def _print_event(prompt: int, event: Any) -> None:
    sys.stdout.write(f'{{"prompt":{prompt},"event":{encode_event(event).decode().strip()}}}\n')
    sys.stdout.flush()


def main() -> None:
    import anyio

    import geminids

    task = msgspec.json.decode(sys.stdin.buffer.read(), type=Task)
    exec(task.before, {})
    if task.protect:
        assert geminids.protect_host()

    async def run(number: int, prompt: str) -> None:
        async with geminids.open_run(prompt, task.options) as opened:
            async for event in opened:
                _print_event(number, event)

    async def run_in_chat(pool: geminids.Pool, number: int, prompt: str) -> None:
        async with pool.chat() as chat:
            async for event in chat.send(prompt):
                _print_event(number, event)

    async def run_all() -> None:
        async with anyio.create_task_group() as tasks:
            if not task.warm:
                for number, prompt in enumerate(task.prompts):
                    tasks.start_soon(run, number, prompt)
                return
            async with geminids.Pool(task.options) as pool, anyio.create_task_group() as chats:
                for number, prompt in enumerate(task.prompts):
                    chats.start_soon(run_in_chat, pool, number, prompt)

    anyio.run(run_all)


if __name__ == "__main__":
    main()
