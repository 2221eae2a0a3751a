"""Resume that works: found before anything is spawned, and told as a run of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from complete import of, told
from geminids import Notice, Started, Thought, TokensUsed, ToolFinished, ToolStarted, decode_event, sessions
from geminids.gateway import Usage
from plain_gemini import plain_gemini

pytestmark = pytest.mark.real

NO_SUCH = "00000000-0000-4000-8000-000000000000"
AGENT = ("invoke_agent", {"agent_name": "generalist", "prompt": "The task of one."})


def _first(world: Any, **fields: Any) -> str:
    """A session with all that a journal can hold; gives its id."""
    (world.cwd / "one.txt").write_text("text of one\n")
    when = world.gateway.when
    when("remember", thought="**Old**\nold thought", calls=[AGENT], usage=Usage(input=1000, output=10))
    when("task of one", thought="**Old**\nold agent", calls=[("read_file", {"file_path": "one.txt"})])
    when("task of one", calls=[("complete_task", {"result": {"response": "x"}, "response": "x"})])
    when("remember", text="the word is pear", usage=Usage(input=2000, output=20))
    _, result = told("remember", world.options(approval="yolo", **fields))
    assert result.ok, result.failure
    assert result.session_id is not None
    return result.session_id


def _second(world: Any) -> None:
    world.gateway.when(
        "which word",
        thought="**New**\nnew thought",
        calls=[("read_file", {"file_path": "one.txt"})],
        usage=Usage(input=300, output=3),
    )
    world.gateway.when("which word", text="pear", usage=Usage(input=400, output=4))


def _of_this_run_alone(events: list[Any], result: Any) -> None:
    """Nothing of the conversation before."""
    assert [(one.text, one.turn) for one in of(events, Thought)] == [("new thought", 1)]
    assert [tool.name for tool in of(events, ToolStarted)] == ["read_file"]
    assert [tool.output for tool in of(events, ToolFinished)] == ["text of one\n"]
    assert [(one.input, one.role) for one in of(events, TokensUsed)] == [(300, "main"), (400, "main")]
    assert (result.usage.input, result.usage.output, result.usage.requests) == (700, 7, 2)
    assert [turn.text for turn in result.turns] == ["", "pear"]
    assert result.complete


def _remembers(world: Any) -> bool:
    return "the word is pear" in json.dumps(world.gateway.requests[-1].body)


def _later(world: Any, session: str) -> None:
    """The file's name, had the session begun in another minute: the CLI then begins a stub beside it."""
    for file in world.home.rglob(f"session-*-{session[:8]}.jsonl"):
        file.rename(file.with_name(f"session-2026-01-01T00-00-{session[:8]}.jsonl"))


@pytest.mark.parametrize(
    ("by", "later"),
    [
        ("id", False),
        ("prefix", True),
        *(pytest.param(by, later, marks=pytest.mark.deep) for by, later in (("id", True), ("latest", False))),
    ],
)
def test_a_resumed_run_tells_of_itself_alone(world: Any, by: str, later: bool) -> None:
    """By id, by how it begins, or the latest: the model knows the conversation, the events have none of it."""
    session = _first(world)
    if later:
        _later(world, session)
    _second(world)
    resume = {"id": session, "prefix": session[:8], "latest": "latest"}[by]
    events, result = told("which word", world.options(approval="yolo", model="flash", resume=resume))
    assert (result.outcome, result.session_id) == ("success", session)
    assert of(events, Started)[0].session_id == session
    assert _remembers(world)
    assert not of(events, Notice, code="fresh_session")
    _of_this_run_alone(events, result)


@pytest.mark.deep
def test_again_and_again(world: Any) -> None:
    """Three times in a row: each has its own events, and all that was said is there at the end."""
    session = _first(world)
    for _ in range(3):
        _second(world)
        events, result = told("which word", world.options(approval="yolo", resume=session))
        _of_this_run_alone(events, result)
    loaded = sessions.load(session, world.cwd, environ={"HOME": str(world.home)}, places=world.places)
    assert [message.text for message in loaded.messages if message.type == "gemini"].count("pear") == 3


@pytest.mark.deep
def test_from_a_folder_behind_a_link(world: Any) -> None:
    """The project is where the link leads to; resumed by either name."""
    link = world.root / "link"
    link.symlink_to(world.cwd)
    session = _first(world, cwd=str(link))
    for cwd in (world.cwd, link):
        _second(world)
        events, result = told("which word", world.options(approval="yolo", cwd=str(cwd), resume=session))
        assert result.session_id == session
        _of_this_run_alone(events, result)


@pytest.mark.deep
@pytest.mark.parametrize("version", ["0.32.1", "0.24.0"])
def test_a_session_of_an_older_release(make_world: Any, version: str) -> None:
    """The newest release goes on with it in a journal of its own kind: nothing old is told, nothing new is lost."""
    world = make_world(version)
    (world.cwd / "one.txt").write_text("text of one\n")
    world.gateway.when("remember", thought="**Old**\nold thought", text="the word is pear")
    assert plain_gemini(world, "--prompt=remember").returncode == 0
    (found,) = sessions.find(world.cwd, environ={"HOME": str(world.home)}, places=world.places)
    session = found.id
    _second(world)
    options = world.options(approval="yolo", resume=session, gemini="0.61.0")
    events, result = told("which word", options)
    assert (result.outcome, result.session_id) == ("success", session)
    assert _remembers(world)
    _of_this_run_alone(events, result)


def test_a_session_that_is_gone_is_told_at_once(world: Any) -> None:
    """In milliseconds and before anything is spawned: the hint says where it was looked for and what is there."""
    world.gateway.reply(text="hello")
    session = world.ask().session_id
    elsewhere = world.root / "elsewhere"
    elsewhere.mkdir()
    for resume, cwd in ((NO_SUCH, world.cwd), (session, elsewhere), (NO_SUCH[:8], world.cwd)):
        began = time.monotonic()
        events, result = told("hi", world.options(resume=resume, cwd=str(cwd)))
        assert time.monotonic() - began < 0.5
        assert [type(event).__name__ for event in events] == ["Finished"]
        assert result.failure is not None
        assert (result.failure.kind, result.failure.retryable) == ("session_not_found", False)
        assert resume in result.failure.message
        assert result.clear_session
        if cwd == world.cwd:
            assert f"Looked in {world.home}" in result.failure.hint
            assert session in result.failure.hint
        else:
            assert "no session folder" in result.failure.hint
            assert session not in result.failure.hint
    assert len(world.gateway.requests) == 1


@pytest.mark.deep
def test_fresh_begins_a_new_one(world: Any) -> None:
    """And says so; the run is complete as any other."""
    world.gateway.reply(thought="**New**\nnew thought", text="hello")
    events, result = told("hi", world.options(resume=NO_SUCH, fresh=True))
    assert result.ok and result.clear_session and result.complete
    assert result.session_id not in (None, NO_SUCH)
    (notice,) = of(events, Notice, code="fresh_session")
    assert NO_SUCH in notice.message
    assert [one.text for one in of(events, Thought)] == ["new thought"]


def _command(world: Any, *flags: str, cwd: Path | None = None) -> tuple[int, list[Any], str]:
    """`geminids run` as a user types it."""
    argv = [sys.executable, "-m", "geminids", "run", "hello", f"--cwd={cwd or world.cwd}", "-o", "events"]
    env = {**os.environ, **world.gateway.env, "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    done = subprocess.run(
        [*argv, f"--gemini={world.version}", "--model=flash", *flags],
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
    )
    return done.returncode, [decode_event(line) for line in done.stdout.splitlines()], done.stderr


def test_resume_on_the_command_line(world: Any) -> None:
    """`--continue` goes on with the newest session, or begins one; `--resume` wants the one that it names."""
    world.gateway.reply(text="first")
    code, events, _ = _command(world, "--continue")
    assert (code, len(of(events, Notice, code="fresh_session"))) == (0, 1)
    session = events[-1].session_id
    world.gateway.reply(text="second")
    code, events, _ = _command(world, "--continue")
    assert (code, events[-1].session_id, events[-1].answer) == (0, session, "second")
    code, events, _ = _command(world, f"--resume={NO_SUCH}")
    assert (code, events[-1].failure.kind) == (1, "session_not_found")
    code, events, errors = _command(world, "--continue", f"--resume={session}")
    assert (code, events) == (2, [])
    assert "--continue and --resume" in errors
    assert len(world.gateway.requests) == 2


@pytest.mark.deep
def test_fresh_on_the_command_line(world: Any) -> None:
    """`--fresh` beside `--resume`."""
    world.gateway.reply(text="anew")
    code, events, _ = _command(world, f"--resume={NO_SUCH}", "--fresh")
    assert (code, events[-1].answer, events[-1].clear_session) == (0, "anew", True)
