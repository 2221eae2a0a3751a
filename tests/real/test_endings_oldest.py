"""The oldest releases tell less of the truth, and are judged by what they leave: a line on stderr, a report."""

from __future__ import annotations

from typing import Any

import pytest

from endings import ended
from geminids import ToolFinished

pytestmark = [pytest.mark.real, pytest.mark.deep, pytest.mark.timeout(600)]

RELEASES = ("0.11.3", "0.17.1", "0.24.0", "0.32.1")
# An id: `flash` is no name before 0.16. One attempt: the setting is unknown before 0.2x, but 4xx are not retried.
MODEL = "gemini-2.5-flash"


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Those that make test-deep knows besides the two that all tests run on."""
    version: str = request.param
    return version


def test_a_plain_answer_is_a_success(world: Any) -> None:
    """Also where the release knows no private home, no session id and no model by an alias."""
    world.gateway.reply(text=["Hel", "lo"])
    finished = ended(world.events(model=MODEL), "success")
    assert (finished.text, finished.exit_code) == ("Hello", 0)


def test_a_tool_that_worked_is_a_success(world: Any) -> None:
    """The file is on the disk."""
    file = world.cwd / "out.txt"
    world.gateway.reply(calls=[("write_file", {"file_path": str(file), "content": "written"})])
    world.gateway.reply(text="done")
    events = world.events(model=MODEL, approval="yolo")
    assert ended(events, "success").answer == "done"
    assert [event.status for event in events if isinstance(event, ToolFinished)] == ["ok"]
    assert file.read_text() == "written"


def test_a_bad_key_is_no_success(world: Any) -> None:
    """0.11 says success, exit 0, and names a report on stderr: what that says is what counts."""
    error = "API key not valid. Please pass a valid API key."
    world.gateway.reply(status=400, error=error, times=None)
    finished = ended(
        world.events(model=MODEL), "failed", "auth", http_status=400, retryable=False, message=error
    )
    assert finished.exit_code == (0 if world.version == "0.11.3" else 144)


def test_no_way_to_sign_in(world: Any) -> None:
    """0.11 and 0.17 end with exit 1, later releases with 41; the text is the same."""
    events = world.events(model=MODEL, env={"GEMINI_API_KEY": "", "GOOGLE_GEMINI_BASE_URL": ""})
    ended(events, "failed", "auth", exit_code=1 if world.version < "0.2" else 41, retryable=False)


def test_half_an_answer_is_no_success(world: Any) -> None:
    """0.11 says success here too; what came is kept."""
    world.gateway.reply(text="half of", cut=True, times=None)
    finished = ended(
        world.events(model=MODEL, max_attempts=1, timeout=60), "failed", "network", retryable=True
    )
    assert finished.text.startswith("half of")


def test_an_empty_answer_is_no_success(world: Any) -> None:
    """All of them call it success."""
    world.gateway.reply(empty=True, times=None)
    ended(world.events(model=MODEL), "failed", "blocked", retryable=True)
