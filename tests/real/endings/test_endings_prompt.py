"""A prompt reaches the model unchanged, or the run is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ending_checks import check_ending
from geminids import Notice, Started
from geminids.launch.prompt.compose import MAX_PROMPT_BYTES, MAX_PROMPT_UNITS

pytestmark = pytest.mark.real


def sent_texts(world: Any) -> list[str]:
    """Return the texts of the last content that the model received, without the CLI's own
    context."""
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
    """A prompt that is empty, blank, or longer than the CLI can read or send is refused before the
    CLI starts."""
    world = make_world("0.61.0")
    events = world.events(prompt)
    finished = check_ending(events, "failed", "bad_prompt", exit_code=None, retryable=False)
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
    """A prompt of the greatest length reaches the model unchanged, but the run may end as
    `cut_off`.

    The CLI echoes the prompt and exits without waiting until its output pipe is read. On a busy
    machine the result line after the megabytes of the echo is lost. A run without a result line is
    cut off, never a success.
    """
    world.gateway.reply(text="read")
    finished = world.events(prompt)[-1]
    assert sent_texts(world) == [prompt]
    if finished.outcome == "success":
        assert finished.text == "read"
    else:
        assert (finished.failure.kind, finished.exit_code) == ("cut_off", 0)


@pytest.mark.deep
def test_a_conversation_too_long_for_the_model_fails(make_world: Any) -> None:
    """If the conversation is too long for the model, the CLI sends nothing and reports success, or
    its result line is lost. The run fails."""
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
def test_unusual_prompts_arrive_unchanged(world: Any, prompt: str) -> None:
    """A prompt that looks like a flag, a slash command, a file reference or shell code reaches the
    model unchanged."""
    world.gateway.reply(text="ok")
    check_ending(world.events(prompt), "success")
    assert sent_texts(world) == [prompt]


def test_output_of_a_slash_command_is_noise(world: Any) -> None:
    """`/memory show` prints a raw line between the events, which becomes a notice with the code
    `noise`. The model still answers."""
    world.gateway.reply(text="ok")
    events = world.events("/memory show")
    assert check_ending(events, "success").text == "ok"
    noise = [event.message for event in events if isinstance(event, Notice) and event.code == "noise"]
    assert noise == ["Memory is currently empty."]


def test_an_interactive_command_is_a_bad_prompt(world: Any) -> None:
    """The CLI cannot run `/settings` headless and exits with 42. The failure is `bad_prompt`, and
    its hint says how to send the text with `literal`."""
    finished = check_ending(world.events("/settings"), "failed", "bad_prompt", exit_code=42, retryable=False)
    assert "not supported in non-interactive mode" in finished.failure.message
    assert "literal" in finished.failure.hint
    assert not world.gateway.requests


@pytest.mark.deep
@pytest.mark.parametrize("prompt", ["/memory show", "/settings"])
def test_a_literal_command_is_text(world: Any, prompt: str) -> None:
    """With `literal`, a slash command is sent as text."""
    world.gateway.reply(text="ok")
    events = world.events(prompt, literal=True)
    check_ending(events, "success")
    assert not [event for event in events if isinstance(event, Notice) and event.code == "noise"]
    assert [text.strip() for text in sent_texts(world)] == [prompt]


def test_a_path_in_the_prompt_adds_its_file(world: Any) -> None:
    """`@path` in a prompt adds the file's text to the request."""
    (world.cwd / "a.txt").write_text("SECRET OF A")
    world.gateway.reply(text="ok")
    check_ending(world.events("look at @a.txt please"), "success")
    assert "SECRET OF A" in sent_texts(world)


def test_a_literal_path_is_text(world: Any) -> None:
    """With `literal`, `@path` is sent as text and adds no file."""
    (world.cwd / "a.txt").write_text("SECRET OF A")
    world.gateway.reply(text="ok")
    check_ending(world.events("look at @a.txt please", literal=True), "success")
    assert sent_texts(world) == [r"look at \@a.txt please"]
    assert "SECRET OF A" not in str(world.gateway.requests[-1].body)


def test_a_prompt_must_be_text(make_world: Any) -> None:
    """A prompt that is not a string is refused like an empty one, and no exception is raised."""
    world = make_world("0.61.0")
    events = world.events(b"bytes")
    check_ending(events, "failed", "bad_prompt", exit_code=None)
    assert not [event for event in events if isinstance(event, Started)]
