"""A conversation that the CLI refuses is rescued, and the CLI goes on with it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geminids import sessions
from geminids.gemini import find as find_gemini

pytestmark = pytest.mark.real


def _where(world: Any) -> dict[str, Any]:
    return {"environ": {"HOME": str(world.home)}, "places": world.places}


def _environ(world: Any) -> dict[str, str]:
    """What the user's own `gemini` finds around itself, with nothing of ours."""
    (world.home / ".gemini" / "settings.json").write_text(
        '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'
    )
    own = {"HOME": str(world.home), "TMPDIR": str(world.tmp), "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return {**os.environ, **world.gateway.env, **own}


def _plain(world: Any, session_id: str) -> subprocess.CompletedProcess[bytes]:
    gemini = find_gemini(world.version, places=world.places)
    argv = [*gemini.command(world.places), "--model=flash", f"--resume={session_id}", "--prompt=which word?"]
    return subprocess.run(
        argv, cwd=world.cwd, env=_environ(world), stdin=subprocess.DEVNULL, capture_output=True, timeout=120
    )


def _torn(data: bytes) -> bytes:
    """The header is gone, and the file ends in the middle of its last message."""
    data = _headless(data)
    return data[: data.rindex(b"the number is 7719") + len("the number is 77")]


def _headless(data: bytes) -> bytes:
    return b"".join(line for line in data.splitlines(keepends=True) if b'"projectHash"' not in line)


def _overwritten(data: bytes) -> bytes:
    """What a failed `session/load` leaves behind: another header, and a conversation of nothing (FORMATS 11)."""
    header = data.partition(b"\n")[0] + b"\n"
    context = {"id": "c", "type": "user", "content": [{"text": "<session_context>\n</session_context>"}]}
    return data + header + json.dumps({"$set": {"messages": [context]}}).encode() + b"\n"


def _broken(data: bytes) -> bytes:
    """A line is broken, and a rewind to nowhere has taken all."""
    return data.replace(b'{"sessionId"', b'\x00{"sess\xffionId"') + b'{"$rewindTo":"nowhere"}\n'


@pytest.mark.parametrize(
    "damage",
    [_torn, *(pytest.param(one, marks=pytest.mark.deep) for one in (_headless, _overwritten, _broken))],
)
def test_a_refused_conversation_goes_on(world: Any, damage: Callable[[bytes], bytes]) -> None:
    """Refused before, resumed after: by a run of ours and by plain `gemini`, with its messages in the request."""
    where = _where(world)
    world.gateway.reply(text="I look.", calls=[("list_directory", {"dir_path": "."})])
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word")
    world.gateway.reply(text="the number is 7719")
    world.ask("and a number", resume=first.session_id)
    (info,) = sessions.find(world.cwd, **where)
    file = Path(info.file)
    damaged = damage(file.read_bytes())
    file.write_bytes(damaged)

    assert not sessions.exists(info.id, world.cwd, **where)
    refused = world.ask("go on", resume=info.id)
    assert not refused.ok
    assert refused.failure.kind == "session_not_found"

    report = sessions.rescue(info.id, world.cwd, **where)
    assert file.read_bytes() == damaged
    world.gateway.reply(text="pear")
    result = world.ask("which word?", resume=report.session_id)
    assert (result.outcome, result.session_id) == ("success", report.session_id)
    _assert_told(world)
    answers = [part for one in _told(world) for part in one["parts"] if "functionResponse" in part]
    calls = [part for one in _told(world) for part in one["parts"] if "functionCall" in part]
    # The CLI's own file has three answers to the one call; the API takes one.
    assert (len(calls), len(answers)) == (1, 1)
    if damage is _torn:
        return
    again = sessions.rescue(info.id, world.cwd, **where)
    world.gateway.reply(text="pear")
    done = _plain(world, again.session_id)
    assert done.returncode == 0, done.stderr
    _assert_told(world)


def _told(world: Any) -> Any:
    return world.gateway.requests[-1].body["contents"]


def _assert_told(world: Any) -> None:
    """The conversation is in the request."""
    told = json.dumps(_told(world))
    for words in ("remember the word", "the word is pear", "the number is 77"):
        assert words in told


@pytest.mark.deep
def test_what_a_load_on_acp_destroys_comes_back(make_world: Any) -> None:
    """The real `session/load` of a young session: it fails, and takes the conversation along."""
    world = make_world("0.61.0")
    where = _where(world)
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word")
    _load_on_acp(world, first.session_id)
    if sessions.exists(first.session_id, world.cwd, **where):
        pytest.skip("this time the load has done no harm")
    report = sessions.rescue(first.session_id, world.cwd, **where)
    world.gateway.reply(text="pear")
    assert world.ask("which word?", resume=report.session_id).ok
    assert "the word is pear" in json.dumps(world.gateway.requests[-1].body)


def _load_on_acp(world: Any, session_id: str) -> None:
    gemini = find_gemini(world.version, places=world.places)
    argv = [*gemini.command(world.places), "--acp", "--model=flash"]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("initialize", {"protocolVersion": 1, "clientCapabilities": {}}),
        ("session/load", {"sessionId": session_id, "cwd": str(world.cwd), "mcpServers": []}),
    ]
    with subprocess.Popen(
        argv, cwd=world.cwd, env=_environ(world), stdin=-1, stdout=-1, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for number, (method, params) in enumerate(asked):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            while json.loads(child.stdout.readline()).get("id") != number:
                pass
        child.stdin.close()
        child.wait(60)
