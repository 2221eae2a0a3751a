"""Record a conversation with a server that plays Google, and replay it without that server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
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
    """Script a model that reads and writes files by their full path and prints a secret with a
    shell command."""
    shell = {"command": "pwd; date; echo $MY_SERVICE_TOKEN; ls; seq 1 20000"}
    return [
        Reply(thought="**Looking**\nfirst", calls=[Call("read_file", {"file_path": str(cwd / "a.py")})]),
        Reply(text=["Now ", "the shell. "], calls=[Call("run_shell_command", shell)]),
        Reply(calls=[Call("write_file", {"file_path": str(cwd / "out.txt"), "content": "hello\n"})]),
        Reply(text="Done."),
    ]


class CassetteRuns:
    """Records and replays runs, each in a new folder."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.cassette = world.root / "c.jsonl"
        self._runs = 0

    def make_folder(self) -> Path:
        self._runs += 1
        cwd: Path = self.world.root / f"folder-{self._runs}" / "work"
        cwd.mkdir(parents=True)
        (cwd / "a.py").write_text("x = 1\n")
        return cwd

    def run(self, cwd: Path, prompt: str = "look at a.py", **fields: Any) -> list[Any]:
        env = {
            "GEMINI_API_KEY": "",
            "GOOGLE_GEMINI_BASE_URL": "",
            "MY_SERVICE_TOKEN": TOKEN,
            **fields.pop("env", {}),
        }
        options = self.world.options(cwd=str(cwd), approval="yolo", env=env, **fields)
        return list(geminids.stream_sync(prompt, options))

    def record(
        self, script: list[Any] | None = None, requests: int | None = None, **fields: Any
    ) -> tuple[Path, list[Any]]:
        cwd = self.make_folder()
        with FakeGoogle(replies(cwd) if script is None else script, with_key=KEY) as google:
            env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": google.url}
            events = self.run(cwd, env=env, record=str(self.cassette), **fields)
            assert len(google.asked) == requests if requests is not None else google.asked
        return cwd, events

    def replay(self, **fields: Any) -> tuple[Path, list[Any]]:
        cwd = self.make_folder()
        return cwd, self.run(cwd, replay=str(self.cassette), **fields)


@pytest.fixture
def runs(world: Any) -> CassetteRuns:
    return CassetteRuns(world)


def summarize(cwd: Path, events: list[Any]) -> list[Any]:
    """Return what happened in a run, without values that differ between runs, such as the folder
    and the output of a shell that prints the time."""

    def without_cwd(value: object) -> str:
        return str(value).replace(str(cwd), "<cwd>")

    facts: list[Any] = []
    for event in events:
        if isinstance(event, Text):
            facts.append(event.text)
        elif isinstance(event, ToolStarted):
            facts.append((event.name, without_cwd(event.input)))
        elif isinstance(event, ToolFinished):
            output = "" if event.name == "run_shell_command" else without_cwd(event.output)
            facts.append(
                (event.name, event.status, output, [without_cwd(change.path) for change in event.changes])
            )
        elif isinstance(event, TokensUsed):
            facts.append((event.role, event.model, event.input, event.output, event.thinking))
    finished = events[-1]
    assert isinstance(finished, Finished)
    # Keep the order within text, tools and tokens only: between these kinds, it depends on the time
    # of arrival.
    return [
        sorted(facts, key=lambda fact: len(fact) if isinstance(fact, tuple) else 0),
        finished.outcome,
        finished.answer,
    ]


def read_files(cwd: Path) -> dict[str, str]:
    return {str(file.relative_to(cwd)): file.read_text() for file in cwd.rglob("*") if file.is_file()}


def test_a_replay_equals_the_recording(runs: CassetteRuns) -> None:
    """A replay without the server and in another folder gives the same events and files as the
    recording, and no notice about the cassette."""
    recorded_cwd, recorded = runs.record()
    replayed_cwd, replayed = runs.replay()
    assert replayed[-1].outcome == "success", replayed[-1].reason
    assert summarize(replayed_cwd, replayed) == summarize(recorded_cwd, recorded)
    assert recorded[-1].outcome == "success", recorded[-1]
    assert read_files(replayed_cwd) == read_files(recorded_cwd) == {"a.py": "x = 1\n", "out.txt": "hello\n"}
    assert [event for event in replayed if isinstance(event, Notice) and "cassette" in event.message] == []


def test_no_secret_is_in_the_cassette(runs: CassetteRuns) -> None:
    """A cassette contains no key, no secret that a tool printed and no run token. Only its owner
    can read it."""
    runs.record()
    text = runs.cassette.read_text()
    for secret in (KEY, KEY[:20], TOKEN, TOKEN[:14], "geminids-run-"):
        assert secret not in text
    assert runs.cassette.stat().st_mode & 0o777 == 0o600
    assert load_cassette(runs.cassette).header.cli == runs.world.version


def test_a_changed_prompt(runs: CassetteRuns) -> None:
    """A replay with a changed prompt fails with a diff, and no tool runs."""
    runs.record()
    replayed_cwd, replayed = runs.replay(prompt="look at b.py")
    finished = replayed[-1]
    assert finished.outcome == "failed"
    assert "-user: look at a.py\n+user: look at b.py" in finished.failure.message
    assert "record" in finished.failure.hint
    assert read_files(replayed_cwd) == {"a.py": "x = 1\n"}


def test_a_failed_recording_does_not_replace_a_cassette(runs: CassetteRuns) -> None:
    """A run that fails leaves the cassette as it was; a notice names the file with its recording.
    Only a successful run replaces it, and only with `overwrite`."""
    runs.record(script=[Reply(text="good")])
    good = runs.cassette.read_bytes()
    failed = runs.cassette.with_name("c.jsonl.failed")
    bad = Reply(status=400, error="no", times=None)
    _, refused = runs.record(script=[Reply(text="better")], requests=0)
    assert (refused[-1].failure.kind, runs.cassette.read_bytes()) == ("bad_option", good)
    assert "already exists" in refused[-1].failure.message
    _, events = runs.record(script=[bad], overwrite=True)
    assert events[-1].outcome == "failed"
    assert runs.cassette.read_bytes() == good
    assert load_cassette(failed).exchanges[0].answer.status == 400
    assert [event.message for event in events if isinstance(event, Notice) and event.code == "record"] == [
        f"the run did not succeed: its recording is in {failed}"
    ]
    _, events = runs.record(script=[Reply(text="better")], overwrite=True)
    assert [event for event in events if isinstance(event, Notice) and event.code == "record"] == []
    assert runs.replay()[1][-1].answer == "better"


def test_a_run_that_is_stopped_writes_no_cassette(runs: CassetteRuns) -> None:
    """A run that times out writes no cassette; its recording is beside it."""
    _, events = runs.record(script=[Reply(text="a", stall=True)], timeout=4.0)
    assert events[-1].outcome == "timed_out"
    assert not runs.cassette.exists()
    assert load_cassette(runs.cassette.with_name("c.jsonl.failed")).exchanges


@pytest.mark.parametrize("model", ["offline", "script"])
def test_a_scripted_run_can_be_recorded(runs: CassetteRuns, model: str) -> None:
    """`offline` and `script` work together with `record`; the recording can be replayed, and all
    three cost nothing."""
    script = runs.world.root / "script.json"
    script.write_text(
        '[{"calls": [{"name": "read_file", "args": {"file_path": "a.py"}}]}, {"text": "x is 1"}]'
    )
    fields: dict[str, Any] = {"offline": True} if model == "offline" else {"script": str(script)}
    recorded_cwd = runs.make_folder()
    recorded = runs.run(recorded_cwd, record=str(runs.cassette), **fields)
    replayed_cwd, replayed = runs.replay()
    assert recorded[-1].outcome == "success", recorded[-1].reason
    assert summarize(replayed_cwd, replayed) == summarize(recorded_cwd, recorded)
    assert [event.name for event in recorded if isinstance(event, ToolFinished)][-1] == "read_file"
    assert (recorded[-1].cost.usd, replayed[-1].cost.usd) == (0, 0)
    if model == "script":
        assert recorded[-1].answer == "x is 1"


@pytest.mark.parametrize("headless", [False, True])
def test_a_chat_is_one_recording(runs: CassetteRuns, headless: bool) -> None:
    """A chat writes one cassette with all its turns, also if its turns are headless, and replays
    it. A turn continues the script where the one before has ended."""
    script = runs.world.root / "script.json"
    script.write_text('[{"text": "one"}, {"text": "two"}]')

    def chat(**fields: Any) -> list[Any]:
        cwd = runs.make_folder()
        if headless:
            # An approval mode other than `default` in a folder with settings makes a chat headless.
            (cwd / ".gemini").mkdir()
            (cwd / ".gemini" / "settings.json").write_text('{"mcpServers": {"x": {"command": "true"}}}')
            fields["approval"] = "yolo"
        env = {"GEMINI_API_KEY": "", "GOOGLE_GEMINI_BASE_URL": ""}

        async def main() -> list[Any]:
            options = runs.world.options(cwd=str(cwd), env=env, **fields)
            async with geminids.Pool(options) as pool, pool.chat() as chat:
                return [await chat.ask("first"), await chat.ask("second")]

        return anyio.run(main)

    recorded = chat(script=str(script), record=str(runs.cassette))
    assert [result.answer for result in recorded] == ["one", "two"], recorded
    assert [result.answer for result in chat(replay=str(runs.cassette))] == ["one", "two"]


@pytest.mark.parametrize("last", ["good", "bad"])
def test_the_last_turn_of_a_chat_decides(runs: CassetteRuns, last: str) -> None:
    """The recording of a chat becomes the cassette if the last turn succeeded. Otherwise it is kept
    beside it, and the pool emits a notice."""
    script = runs.world.root / "script.json"
    good, bad = '{"text": "good"}', '{"status": 400, "error": "no"}'
    script.write_text(f"[{good}, {bad}]" if last == "bad" else f"[{bad}, {good}]")
    runs.cassette.write_text("the old one")
    notices: list[Notice] = []

    async def main() -> list[str]:
        options = runs.world.options(
            cwd=str(runs.make_folder()), script=str(script), record=str(runs.cassette), overwrite=True
        )
        async with geminids.Pool(options, on_notice=notices.append) as pool, pool.chat() as chat:
            return [(await chat.ask(prompt)).outcome for prompt in ("first", "second")]

    outcomes = anyio.run(main)
    failed = runs.cassette.with_name("c.jsonl.failed")
    if last == "good":
        assert outcomes == ["failed", "success"]
        assert len(load_cassette(runs.cassette).exchanges) >= 2
        assert not failed.exists()
    else:
        assert outcomes == ["success", "failed"]
        assert runs.cassette.read_text() == "the old one"
        assert [notice.code for notice in notices] == ["record"]
        assert str(failed) in notices[0].message
        assert len(load_cassette(failed).exchanges) >= 2


@pytest.mark.deep
def test_a_changed_file(runs: CassetteRuns) -> None:
    """A changed file fails the replay only if the agent reads it."""
    runs.record(script=[Reply(calls=[Call("read_file", {"file_path": "a.py"})]), Reply(text="Done.")])
    cwd = runs.make_folder()
    (cwd / "b.py").write_text("y = 1\n")
    assert runs.run(cwd, replay=str(runs.cassette))[-1].outcome == "success"
    (cwd / "a.py").write_text("x = 2\n")
    finished = runs.run(cwd, replay=str(runs.cassette))[-1]
    assert "x = 2" in finished.failure.message


@pytest.mark.deep
def test_errors_are_replayed_too(runs: CassetteRuns) -> None:
    """A replay repeats a refused request and its retry."""
    retry_info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.2s"}
    script = [Reply(status=429, error="slow down", details=[retry_info]), Reply(text="At last.")]
    recorded_cwd, recorded = runs.record(script)
    replayed_cwd, replayed = runs.replay()
    assert [exchange.answer.status for exchange in load_cassette(runs.cassette).exchanges] == [429, 200]
    assert summarize(replayed_cwd, replayed) == summarize(recorded_cwd, recorded)
    assert replayed[-1].answer == "At last."


@pytest.mark.parametrize(
    ("made_on", "replayed_on"),
    [
        pytest.param(made_on, replayed_on, marks=pytest.mark.deep)
        for made_on in RELEASES
        for replayed_on in RELEASES
        if made_on != replayed_on
    ],
)
def test_a_cassette_replays_on_another_release(
    make_world: Any, installs: Any, made_on: str, replayed_on: str
) -> None:
    """A cassette of one release replays on another with the same text and files. A notice names the
    release that recorded it."""
    runs = CassetteRuns(make_world(made_on))
    install(replayed_on, places=installs)
    recorded_cwd, recorded = runs.record()
    replayed_cwd, replayed = runs.replay(gemini=replayed_on)
    assert (replayed[-1].outcome, replayed[-1].text) == ("success", recorded[-1].text), replayed[-1].reason
    assert read_files(replayed_cwd) == read_files(recorded_cwd)
    notices = [
        event.message for event in replayed if isinstance(event, Notice) and "cassette" in event.message
    ]
    assert len(notices) == 1
    assert f"recorded with CLI {made_on}" in notices[0]
