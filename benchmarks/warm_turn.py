"""Turns of a chat beside a bare JSON-RPC loop: in one process, prompt by prompt, in sessions of the same length."""

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
from benchmarks.table import Row, Side, say
from benchmarks.warm_model import ANSWER
from geminids.process.child import Child
from geminids.warm.chat import Chat
from geminids.warm.pool import Pool

__all__ = ["run"]

# A longer conversation makes the CLI slower: both sides begin anew after so many turns.
_TURNS = 20


class _Bare:
    """As little as can speak ACP. It blocks the event loop, so that nobody else reads the pipes meanwhile."""

    def __init__(self, child: Child) -> None:
        # The chat's own process: two processes are never equally warm.
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
        """The text of the answer."""
        blocks = [{"type": "text", "text": text}]
        _, updates = self._call("session/prompt", {"sessionId": session, "prompt": blocks})
        said = (one["params"]["update"] for one in updates)
        return "".join(
            one["content"]["text"] for one in said if one["sessionUpdate"] == "agent_message_chunk"
        )

    def _call(self, method: str, params: dict[str, Any]) -> tuple[Any, list[Any]]:
        self._number += 1
        own = f"bare-{self._number}"
        request = {"jsonrpc": "2.0", "id": own, "method": method, "params": params}
        os.write(self._stdin, msgspec.json.encode(request) + b"\n")
        answer, updates = None, []
        # To the end of a line: what is left in the pipe is for the other reader.
        while answer is None or self._rest:
            self._ready.poll()
            *lines, self._rest = (self._rest + os.read(self._stdout, 65536)).split(b"\n")
            for line in lines:
                message = msgspec.json.decode(line)
                if "method" in message:
                    updates.append(message)
                elif message["id"] == own:
                    answer = message["result"]
        return answer, updates


class _Found(msgspec.Struct):
    """Milliseconds; `own` is the processor time of the host in a turn of ours."""

    bare: list[float] = []
    ours: list[float] = []
    own: list[float] = []
    opening: list[float] = []
    first: list[float] = []
    closing: list[float] = []


def run(cwd: Path, env: Mapping[str, str], *, quick: bool) -> list[Row]:
    rounds = 3 if quick else 16
    return _rows(anyio.run(_measure, str(cwd), dict(env), rounds))


async def _measure(cwd: str, env: dict[str, str], rounds: int) -> _Found:
    found = _Found()
    async with Pool(gemini=RELEASE, model=MODEL, cwd=cwd, env=env) as pool:
        async with pool.chat() as chat:
            await _turn(chat, _Found())  # the first prompt of a process loads more of the CLI
        for number in range(rounds):
            say(f"  turns, round {number + 1} of {rounds}")
            began = time.perf_counter()
            async with pool.chat() as chat:
                found.opening.append(_ms(began))
                await _round(chat, cwd, found)
                began = time.perf_counter()
            found.closing.append(_ms(began))
        # None of them went to another process, or took the other lane.
        assert [one.turns for one in pool.status()] == [1 + rounds * _TURNS]
    return found


async def _round(chat: Chat, cwd: str, found: _Found) -> None:
    process = chat._conversation.process
    assert process is not None and process._child is not None
    bare = _Bare(process._child)
    session = bare.open(cwd)
    for number in range(_TURNS):
        for ours in (True, False) if number % 2 else (False, True):
            if ours:
                await _turn(chat, found)
            else:
                began = time.perf_counter()
                said = bare.prompt(session, PROMPT)
                found.bare.append(_ms(began))
                assert said == ANSWER
                await anyio.lowlevel.checkpoint()  # what fell due while the loop was blocked
        if not number:
            # Before any answer there is more to do, for both: shown, and not counted.
            found.first.append(found.ours.pop())
            found.bare.pop()
            found.own.pop()


async def _turn(chat: Chat, found: _Found) -> None:
    cpu, began = time.process_time(), time.perf_counter()
    result = await chat.ask(PROMPT)
    found.ours.append(_ms(began))
    found.own.append((time.process_time() - cpu) * 1000)
    assert result.ok and result.text == ANSWER, result


def _ms(since: float) -> float:
    return (time.perf_counter() - since) * 1000


def _rows(found: _Found) -> list[Row]:
    bare, ours, own = (
        _micro(name, figures)
        for name, figures in (
            ("a bare JSON-RPC loop, blocking, in the same process", found.bare),
            ("chat.ask", found.ours),
            ("... processor time of the host", found.own),
        )
    )
    slower = (ours.median - bare.median) / 1000
    tails = [quantiles(side.figures, n=20)[-1] / 1000 for side in (ours, bare)]
    tail = tails[0] - tails[1]
    return [
        Row(
            name="a warm turn, ms over a bare JSON-RPC loop, median",
            sides=(ours, bare, own),
            figure=slower,
            shown=f"{slower:.2f}",
            bound=3,
        ),
        Row(
            name="... at the 95th percentile",
            sides=(),
            figure=tail,
            shown=f"{tail:.2f}",
            bound=5,
            note=f"chat.ask {tails[0]:.1f} ms, the bare loop {tails[1]:.1f} ms",
        ),
        *(
            _shown(name, figures)
            for name, figures in (
                ("opening a chat in a warm process, ms", found.opening),
                ("... its first turn, ms", found.first),
                ("... closing it, ms", found.closing),
            )
        ),
    ]


def _micro(name: str, figures: list[float]) -> Side:
    return Side(name, "µs", tuple(one * 1000 for one in figures))


def _shown(name: str, figures: list[float]) -> Row:
    side = _micro("geminids", figures)
    return Row(name=name, sides=(side,), figure=side.median / 1000, shown=f"{side.median / 1000:.1f}")
