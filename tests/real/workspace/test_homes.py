"""The home of a run: the user's home is read, and only sessions are written there. An isolated home
has nothing of the user's."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from geminids import ToolFinished
from geminids.config.paths import Places
from geminids.gemini import find

pytestmark = pytest.mark.real

_SETTINGS = """{
  // mine, with a comment
  "general": { "vimMode": true, /* and another */ "sessionRetention": { "enabled": true } },
  "security": { "auth": { "selectedType": "gemini-api-key" } }
}
"""
_SKILL = "---\nname: star-chart\ndescription: Draws the sky over Aldebaran.\n---\nDraw it.\n"


@pytest.fixture
def user(world: Any) -> dict[str, bytes]:
    """Files of a user's own `.gemini` folder, with their bytes."""
    files = {
        "settings.json": _SETTINGS,
        "trustedFolders.json": '{"/nowhere": "TRUST_FOLDER"}\n',
        "GEMINI.md": "The user's favourite star is Aldebaran-77.\n",
        "skills/star-chart/SKILL.md": _SKILL,
        "policies/mine.toml": '[[rule]]\ntoolName = "glob"\ndecision = "allow"\npriority = 100\n',
        "projects.json": '{"projects": {}}\n',
    }
    for name, text in files.items():
        file = world.home / ".gemini" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return {name: text.encode() for name, text in files.items()}


def _read(world: Any, names: Any) -> dict[str, bytes]:
    return {name: (world.home / ".gemini" / name).read_bytes() for name in names}


def _all_files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if not file.is_dir()}


def _request_bodies(world: Any) -> str:
    """Return everything that the model received, as JSON."""
    return json.dumps([request.body for request in world.gateway.requests])


def _assert_private(places: Places) -> None:
    """Check that only the owner can read the folders and settings that we have written."""
    for folder in (places.homes, *places.homes.iterdir(), *places.homes.glob("*/.gemini")):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    settings = list(places.homes.glob("*/.gemini/settings.json"))
    assert settings
    for file in settings:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_the_users_home_is_read_and_not_written(world: Any, user: dict[str, bytes]) -> None:
    """By default a run reads the user's context files and skills, writes its session to the user's
    home, and changes no other file there."""
    world.gateway.reply(text="a clear night")
    result = world.ask("what is up?")
    assert result.outcome == "success"
    assert "Aldebaran-77" in _request_bodies(world)
    assert "star-chart" in _request_bodies(world)
    assert _read(world, user) == user
    new = _all_files(world.home / ".gemini") - set(user)
    sessions = [name for name in new if name.startswith("tmp/") and "/chats/session-" in name]
    assert len(sessions) == 1
    assert result.session_id
    assert result.session_id in (world.home / ".gemini" / sessions[0]).read_text()
    # Only the CLI's working files are new. Settings, trust and telemetry are in our own folder.
    assert {name.split("/")[0] for name in new} <= {"tmp", "history"}
    _assert_private(world.places)


def test_the_users_settings_apply(world: Any, user: dict[str, bytes]) -> None:
    """The user's settings apply to a run, and our own settings override them."""
    world.gateway.reply(text="hi")
    assert world.ask().ok
    [file] = world.places.homes.glob("user-*/.gemini/settings.json")
    settings = json.loads(file.read_text())
    assert settings["general"]["vimMode"] is True
    assert settings["general"]["sessionRetention"] == {"enabled": False}


def test_a_policy_of_the_user_applies(world: Any) -> None:
    """A policy file of the user that denies a tool applies to our runs."""
    call = {"calls": [("list_directory", {"dir_path": "."})]}
    statuses = []
    for rule in ("", '[[rule]]\ntoolName = "list_directory"\ndecision = "deny"\npriority = 500\n'):
        if rule:
            (world.home / ".gemini" / "policies").mkdir()
            (world.home / ".gemini" / "policies" / "mine.toml").write_text(rule)
        world.gateway.reply(**call)
        world.gateway.reply(text="done")
        statuses += [event.status for event in world.events() if isinstance(event, ToolFinished)]
    assert statuses[0] == "ok"
    assert statuses[1] in ("denied", "failed")


def test_a_user_without_a_gemini_folder(world: Any) -> None:
    """For a user without `~/.gemini`, a run makes the folder, readable only by that user, and
    writes only sessions there."""
    world.gateway.reply(text="hi")
    assert world.ask().ok
    gemini = world.home / ".gemini"
    assert list(gemini.glob("tmp/*/chats/session-*"))
    assert not (gemini / "settings.json").exists()
    for folder in (gemini, gemini / "tmp", gemini / "history"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


def test_an_isolated_home_ignores_the_users_home(world: Any, user: dict[str, bytes]) -> None:
    """With `home="isolated"`, a run reads nothing from the user's home and writes nothing there."""
    world.gateway.reply(text="hi")
    result = world.ask(home="isolated")
    assert result.outcome == "success"
    assert "Aldebaran" not in _request_bodies(world)
    assert "star-chart" not in _request_bodies(world)
    assert _all_files(world.home) == {f".gemini/{name}" for name in user}
    assert _read(world, user) == user
    assert list(world.places.homes.glob("isolated/.gemini/tmp/*/chats/session-*"))
    _assert_private(world.places)


@pytest.mark.parametrize("home", ["isolated", pytest.param("user", marks=pytest.mark.deep)])
def test_either_home_can_resume_a_session(world: Any, user: dict[str, bytes], home: str) -> None:
    """A run can resume the session of an earlier run with other settings, in an isolated home and
    in the user's."""
    world.gateway.reply(text="the word is pear")
    first = world.ask("remember the word", home=home)
    world.gateway.reply(text="pear")
    again = world.ask("which word?", home=home, resume=first.session_id, max_turns=7)
    assert (again.outcome, again.session_id) == ("success", first.session_id)
    assert "the word is pear" in json.dumps(world.gateway.requests[-1].body)


@pytest.mark.deep
def test_plain_gemini_finds_the_session(world: Any, user: dict[str, bytes]) -> None:
    """The user's own `gemini --resume latest` continues the session of a run."""
    world.gateway.reply(text="the word is quince")
    assert world.ask("remember the word").ok
    world.gateway.reply(text="quince")
    gemini = find(world.version, places=world.places)
    env = {**os.environ, **world.gateway.env, "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    argv = [*gemini.command(world.places), "--resume=latest", "--model=flash", "--prompt=which word?"]
    done = subprocess.run(
        argv, cwd=world.cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    assert b"quince" in done.stdout
    assert "the word is quince" in json.dumps(world.gateway.requests[-1].body)
