"""A resumed run: the session is looked up before the CLI starts, and the run reports only its own
events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from collect_events import run_and_collect, select_events
from geminids import Notice, Started, Thought, TokensUsed, ToolFinished, ToolStarted, decode_event, sessions
from geminids.gateway import ReplyUsage
from geminids.sessions.transcript import entries
from plain_gemini import plain_gemini

pytestmark = pytest.mark.real

MISSING_ID = "00000000-0000-4000-8000-000000000000"
AGENT = ("invoke_agent", {"agent_name": "generalist", "prompt": "The task of one."})


def _create_session(world: Any, **fields: Any) -> str:
    """Create a session whose journal has thoughts, tools, tokens and a subagent. Return its id."""
    (world.cwd / "one.txt").write_text("text of one\n")
    when = world.gateway.when
    when("remember", thought="**Old**\nold thought", calls=[AGENT], usage=ReplyUsage(input=1000, output=10))
    when("task of one", thought="**Old**\nold agent", calls=[("read_file", {"file_path": "one.txt"})])
    when("task of one", calls=[("complete_task", {"result": {"response": "x"}, "response": "x"})])
    when("remember", text="the word is pear", usage=ReplyUsage(input=2000, output=20))
    _, result = run_and_collect("remember", world.options(approval="yolo", **fields))
    assert result.ok, result.failure
    assert result.session_id is not None
    return result.session_id


def _script_second_run(world: Any) -> None:
    world.gateway.when(
        "which word",
        thought="**New**\nnew thought",
        calls=[("read_file", {"file_path": "one.txt"})],
        usage=ReplyUsage(input=300, output=3),
    )
    world.gateway.when("which word", text="pear", usage=ReplyUsage(input=400, output=4))


def _assert_only_new_events(events: list[Any], result: Any) -> None:
    """The events and the result have nothing from the earlier conversation."""
    assert [(one.text, one.turn) for one in select_events(events, Thought)] == [("new thought", 1)]
    assert [tool.name for tool in select_events(events, ToolStarted)] == ["read_file"]
    assert [tool.output for tool in select_events(events, ToolFinished)] == ["text of one\n"]
    assert [(one.input, one.role) for one in select_events(events, TokensUsed)] == [
        (300, "main"),
        (400, "main"),
    ]
    assert (result.usage.input, result.usage.output, result.usage.requests) == (700, 7, 2)
    assert [turn.text for turn in result.turns] == ["", "pear"]
    assert result.complete


def _model_knows_first_answer(world: Any) -> bool:
    return "the word is pear" in json.dumps(world.gateway.requests[-1].body)


def _move_to_another_minute(world: Any, session: str) -> None:
    """Rename the session file as if the session had started in another minute. A CLI that resumes
    it then creates a second, short file beside it."""
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
def test_a_resumed_run_reports_only_its_own_events(world: Any, by: str, later: bool) -> None:
    """The model of a resumed run receives the whole conversation. The events have only the new run.
    This holds for a session resumed by id, by prefix and by `latest`."""
    session = _create_session(world)
    if later:
        _move_to_another_minute(world, session)
    _script_second_run(world)
    resume = {"id": session, "prefix": session[:8], "latest": "latest"}[by]
    events, result = run_and_collect(
        "which word", world.options(approval="yolo", model="flash", resume=resume)
    )
    assert (result.outcome, result.session_id) == ("success", session)
    assert select_events(events, Started)[0].session_id == session
    assert _model_knows_first_answer(world)
    assert not select_events(events, Notice, code="fresh_session")
    _assert_only_new_events(events, result)


@pytest.mark.deep
def test_a_session_can_be_resumed_many_times(world: Any) -> None:
    """A session is resumed three times. Each run reports only its own events, and the session file
    keeps the answers of all three."""
    session = _create_session(world)
    for _ in range(3):
        _script_second_run(world)
        events, result = run_and_collect("which word", world.options(approval="yolo", resume=session))
        _assert_only_new_events(events, result)
    loaded = sessions.load(session, world.cwd, environ={"HOME": str(world.home)}, places=world.places)
    assert [message.text for message in loaded.messages if message.type == "gemini"].count("pear") == 3


def test_a_failed_turn_keeps_the_earlier_ones(world: Any) -> None:
    """After a resumed turn that failed, the transcript still has the first turn with its prompt, which
    begins with a slash, its tool call and its tokens. The CLI's last record has none of them."""
    world.gateway.reply(calls=[("glob", {"pattern": "*"})], usage=ReplyUsage(input=1000, output=10))
    world.gateway.reply(text="a folder", usage=ReplyUsage(input=2000, output=20))
    first = world.ask("/tmp is what?", literal=True, approval="yolo")
    assert first.ok, first.failure
    world.gateway.reply(status=400, error="no")
    assert world.ask("and now?", resume=first.session_id).failure.kind == "bad_request"
    stored = sessions.load(
        first.session_id, home="user", environ={"HOME": str(world.home)}, places=world.places
    )
    shown: list[Any] = list(entries(stored.messages))
    assert [type(entry).__name__ for entry in shown] == ["PromptEntry", "ToolEntry", "TextEntry", "TurnEnd"]
    prompt, tool, text, end = shown
    assert prompt.text.strip() == "/tmp is what?" and (tool.name, text.text) == ("glob", "a folder")
    assert (end.requests, end.input, end.output) == (2, 3000, 30)


@pytest.mark.deep
def test_from_a_folder_behind_a_link(world: Any) -> None:
    """A session can be resumed from the folder's symbolic link and from its real path: both are the
    same project."""
    link = world.root / "link"
    link.symlink_to(world.cwd)
    session = _create_session(world, cwd=str(link))
    for cwd in (world.cwd, link):
        _script_second_run(world)
        events, result = run_and_collect(
            "which word", world.options(approval="yolo", cwd=str(cwd), resume=session)
        )
        assert result.session_id == session
        _assert_only_new_events(events, result)


@pytest.mark.deep
@pytest.mark.parametrize("version", ["0.32.1", "0.24.0"])
def test_a_session_of_an_older_release(make_world: Any, version: str) -> None:
    """The newest release resumes a session that an older release stored in another file format. The
    run repeats no old event and loses no new one."""
    world = make_world(version)
    (world.cwd / "one.txt").write_text("text of one\n")
    world.gateway.when("remember", thought="**Old**\nold thought", text="the word is pear")
    assert plain_gemini(world, "--prompt=remember").returncode == 0
    (info,) = sessions.find(world.cwd, environ={"HOME": str(world.home)}, places=world.places)
    session = info.id
    _script_second_run(world)
    options = world.options(approval="yolo", resume=session, gemini="0.61.0")
    events, result = run_and_collect("which word", options)
    assert (result.outcome, result.session_id) == ("success", session)
    assert _model_knows_first_answer(world)
    _assert_only_new_events(events, result)


def test_a_missing_session_fails_at_once(world: Any) -> None:
    """A run with a missing session fails within 0.5 s, before the CLI starts. The hint names the
    folder that was searched and the sessions in it."""
    world.gateway.reply(text="hello")
    session = world.ask().session_id
    elsewhere = world.root / "elsewhere"
    elsewhere.mkdir()
    for resume, cwd in ((MISSING_ID, world.cwd), (session, elsewhere), (MISSING_ID[:8], world.cwd)):
        began = time.monotonic()
        events, result = run_and_collect("hi", world.options(resume=resume, cwd=str(cwd)))
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
def test_fresh_starts_a_new_session(world: Any) -> None:
    """With `fresh`, a run with a missing session starts a new one, emits a notice and succeeds."""
    world.gateway.reply(thought="**New**\nnew thought", text="hello")
    events, result = run_and_collect("hi", world.options(resume=MISSING_ID, fresh=True))
    assert result.ok and result.clear_session and result.complete
    assert result.session_id not in (None, MISSING_ID)
    (notice,) = select_events(events, Notice, code="fresh_session")
    assert MISSING_ID in notice.message
    assert [one.text for one in select_events(events, Thought)] == ["new thought"]


def _run_command(world: Any, *flags: str, cwd: Path | None = None) -> tuple[int, list[Any], str]:
    """Run `geminids run` as a user does. Return the exit code, the events and stderr."""
    argv = [sys.executable, "-m", "geminids", "run", "hello", f"--cwd={cwd or world.cwd}", "-o", "events"]
    env = {**os.environ, **world.gateway.env, "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    completed = subprocess.run(
        [*argv, f"--gemini={world.version}", "--model=flash", *flags],
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
    )
    events = [decode_event(line) for line in completed.stdout.splitlines()]
    return completed.returncode, events, completed.stderr


def test_resume_on_the_command_line(world: Any) -> None:
    """`--continue` resumes the newest session, or starts one with a notice if there is none.
    `--resume` fails if the named session is missing. Both flags together are a usage error."""
    world.gateway.reply(text="first")
    code, events, _ = _run_command(world, "--continue")
    assert (code, len(select_events(events, Notice, code="fresh_session"))) == (0, 1)
    session = events[-1].session_id
    world.gateway.reply(text="second")
    code, events, _ = _run_command(world, "--continue")
    assert (code, events[-1].session_id, events[-1].answer) == (0, session, "second")
    code, events, _ = _run_command(world, f"--resume={MISSING_ID}")
    assert (code, events[-1].failure.kind) == (1, "session_not_found")
    code, events, errors = _run_command(world, "--continue", f"--resume={session}")
    assert (code, events) == (2, [])
    assert "--continue and --resume" in errors
    assert len(world.gateway.requests) == 2


@pytest.mark.deep
def test_fresh_on_the_command_line(world: Any) -> None:
    """`--fresh` with `--resume` starts a new session if the named one is missing."""
    world.gateway.reply(text="new session")
    code, events, _ = _run_command(world, f"--resume={MISSING_ID}", "--fresh")
    assert (code, events[-1].answer, events[-1].clear_session) == (0, "new session", True)
