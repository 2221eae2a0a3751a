"""Measure the memory of thirty chats in the warm process and in the host.

python -m benchmarks.warm_memory FOLDER ENVIRONMENT   one measurement, in its own process
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import psutil

from benchmarks.start import MODEL, PROMPT, RELEASE
from benchmarks.table import Row, Side, log
from benchmarks.warm_model import RAN, SHELL_PROMPT
from geminids.events.model import Choice, PermissionAsked
from geminids.warm.chat import Chat
from geminids.warm.pool import Pool

__all__ = ["run"]

_CHATS = 30
_TURNS = 2
_MEGABYTE = 1_000_000


def run(cwd: Path, env: Mapping[str, str], *, quick: bool) -> list[Row]:
    rounds = 1 if quick else 3
    results = []
    for number in range(rounds):
        log(f"  memory, round {number + 1} of {rounds}")
        results.append(_worker(cwd, env))
    warm, shell, host, closing = (
        Side(name, unit, tuple(figures[key] for figures in results))
        for key, name, unit in (
            ("warm", "the warm process", "MB"),
            ("shell", "the warm process with its shell parser loaded", "MB"),
            ("host", "memory growth of the host", "kB"),
            ("closing", "until the process and its children are gone", "ms"),
        )
    )
    return [
        Row(
            name=f"{_CHATS} chats of {_TURNS} turns in one process, resident MB",
            sides=(warm,),
            figure=warm.median,
            shown=f"{warm.median:.0f}",
            bound=350,
        ),
        _shown("... after one of them ran a command, MB", shell),
        _shown("... host memory per chat, kB", host),
        _shown("... closing the pool, ms", closing),
    ]


def _shown(name: str, side: Side) -> Row:
    return Row(name=name, sides=(side,), figure=side.median, shown=f"{side.median:.0f}")


def _worker(cwd: Path, env: Mapping[str, str]) -> dict[str, float]:
    argv = [sys.executable, "-m", "benchmarks.warm_memory", str(cwd), json.dumps(dict(env))]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"benchmarks.warm_memory failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


async def _measure(cwd: str, env: dict[str, str]) -> dict[str, float]:
    async with _pool(cwd, env) as pool, pool.chat() as chat:
        await _turns(chat)  # not counted: imports of the host
    host = psutil.Process()
    before = host.memory_info().rss
    async with _pool(cwd, env) as pool, AsyncExitStack() as chats:
        opened = [await chats.enter_async_context(pool.chat()) for _ in range(_CHATS)]
        async with anyio.create_task_group() as tasks:
            for chat in opened:
                tasks.start_soon(_turns, chat)
        (process,) = pool.status()
        assert (process.chats, process.turns) == (_CHATS, _CHATS * _TURNS)
        grown = host.memory_info().rss - before
        (await opened[0].ask(SHELL_PROMPT)).raise_for_failure()
        os.unlink(os.path.join(cwd, RAN))  # raises if the command did not run
        (after,) = pool.status()
        began = time.perf_counter()
    return {
        "warm": process.memory / _MEGABYTE,
        "shell": after.memory / _MEGABYTE,
        "host": grown / _CHATS / 1000,
        "closing": (time.perf_counter() - began) * 1000,
    }


def _pool(cwd: str, env: dict[str, str]) -> Pool:
    return Pool(gemini=RELEASE, model=MODEL, cwd=cwd, env=env, chats=_CHATS, on_permission=_yes)


async def _yes(asked: PermissionAsked) -> Choice:
    return "allow"


async def _turns(chat: Chat) -> None:
    for _ in range(_TURNS):
        (await chat.ask(PROMPT)).raise_for_failure()


if __name__ == "__main__":
    _, place, environment = sys.argv
    print(json.dumps(anyio.run(_measure, place, json.loads(environment))))
