"""Runs that cannot start, because sign-in, trust, session, CLI or settings are missing or wrong;
and plain successes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ending_checks import check_ending
from geminids import Notice, Started, ToolFinished

pytestmark = pytest.mark.real


UNKNOWN_SESSION = "3e0923c9-7033-438d-a978-a361d8031f47"


def notices(events: list[Any], code: str) -> list[Any]:
    return [event for event in events if isinstance(event, Notice) and event.code == code]


def check_refused(events: list[Any], kind: str, **fields: Any) -> Any:
    """Check that the run failed before the CLI was started: there is no `Started` event and no
    attempt."""
    finished = check_ending(events, "failed", kind, exit_code=None, retryable=False, **fields)
    assert not [event for event in events if isinstance(event, Started)]
    assert finished.attempts == 0
    return finished


def test_a_plain_answer_is_a_success(world: Any) -> None:
    """A run with an answer and exit code 0 is a success, without a notice at the level of warning
    or error."""
    world.gateway.reply(text=["Hel", "lo"])
    events = world.events()
    finished = check_ending(events, "success")
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


def test_tools_read_and_write_files(world: Any) -> None:
    """Tools read and write real files. A failed tool call does not fail the run."""
    (world.cwd / "in.txt").write_text("forty-two")
    world.gateway.reply(calls=[("read_file", {"file_path": "missing.txt"})])
    world.gateway.reply(calls=[("read_file", {"file_path": "in.txt"})])
    world.gateway.reply(calls=[("write_file", {"file_path": "out.txt", "content": "written"})])
    world.gateway.reply(text="done")
    events = world.events(approval="yolo")
    assert check_ending(events, "success").answer == "done"
    assert [event.status for event in events if isinstance(event, ToolFinished)] == ["failed", "ok", "ok"]
    assert (world.cwd / "out.txt").read_text() == "written"
    assert "forty-two" in json.dumps(world.gateway.requests[2].tool_results)


@pytest.mark.deep
def test_an_empty_answer_after_a_tool_is_a_success(make_world: Any) -> None:
    """An empty answer after a tool call is a success (since 0.42)."""
    world = make_world("0.61.0")
    world.gateway.reply(calls=[("write_file", {"file_path": "out.txt", "content": "written"})])
    world.gateway.reply(empty=True, times=None)
    assert check_ending(world.events(approval="yolo"), "success").text == ""
    assert (world.cwd / "out.txt").read_text() == "written"


def test_no_sign_in(world: Any) -> None:
    """Without credentials the CLI exits with 41. The failure is `auth`, and its hint names
    GEMINI_API_KEY."""
    events = world.events(env={"GEMINI_API_KEY": "", "GOOGLE_GEMINI_BASE_URL": ""})
    finished = check_ending(events, "failed", "auth", exit_code=41, http_status=None, retryable=False)
    assert "no credentials found" in finished.failure.message
    assert "GEMINI_API_KEY" in finished.failure.hint
    assert not world.gateway.requests


def test_an_explicitly_untrusted_folder(world: Any) -> None:
    """GEMINI_CLI_TRUST_WORKSPACE=false outranks `trust_workspace`: the CLI exits with 55, and the
    hint names the variable."""
    events = world.events(trust_workspace=True, env={"GEMINI_CLI_TRUST_WORKSPACE": "false"})
    finished = check_ending(events, "failed", "untrusted_folder", exit_code=55, retryable=False)
    assert "GEMINI_CLI_TRUST_WORKSPACE" in finished.failure.hint
    assert "--skip-trust" not in finished.failure.message


def test_an_unknown_session_is_refused(world: Any) -> None:
    """A run with an unknown session id is refused before the CLI starts, and `clear_session` is
    set. A known session is resumed."""
    world.gateway.reply(text="first")
    session = check_ending(world.events(), "success").session_id
    finished = check_refused(world.events(resume=UNKNOWN_SESSION), "session_not_found")
    assert finished.clear_session
    assert UNKNOWN_SESSION in finished.failure.message
    assert len(world.gateway.requests) == 1
    world.gateway.reply(text="second")
    again = check_ending(world.events(resume=session), "success")
    assert (again.session_id, again.text) == (session, "second")


def test_a_missing_session_in_a_folder_without_sessions(world: Any) -> None:
    """In a folder without sessions, an unknown session id is refused too. Only `latest` starts a
    new session there."""
    events = world.events(resume=UNKNOWN_SESSION)
    assert UNKNOWN_SESSION in check_refused(events, "session_not_found").failure.message
    assert not notices(events, "fresh_session")


def test_fresh_replaces_a_missing_session(world: Any) -> None:
    """With `fresh`, a new session replaces the missing one. One notice reports that, and
    `clear_session` is set."""
    world.gateway.reply(text="new session")
    events = world.events(resume=UNKNOWN_SESSION, fresh=True)
    finished = check_ending(events, "success", anew=True)
    assert finished.session_id not in (None, UNKNOWN_SESSION)
    assert [UNKNOWN_SESSION in notice.message for notice in notices(events, "fresh_session")] == [True]


def test_latest_without_a_session_starts_a_fresh_one(world: Any) -> None:
    """`latest` without a session starts a new one, and a notice reports that nothing was
    resumed."""
    world.gateway.reply(text="hello")
    events = world.events(resume="latest")
    finished = check_ending(events, "success")
    assert [notice.level for notice in notices(events, "fresh_session")] == ["warning"]
    world.gateway.reply(text="again")
    events = world.events(resume="latest")
    assert check_ending(events, "success").session_id == finished.session_id
    assert not notices(events, "fresh_session")


def test_broken_user_settings_are_reported_before_the_spawn(world: Any) -> None:
    """Broken user settings are reported with file and line, and the CLI is not started."""
    file = world.home / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text('{\n  "model": {,\n}')
    message = check_refused(world.events(), "config").failure.message
    assert str(file) in message
    assert "line 2" in message


def test_broken_folder_settings_are_reported(world: Any) -> None:
    """Broken settings of the folder give the failure `config`, with file and line."""
    file = world.cwd / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text('{\n  "model": {,\n}')
    finished = check_ending(world.events(), "failed", "config", retryable=False)
    assert str(file) in finished.failure.message
    assert "line 2" in finished.failure.message
    assert finished.exit_code in (52, None)


def test_no_cli_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an installed CLI the run is refused, and the hint says how to install one."""
    from geminids import Options, stream_sync

    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    env = {"HOME": str(home), "PATH": str(home), "GEMINI_API_KEY": "k"}
    finished = check_refused(list(stream_sync("hi", Options(cwd=str(home), env=env))), "cli_missing")
    assert "geminids install" in finished.failure.hint
    assert "not found (searched PATH: no gemini; " in finished.failure.message
