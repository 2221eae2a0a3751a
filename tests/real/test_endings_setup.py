"""How runs end that cannot begin: no sign-in, no trust, no session, no CLI, bad settings; and plain success."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endings import ended
from geminids import Notice, Started, ToolFinished

pytestmark = pytest.mark.real


NO_SUCH = "3e0923c9-7033-438d-a978-a361d8031f47"


def notices(events: list[Any], code: str) -> list[Any]:
    return [event for event in events if isinstance(event, Notice) and event.code == code]


def refused(events: list[Any], kind: str, **told: Any) -> Any:
    """Told before anything was spawned: no `Started`, one event, no process."""
    finished = ended(events, "failed", kind, exit_code=None, retryable=False, **told)
    assert not [event for event in events if isinstance(event, Started)]
    assert finished.attempts == 0
    return finished


def package(folder: Path, version: str) -> str:
    """A package folder of Gemini CLI whose script must never run."""
    folder.mkdir()
    (folder / "package.json").write_text(
        json.dumps({"name": "@google/gemini-cli", "version": version, "bin": {"gemini": "gemini.js"}})
    )
    (folder / "gemini.js").write_text('require("fs").writeFileSync(__dirname + "/ran", "")')
    return str(folder)


def test_a_plain_answer_is_a_success(world: Any) -> None:
    """Exit 0, a result, an answer; a warning on stderr is no failure, nor one among the CLI's own lines."""
    world.gateway.reply(text=["Hel", "lo"])
    events = world.events()
    finished = ended(events, "success")
    assert (finished.text, finished.answer, finished.exit_code, finished.reason) == (
        "Hello",
        "Hello",
        0,
        None,
    )
    assert finished.attempts == 1
    assert not [
        event for event in events if isinstance(event, Notice) and event.level in ("warning", "error")
    ]


def test_tools_that_worked_are_a_success(world: Any) -> None:
    """A file really read, a file really written; a tool that failed on the way is no failure of the run."""
    (world.cwd / "in.txt").write_text("forty-two")
    world.gateway.reply(calls=[("read_file", {"file_path": "missing.txt"})])
    world.gateway.reply(calls=[("read_file", {"file_path": "in.txt"})])
    world.gateway.reply(calls=[("write_file", {"file_path": "out.txt", "content": "written"})])
    world.gateway.reply(text="done")
    events = world.events(approval="yolo")
    assert ended(events, "success").answer == "done"
    assert [event.status for event in events if isinstance(event, ToolFinished)] == ["failed", "ok", "ok"]
    assert (world.cwd / "out.txt").read_text() == "written"
    assert "forty-two" in json.dumps(world.gateway.requests[2].tool_results)


@pytest.mark.deep
def test_a_tool_and_not_a_word_more_is_a_success_where_the_cli_takes_it_for_one(make_world: Any) -> None:
    """Since 0.42 an empty answer is an error but after a tool, where it means: done."""
    world = make_world("0.61.0")
    world.gateway.reply(calls=[("write_file", {"file_path": "out.txt", "content": "written"})])
    world.gateway.reply(empty=True, times=None)
    assert ended(world.events(approval="yolo"), "success").text == ""
    assert (world.cwd / "out.txt").read_text() == "written"


def test_no_way_to_sign_in(world: Any) -> None:
    """Exit 41 and an empty stdout; the message names no file of ours, which the CLI's own does."""
    events = world.events(env={"GEMINI_API_KEY": "", "GOOGLE_GEMINI_BASE_URL": ""})
    finished = ended(events, "failed", "auth", exit_code=41, http_status=None, retryable=False)
    assert "no credentials found" in finished.failure.message
    assert "GEMINI_API_KEY" in finished.failure.hint
    assert not world.gateway.requests


def test_a_folder_that_is_not_trusted_on_purpose(world: Any) -> None:
    """Exit 55: with `trust_workspace` we trust the folder, but whoever says no is heard."""
    events = world.events(trust_workspace=True, env={"GEMINI_CLI_TRUST_WORKSPACE": "false"})
    finished = ended(events, "failed", "untrusted_folder", exit_code=55, retryable=False)
    assert "GEMINI_CLI_TRUST_WORKSPACE" in finished.failure.hint
    assert "--skip-trust" not in finished.failure.message


def test_a_session_that_is_not_there(world: Any) -> None:
    """Looked up before anything is spawned; `clear_session` says that the id is worth nothing any more."""
    world.gateway.reply(text="first")
    session = ended(world.events(), "success").session_id
    finished = refused(world.events(resume=NO_SUCH), "session_not_found")
    assert finished.clear_session
    assert NO_SUCH in finished.failure.message
    assert len(world.gateway.requests) == 1
    world.gateway.reply(text="second")
    again = ended(world.events(resume=session), "success")
    assert (again.session_id, again.text) == (session, "second")


def test_a_session_that_is_not_there_where_none_is(world: Any) -> None:
    """It must not look like the fresh start of `latest`."""
    events = world.events(resume=NO_SUCH)
    assert NO_SUCH in refused(events, "session_not_found").failure.message
    assert not notices(events, "fresh_session")


def test_a_session_that_is_gone_can_be_begun_anew(world: Any) -> None:
    """With `fresh`, once, and said so: `clear_session` tells the caller to forget the old id."""
    world.gateway.reply(text="anew")
    events = world.events(resume=NO_SUCH, fresh=True)
    finished = ended(events, "success", anew=True)
    assert finished.session_id not in (None, NO_SUCH)
    assert [NO_SUCH in notice.message for notice in notices(events, "fresh_session")] == [True]


def test_latest_where_there_is_none_is_told_to_be_fresh(world: Any) -> None:
    """The CLI starts afresh in silence: a success, but a notice says that nothing was resumed."""
    world.gateway.reply(text="hello")
    events = world.events(resume="latest")
    finished = ended(events, "success")
    assert [notice.level for notice in notices(events, "fresh_session")] == ["warning"]
    world.gateway.reply(text="again")
    events = world.events(resume="latest")
    assert ended(events, "success").session_id == finished.session_id
    assert not notices(events, "fresh_session")


def test_broken_settings_of_the_user_are_told_before_the_spawn(world: Any) -> None:
    """The file and the line, and nothing is spawned."""
    file = world.home / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text('{\n  "model": {,\n}')
    message = refused(world.events(), "config").failure.message
    assert str(file) in message
    assert "line 2" in message


def test_broken_settings_of_the_folder_are_told_by_the_cli(world: Any) -> None:
    """Exit 52: the file and the line, in the CLI's words."""
    file = world.cwd / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text('{\n  "model": {,\n}')
    finished = ended(world.events(), "failed", "config", retryable=False)
    assert str(file) in finished.failure.message
    assert "line 2" in finished.failure.message
    assert finished.exit_code in (52, None)


def test_no_cli_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is spawned, and the hint says how to get one."""
    from geminids import Options, stream_sync

    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    env = {"HOME": str(home), "PATH": str(home), "GEMINI_API_KEY": "k"}
    finished = refused(list(stream_sync("hi", Options(cwd=str(home), env=env))), "cli_missing")
    assert "geminids install" in finished.failure.hint
    assert "not found (searched PATH: no gemini; " in finished.failure.message
