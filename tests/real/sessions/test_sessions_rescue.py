"""`sessions.rescue` copies a damaged conversation into a new session that the CLI can resume."""

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


def _lookup(world: Any) -> dict[str, Any]:
    return {"environ": {"HOME": str(world.home)}, "places": world.places}


def _plain_environ(world: Any) -> dict[str, str]:
    """Write the user's settings, and return the environment for plain `gemini` without geminids."""
    (world.home / ".gemini" / "settings.json").write_text(
        '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'
    )
    own = {"HOME": str(world.home), "TMPDIR": str(world.tmp), "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    return {**os.environ, **world.gateway.env, **own}


def _resume_with_plain_gemini(world: Any, session_id: str) -> subprocess.CompletedProcess[bytes]:
    gemini = find_gemini(world.version, places=world.places)
    argv = [*gemini.command(world.places), "--model=flash", f"--resume={session_id}", "--prompt=which word?"]
    return subprocess.run(
        argv,
        cwd=world.cwd,
        env=_plain_environ(world),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )


def _torn(data: bytes) -> bytes:
    """Remove the header, and cut the file off in the middle of its last message."""
    data = _headless(data)
    return data[: data.rindex(b"the number is 7719") + len("the number is 77")]


def _headless(data: bytes) -> bytes:
    return b"".join(line for line in data.splitlines(keepends=True) if b'"projectHash"' not in line)


def _overwritten(data: bytes) -> bytes:
    """Append what a failed `session/load` writes: a second header and an empty conversation
    (FORMATS 11)."""
    header = data.partition(b"\n")[0] + b"\n"
    context = {"id": "c", "type": "user", "content": [{"text": "<session_context>\n</session_context>"}]}
    return data + header + json.dumps({"$set": {"messages": [context]}}).encode() + b"\n"


def _broken(data: bytes) -> bytes:
    """Corrupt a line, and append a rewind to an unknown message, which removes all messages."""
    return data.replace(b'{"sessionId"', b'\x00{"sess\xffionId"') + b'{"$rewindTo":"nowhere"}\n'


@pytest.mark.parametrize(
    "damage",
    [_torn, *(pytest.param(one, marks=pytest.mark.deep) for one in (_headless, _overwritten, _broken))],
)
def test_a_rescued_conversation_resumes(world: Any, damage: Callable[[bytes], bytes]) -> None:
    """A conversation that the CLI refuses is rescued. Runs of geminids and plain `gemini` can
    resume it, and the request then has its messages."""
    lookup = _lookup(world)
    world.gateway.reply(text="I look.", calls=[("list_directory", {"dir_path": "."})])
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word")
    world.gateway.reply(text="the number is 7719")
    world.ask("and a number", resume=first.session_id)
    (info,) = sessions.find(world.cwd, **lookup)
    file = Path(info.file)
    damaged = damage(file.read_bytes())
    file.write_bytes(damaged)

    assert not sessions.exists(info.id, world.cwd, **lookup)
    refused = world.ask("go on", resume=info.id)
    assert not refused.ok
    assert refused.failure.kind == "session_not_found"

    report = sessions.rescue(info.id, world.cwd, **lookup)
    assert file.read_bytes() == damaged
    world.gateway.reply(text="pear")
    result = world.ask("which word?", resume=report.session_id)
    assert (result.outcome, result.session_id) == ("success", report.session_id)
    _assert_model_knows_the_conversation(world)
    parts = [part for content in _contents_sent(world) for part in content["parts"]]
    answers = [part for part in parts if "functionResponse" in part]
    calls = [part for part in parts if "functionCall" in part]
    # The CLI's own file has three results for the one call; the API accepts only one.
    assert (len(calls), len(answers)) == (1, 1)
    if damage is _torn:
        return
    again = sessions.rescue(info.id, world.cwd, **lookup)
    world.gateway.reply(text="pear")
    completed = _resume_with_plain_gemini(world, again.session_id)
    assert completed.returncode == 0, completed.stderr
    _assert_model_knows_the_conversation(world)


def _contents_sent(world: Any) -> Any:
    return world.gateway.requests[-1].body["contents"]


def _assert_model_knows_the_conversation(world: Any) -> None:
    """The last request has the messages of the conversation."""
    sent = json.dumps(_contents_sent(world))
    for words in ("remember the word", "the word is pear", "the number is 77"):
        assert words in sent


@pytest.mark.deep
def test_a_conversation_destroyed_by_acp_load_is_restored(make_world: Any) -> None:
    """The ACP request `session/load` can damage a session that was written shortly before.
    `sessions.rescue` restores its conversation."""
    world = make_world("0.61.0")
    lookup = _lookup(world)
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word")
    _load_on_acp(world, first.session_id)
    if sessions.exists(first.session_id, world.cwd, **lookup):
        pytest.skip("this time session/load did not damage the session")
    report = sessions.rescue(first.session_id, world.cwd, **lookup)
    world.gateway.reply(text="pear")
    assert world.ask("which word?", resume=report.session_id).ok
    assert "the word is pear" in json.dumps(world.gateway.requests[-1].body)


def _load_on_acp(world: Any, session_id: str) -> None:
    gemini = find_gemini(world.version, places=world.places)
    argv = [*gemini.command(world.places), "--acp", "--model=flash"]
    requests: list[tuple[str, dict[str, Any]]] = [
        ("initialize", {"protocolVersion": 1, "clientCapabilities": {}}),
        ("session/load", {"sessionId": session_id, "cwd": str(world.cwd), "mcpServers": []}),
    ]
    with subprocess.Popen(
        argv, cwd=world.cwd, env=_plain_environ(world), stdin=-1, stdout=-1, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for number, (method, params) in enumerate(requests):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
            while json.loads(child.stdout.readline()).get("id") != number:
                pass
        child.stdin.close()
        child.wait(60)
