"""Sessions of the real CLI can be listed, loaded, resumed, forked and followed. None is lost."""

from __future__ import annotations

import json
import os
import uuid
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from geminids import sessions
from geminids.adapters import agent_cli_sdk
from plain_gemini import plain_gemini

pytestmark = pytest.mark.real


def _lookup(world: Any, home: str = "user") -> dict[str, Any]:
    return {"home": home, "environ": {"HOME": str(world.home)}, "places": world.places}


def _last_request(world: Any) -> str:
    """Return the body of the last request as text."""
    return json.dumps(world.gateway.requests[-1].body, ensure_ascii=False)


@pytest.fixture(params=["blanks and ünïcödé", pytest.param("plain", marks=pytest.mark.deep)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a symbolic link to a working folder."""
    real = tmp_path / "real" / request.param
    real.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(real)
    return link


@pytest.mark.parametrize(
    ("version", "home"),
    [
        ("0.61.0", "user"),
        *(
            pytest.param(version, home, marks=pytest.mark.deep)
            for version, home in (
                ("0.54.4", "user"),
                ("0.61.0", "isolated"),
                ("0.54.4", "isolated"),
            )
        ),
    ],
)
def test_a_session_is_listed_loaded_and_resumed(
    make_world: Any, version: str, home: str, folder: Path
) -> None:
    """A session can be listed, loaded and resumed by the project's link and by its real path.
    Another folder does not list it."""
    world = make_world(version)
    lookup = _lookup(world, home)
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember   the\nword", home=home, cwd=str(folder))
    assert first.ok, first.failure
    for project in (folder, folder.resolve(), None):
        (info,) = sessions.find(project, **lookup)
    assert (info.id, info.title, info.kind) == (first.session_id, "remember the word", "main")
    assert (info.generation, info.resumable, info.damaged) == ("slug_journal", True, False)
    assert info.project == (str(folder.resolve()) if info.project else None)
    assert info.size == os.path.getsize(info.file)
    now = datetime.now(UTC)
    assert info.started is not None
    assert now - timedelta(minutes=2) < info.started <= info.updated <= now + timedelta(seconds=2)
    assert sessions.find(folder.parent / "real", **lookup) == []

    loaded = sessions.load(info.id[:6], folder, **lookup)
    answers = [message.text for message in loaded.messages if message.type == "gemini"]
    assert answers == ["the word is pear"]
    assert info.messages == len(loaded.messages)
    assert sessions.load("latest", folder, **lookup) == loaded
    assert sessions.exists(info.id, folder, **lookup)
    assert not sessions.exists(info.id, folder.parent / "real", **lookup)
    assert not sessions.exists(info.id[:8], folder, **lookup)

    world.gateway.reply(text="pear")
    again = world.ask("which word?", home=home, cwd=str(folder), resume=info.id)
    assert (again.outcome, again.session_id) == ("success", info.id)
    assert "the word is pear" in _last_request(world)
    (after,) = sessions.find(folder, **lookup)
    assert after.updated > info.updated
    texts = [message.text for message in sessions.load(info.id, folder, **lookup).messages]
    assert [text for text in texts if text in ("the word is pear", "pear")] == ["the word is pear", "pear"]
    assert sessions.journal_of(info.id, folder, **lookup) == Path(after.file)


def test_a_fork_is_independent(world: Any) -> None:
    """The CLI resumes a fork with the messages up to the chosen point. The original session file is
    unchanged."""
    lookup = _lookup(world)
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word")
    world.gateway.reply(text="the number is 7719")
    world.ask("and a number", resume=first.session_id)
    original = sessions.load(first.session_id, world.cwd, **lookup)
    before = Path(original.info.file).read_bytes()
    last = next(message for message in original.messages if message.text == "the word is pear")
    whole = sessions.fork(first.session_id, world.cwd, **lookup)
    part = sessions.fork(first.session_id, world.cwd, at=last.id, **lookup)
    for copy, knows in ((whole, True), (part, False)):
        assert sessions.exists(copy.id, world.cwd, **lookup)
        world.gateway.reply(text="yes")
        result = world.ask("do you know both?", resume=copy.id)
        assert (result.outcome, result.session_id) == ("success", copy.id)
        assert "the word is pear" in _last_request(world)
        assert ("the number is 7719" in _last_request(world)) is knows
    assert Path(original.info.file).read_bytes() == before
    assert len(sessions.find(world.cwd, **lookup)) == 3


OLD_GENERATIONS = {"0.24.0": "sha256_json", "0.32.1": "slug_json", "0.41.2": "slug_journal"}


@pytest.mark.deep
@pytest.mark.parametrize("version", OLD_GENERATIONS)
def test_a_session_of_an_older_release(make_world: Any, version: str) -> None:
    """A session that an older `gemini` wrote can be listed, loaded, forked in its own file format,
    and resumed by 0.61.0."""
    world = make_world(version)
    lookup = _lookup(world)
    world.gateway.reply(text="the word is pear")
    completed = plain_gemini(world, "--prompt=remember the word")
    assert completed.returncode == 0, completed.stderr
    (info,) = sessions.find(world.cwd, **lookup)
    assert (info.generation, info.resumable, info.damaged) == (OLD_GENERATIONS[version], True, False)
    loaded = sessions.load(info.id, world.cwd, **lookup)
    assert "the word is pear" in [message.text for message in loaded.messages]
    copy = sessions.fork(info.id, world.cwd, **lookup)
    assert Path(copy.file).suffix == Path(info.file).suffix
    for session_id in (info.id, copy.id):
        world.gateway.reply(text="pear")
        result = world.ask("which word?", resume=session_id, gemini="0.61.0")
        assert (result.outcome, result.session_id) == ("success", session_id), result.failure
        assert "the word is pear" in _last_request(world)
    listed = {one.id: one for one in sessions.find(world.cwd, **lookup)}
    assert listed.keys() == {info.id, copy.id}
    assert {one.generation for one in listed.values()} == {"slug_journal"}
    texts = [message.text for message in sessions.load(info.id, world.cwd, **lookup).messages]
    assert "pear" in texts


def _move_to_another_minute(info: sessions.SessionInfo) -> None:
    """Rename the session file as if the session had started in another minute."""
    file = Path(info.file)
    file.rename(file.with_name(f"session-2026-01-01T00-00-{info.id[:8]}.jsonl"))


@pytest.mark.deep
def test_the_data_loss_of_the_cli_does_not_happen(world: Any) -> None:
    """A session that was resumed in a later minute is still there after the next new session. Plain
    `gemini` with its default settings deletes it."""
    lookup = _lookup(world)
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word")
    _move_to_another_minute(sessions.find(world.cwd, **lookup)[0])
    for prompt, resume in (
        ("go on", first.session_id),
        ("something else", None),
        ("which word?", first.session_id),
    ):
        world.gateway.reply(text="fine")
        result = world.ask(prompt, resume=resume)
        assert result.ok, result.failure
    assert "the word is pear" in _last_request(world)
    assert len([info for info in sessions.find(world.cwd, **lookup) if info.resumable]) == 2


@pytest.mark.deep
def test_the_data_loss_of_the_cli_is_real(make_world: Any) -> None:
    """Counter-check: plain `gemini` loses a session that was resumed in a later minute when it
    starts the next new session."""
    world = make_world("0.61.0")
    lookup = _lookup(world)
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word")
    _move_to_another_minute(sessions.find(world.cwd, **lookup)[0])
    for flags in ([f"--resume={first.session_id}", "--prompt=go on"], ["--prompt=something else"]):
        world.gateway.reply(text="fine")
        assert plain_gemini(world, *flags).returncode == 0
    assert not sessions.exists(first.session_id, world.cwd, **lookup)


@pytest.mark.deep
def test_eight_at_once_in_one_folder_are_all_resumable(world: Any) -> None:
    """Eight sessions that were created at once in one folder can all be found and resumed, each
    with its own messages."""
    for number in range(8):
        world.gateway.when(f"remember {number}.", text=f"the word is pear-{number}")
        world.gateway.when(f"which word {number}?", text="pear")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: world.ask(f"remember {n}."), range(8)))
    assert [result.outcome for result in results] == ["success"] * 8
    assert len(sessions.find(world.cwd, **_lookup(world))) == 8
    for number, result in enumerate(results):
        assert sessions.exists(result.session_id, world.cwd, **_lookup(world))
        again = world.ask(f"which word {number}?", resume=result.session_id)
        assert (again.outcome, again.session_id) == ("success", result.session_id)
        assert f"the word is pear-{number}" in _last_request(world)


def test_a_live_run_is_followed(world: Any) -> None:
    """The journal of a live run is found by its session id. `Follower` returns each line once, and
    returns lines during the run."""
    session_id = str(uuid.uuid4())
    follower = sessions.Follower(lambda: sessions.journal_of(session_id, world.cwd, **_lookup(world)))
    world.gateway.reply(text="I look.", calls=[("list_directory", {"dir_path": "."})])
    world.gateway.reply(text="the word is pear")
    lines_during_run: list[bytes] = []
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(world.ask, "remember the word", session_id=session_id)
        while not future.done():
            lines_during_run += follower.read_new()
            wait([future], timeout=0.02)
    assert future.result().ok
    assert len(lines_during_run) > 2
    assert [*lines_during_run, *follower.read_new()] == Path(str(follower.path)).read_bytes().split(b"\n")[
        :-1
    ]
    assert (follower.restarts, follower.problem) == (0, None)


def test_a_resumed_session_keeps_the_details_of_its_first_turn(world: Any) -> None:
    """After a resume, each earlier message still has its model, tokens, time and tool results, and a
    prompt that begins with a slash is still there. The CLI rewrites these messages without them."""
    (world.cwd / "a.txt").write_text("hello")
    world.gateway.reply(text="Let me look.", calls=[("read_file", {"file_path": "a.txt"})])
    world.gateway.reply(text="It says hello.")
    first = world.ask("/tmp is what?", literal=True)
    before = agent_cli_sdk.load_session(first.session_id, world.cwd, **_lookup(world))
    world.gateway.reply(text="Again: hello.")
    second = world.ask("and now?", resume=first.session_id)
    after = agent_cli_sdk.load_session(second.session_id, world.cwd, **_lookup(world))
    assert (first.outcome, second.outcome) == ("success", "success")
    assert after[: len(before)] == before
    assert [message.role for message in after] == ["user", "assistant", "assistant", "user", "assistant"]
    prompt, call, *_ = [agent_cli_sdk.as_dict(message)["content"] for message in after]
    assert prompt[0]["text"].strip() == "/tmp is what?"
    assert [block["type"] for block in call] == ["tool_use", "tool_result", "text"]
    assert all(
        message.usage is not None and message.model for message in after if message.role == "assistant"
    )
