"""Measure requests with and without the gateway: first byte, chunks, upload, CPU time, whole run."""

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
from benchmarks.table import Row, Side, log, median

__all__ = ["run"]

_CHUNKS = 10_000
_CLIENT = Path(__file__).with_name("gateway_client.mjs")
_DIRECT, _THROUGH = "without the gateway", "through the gateway"


class _Worker:
    """A process that answers requests in JSON lines."""

    def __init__(self, *argv: str) -> None:
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        message: dict[str, Any] = msgspec.json.decode(self._process.stdout.readline())
        return message

    def request(self, **fields: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(fields) + b"\n")
        self._process.stdin.flush()
        return self.read()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class _Setup:
    """A fake Google server, a gateway in front of it, and a Node client that calls either."""

    def __init__(self) -> None:
        worker = (sys.executable, "-m", "benchmarks.gateway_worker")
        self._google = _Worker(*worker, "google")
        self.google: str = self._google.read()["url"]
        self._gateway = _Worker(*worker, "gateway", self.google)
        gateway = self._gateway.read()
        self._client = _Worker("node", str(_CLIENT))
        self.sides = {
            _DIRECT: {"url": self.google, "key": KEY},
            _THROUGH: {"url": gateway["url"], "key": gateway["token"]},
        }

    def request(self, side: str, *, chunks: int, body: int, paced: bool = False) -> dict[str, Any]:
        """Send `body` bytes and receive `chunks`; return the ms to the first byte and to the end."""
        model = f"{'paced-' if paced else ''}words-{chunks}"
        response = self._client.request(**self.sides[side], model=model, body=body)
        assert (response["status"], response["events"]) == (200, chunks), response
        return response

    def used(self) -> dict[str, Any]:
        """Return the CPU seconds and the memory that the gateway has used so far."""
        return self._gateway.request()

    def close(self) -> None:
        for worker in (self._client, self._gateway, self._google):
            worker.close()


@contextmanager
def _open_setup() -> Iterator[_Setup]:
    setup = _Setup()
    try:
        for side in list(setup.sides) * 20:
            setup.request(side, chunks=50, body=1000)
        yield setup
    finally:
        setup.close()


def run(work: Path, *, quick: bool) -> list[Row]:
    if not shutil.which("node"):
        log("  skipped: the client needs a Node on PATH")
        return []
    with _open_setup() as setup:
        rows = [*_first_byte(setup, 60 if quick else 300), *_streamed(setup, 3 if quick else 15)]
        rows += [_paced(setup, 1 if quick else 7), _upload(setup, 3 if quick else 9)]
        user = User(work, {"GOOGLE_GEMINI_BASE_URL": setup.google, "GEMINI_API_KEY": KEY})
        rows.append(_streamed_to_cli(setup, user, 1 if quick else 9))
        rows.append(_cold(user, 3 if quick else 21))
    return rows


Figures = dict[str, list[float]]


def _measure(rounds: int, title: str, measure_side: Callable[[str], float]) -> Figures:
    """Measure both sides in each round.

    The order alternates, because the machine may be warmer or busier for the second side.
    """
    figures: Figures = {_DIRECT: [], _THROUGH: []}
    for number in range(rounds):
        if number % max(1, rounds // 10) == 0:
            log(f"  {title}, round {number + 1} of {rounds}")
        for side in (_DIRECT, _THROUGH) if number % 2 else (_THROUGH, _DIRECT):
            figures[side].append(measure_side(side))
    return figures


def _ratio(name: str, figures: Figures, bound: float, note: str = "") -> Row:
    """Return a row with the median ratio of the rounds. The note shows how much rounds differ."""
    direct, through = figures[_DIRECT], figures[_THROUGH]
    ratios = [after / before for before, after in zip(direct, through, strict=True)]
    noise = [after / before for before, after in pairwise(direct)]
    spread = f"Rounds: {_spread(ratios)}; a round without the gateway vs. the one before: {_spread(noise)}."
    figure = median(ratios)
    sides = _sides(figures, "ms")
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


def _first_byte(setup: _Setup, rounds: int) -> list[Row]:
    figures = _measure(
        rounds, "first byte", lambda side: setup.request(side, chunks=3, body=200_000)["first"] * 1000
    )
    sides = _sides(figures, "µs")
    differences = [
        (after - before) / 1000 for before, after in zip(figures[_DIRECT], figures[_THROUGH], strict=True)
    ]
    added = median(differences)
    added_p95 = (_p95(figures[_THROUGH]) - _p95(figures[_DIRECT])) / 1000
    return [
        Row(
            name="gateway: added time to the first byte (200 kB request)",
            sides=sides,
            figure=added,
            shown=f"{added:.2f} ms",
            bound=1.5,
            note=f"Rounds: {_spread(differences)}.",
        ),
        Row(
            name="    the same at the 95th percentile",
            sides=(),
            figure=added_p95,
            shown=f"{added_p95:.2f} ms",
        ),
    ]


def _streamed(setup: _Setup, rounds: int) -> list[Row]:
    rates: list[float] = []

    def stream(side: str) -> float:
        before = setup.used()["cpu"]
        took: float = setup.request(side, chunks=_CHUNKS, body=1000)["all"]
        if side == _THROUGH:
            rates.append(_CHUNKS / (setup.used()["cpu"] - before))
        return took

    sides = _sides(_measure(rounds, f"{_CHUNKS} chunks to a bare Node", stream), "ms")
    rate = median(rates)
    memory = setup.used()["peak_kb"] / 1024
    return [
        Row(
            name="gateway: chunks per second on one core",
            sides=(Side("chunks per second of CPU time", "/s", tuple(rates)),),
            figure=rate,
            shown=f"{rate:,.0f} /s",
            bound=20_000,
            at_least=True,
            note=f"{memory:.0f} MB of memory at the peak",
        ),
        Row(
            name=f"gateway: {_CHUNKS:,} chunks at full speed, a bare Node",
            sides=sides,
            figure=sides[1].median,
            shown=f"{sides[1].median:.0f} ms",
            note="For information only: no model and no CLI is this fast.",
        ),
    ]


def _paced(setup: _Setup, rounds: int) -> Row:
    cpu: list[float] = []

    def stream(side: str) -> float:
        before = setup.used()["cpu"]
        took: float = setup.request(side, chunks=_CHUNKS, body=1000, paced=True)["all"]
        if side == _THROUGH:
            cpu.append((setup.used()["cpu"] - before) * 1000)
        return took

    figures = _measure(rounds, f"{_CHUNKS} chunks at 5,000 per second", stream)
    name = f"gateway: {_CHUNKS:,} chunks, 5,000 per second, a bare Node"
    return _ratio(name, figures, 1.05, f"The gateway used {median(cpu):.0f} ms of CPU time.")


def _upload(setup: _Setup, rounds: int) -> Row:
    figures = _measure(
        rounds, "upload", lambda side: float(setup.request(side, chunks=3, body=20_000_000)["first"])
    )
    sides = _sides(figures, "ms")
    added = sides[1].median - sides[0].median
    return Row(
        name="gateway: added time to a 20 MB request", sides=sides, figure=added, shown=f"{added:.0f} ms"
    )


def _streamed_to_cli(setup: _Setup, user: User, rounds: int) -> Row:
    """Measure the time from the first to the last chunk that the CLI prints, without its start."""
    cpu: list[float] = []

    def stream(side: str) -> float:
        url, key = setup.sides[side]["url"], setup.sides[side]["key"]
        env = {**user.env, "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": key, "NO_PROXY": "127.0.0.1"}
        argv = [str(user.gemini), "--output-format=stream-json", f"--model=words-{_CHUNKS}", "--prompt=Go."]
        times: list[float] = []
        before = setup.used()["cpu"]
        with subprocess.Popen(
            argv,
            cwd=user.cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            times += [time.perf_counter() for line in process.stdout if b'"role":"assistant"' in line]
        assert len(times) == _CHUNKS, f"{len(times)} chunks"
        if side == _THROUGH:
            cpu.append((setup.used()["cpu"] - before) * 1000)
        return (times[-1] - times[0]) * 1000

    figures = _measure(rounds, f"{_CHUNKS} chunks to the CLI", stream)
    name = f"gateway: {_CHUNKS:,} chunks to gemini {RELEASE}"
    return _ratio(name, figures, 1.05, f"The gateway used {median(cpu):.0f} ms of CPU time.")


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
        figures = _measure(rounds, "open_run", run)
    finally:
        os.environ.pop("GEMINIDS_HOME")
        if before is not None:
            os.environ["GEMINIDS_HOME"] = before
    return _ratio("gateway: open_run to Finished, managed Node", figures, 1.02)


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


def _sides(figures: Figures, unit: str) -> tuple[Side, Side]:
    direct, through = (Side(name, unit, tuple(figures[name])) for name in (_DIRECT, _THROUGH))
    return direct, through


def _p95(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.95)]
