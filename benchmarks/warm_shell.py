"""Measure the second turn of a chat, and `geminids run --warm`, compared with plain `gemini`."""

from __future__ import annotations

import json
import math
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack

import anyio

from benchmarks.start import COMMAND, MODEL, PROMPT, RELEASE, User
from benchmarks.table import Row, Side, log
from benchmarks.warm_acpx import ACPX, Acpx, find_acpx
from geminids.warm.pool import Pool

__all__ = ["run"]

_PLAIN = f"gemini {RELEASE}, Node on PATH"


def run(user: User, *, quick: bool) -> list[Row]:
    rounds = 3 if quick else 9
    with ExitStack() as after:
        after.callback(_warm, user, "stop")
        acpx = find_acpx(user)
        if isinstance(acpx, Acpx):
            after.callback(acpx.close)
        times = anyio.run(_measure, user, acpx, rounds)
        # Make sure that every run was really warm.
        served = json.loads(_warm(user, "status", "--json"))["served"]
        assert served == rounds + 1, f"{served} of {rounds + 1} runs were warm"
    return _rows(times, acpx)


def _warm(user: User, *args: str) -> str:
    env = {**user.env, "GEMINIDS_HOME": str(user.managed.root)}
    return subprocess.run(
        [str(COMMAND), "warm", *args], env=env, capture_output=True, text=True, check=True
    ).stdout


async def _measure(user: User, acpx: Acpx | str, rounds: int) -> dict[str, tuple[float, ...]]:
    sides: dict[str, Callable[[], None]] = {
        "plain": user.plain,
        "run --warm": lambda: user.command(user.managed, "--warm"),
    }
    if isinstance(acpx, Acpx):
        sides["acpx"] = acpx.prompt
    times: dict[str, list[float]] = {name: [] for name in (*sides, "second turn")}
    async with Pool(gemini=RELEASE, model=MODEL, cwd=str(user.cwd), env=user.env) as pool:
        for number in range(rounds + 1):
            log(f"  from a shell, round {number} of {rounds}" if number else "  from a shell, warming up")
            for name, side in sides.items():
                began = time.perf_counter()
                side()  # blocks the event loop, which is idle meanwhile
                times[name].append((time.perf_counter() - began) * 1000)
            times["second turn"].append(await _second_turn(pool))
    return {name: tuple(measured[1:]) for name, measured in times.items()}


async def _second_turn(pool: Pool) -> float:
    async with pool.chat() as chat:
        (await chat.ask(PROMPT)).raise_for_failure()
        began = time.perf_counter()
        result = await chat.ask(PROMPT)
        took = time.perf_counter() - began
        result.raise_for_failure()
        return took * 1000


def _rows(times: dict[str, tuple[float, ...]], acpx: Acpx | str) -> list[Row]:
    plain = Side(_PLAIN, "ms", times["plain"])
    second = Side("the second turn of a chat", "ms", times["second turn"])
    ours = Side("geminids run --warm -o text, the second and later", "ms", times["run --warm"])
    speed_up = plain.median / second.median
    return [
        Row(
            name="the second turn of a chat, times faster than gemini",
            sides=(second, plain),
            figure=speed_up,
            shown=f"{speed_up:.0f} x",
            bound=20,
            at_least=True,
        ),
        _compare("geminids run --warm, vs. gemini", ours, plain, 0.25),
        _compare(
            f"geminids run --warm, vs. {ACPX}",
            ours,
            Side(acpx.name, "ms", times["acpx"]) if isinstance(acpx, Acpx) else acpx,
            0.35,
        ),
    ]


def _compare(name: str, ours: Side, other: Side | str, bound: float) -> Row:
    if isinstance(other, str):
        # The other side was not measured: count the bound as missed.
        return Row(name=name, sides=(ours,), figure=math.inf, shown="not measured", bound=bound, note=other)
    ratio = ours.median / other.median
    return Row(name=name, sides=(ours, other), figure=ratio, shown=f"{ratio:.2f} x", bound=bound)
