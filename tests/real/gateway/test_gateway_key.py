"""No tool can find the API key: a hostile tool (`find_secret`) searches on every transport and
finds nothing.

No option turns the gateway on: the tests use the defaults.
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
from collect_events import select_events
from fake_google import FakeGoogle
from gateway_runs import RELEASES
from geminids.events.model import Finished, ToolFinished, decode_event, encode_event
from geminids.gateway import Call, Reply
from geminids.process.marker import MARKER
from host_program import Task, run_host
from unprivileged import without_privileges

pytestmark = pytest.mark.real

KEY = "AIzaSy" + os.urandom(16).hex()  # as long as a real key, and unique on this machine
FIND_SECRET = Path(__file__).parents[2] / "shared" / "find_secret.py"


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture
def newest() -> str:
    return "0.61.0"


@pytest.fixture
def google() -> Iterator[FakeGoogle]:
    """A server that plays Google. Its scripted agent runs `find_secret` as a tool."""
    words = [sys.executable, "-IS", str(FIND_SECRET), KEY[:19], KEY[19:], "--memory"]
    call = Call("run_shell_command", {"command": f"{shlex.join(words)} > search.json"})
    with FakeGoogle([Reply(calls=[call]), Reply(text="done")], with_key=KEY) as server:
        yield server


def _env(google: FakeGoogle, **more: str) -> dict[str, str]:
    return {"GOOGLE_GEMINI_BASE_URL": google.url, **more}


def _search_report(world: Any) -> dict[str, Any]:
    """Return what the tool has found and read."""
    text = (world.cwd / "search.json").read_text()
    report: dict[str, Any] = json.loads(text.removeprefix("HUNT"))
    # If the test process is the host, it knows the key, and a tool of root can read its memory.
    report["found"] = [
        place for place in report["found"] if not place.startswith(f"memory of {os.getpid()} ")
    ]
    return report


def _check_search(world: Any, google: FakeGoogle, finished: Any) -> dict[str, Any]:
    """Check that the tool searched the run's processes and files and found no key, and that Google
    received the key."""
    fields = json.loads(encode_event(finished)) if isinstance(finished, Finished) else finished
    assert (fields["outcome"], fields["answer"]) == ("success", "done"), fields["failure"]
    assert {asked.key for asked in google.asked} == {KEY}
    search = _search_report(world)
    assert search["found"] == []
    assert search["read"]["of the run"] >= 1
    assert search["read"]["file"] >= 1
    return search


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


@pytest.mark.parametrize("key_source", [_key_in_environment, _key_in_file, _key_in_home])
def test_headless(world: Any, google: FakeGoogle, key_source: Any) -> None:
    """Wherever the user keeps the key, no process of the run and no file of the run contains it."""
    fields = key_source(world)
    options = world.options(approval="yolo", **{**fields, "env": _env(google, **fields.get("env", {}))})
    if "env" not in fields:
        env = {name: value for name, value in options.env.items() if name != "GEMINI_API_KEY"}
        options = msgspec.structs.replace(options, env=env)
    events = list(geminids.stream_sync("hello", options))
    _check_search(world, google, events[-1])
    assert not any(KEY.encode() in encode_event(event) for event in events)


@pytest.mark.parametrize("transport", ["headless", "warm"])
def test_a_copy_of_the_key_in_a_file(make_world: Any, newest: str, transport: str) -> None:
    """A variable that holds a copy of the key does not reach the tools, and all events show `***`
    instead of the key.

    No variable and no `.env` holds this key alone. Only the gateway reads it, from a file and after
    the route is chosen. So the environment and the masking must use the key that the gateway has
    read.
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

        async def run_chat() -> list[Any]:
            async with geminids.Pool(options) as pool, pool.chat() as chat:
                return [event async for event in chat.send("hello")]

        events = (
            anyio.run(run_chat) if transport == "warm" else list[Any](geminids.stream_sync("hello", options))
        )
    assert events[-1].outcome == "success", events[-1].failure
    assert {asked.key for asked in google.asked} == {KEY}
    tool_env = (world.cwd / "tool_env.txt").read_text()
    assert "NO_COPY=--key=another\n" in tool_env
    assert "\nCOPY=" not in f"\n{tool_env}"
    assert KEY not in tool_env
    (tool,) = select_events(events, ToolFinished)
    assert "***" in (tool.output or "")
    assert events[-1].answer == "It is ***."
    assert not any(KEY.encode() in encode_event(event) for event in events)


def test_two_keys_in_one_process(make_world: Any, newest: str) -> None:
    """Each of two chats masks its own key, although they share one process that was started for the
    first chat."""
    world = make_world(newest)
    keys = {"one": f"{KEY}-one", "two": f"{KEY}-two"}

    def script(request: Any) -> Reply | None:
        return Reply(text=f"It is {keys[request.last_user_text]}.") if request.method == "stream" else None

    with FakeGoogle(script) as google:
        options = world.options(env=_env(google))

        async def run_chats() -> dict[str, list[Any]]:
            events = {}
            async with geminids.Pool(options, size=1) as pool:
                for name, key in keys.items():
                    async with pool.chat(env={**options.env, "GEMINI_API_KEY": key}) as chat:
                        events[name] = [event async for event in chat.send(name)]
                assert len(pool.status()) == 1
            return events

        chats = anyio.run(run_chats)
    assert [asked.key for asked in google.asked] == list(keys.values())
    for name, events in chats.items():
        assert events[-1].answer == "It is ***.", events[-1]
        assert not any(keys[name].encode() in encode_event(event) for event in events)


def test_without_the_gateway_the_search_finds_the_key(world: Any, google: FakeGoogle) -> None:
    """With `gateway="off"` the same search finds the key in environments and in memory. This shows
    that the search works."""
    env = _env(google, GEMINI_API_KEY=KEY)
    assert world.ask(gateway="off", approval="yolo", env=env).ok
    found = _search_report(world)["found"]
    assert "own environment" in found
    assert any(place.startswith("environ of ") for place in found)
    assert any(place.startswith("memory of ") for place in found)


def test_a_warm_process_has_no_key(make_world: Any, newest: str, google: FakeGoogle) -> None:
    """A warm process, which serves many chats, does not contain the key of a chat."""
    world = make_world(newest)
    options = world.options(approval="yolo", env=_env(google, GEMINI_API_KEY=KEY))

    async def run_chat() -> list[Any]:
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            return [event async for event in chat.send("hello")]

    events = anyio.run(run_chat)
    _check_search(world, google, events[-1])
    assert not any(KEY.encode() in encode_event(event) for event in events)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can protect a process from its own user")
@pytest.mark.parametrize("transport", ["headless", pytest.param("warm", marks=pytest.mark.deep)])
@pytest.mark.parametrize("protects", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_a_program_that_protects_itself(
    make_world: Any, newest: str, google: FakeGoogle, transport: str, protects: bool
) -> None:
    """After `protect_host()`, no tool can find the key in the environment of an unprivileged user's
    program. Without that call, a tool can read it there."""
    world = make_world(newest)
    options = world.options(approval="yolo", env=_env(google, GEMINI_API_KEY=KEY))
    env = {name: value for name, value in options.env.items() if name != "GEMINI_API_KEY"}
    task = Task(options=msgspec.structs.replace(options, env=env), warm=transport == "warm", protect=protects)
    report = run_host(task, unprivileged=True, env={"GEMINI_API_KEY": KEY})
    (events,) = report.events
    assert events, report.stderr
    assert KEY not in report.stdout + report.stderr
    if protects:
        search = _check_search(world, google, events[-1])
        for access in ("environ", "fd", "mem"):
            assert search["host"] in search["closed"][access]
    else:
        assert events[-1].outcome == "success", events[-1].failure
        search = _search_report(world)
        assert any(place.startswith(f"environ of {search['host']} ") for place in search["found"])
        assert "own environment" not in search["found"]


def _geminids(
    world: Any, google: FakeGoogle, command: str, *flags: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as an unprivileged user, outside of any run, with the key in its
    environment."""
    arguments = [f"--cwd={world.cwd}", f"--gemini={world.version}", "--model=flash", "--approval=yolo"]
    inherited = {name: value for name, value in os.environ.items() if name != MARKER}
    own = {"HOME": str(world.home), "TMPDIR": str(world.tmp), "GEMINI_API_KEY": KEY}
    done = subprocess.run(
        without_privileges([sys.executable, "-m", "geminids", command, *arguments, *flags]),
        env={**inherited, **own, **_env(google)},
        input=stdin,
        capture_output=True,
        timeout=90,
    )
    assert KEY.encode() not in done.stdout + done.stderr
    return done


def _run(world: Any, google: FakeGoogle, *flags: str) -> list[Any]:
    done = _geminids(world, google, "run", "hello", "--output=events", *flags)
    return [decode_event(line) for line in done.stdout.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can protect a process from its own user")
def test_the_run_command_is_protected(world: Any, google: FakeGoogle) -> None:
    """`geminids run` has the key in its environment. No tool of its run can read that environment
    or its memory."""
    events = _run(world, google)
    search = _check_search(world, google, events[-1])
    for access in ("environ", "fd", "mem"):
        assert search["host"] in search["closed"][access]


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can protect a process from its own user")
def test_the_chat_command_is_protected(make_world: Any, newest: str, google: FakeGoogle) -> None:
    """No tool can read the environment, the memory or the descriptors of `geminids chat`, which has
    the key."""
    world = make_world(newest)
    done = _geminids(world, google, "chat", "--json", stdin=b"hello\n")
    search = _check_search(world, google, json.loads(done.stdout.splitlines()[-1]))
    for access in ("environ", "fd", "mem"):
        assert search["host"] in search["closed"][access]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can protect a process from its own user")
def test_the_warm_daemon_is_protected(make_world: Any, newest: str, google: FakeGoogle) -> None:
    """The warm daemon receives the variables of its clients. No tool can read the memory,
    environment or descriptors of the daemon, nor the environment of the client."""
    world = make_world(newest)
    try:
        events = _run(world, google, "--warm", "--warm-for=20")
        search = _check_search(world, google, events[-1])
        for access in ("environ", "fd", "mem"):
            assert search["host"] in search["closed"][access]
        assert len(search["closed"]["environ"]) >= 2  # the client too
    finally:
        stop = [sys.executable, "-m", "geminids", "warm", "stop"]
        subprocess.run(
            without_privileges(stop), env={**os.environ, "HOME": str(world.home)}, timeout=60, check=True
        )


@pytest.mark.deep
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can protect a process from its own user")
def test_a_command_without_the_gateway_is_not_protected(
    make_world: Any, newest: str, google: FakeGoogle
) -> None:
    """With `--gateway off` the command does not protect its process, so that debuggers work. A tool
    finds the key."""
    world = make_world(newest)
    assert _run(world, google, "--gateway=off")[-1].outcome == "success"
    search = _search_report(world)
    assert search["host"] not in search["closed"]["environ"]
    assert "own environment" in search["found"]
