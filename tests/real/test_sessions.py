"""Sessions that the real CLI has made: listed, loaded, resumed, copied; and none is lost."""

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
from plain_gemini import plain_gemini

pytestmark = pytest.mark.real


def _where(world: Any, home: str = "user") -> dict[str, Any]:
    return {"home": home, "environ": {"HOME": str(world.home)}, "places": world.places}


def _told(world: Any) -> str:
    """What the model was told last."""
    return json.dumps(world.gateway.requests[-1].body, ensure_ascii=False)


@pytest.fixture(params=["blanks and ünïcödé", pytest.param("plain", marks=pytest.mark.deep)])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder to work in, reached through a link."""
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
    """By its project as given or without links."""
    world = make_world(version)
    where = _where(world, home)
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember   the\nword", home=home, cwd=str(folder))
    assert first.ok, first.failure
    for project in (folder, folder.resolve(), None):
        (info,) = sessions.find(project, **where)
    assert (info.id, info.title, info.kind) == (first.session_id, "remember the word", "main")
    assert (info.generation, info.resumable, info.damaged) == ("slug_journal", True, False)
    assert info.project == (str(folder.resolve()) if info.project else None)
    assert info.size == os.path.getsize(info.file)
    now = datetime.now(UTC)
    assert info.started is not None
    assert now - timedelta(minutes=2) < info.started <= info.updated <= now + timedelta(seconds=2)
    assert sessions.find(folder.parent / "real", **where) == []

    loaded = sessions.load(info.id[:6], folder, **where)
    said = [message.text for message in loaded.messages if message.type == "gemini"]
    assert said == ["the word is pear"]
    assert info.messages == len(loaded.messages)
    assert sessions.load("latest", folder, **where) == loaded
    assert sessions.exists(info.id, folder, **where)
    assert not sessions.exists(info.id, folder.parent / "real", **where)
    assert not sessions.exists(info.id[:8], folder, **where)

    world.gateway.reply(text="pear")
    again = world.ask("which word?", home=home, cwd=str(folder), resume=info.id)
    assert (again.outcome, again.session_id) == ("success", info.id)
    assert "the word is pear" in _told(world)
    (after,) = sessions.find(folder, **where)
    assert after.updated > info.updated
    texts = [message.text for message in sessions.load(info.id, folder, **where).messages]
    assert [text for text in texts if text in ("the word is pear", "pear")] == ["the word is pear", "pear"]
    assert sessions.journal_of(info.id, folder, **where) == Path(after.file)


def test_a_copy_goes_on_by_itself(world: Any) -> None:
    """`fork`: the CLI resumes it with the messages that it has, and the original is not touched."""
    where = _where(world)
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word")
    world.gateway.reply(text="the number is 7719")
    world.ask("and a number", resume=first.session_id)
    original = sessions.load(first.session_id, world.cwd, **where)
    before = Path(original.info.file).read_bytes()
    last = next(message for message in original.messages if message.text == "the word is pear")
    whole = sessions.fork(first.session_id, world.cwd, **where)
    part = sessions.fork(first.session_id, world.cwd, at=last.id, **where)
    for copy, knows in ((whole, True), (part, False)):
        assert sessions.exists(copy.id, world.cwd, **where)
        world.gateway.reply(text="yes")
        result = world.ask("do you know both?", resume=copy.id)
        assert (result.outcome, result.session_id) == ("success", copy.id)
        assert "the word is pear" in _told(world)
        assert ("the number is 7719" in _told(world)) is knows
    assert Path(original.info.file).read_bytes() == before
    assert len(sessions.find(world.cwd, **where)) == 3


OLD_GENERATIONS = {"0.24.0": "sha256_json", "0.32.1": "slug_json", "0.41.2": "slug_journal"}


@pytest.mark.deep
@pytest.mark.parametrize("version", OLD_GENERATIONS)
def test_a_session_of_an_older_release(make_world: Any, version: str) -> None:
    """Made by the user's own old `gemini`: listed, loaded, copied in its own form, and resumed by 0.61.0."""
    world = make_world(version)
    where = _where(world)
    world.gateway.reply(text="the word is pear")
    done = plain_gemini(world, "--prompt=remember the word")
    assert done.returncode == 0, done.stderr
    (info,) = sessions.find(world.cwd, **where)
    assert (info.generation, info.resumable, info.damaged) == (OLD_GENERATIONS[version], True, False)
    loaded = sessions.load(info.id, world.cwd, **where)
    assert "the word is pear" in [message.text for message in loaded.messages]
    copy = sessions.fork(info.id, world.cwd, **where)
    assert Path(copy.file).suffix == Path(info.file).suffix
    for session_id in (info.id, copy.id):
        world.gateway.reply(text="pear")
        result = world.ask("which word?", resume=session_id, gemini="0.61.0")
        assert (result.outcome, result.session_id) == ("success", session_id), result.failure
        assert "the word is pear" in _told(world)
    listed = {one.id: one for one in sessions.find(world.cwd, **where)}
    assert listed.keys() == {info.id, copy.id}
    assert {one.generation for one in listed.values()} == {"slug_journal"}
    texts = [message.text for message in sessions.load(info.id, world.cwd, **where).messages]
    assert "pear" in texts


def _an_hour_older(info: sessions.SessionInfo) -> None:
    """The name that the file would have, had the session begun in another minute."""
    file = Path(info.file)
    file.rename(file.with_name(f"session-2026-01-01T00-00-{info.id[:8]}.jsonl"))


@pytest.mark.deep
def test_the_data_loss_of_the_cli_does_not_happen(world: Any) -> None:
    """Resumed in a later minute, then another session begins: with the CLI's own settings the first is deleted."""
    where = _where(world)
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word")
    _an_hour_older(sessions.find(world.cwd, **where)[0])
    for prompt, resume in (
        ("go on", first.session_id),
        ("something else", None),
        ("which word?", first.session_id),
    ):
        world.gateway.reply(text="fine")
        result = world.ask(prompt, resume=resume)
        assert result.ok, result.failure
    assert "the word is pear" in _told(world)
    assert len([info for info in sessions.find(world.cwd, **where) if info.resumable]) == 2


@pytest.mark.deep
def test_the_data_loss_of_the_cli_is_real(make_world: Any) -> None:
    """The same steps with plain `gemini` lose the session: what the test before this one is worth."""
    world = make_world("0.61.0")
    where = _where(world)
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word")
    _an_hour_older(sessions.find(world.cwd, **where)[0])
    for flags in ([f"--resume={first.session_id}", "--prompt=go on"], ["--prompt=something else"]):
        world.gateway.reply(text="fine")
        assert plain_gemini(world, *flags).returncode == 0
    assert not sessions.exists(first.session_id, world.cwd, **where)


@pytest.mark.deep
def test_eight_at_once_in_one_folder_are_all_resumable(world: Any) -> None:
    """Parallel runs share a project and lose nothing of each other's."""
    for number in range(8):
        world.gateway.when(f"remember {number}.", text=f"the word is pear-{number}")
        world.gateway.when(f"which word {number}?", text="pear")
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda n: world.ask(f"remember {n}."), range(8)))
    assert [result.outcome for result in made] == ["success"] * 8
    assert len(sessions.find(world.cwd, **_where(world))) == 8
    for number, result in enumerate(made):
        assert sessions.exists(result.session_id, world.cwd, **_where(world))
        again = world.ask(f"which word {number}?", resume=result.session_id)
        assert (again.outcome, again.session_id) == ("success", result.session_id)
        assert f"the word is pear-{number}" in _told(world)


def test_a_live_run_is_followed(world: Any) -> None:
    """Its journal is found by the id that it was given, and each line comes once, while the run goes on."""
    session_id = str(uuid.uuid4())
    follower = sessions.Follower(lambda: sessions.journal_of(session_id, world.cwd, **_where(world)))
    world.gateway.reply(text="I look.", calls=[("list_directory", {"dir_path": "."})])
    world.gateway.reply(text="the word is pear")
    early: list[bytes] = []
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(world.ask, "remember the word", session_id=session_id)
        while not going.done():
            early += follower.read_new()
            wait([going], timeout=0.02)
    assert going.result().ok
    assert len(early) > 2
    assert [*early, *follower.read_new()] == Path(str(follower.path)).read_bytes().split(b"\n")[:-1]
    assert (follower.restarts, follower.problem) == (0, None)
