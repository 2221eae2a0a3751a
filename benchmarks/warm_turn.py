"""Measure turns of a chat, compared with a bare JSON-RPC loop that uses the same process."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import quantiles
from typing import Any

import anyio
import msgspec

from benchmarks.start import MODEL, PROMPT, RELEASE
from benchmarks.table import Row, Side, log
from benchmarks.warm_model import ANSWER
from geminids.process.child import Child
from geminids.warm.chat import Chat
from geminids.warm.pool import Pool

__all__ = ["run"]

# Turns per session. A longer conversation makes the CLI slower, so both sides then start a new one.
_TURNS = 20


class _Bare:
    """A minimal ACP client. It blocks the event loop, so that nothing else reads the pipes."""

    def __init__(self, child: Child) -> None:
        # Use the chat's process: two processes are never equally warm.
        stdin, stdout = child._stdin, child._stdout
        assert stdin is not None and stdout is not None
        self._stdin, self._stdout = stdin, stdout
        self._ready = select.poll()
        self._ready.register(stdout, select.POLLIN)
        self._rest = b""
        self._number = 0

    def open(self, cwd: str) -> str:
        answer, _ = self._call("session/new", {"cwd": cwd, "mcpServers": []})
        session: str = answer["sessionId"]
        self._call("session/set_model", {"sessionId": session, "modelId": MODEL})
        return session

    def prompt(self, session: str, text: str) -> str:
        """Send a prompt, and return the text of the answer."""
        blocks = [{"type": "text", "text": text}]
        _, updates = self._call("session/prompt", {"sessionId": session, "prompt": blocks})
        contents = (message["params"]["update"] for message in updates)
        return "".join(
            update["content"]["text"]
            for update in contents
            if update["sessionUpdate"] == "agent_message_chunk"
        )

    def _call(self, method: str, params: dict[str, Any]) -> tuple[Any, list[Any]]:
        self._number += 1
        request_id = f"bare-{self._number}"
        request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        os.write(self._stdin, msgspec.json.encode(request) + b"\n")
        answer, updates = None, []
        # Read complete lines only: the rest of the pipe is for the other reader.
        while answer is None or self._rest:
            self._ready.poll()
            *lines, self._rest = (self._rest + os.read(self._stdout, 65536)).split(b"\n")
            for line in lines:
                message = msgspec.json.decode(line)
                if "method" in message:
                    updates.append(message)
                elif message["id"] == request_id:
                    answer = message["result"]
        return answer, updates


class _Times(msgspec.Struct):
    """Times in milliseconds. `cpu` is the processor time of the host in a turn of `chat.ask`."""

    bare: list[float] = []
    ours: list[float] = []
    cpu: list[float] = []
    opening: list[float] = []
    first: list[float] = []
    closing: list[float] = []


def run(cwd: Path, env: Mapping[str, str], *, quick: bool) -> list[Row]:
    rounds = 3 if quick else 16
    return _rows(anyio.run(_measure, str(cwd), dict(env), rounds))


async def _measure(cwd: str, env: dict[str, str], rounds: int) -> _Times:
    times = _Times()
    async with Pool(gemini=RELEASE, model=MODEL, cwd=cwd, env=env) as pool:
        async with pool.chat() as chat:
            await _turn(chat, _Times())  # not counted: the first prompt loads more of the CLI
        for number in range(rounds):
            log(f"  turns, round {number + 1} of {rounds}")
            began = time.perf_counter()
            async with pool.chat() as chat:
                times.opening.append(_ms(began))
                await _round(chat, cwd, times)
                began = time.perf_counter()
            times.closing.append(_ms(began))
        # All turns ran in one process, and none was headless.
        assert [process.turns for process in pool.status()] == [1 + rounds * _TURNS]
    return times


async def _round(chat: Chat, cwd: str, times: _Times) -> None:
    process = chat._conversation.process
    assert process is not None and process._child is not None
    bare = _Bare(process._child)
    session = bare.open(cwd)
    for number in range(_TURNS):
        for ours in (True, False) if number % 2 else (False, True):
            if ours:
                await _turn(chat, times)
            else:
                began = time.perf_counter()
                answer = bare.prompt(session, PROMPT)
                times.bare.append(_ms(began))
                assert answer == ANSWER
                await anyio.lowlevel.checkpoint()  # run the tasks that waited
        if not number:
            # The first turn of a session has more to do, for both sides: report it separately.
            times.first.append(times.ours.pop())
            times.bare.pop()
            times.cpu.pop()


async def _turn(chat: Chat, times: _Times) -> None:
    cpu, began = time.process_time(), time.perf_counter()
    result = await chat.ask(PROMPT)
    times.ours.append(_ms(began))
    times.cpu.append((time.process_time() - cpu) * 1000)
    assert result.ok and result.text == ANSWER, result


def _ms(since: float) -> float:
    return (time.perf_counter() - since) * 1000


def _rows(times: _Times) -> list[Row]:
    bare, ours, cpu = (
        _micro(name, figures)
        for name, figures in (
            ("a bare JSON-RPC loop, blocking, in the same process", times.bare),
            ("chat.ask", times.ours),
            ("... processor time of the host", times.cpu),
        )
    )
    added = (ours.median - bare.median) / 1000
    p95 = [quantiles(side.figures, n=20)[-1] / 1000 for side in (ours, bare)]
    added_p95 = p95[0] - p95[1]
    return [
        Row(
            name="a warm turn, ms more than a bare JSON-RPC loop, median",
            sides=(ours, bare, cpu),
            figure=added,
            shown=f"{added:.2f}",
            bound=3,
        ),
        Row(
            name="... at the 95th percentile",
            sides=(),
            figure=added_p95,
            shown=f"{added_p95:.2f}",
            bound=5,
            note=f"chat.ask {p95[0]:.1f} ms, the bare loop {p95[1]:.1f} ms",
        ),
        *(
            _shown(name, figures)
            for name, figures in (
                ("opening a chat in a warm process, ms", times.opening),
                ("... its first turn, ms", times.first),
                ("... closing it, ms", times.closing),
            )
        ),
    ]


def _micro(name: str, figures: list[float]) -> Side:
    return Side(name, "µs", tuple(figure * 1000 for figure in figures))


def _shown(name: str, figures: list[float]) -> Row:
    side = _micro("geminids", figures)
    return Row(name=name, sides=(side,), figure=side.median / 1000, shown=f"{side.median / 1000:.1f}")
