"""How prompts arrive: whole, as they are, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from endings import ended
from geminids import Notice, Started
from geminids.launch.prompt.compose import MAX_PROMPT_BYTES, MAX_PROMPT_UNITS

pytestmark = pytest.mark.real


def sent(world: Any) -> list[str]:
    """The texts of the last content that the model received, the CLI's own context left out."""
    parts = world.gateway.requests[-1].contents[-1]["parts"]
    return [part["text"] for part in parts if not part["text"].startswith("<session_context>")]


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        pytest.param(" \n\t", id="blank"),
        pytest.param("x" * (MAX_PROMPT_BYTES + 1), id="bytes"),
        pytest.param("x" * (MAX_PROMPT_UNITS + 1), id="characters"),
    ],
)
def test_a_prompt_that_cannot_be_sent_starts_nothing(make_world: Any, prompt: str) -> None:
    """Empty, blank, or more than the CLI reads or sends: refused before the spawn."""
    world = make_world("0.61.0")
    events = world.events(prompt)
    finished = ended(events, "failed", "bad_prompt", exit_code=None, retryable=False)
    assert len(events) == 1
    assert len(finished.failure.message) < 200
    assert not world.gateway.requests


@pytest.mark.deep
@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param("好" * ((MAX_PROMPT_BYTES - 7) // 3), id="bytes"),
        pytest.param(("x" * 79 + "\n") * (MAX_PROMPT_UNITS // 80), id="characters"),
    ],
)
def test_a_long_prompt_arrives_whole(world: Any, prompt: str) -> None:
    """Up to the CLI's limits not a character is lost on the way in; on the way out its echo can be.

    The CLI exits without waiting for its pipe to be read: on a busy machine the result behind the megabytes of
    the echo is lost with them, and a run without a result is cut off, never a success.
    """
    world.gateway.reply(text="read")
    finished = world.events(prompt)[-1]
    assert sent(world) == [prompt]
    if finished.outcome == "success":
        assert finished.text == "read"
    else:
        assert (finished.failure.kind, finished.exit_code) == ("cut_off", 0)


@pytest.mark.deep
def test_a_conversation_too_long_for_the_model_is_no_success(make_world: Any) -> None:
    """The CLI then sends nothing and says success, or loses its own result in the pipe: never a success of ours."""
    world = make_world("0.61.0")
    events = world.events(("x" * 79 + "\n") * 14_000, model="gemma-4-31b-it")
    assert not world.gateway.requests
    assert events[-1].outcome == "failed"
    assert events[-1].failure.kind in ("blocked", "cut_off")


@pytest.mark.parametrize(
    "prompt",
    [
        "-h what --version",
        pytest.param("/nosuch thing", marks=pytest.mark.deep),
        pytest.param("mail me@example.org, @missing.txt", marks=pytest.mark.deep),
        pytest.param('--resume=latest\n-p "x" $HOME `id` \\ ü \U0001f600', marks=pytest.mark.deep),
    ],
)
def test_odd_prompts_arrive_as_they_are(world: Any, prompt: str) -> None:
    """A dash is no flag, an unknown command no command, a missing file no file, and no shell reads along."""
    world.gateway.reply(text="ok")
    ended(world.events(prompt), "success")
    assert sent(world) == [prompt]


def test_a_commands_own_line_is_noise(world: Any) -> None:
    """`/memory show` prints a raw line between the events; the text still goes to the model."""
    world.gateway.reply(text="ok")
    events = world.events("/memory show")
    assert ended(events, "success").text == "ok"
    noise = [event.message for event in events if isinstance(event, Notice) and event.code == "noise"]
    assert noise == ["Memory is currently empty."]


def test_a_command_for_a_screen_is_a_bad_prompt(world: Any) -> None:
    """Exit 42: the CLI cannot show `/settings` here, and the hint says how to send it as text."""
    finished = ended(world.events("/settings"), "failed", "bad_prompt", exit_code=42, retryable=False)
    assert "not supported in non-interactive mode" in finished.failure.message
    assert "literal" in finished.failure.hint
    assert not world.gateway.requests


@pytest.mark.deep
@pytest.mark.parametrize("prompt", ["/memory show", "/settings"])
def test_a_literal_command_is_text(world: Any, prompt: str) -> None:
    """With `literal` nothing runs."""
    world.gateway.reply(text="ok")
    events = world.events(prompt, literal=True)
    ended(events, "success")
    assert not [event for event in events if isinstance(event, Notice) and event.code == "noise"]
    assert [text.strip() for text in sent(world)] == [prompt]


def test_a_path_puts_its_file_in(world: Any) -> None:
    """`@path` is the CLI's way to show a file to the model."""
    (world.cwd / "a.txt").write_text("SECRET OF A")
    world.gateway.reply(text="ok")
    ended(world.events("look at @a.txt please"), "success")
    assert "SECRET OF A" in sent(world)


def test_a_literal_path_is_text(world: Any) -> None:
    """With `literal` no file is put in."""
    (world.cwd / "a.txt").write_text("SECRET OF A")
    world.gateway.reply(text="ok")
    ended(world.events("look at @a.txt please", literal=True), "success")
    assert sent(world) == [r"look at \@a.txt please"]
    assert "SECRET OF A" not in str(world.gateway.requests[-1].body)


def test_a_prompt_is_text(make_world: Any) -> None:
    """Anything else is refused like an empty prompt, not raised."""
    world = make_world("0.61.0")
    events = world.events(b"bytes")
    ended(events, "failed", "bad_prompt", exit_code=None)
    assert not [event for event in events if isinstance(event, Started)]
