"""Tests of `AcpConnection`: JSON-RPC over the pipes of a real process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from geminids.gemini.protocol.acp.calls import Cancel, NewSession, SendPrompt, TextContent, prompt_result
from geminids.gemini.protocol.acp.messages import RpcRequest, Unknown, Update
from geminids.process.child import spawn
from geminids.warm.acp.connection import AcpConnection, ProcessGone, RpcFailed

_HEAD = """
import json, os, sys
def read():
    line = sys.stdin.readline()
    return json.loads(line) if line else None
def raw(text):
    sys.stdout.write(text)
    sys.stdout.flush()
def send(**message):
    raw(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
def update(text):
    content = {"type": "text", "text": text}
    change = {"sessionUpdate": "agent_message_chunk", "content": content}
    send(method="session/update", params={"sessionId": "s", "update": change})
"""


class FakeAgent:
    """A child process that runs `script`, our connection to it, and the messages that arrived."""

    def __init__(self, script: str, line_limit: int) -> None:
        env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
        self.child = spawn([sys.executable, "-ISc", _HEAD + script], cwd="/", env=env)
        self.updates: list[Update | Unknown] = []
        self.permission_requests: list[RpcRequest] = []
        self.connection = AcpConnection(
            self.child, self.updates.append, self.permission_requests.append, line_limit=line_limit
        )

    async def run(self, body: Callable[[FakeAgent], Any]) -> None:
        try:
            with anyio.fail_after(30):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read)
                    tasks.start_soon(self.connection.pump)
                    await body(self)
                    tasks.cancel_scope.cancel()
        finally:
            self.child.signal_group("KILL")
            with anyio.CancelScope(shield=True):
                await self.child.wait()
            self.child.close()

    async def _read(self) -> None:
        await self.connection.read()
        self.connection.close()

    async def wait_until(self, holds: Callable[[], object]) -> None:
        while not holds():
            await anyio.sleep(0.005)


@pytest.fixture(params=["asyncio", pytest.param("trio", marks=pytest.mark.deep)])
def run_with_agent(request: pytest.FixtureRequest) -> Callable[..., FakeAgent]:
    """Start `script` as a child process and run `body` while it is connected; return the
    `FakeAgent`."""

    def run(script: str, body: Callable[[FakeAgent], Any], line_limit: int = 1 << 20) -> FakeAgent:
        agent = FakeAgent(script, line_limit)
        anyio.run(agent.run, body, backend=request.param)
        return agent

    return run


def test_answers_are_matched_to_requests_by_id(run_with_agent: Any) -> None:
    """Each request gets the answer with its own id, even if the answers arrive in reverse order."""
    script = """
requests = [read() for _ in range(5)]
for request in reversed(requests):
    send(id=request["id"], result={"sessionId": request["params"]["cwd"]})
read()
"""
    results = {}

    async def body(agent: FakeAgent) -> None:
        async def ask(cwd: str) -> None:
            results[cwd] = bytes(await agent.connection.call(NewSession(cwd=cwd)))

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(ask, f"/{number}")

    run_with_agent(script, body)
    assert results == {f"/{number}": f'{{"sessionId": "/{number}"}}'.encode() for number in range(5)}


def test_an_error_answer_is_raised_with_its_code(run_with_agent: Any) -> None:
    """An error answer raises `RpcFailed` with its code and details.

    Answers with an unknown or already answered id are ignored.
    """
    script = """
request = read()
for unknown_id in (99, "x", None, [1], True):
    send(id=unknown_id, result={})
send(id=request["id"], error={"code": 429, "message": "Rate limit", "data": {"x": 1}})
send(id=request["id"], result={"stopReason": "end_turn"})
request = read()
send(id=request["id"], result={"stopReason": "end_turn"})
read()
"""

    async def body(agent: FakeAgent) -> None:
        with pytest.raises(RpcFailed) as caught:
            await agent.connection.call(SendPrompt(session_id="s", prompt=()))
        assert (caught.value.error.code, caught.value.error.details) == (429, '{"x":1}')
        assert (
            prompt_result(await agent.connection.call(SendPrompt(session_id="s", prompt=()))).reason
            == "end_turn"
        )

    run_with_agent(script, body)


def test_a_permission_request_is_answered_under_its_id(run_with_agent: Any) -> None:
    """A permission request is answered under its own id: with the chosen option, or with
    `cancelled`. A notification is sent without an id.
    """
    script = """
for request_id in ("q-1", 0):
    send(id=request_id, method="session/request_permission", params={"sessionId": "s", "toolCall": {"toolCallId": "t"},
        "options": [{"optionId": "proceed_once", "name": "", "kind": "allow_once"}]})
received = [read() for _ in range(3)]
update(json.dumps(received))
read()
"""

    async def body(agent: FakeAgent) -> None:
        await agent.wait_until(lambda: len(agent.permission_requests) == 2)
        agent.connection.answer(agent.permission_requests[0], "proceed_once")
        agent.connection.answer(agent.permission_requests[1], None)
        agent.connection.notify(Cancel(session_id="s"))
        await agent.wait_until(lambda: agent.updates)

    (update,) = run_with_agent(script, body).updates
    selected, cancelled, notification = json.loads(update.text)
    assert (selected["id"], selected["result"]["outcome"]) == (
        "q-1",
        {"outcome": "selected", "optionId": "proceed_once"},
    )
    assert (cancelled["id"], cancelled["result"]["outcome"]) == (0, {"outcome": "cancelled"})
    assert notification == {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s"}}


def test_an_unsupported_request_gets_an_error(run_with_agent: Any) -> None:
    """The agent gets an error for an unknown method and for a permission request that cannot be
    decoded, so that it does not wait forever.
    """
    script = """
send(id=1, method="fs/read_text_file", params={"sessionId": "s", "path": "/etc/passwd"})
send(id=2, method="session/request_permission", params={"sessionId": 7})
update(json.dumps([read(), read()]))
read()
"""

    async def body(agent: FakeAgent) -> None:
        await agent.wait_until(lambda: agent.updates)

    agent = run_with_agent(script, body)
    first, second = json.loads(agent.updates[0].text)
    assert (first["id"], first["error"]["code"]) == (1, -32601)
    assert first["error"]["message"] == "geminids does not support fs/read_text_file"
    assert second["id"] == 2 and "error" in second and agent.permission_requests == []


def test_messages_larger_than_the_pipe_arrive_complete(run_with_agent: Any) -> None:
    """Messages larger than the pipe's 64 KiB buffer arrive complete and in order, and sending them
    does not block.
    """
    script = """
update("ready")
received = []
while len(received) < 4:
    message = read()
    blocks = message["params"].get("prompt", [])
    received.append([message.get("id"), message["method"], sum(len(block["text"]) for block in blocks)])
update(json.dumps(received))
read()
"""

    async def body(agent: FakeAgent) -> None:
        await agent.wait_until(lambda: agent.updates)
        for size in (5_000_000, 3):
            agent.connection.begin(SendPrompt(session_id="s", prompt=(TextContent(text="é" * size),)))
        agent.connection.notify(Cancel(session_id="s"))
        agent.connection.begin(SendPrompt(session_id="s", prompt=(TextContent(text="x" * 300_000),)))
        await agent.wait_until(lambda: len(agent.updates) == 2)

    agent = run_with_agent(script, body)
    assert json.loads(agent.updates[1].text) == [
        [1, "session/prompt", 5_000_000],
        [2, "session/prompt", 3],
        [None, "session/cancel", 0],
        [3, "session/prompt", 300_000],
    ]


def test_requests_fail_when_the_process_ends(run_with_agent: Any) -> None:
    """If the process ends, pending and later requests raise `ProcessGone`, and a notification does
    not raise.
    """
    script = """
read(); update("bye"); os._exit(7)
"""

    async def body(agent: FakeAgent) -> None:
        for _ in range(3):
            with pytest.raises(ProcessGone):
                await agent.connection.call(
                    SendPrompt(session_id="s", prompt=(TextContent(text="x" * 100_000),))
                )
        assert agent.connection.closed
        agent.connection.notify(Cancel(session_id="s"))

    agent = run_with_agent(script, body)
    assert [update.text for update in agent.updates] == ["bye"]


def test_a_request_fails_when_the_process_ends_during_the_write(run_with_agent: Any) -> None:
    """If the process ends while a large message is only partly written, the request raises
    `ProcessGone`.
    """

    async def body(agent: FakeAgent) -> None:
        with pytest.raises(ProcessGone):
            await agent.connection.call(
                SendPrompt(session_id="s", prompt=(TextContent(text="x" * 5_000_000),))
            )

    run_with_agent("sys.stdin.read(100_000); os._exit(1)\n", body)


def test_noise_between_messages_is_reported(run_with_agent: Any) -> None:
    """Each output line that is not a message is reported as `Unknown`.

    A message that arrives byte by byte is still decoded.
    """
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

    async def body(agent: FakeAgent) -> None:
        await agent.wait_until(lambda: agent.connection.closed)

    updates = run_with_agent(script, body).updates
    assert [update.text for update in updates if isinstance(update, Update)] == ["first", "grüße \U0001f600"]
    unknown = [(update.why, update.line) for update in updates if isinstance(update, Unknown)]
    assert [why for why, _ in unknown] == ["noise", "protocol", "noise", "noise", "noise"]
    assert unknown[0][1] == "Debugger attached." and unknown[-1][1] == "no newline at the end"


def test_a_line_over_the_limit_is_dropped_and_reported(run_with_agent: Any) -> None:
    """A line over the limit is dropped and reported as `Unknown`; the lines around it arrive."""
    script = """
update("a"); update("x" * 5000); update("b"); read()
"""

    async def body(agent: FakeAgent) -> None:
        await agent.wait_until(lambda: len(agent.updates) == 3)

    updates = run_with_agent(script, body, line_limit=1000).updates
    assert [update.text for update in updates if isinstance(update, Update)] == ["a", "b"]
    (dropped,) = [update for update in updates if isinstance(update, Unknown)]
    assert "was dropped (limit 1,000)" in dropped.line
