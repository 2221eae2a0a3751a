"""JSON-RPC with a process that speaks lines: out of order, in pieces, with noise, too much for a pipe, and dead."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from geminids.gemini.protocol.acp.calls import Cancel, NewSession, Prompt, Text, stopped_of
from geminids.gemini.protocol.acp.messages import Note, Unknown, Update
from geminids.process.child import spawn
from geminids.warm.connection import Connection, Gone, RpcFailed

_HEAD = """
import json, os, sys
def read():
    line = sys.stdin.readline()
    return json.loads(line) if line else None
def raw(text):
    sys.stdout.write(text)
    sys.stdout.flush()
def say(**message):
    raw(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
def update(text):
    content = {"type": "text", "text": text}
    change = {"sessionUpdate": "agent_message_chunk", "content": content}
    say(method="session/update", params={"sessionId": "s", "update": change})
"""


class Talk:
    """A connection to a process that runs `script`, and what was heard on it."""

    def __init__(self, script: str, line_limit: int) -> None:
        env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
        self.child = spawn([sys.executable, "-ISc", _HEAD + script], cwd="/", env=env)
        self.heard: list[Update | Unknown] = []
        self.asked: list[Note] = []
        self.on = Connection(self.child, self.heard.append, self.asked.append, line_limit=line_limit)

    async def run(self, body: Callable[[Talk], Any]) -> None:
        try:
            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read)
                    tasks.start_soon(self.on.pump)
                    await body(self)
                    tasks.cancel_scope.cancel()
        finally:
            self.child.signal_group("KILL")
            with anyio.CancelScope(shield=True):
                await self.child.wait()
            self.child.close()

    async def _read(self) -> None:
        await self.on.read()
        self.on.close()

    async def until(self, holds: Callable[[], object]) -> None:
        while not holds():
            await anyio.sleep(0.005)


@pytest.fixture(params=["asyncio", pytest.param("trio", marks=pytest.mark.deep)])
def talk(request: pytest.FixtureRequest) -> Callable[..., Talk]:
    """`talk(script, body)`: runs the body while the script answers."""

    def run(script: str, body: Callable[[Talk], Any], line_limit: int = 1 << 20) -> Talk:
        made = Talk(script, line_limit)
        anyio.run(made.run, body, backend=request.param)
        return made

    return run


def test_answers_find_their_questions_in_any_order(talk: Any) -> None:
    """Each request gets its own answer, also the last one first."""
    script = """
asked = [read() for _ in range(5)]
for one in reversed(asked):
    say(id=one["id"], result={"sessionId": one["params"]["cwd"]})
read()
"""
    told = {}

    async def body(talk: Talk) -> None:
        async def ask(cwd: str) -> None:
            told[cwd] = bytes(await talk.on.call(NewSession(cwd=cwd)))

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(ask, f"/{number}")

    talk(script, body)
    assert told == {f"/{number}": f'{{"sessionId": "/{number}"}}'.encode() for number in range(5)}


def test_an_error_is_raised_with_its_code(talk: Any) -> None:
    """And what has nobody waiting for it (an id that was never used, or twice) is passed over."""
    script = """
one = read()
say(id=99, result={}); say(id="x", result={}); say(id=None, result={}); say(id=[1], result={}); say(id=True, result={})
say(id=one["id"], error={"code": 429, "message": "Rate limit", "data": {"x": 1}})
say(id=one["id"], result={"stopReason": "end_turn"})
one = read()
say(id=one["id"], result={"stopReason": "end_turn"})
read()
"""

    async def body(talk: Talk) -> None:
        with pytest.raises(RpcFailed) as caught:
            await talk.on.call(Prompt(session_id="s", prompt=()))
        assert (caught.value.error.code, caught.value.error.details) == (429, '{"x":1}')
        assert stopped_of(await talk.on.call(Prompt(session_id="s", prompt=()))).reason == "end_turn"

    talk(script, body)


def test_a_question_is_passed_on_and_answered_by_its_id(talk: Any) -> None:
    """With the option, or with the word that the turn is cancelled; notes go out without an id."""
    script = """
for number in ("q-1", 0):
    say(id=number, method="session/request_permission", params={"sessionId": "s", "toolCall": {"toolCallId": "t"},
        "options": [{"optionId": "proceed_once", "name": "", "kind": "allow_once"}]})
heard = [read() for _ in range(3)]
update(json.dumps(heard))
read()
"""

    async def body(talk: Talk) -> None:
        await talk.until(lambda: len(talk.asked) == 2)
        talk.on.answer(talk.asked[0], "proceed_once")
        talk.on.answer(talk.asked[1], None)
        talk.on.note(Cancel(session_id="s"))
        await talk.until(lambda: talk.heard)

    (said,) = talk(script, body).heard
    yes, no, note = json.loads(said.text)
    assert (yes["id"], yes["result"]["outcome"]) == (
        "q-1",
        {"outcome": "selected", "optionId": "proceed_once"},
    )
    assert (no["id"], no["result"]["outcome"]) == (0, {"outcome": "cancelled"})
    assert note == {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}


def test_a_request_that_we_do_not_serve_gets_an_error(talk: Any) -> None:
    """An unknown method, and a question that cannot be read: the agent must not wait for ever."""
    script = """
say(id=1, method="fs/read_text_file", params={"sessionId": "s", "path": "/etc/passwd"})
say(id=2, method="session/request_permission", params={"sessionId": 7})
update(json.dumps([read(), read()]))
read()
"""

    async def body(talk: Talk) -> None:
        await talk.until(lambda: talk.heard)

    made = talk(script, body)
    first, second = json.loads(made.heard[0].text)
    assert (first["id"], first["error"]["code"]) == (1, -32601)
    assert first["error"]["message"] == "geminids does not serve fs/read_text_file"
    assert second["id"] == 2 and "error" in second and made.asked == []


def test_what_does_not_fit_into_the_pipe_is_written_all_the_same(talk: Any) -> None:
    """In order, whole, and without holding anybody up: a pipe takes 64 KiB while nobody reads."""
    script = """
update("ready")
told = []
while len(told) < 4:
    one = read()
    blocks = one["params"].get("prompt", [])
    told.append([one.get("id"), one["method"], sum(len(block["text"]) for block in blocks)])
update(json.dumps(told))
read()
"""

    async def body(talk: Talk) -> None:
        await talk.until(lambda: talk.heard)
        for size in (5_000_000, 3):
            talk.on.begin(Prompt(session_id="s", prompt=(Text(text="é" * size),)))
        talk.on.note(Cancel(session_id="s"))
        talk.on.begin(Prompt(session_id="s", prompt=(Text(text="x" * 300_000),)))
        await talk.until(lambda: len(talk.heard) == 2)

    made = talk(script, body)
    assert json.loads(made.heard[1].text) == [
        [1, "session/prompt", 5_000_000],
        [2, "session/prompt", 3],
        [None, "session/cancel", 0],
        [3, "session/prompt", 300_000],
    ]


def test_whoever_waits_when_the_process_dies_is_told(talk: Any) -> None:
    """`Gone`, for those that wait and for those that come later; nothing hangs, nothing raises on writing."""
    script = """
read(); update("bye"); os._exit(7)
"""

    async def body(talk: Talk) -> None:
        gone = 0
        for _ in range(3):
            with pytest.raises(Gone):
                await talk.on.call(Prompt(session_id="s", prompt=(Text(text="x" * 100_000),)))
            gone += 1
        assert gone == 3 and talk.on.closed
        talk.on.note(Cancel(session_id="s"))

    made = talk(script, body)
    assert [one.text for one in made.heard] == ["bye"]


def test_a_process_that_dies_with_much_unwritten_is_gone_too(talk: Any) -> None:
    """The rest of the message is given up."""

    async def body(talk: Talk) -> None:
        with pytest.raises(Gone):
            await talk.on.call(Prompt(session_id="s", prompt=(Text(text="x" * 5_000_000),)))

    talk("sys.stdin.read(100_000); os._exit(1)\n", body)


def test_noise_between_the_lines_is_told_and_costs_nothing(talk: Any) -> None:
    """What is no message becomes `Unknown`; a message in pieces, with half a character in one, arrives whole."""
    script = """
update("first")
raw("Debugger attached.\\n\\n   \\n{\\"x\\": 1}\\n[1]\\n")
sys.stdout.buffer.write(b"\\xff\\xfe noise\\n"); sys.stdout.buffer.flush()
import time
line = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": {
    "sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "gr\\u00fc\\u00dfe \\U0001f600"}}}},
    ensure_ascii=False).encode() + b"\\n"
for at in range(len(line)):
    sys.stdout.buffer.write(line[at : at + 1]); sys.stdout.buffer.flush()
raw("no newline at the end")
"""

    async def body(talk: Talk) -> None:
        await talk.until(lambda: talk.on.closed)

    heard = talk(script, body).heard
    assert [one.text for one in heard if isinstance(one, Update)] == ["first", "grüße \U0001f600"]
    odd = [(one.why, one.line) for one in heard if isinstance(one, Unknown)]
    assert [why for why, _ in odd] == ["noise", "protocol", "noise", "noise", "noise"]
    assert odd[0][1] == "Debugger attached." and odd[-1][1] == "no newline at the end"


def test_a_line_that_is_too_long_is_dropped_and_told(talk: Any) -> None:
    """The lines around it arrive."""
    script = """
update("a"); update("x" * 5000); update("b"); read()
"""

    async def body(talk: Talk) -> None:
        await talk.until(lambda: len(talk.heard) == 3)

    heard = talk(script, body, line_limit=1000).heard
    assert [one.text for one in heard if isinstance(one, Update)] == ["a", "b"]
    (told,) = [one for one in heard if isinstance(one, Unknown)]
    assert "was dropped (limit 1,000)" in told.line
