"""The key is out of reach: a hostile tool looks wherever it can, on every transport, and finds nothing (`key_hunt`).

No option turns the gateway on: these are the defaults.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

import geminids
from complete import of
from fake_google import FakeGoogle
from geminids.events.model import Finished, ToolFinished, decode_event, encode_event
from geminids.gateway import Call, Reply
from geminids.process.marker import MARKER
from host_program import Task, host
from powerless import powerless
from through_gateway import RELEASES

pytestmark = pytest.mark.real

KEY = "AIzaSy" + os.urandom(16).hex()  # as long as a real one, and nowhere else on this machine
HUNT = Path(__file__).parents[1] / "shared" / "key_hunt.py"


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture
def newest() -> str:
    return "0.61.0"


@pytest.fixture
def google() -> Iterator[FakeGoogle]:
    """Plays Google, and has the agent run the hunt."""
    words = [sys.executable, "-IS", str(HUNT), KEY[:19], KEY[19:], "--memory"]
    call = Call("run_shell_command", {"command": f"{shlex.join(words)} > hunt.json"})
    with FakeGoogle([Reply(calls=[call]), Reply(text="done")], with_key=KEY) as server:
        yield server


def _env(google: FakeGoogle, **more: str) -> dict[str, str]:
    return {"GOOGLE_GEMINI_BASE_URL": google.url, **more}


def _hunted(world: Any) -> dict[str, Any]:
    text = (world.cwd / "hunt.json").read_text()
    told: dict[str, Any] = json.loads(text.removeprefix("HUNT"))
    # Where the host is this test, which must know the key, root's tools can read its memory.
    told["found"] = [place for place in told["found"] if not place.startswith(f"memory of {os.getpid()} ")]
    return told


def _check(world: Any, google: FakeGoogle, finished: Any) -> dict[str, Any]:
    """The agent's tool has looked at the run's processes and found nothing; what reached Google had the key."""
    told = json.loads(encode_event(finished)) if isinstance(finished, Finished) else finished
    assert (told["outcome"], told["answer"]) == ("success", "done"), told["failure"]
    assert {asked.key for asked in google.asked} == {KEY}
    hunt = _hunted(world)
    assert hunt["found"] == []
    assert hunt["read"]["of the run"] >= 1
    assert hunt["read"]["file"] >= 1
    return hunt


def _key_in_environment(world: Any) -> dict[str, Any]:
    return {"env": {"GEMINI_API_KEY": KEY, "COPY_OF_IT": f"--key={KEY}"}}


def _key_in_file(world: Any) -> dict[str, Any]:
    file = world.root / "key"
    file.touch(mode=0o600)
    file.write_text(f"{KEY}\n")
    return {"key_from": f"file:{file}"}


def _key_in_home(world: Any) -> dict[str, Any]:
    (world.home / ".gemini").mkdir()
    (world.home / ".gemini" / ".env").write_text(f"GEMINI_API_KEY={KEY}\n")
    return {}


@pytest.mark.parametrize("given", [_key_in_environment, _key_in_file, _key_in_home])
def test_headless(world: Any, google: FakeGoogle, given: Any) -> None:
    """Wherever the user keeps it, no process of the run has the key, nor any file that the run has made."""
    fields = given(world)
    options = world.options(approval="yolo", **{**fields, "env": _env(google, **fields.get("env", {}))})
    if "env" not in fields:
        env = {name: value for name, value in options.env.items() if name != "GEMINI_API_KEY"}
        options = msgspec.structs.replace(options, env=env)
    events = list(geminids.stream_sync("hello", options))
    _check(world, google, events[-1])
    assert not any(KEY.encode() in encode_event(event) for event in events)


@pytest.mark.parametrize("transport", ["headless", "warm"])
def test_a_copy_of_the_key_in_a_file(make_world: Any, newest: str, transport: str) -> None:
    """A variable that holds a copy of the key does not reach the tools, and `***` stands for the key in all events.

    No variable and no `.env` holds this key by itself. The gateway alone reads the file, after the route is chosen:
    the environment and the masks must use the key that the gateway has read.
    """
    world = make_world(newest)
    fields = _key_in_file(world)
    file = fields["key_from"].removeprefix("file:")
    call = Call("run_shell_command", {"command": f"env > tool_env.txt; cat {shlex.quote(file)}"})
    with FakeGoogle([Reply(calls=[call]), Reply(text=f"It is {KEY}.")], with_key=KEY) as google:
        env = _env(google, COPY=f"--key={KEY}", NO_COPY="--key=another")
        options = world.options(approval="yolo", env=env, **fields)
        # The world's own key is for its scripted model.
        env = {name: value for name, value in options.env.items() if name != "GEMINI_API_KEY"}
        options = msgspec.structs.replace(options, env=env)

        async def talk() -> list[Any]:
            async with geminids.Pool(options) as pool, pool.chat() as chat:
                return [event async for event in chat.send("hello")]

        events = anyio.run(talk) if transport == "warm" else list[Any](geminids.stream_sync("hello", options))
    assert events[-1].outcome == "success", events[-1].failure
    assert {asked.key for asked in google.asked} == {KEY}
    tool_env = (world.cwd / "tool_env.txt").read_text()
    assert "NO_COPY=--key=another\n" in tool_env
    assert "\nCOPY=" not in f"\n{tool_env}"
    assert KEY not in tool_env
    (tool,) = of(events, ToolFinished)
    assert "***" in (tool.output or "")
    assert events[-1].answer == "It is ***."
    assert not any(KEY.encode() in encode_event(event) for event in events)


def test_two_keys_in_one_process(make_world: Any, newest: str) -> None:
    """Chats that share a process mask their own keys each, although the process was started for the first one."""
    world = make_world(newest)
    keys = {"one": f"{KEY}-one", "two": f"{KEY}-two"}

    def script(request: Any) -> Reply | None:
        return Reply(text=f"It is {keys[request.last_user_text]}.") if request.method == "stream" else None

    with FakeGoogle(script) as google:
        options = world.options(env=_env(google))

        async def talk() -> dict[str, list[Any]]:
            said = {}
            async with geminids.Pool(options, size=1) as pool:
                for name, key in keys.items():
                    async with pool.chat(env={**options.env, "GEMINI_API_KEY": key}) as chat:
                        said[name] = [event async for event in chat.send(name)]
                assert len(pool.status()) == 1
            return said

        chats = anyio.run(talk)
    assert [asked.key for asked in google.asked] == list(keys.values())
    for name, events in chats.items():
        assert events[-1].answer == "It is ***.", events[-1]
        assert not any(keys[name].encode() in encode_event(event) for event in events)


def test_without_the_gateway_the_same_hunt_finds_it(world: Any, google: FakeGoogle) -> None:
    """What is shown here is worth something: with `gateway="off"` it is in the tool's own environment."""
    env = _env(google, GEMINI_API_KEY=KEY)
    assert world.ask(gateway="off", approval="yolo", env=env).ok
    found = _hunted(world)["found"]
    assert "own environment" in found
    assert any(place.startswith("environ of ") for place in found)
    assert any(place.startswith("memory of ") for place in found)


def test_warm(make_world: Any, newest: str, google: FakeGoogle) -> None:
    """A warm process serves many chats, and has the key of none."""
    world = make_world(newest)
    options = world.options(approval="yolo", env=_env(google, GEMINI_API_KEY=KEY))

    async def talk() -> list[Any]:
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            return [event async for event in chat.send("hello")]

    events = anyio.run(talk)
    _check(world, google, events[-1])
    assert not any(KEY.encode() in encode_event(event) for event in events)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can close a process to its own user")
@pytest.mark.parametrize("transport", ["headless", pytest.param("warm", marks=pytest.mark.deep)])
@pytest.mark.parametrize("protects", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_a_program_that_protects_itself(
    make_world: Any, newest: str, google: FakeGoogle, transport: str, protects: bool
) -> None:
    """A program of an unprivileged user with the key in its own environment: after `protect_host()` no tool finds it;
    without that, a tool reads it in the environment of the program."""
    world = make_world(newest)
    options = world.options(approval="yolo", env=_env(google, GEMINI_API_KEY=KEY))
    env = {name: value for name, value in options.env.items() if name != "GEMINI_API_KEY"}
    task = Task(options=msgspec.structs.replace(options, env=env), warm=transport == "warm", protect=protects)
    report = host(task, powerless=True, env={"GEMINI_API_KEY": KEY})
    (events,) = report.events
    assert events, report.stderr
    assert KEY not in report.stdout + report.stderr
    if protects:
        hunt = _check(world, google, events[-1])
        for what in ("environ", "fd", "mem"):
            assert hunt["host"] in hunt["closed"][what]
    else:
        assert events[-1].outcome == "success", events[-1].failure
        hunt = _hunted(world)
        assert any(place.startswith(f"environ of {hunt['host']} ") for place in hunt["found"])
        assert "own environment" not in hunt["found"]


def _geminids(
    world: Any, google: FakeGoogle, command: str, *flags: str, said: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """A command with the key in its own environment, by a user who is not root, outside of any run."""
    given = [f"--cwd={world.cwd}", f"--gemini={world.version}", "--model=flash", "--approval=yolo"]
    kept = {name: value for name, value in os.environ.items() if name != MARKER}
    own = {"HOME": str(world.home), "TMPDIR": str(world.tmp), "GEMINI_API_KEY": KEY}
    done = subprocess.run(
        powerless([sys.executable, "-m", "geminids", command, *given, *flags]),
        env={**kept, **own, **_env(google)},
        input=said,
        capture_output=True,
        timeout=90,
    )
    assert KEY.encode() not in done.stdout + done.stderr
    return done


def _run(world: Any, google: FakeGoogle, *flags: str) -> list[Any]:
    done = _geminids(world, google, "run", "hello", "--output=events", *flags)
    return [decode_event(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can close a process")
def test_the_command_itself_is_closed(world: Any, google: FakeGoogle) -> None:
    """`geminids run` has the key in its environment, which no tool of its run can read, nor its memory."""
    events = _run(world, google)
    hunt = _check(world, google, events[-1])
    for what in ("environ", "fd", "mem"):
        assert hunt["host"] in hunt["closed"][what]


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can close a process")
def test_a_chat_is_closed(make_world: Any, newest: str, google: FakeGoogle) -> None:
    """`geminids chat` too, which holds a key for hours."""
    world = make_world(newest)
    done = _geminids(world, google, "chat", "--json", said=b"hello\n")
    hunt = _check(world, google, json.loads(done.stdout.splitlines()[-1]))
    for what in ("environ", "fd", "mem"):
        assert hunt["host"] in hunt["closed"][what]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can close a process")
def test_the_pools_owner_is_closed(make_world: Any, newest: str, google: FakeGoogle) -> None:
    """It is handed the variables of its clients: they are in its memory alone, which is closed as theirs is."""
    world = make_world(newest)
    try:
        events = _run(world, google, "--warm", "--warm-for=20")
        hunt = _check(world, google, events[-1])
        for what in ("environ", "fd", "mem"):
            assert hunt["host"] in hunt["closed"][what]
        assert len(hunt["closed"]["environ"]) >= 2  # the client too
    finally:
        stop = [sys.executable, "-m", "geminids", "warm", "stop"]
        subprocess.run(powerless(stop), env={**os.environ, "HOME": str(world.home)}, timeout=60, check=True)


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone can close a process")
def test_a_command_without_the_gateway_stays_open(make_world: Any, newest: str, google: FakeGoogle) -> None:
    """With `--gateway off` nothing is hidden, and debuggers work as ever."""
    world = make_world(newest)
    assert _run(world, google, "--gateway=off")[-1].outcome == "success"
    hunt = _hunted(world)
    assert hunt["host"] not in hunt["closed"]["environ"]
    assert "own environment" in hunt["found"]
