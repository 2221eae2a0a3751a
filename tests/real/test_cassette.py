"""A conversation is recorded once, with a server that plays Google, and replayed with that server gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import geminids
from fake_google import FakeGoogle
from geminids.events.model import Finished, Notice, Text, TokensUsed, ToolFinished, ToolStarted
from geminids.gateway import Call, Reply
from geminids.gateway.cassette.cassette import load_cassette
from geminids.gemini.install.cli import install

pytestmark = pytest.mark.real

KEY = "AIzaSy" + "D3adB33f-" * 3 + "c0ffee"
TOKEN = "tok_live_7f3Qx9LmZ2"
RELEASES = ("0.61.0", "0.54.4")


def replies(cwd: Path) -> list[Any]:
    """A model that names files by their whole path, as models do, has a secret printed, and writes a file."""
    shell = {"command": "pwd; date; echo $MY_SERVICE_TOKEN; ls; seq 1 20000"}
    return [
        Reply(thought="**Looking**\nfirst", calls=[Call("read_file", {"file_path": str(cwd / "a.py")})]),
        Reply(text=["Now ", "the shell. "], calls=[Call("run_shell_command", shell)]),
        Reply(calls=[Call("write_file", {"file_path": str(cwd / "out.txt"), "content": "hello\n"})]),
        Reply(text="Done."),
    ]


class Studio:
    """Runs in folders of their own, each new: recorded, or replayed."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.cassette = world.root / "c.jsonl"
        self._runs = 0

    def folder(self) -> Path:
        self._runs += 1
        found: Path = self.world.root / f"folder-{self._runs}" / "work"
        found.mkdir(parents=True)
        (found / "a.py").write_text("x = 1\n")
        return found

    def run(self, cwd: Path, prompt: str = "look at a.py", **fields: Any) -> list[Any]:
        env = {
            "GEMINI_API_KEY": "",
            "GOOGLE_GEMINI_BASE_URL": "",
            "MY_SERVICE_TOKEN": TOKEN,
            **fields.pop("env", {}),
        }
        options = self.world.options(cwd=str(cwd), approval="yolo", env=env, **fields)
        return list(geminids.stream_sync(prompt, options))

    def record(self, script: list[Any] | None = None, **fields: Any) -> tuple[Path, list[Any]]:
        cwd = self.folder()
        with FakeGoogle(replies(cwd) if script is None else script, with_key=KEY) as google:
            env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": google.url}
            events = self.run(cwd, env=env, record=str(self.cassette), **fields)
            assert google.asked
        return cwd, events

    def replay(self, **fields: Any) -> tuple[Path, list[Any]]:
        cwd = self.folder()
        return cwd, self.run(cwd, replay=str(self.cassette), **fields)


@pytest.fixture
def studio(world: Any) -> Studio:
    return Studio(world)


def seen(cwd: Path, events: list[Any]) -> list[Any]:
    """What happened, without what is of one run alone; the shell prints the time."""

    def here(value: object) -> str:
        return str(value).replace(str(cwd), "<cwd>")

    told: list[Any] = []
    for event in events:
        if isinstance(event, Text):
            told.append(event.text)
        elif isinstance(event, ToolStarted):
            told.append((event.name, here(event.input)))
        elif isinstance(event, ToolFinished):
            output = "" if event.name == "run_shell_command" else here(event.output)
            told.append((event.name, event.status, output, [here(change.path) for change in event.changes]))
        elif isinstance(event, TokensUsed):
            told.append((event.role, event.model, event.input, event.output, event.thinking))
    finished = events[-1]
    assert isinstance(finished, Finished)
    # Text, tools and tokens each in their order: between them the order is that of arrival.
    return [
        sorted(told, key=lambda one: len(one) if isinstance(one, tuple) else 0),
        finished.outcome,
        finished.answer,
    ]


def files(cwd: Path) -> dict[str, str]:
    return {str(file.relative_to(cwd)): file.read_text() for file in cwd.rglob("*") if file.is_file()}


def test_recorded_and_replayed(studio: Studio) -> None:
    """With the server gone and in another folder: the same events, the same files, and nothing to remark."""
    there, recorded = studio.record()
    here, replayed = studio.replay()
    assert replayed[-1].outcome == "success", replayed[-1].reason
    assert seen(here, replayed) == seen(there, recorded)
    assert recorded[-1].outcome == "success", recorded[-1]
    assert files(here) == files(there) == {"a.py": "x = 1\n", "out.txt": "hello\n"}
    assert [event for event in replayed if isinstance(event, Notice) and "cassette" in event.message] == []


def test_no_secret_is_in_the_cassette(studio: Studio) -> None:
    """Neither the key nor a secret that a tool has printed nor the run's own token; the file is its owner's."""
    studio.record()
    text = studio.cassette.read_text()
    for secret in (KEY, KEY[:20], TOKEN, TOKEN[:14], "geminids-run-"):
        assert secret not in text
    assert studio.cassette.stat().st_mode & 0o777 == 0o600
    assert load_cassette(studio.cassette).header.cli == studio.world.version


def test_a_changed_prompt(studio: Studio) -> None:
    """It fails the run with a diff of what differs, and leaves nothing done."""
    studio.record()
    here, replayed = studio.replay(prompt="look at b.py")
    finished = replayed[-1]
    assert finished.outcome == "failed"
    assert "-user: look at a.py\n+user: look at b.py" in finished.failure.message
    assert "record" in finished.failure.hint
    assert files(here) == {"a.py": "x = 1\n"}


@pytest.mark.deep
def test_a_changed_file(studio: Studio) -> None:
    """A file that the agent reads is part of the conversation; one that it does not look at is not."""
    studio.record(script=[Reply(calls=[Call("read_file", {"file_path": "a.py"})]), Reply(text="Done.")])
    cwd = studio.folder()
    (cwd / "b.py").write_text("y = 1\n")
    assert studio.run(cwd, replay=str(studio.cassette))[-1].outcome == "success"
    (cwd / "a.py").write_text("x = 2\n")
    finished = studio.run(cwd, replay=str(studio.cassette))[-1]
    assert "x = 2" in finished.failure.message


@pytest.mark.deep
def test_errors_are_replayed_too(studio: Studio) -> None:
    """A request that was refused and tried again is so in the replay."""
    slow = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.2s"}
    script = [Reply(status=429, error="slow down", details=[slow]), Reply(text="At last.")]
    there, recorded = studio.record(script)
    here, replayed = studio.replay()
    assert [one.answer.status for one in load_cassette(studio.cassette).exchanges] == [429, 200]
    assert seen(here, replayed) == seen(there, recorded)
    assert replayed[-1].answer == "At last."


@pytest.mark.parametrize(
    ("made_on", "replayed_on"),
    [
        pytest.param(one, other, marks=pytest.mark.deep)
        for one in RELEASES
        for other in RELEASES
        if one != other
    ],
)
def test_another_release(make_world: Any, installs: Any, made_on: str, replayed_on: str) -> None:
    """A cassette of one release replays on another: the same answer and files, and a notice that says so."""
    studio = Studio(make_world(made_on))
    install(replayed_on, places=installs)
    there, recorded = studio.record()
    here, replayed = studio.replay(gemini=replayed_on)
    assert (replayed[-1].outcome, replayed[-1].text) == ("success", recorded[-1].text), replayed[-1].reason
    assert files(here) == files(there)
    told = [event.message for event in replayed if isinstance(event, Notice) and "cassette" in event.message]
    assert len(told) == 1
    assert f"recorded with CLI {made_on}" in told[0]
