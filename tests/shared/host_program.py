"""A host program of its own: it runs geminids in another process, for tests that limit or protect that process.

    told = host(Task(options=options, prompts=("hello",)), powerless=True)
    told.events     # one list of events for each prompt
    told.stderr

Each prompt is a headless run, or, with `warm`, a chat of one pool; all of them at once. `before` is Python that the
host runs first: `resource.setrlimit(...)`.
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
from powerless import powerless as without_powers

__all__ = ["HostReport", "Task", "host", "host_argv"]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    options: Options
    prompts: tuple[str, ...] = ("hello",)
    warm: bool = False
    protect: bool = False
    """Call `protect_host()` first."""
    before: str = ""


@dataclass
class HostReport:
    code: int
    events: list[list[Any]]
    stdout: str
    stderr: str


def host_argv() -> list[str]:
    return [sys.executable, str(Path(__file__))]


def host(
    task: Task,
    *,
    powerless: bool = False,
    prefix: Sequence[str] = (),
    env: dict[str, str] | None = None,
    timeout: float = 120,
) -> HostReport:
    """Run the task. `powerless`: without root's capabilities. `prefix`: a command that runs the host."""
    argv = [*prefix, *host_argv()]
    given = {name: value for name, value in os.environ.items() if name != MARKER or not task.protect}
    done = subprocess.run(
        without_powers(argv) if powerless else argv,
        input=msgspec.json.encode(task),
        env={**given, **(env or {})},
        capture_output=True,
        timeout=timeout,
    )
    events: list[list[Any]] = [[] for _ in task.prompts]
    stdout = done.stdout.decode()
    for line in stdout.splitlines():
        if line.startswith("{"):
            told = json.loads(line)
            events[told["prompt"]].append(decode_event(json.dumps(told["event"]).encode()))
    return HostReport(done.returncode, events, stdout, done.stderr.decode())


def _print(prompt: int, event: Any) -> None:
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
                _print(number, event)

    async def talk(pool: geminids.Pool, number: int, prompt: str) -> None:
        async with pool.chat() as chat:
            async for event in chat.send(prompt):
                _print(number, event)

    async def all_at_once() -> None:
        async with anyio.create_task_group() as tasks:
            if not task.warm:
                for number, prompt in enumerate(task.prompts):
                    tasks.start_soon(run, number, prompt)
                return
            async with geminids.Pool(task.options) as pool, anyio.create_task_group() as chats:
                for number, prompt in enumerate(task.prompts):
                    chats.start_soon(talk, pool, number, prompt)

    anyio.run(all_at_once)


if __name__ == "__main__":
    main()
