"""The gateway beside none: first byte, an answer of 10,000 chunks, an upload, what one core passes, a cold run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any

import anyio
import msgspec

import geminids
from benchmarks.gateway_worker import KEY
from benchmarks.start import PROMPT, RELEASE, User
from benchmarks.table import Row, Side, median, say

__all__ = ["run"]

_CHUNKS = 10_000
_CLIENT = Path(__file__).with_name("gateway_client.mjs")
_DIRECT, _THROUGH = "without the gateway", "through the gateway"


class _Worker:
    """A process that is asked in JSON lines."""

    def __init__(self, *argv: str) -> None:
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def told(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        told: dict[str, Any] = msgspec.json.decode(self._process.stdout.readline())
        return told

    def ask(self, **fields: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(fields) + b"\n")
        self._process.stdin.flush()
        return self.told()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Stage:
    """A server that plays Google, a gateway before it, and a Node that asks either."""

    def __init__(self) -> None:
        worker = (sys.executable, "-m", "benchmarks.gateway_worker")
        self._google = _Worker(*worker, "google")
        self.google: str = self._google.told()["url"]
        self._gateway = _Worker(*worker, "gateway", self.google)
        gateway = self._gateway.told()
        self._client = _Worker("node", str(_CLIENT))
        self.sides = {
            _DIRECT: {"url": self.google, "key": KEY},
            _THROUGH: {"url": gateway["url"], "key": gateway["token"]},
        }

    def ask(self, side: str, *, words: int, body: int, paced: bool = False) -> dict[str, Any]:
        """One answer of so many chunks to a request of so many bytes: ms to the first byte and to the end."""
        model = f"{'paced-' if paced else ''}words-{words}"
        told = self._client.ask(**self.sides[side], model=model, body=body)
        assert (told["status"], told["events"]) == (200, words), told
        return told

    def used(self) -> dict[str, Any]:
        """CPU seconds and memory of the gateway so far."""
        return self._gateway.ask()

    def end(self) -> None:
        for worker in (self._client, self._gateway, self._google):
            worker.end()


@contextmanager
def _stage() -> Iterator[_Stage]:
    stage = _Stage()
    try:
        for side in list(stage.sides) * 20:
            stage.ask(side, words=50, body=1000)
        yield stage
    finally:
        stage.end()


def run(work: Path, *, quick: bool) -> list[Row]:
    if not shutil.which("node"):
        say("  skipped: the client is a Node on PATH, and there is none")
        return []
    with _stage() as stage:
        rows = [*_first_byte(stage, 60 if quick else 300), *_streamed(stage, 3 if quick else 15)]
        rows += [_at_a_pace(stage, 1 if quick else 7), _upload(stage, 3 if quick else 9)]
        user = User(work, {"GOOGLE_GEMINI_BASE_URL": stage.google, "GEMINI_API_KEY": KEY})
        rows.append(_streamed_to_cli(stage, user, 1 if quick else 9))
        rows.append(_cold(user, 3 if quick else 21))
    return rows


Found = dict[str, list[float]]


def _measured(rounds: int, what: str, measure: Callable[[str], float]) -> Found:
    """Measure both sides in each round, in turns: whichever is second may find the machine warmer or busier."""
    found: Found = {_DIRECT: [], _THROUGH: []}
    for number in range(rounds):
        if number % max(1, rounds // 10) == 0:
            say(f"  {what}, round {number + 1} of {rounds}")
        for side in (_DIRECT, _THROUGH) if number % 2 else (_THROUGH, _DIRECT):
            found[side].append(measure(side))
    return found


def _ratio(name: str, found: Found, bound: float, note: str = "") -> Row:
    """The median ratio of a round. How far two rounds of the same side are apart shows what noise alone does."""
    direct, through = found[_DIRECT], found[_THROUGH]
    ratios = [after / before for before, after in zip(direct, through, strict=True)]
    noise = [after / before for before, after in pairwise(direct)]
    spread = (
        f"Rounds: {_spread(ratios)}; a round without the gateway beside the one before: {_spread(noise)}."
    )
    figure = median(ratios)
    sides = _sides(found, "ms")
    return Row(
        name=name,
        sides=sides,
        figure=figure,
        shown=f"{figure:.3f} x",
        bound=bound,
        note=f"{spread} {note}".rstrip(),
    )


def _spread(figures: list[float]) -> str:
    if len(figures) < 2:
        return "too few"
    low, _, high = quantiles(figures, n=4)
    return f"{min(figures):.2f} to {max(figures):.2f}, half of them {low:.2f} to {high:.2f}"


def _first_byte(stage: _Stage, rounds: int) -> list[Row]:
    found = _measured(
        rounds, "first byte", lambda side: stage.ask(side, words=3, body=200_000)["first"] * 1000
    )
    sides = _sides(found, "µs")
    differences = [
        (after - before) / 1000 for before, after in zip(found[_DIRECT], found[_THROUGH], strict=True)
    ]
    added = median(differences)
    tail = (_p95(found[_THROUGH]) - _p95(found[_DIRECT])) / 1000
    return [
        Row(
            name="gateway: what it adds to the first byte (200 kB asked)",
            sides=sides,
            figure=added,
            shown=f"{added:.2f} ms",
            bound=1.5,
            note=f"Rounds: {_spread(differences)}.",
        ),
        Row(name="    the same at the 95th percentile", sides=(), figure=tail, shown=f"{tail:.2f} ms"),
    ]


def _streamed(stage: _Stage, rounds: int) -> list[Row]:
    rates: list[float] = []

    def stream(side: str) -> float:
        before = stage.used()["cpu"]
        took: float = stage.ask(side, words=_CHUNKS, body=1000)["all"]
        if side == _THROUGH:
            rates.append(_CHUNKS / (stage.used()["cpu"] - before))
        return took

    sides = _sides(_measured(rounds, f"{_CHUNKS} chunks to a bare Node", stream), "ms")
    rate = median(rates)
    memory = stage.used()["most_kb"] / 1024
    return [
        Row(
            name="gateway: chunks through one core",
            sides=(Side("chunks a second of CPU time", "/s", tuple(rates)),),
            figure=rate,
            shown=f"{rate:,.0f} /s",
            bound=20_000,
            at_least=True,
            note=f"{memory:.0f} MB of memory at the most",
        ),
        Row(
            name=f"gateway: {_CHUNKS:,} chunks as fast as they go, a bare Node",
            sides=sides,
            figure=sides[1].median,
            shown=f"{sides[1].median:.0f} ms",
            note="For information: no model and no CLI is as fast as this.",
        ),
    ]


def _at_a_pace(stage: _Stage, rounds: int) -> Row:
    cpu: list[float] = []

    def stream(side: str) -> float:
        before = stage.used()["cpu"]
        took: float = stage.ask(side, words=_CHUNKS, body=1000, paced=True)["all"]
        if side == _THROUGH:
            cpu.append((stage.used()["cpu"] - before) * 1000)
        return took

    found = _measured(rounds, f"{_CHUNKS} chunks at a pace", stream)
    name = f"gateway: {_CHUNKS:,} chunks, 5,000 a second, a bare Node"
    return _ratio(name, found, 1.05, f"The gateway used {median(cpu):.0f} ms of CPU time.")


def _upload(stage: _Stage, rounds: int) -> Row:
    found = _measured(
        rounds, "upload", lambda side: float(stage.ask(side, words=3, body=20_000_000)["first"])
    )
    sides = _sides(found, "ms")
    added = sides[1].median - sides[0].median
    return Row(
        name="gateway: what it adds to 20 MB asked", sides=sides, figure=added, shown=f"{added:.0f} ms"
    )


def _streamed_to_cli(stage: _Stage, user: User, rounds: int) -> Row:
    """From the first chunk that the CLI prints to the last, so that its start is not in it."""
    cpu: list[float] = []

    def stream(side: str) -> float:
        url, key = stage.sides[side]["url"], stage.sides[side]["key"]
        env = {**user.env, "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": key, "NO_PROXY": "127.0.0.1"}
        argv = [str(user.gemini), "--output-format=stream-json", f"--model=words-{_CHUNKS}", "--prompt=Go."]
        seen: list[float] = []
        before = stage.used()["cpu"]
        with subprocess.Popen(
            argv,
            cwd=user.cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            seen += [time.perf_counter() for line in process.stdout if b'"role":"assistant"' in line]
        assert len(seen) == _CHUNKS, f"{len(seen)} chunks"
        if side == _THROUGH:
            cpu.append((stage.used()["cpu"] - before) * 1000)
        return (seen[-1] - seen[0]) * 1000

    found = _measured(rounds, f"{_CHUNKS} chunks to the CLI", stream)
    name = f"gateway: {_CHUNKS:,} chunks to gemini {RELEASE}"
    return _ratio(name, found, 1.05, f"The gateway used {median(cpu):.0f} ms of CPU time.")


def _cold(user: User, rounds: int) -> Row:
    def run(side: str) -> float:
        began = time.perf_counter()
        _run(user, "on" if side == _THROUGH else "off")
        return (time.perf_counter() - began) * 1000

    before = os.environ.get("GEMINIDS_HOME")
    os.environ["GEMINIDS_HOME"] = str(user.managed.root)
    try:
        for side in (_DIRECT, _THROUGH):  # warm up
            run(side)
        found = _measured(rounds, "open_run", run)
    finally:
        os.environ.pop("GEMINIDS_HOME")
        if before is not None:
            os.environ["GEMINIDS_HOME"] = before
    return _ratio("gateway: open_run to Finished, managed Node", found, 1.02)


def _run(user: User, gateway: Any) -> None:
    async def follow() -> None:
        options = geminids.Options(
            gemini=RELEASE, model="words-3", cwd=str(user.cwd), env=user.env, gateway=gateway
        )
        async with geminids.open_run(PROMPT, options) as run:
            async for _ in run:
                pass
        run.result.raise_for_failure()

    anyio.run(follow)


def _sides(found: Found, unit: str) -> tuple[Side, Side]:
    direct, through = (Side(name, unit, tuple(found[name])) for name in (_DIRECT, _THROUGH))
    return direct, through


def _p95(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]
