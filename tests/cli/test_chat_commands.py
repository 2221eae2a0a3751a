"""The commands of a chat that has not begun: they tell what is so, and change nothing that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminids import Options
from geminids.cli.chat.slash_commands import Commands, Leave
from geminids.cli.chat.thread import ChatThread


@pytest.fixture
def commands() -> Commands:
    thread = ChatThread(Options(model="flash", approval="plan"), asks=True)
    return Commands(thread, list, lambda: None)


def _told(commands: Commands, line: str) -> str:
    return "\n".join(line.plain for line in commands.run(line))


@pytest.mark.parametrize("word", ["/nonesuch", "/help2", "/do_help", "/__init__", "/é"])
def test_an_unknown_word_gets_one_line_with_the_next_step(commands: Commands, word: str) -> None:
    """Which says how to list the commands, and how to send it."""
    assert _told(commands, f"{word} more") == f"unknown command {word}; see /help, or send it with /{word}"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/model", "model: flash"),
        ("/mode", "mode: plan"),
        ("/mode wild", "unknown mode wild. Use one of default, auto_edit, yolo, plan."),
        ("/cost", "no tokens yet: nothing was answered"),
        ("/thoughts", "no thoughts: the model reported none"),
        ("/session", "no session yet: send a prompt first"),
        ("/save", "there is nothing to save yet. Send a prompt first."),
    ],
)
def test_before_the_first_turn(commands: Commands, line: str, told: str) -> None:
    """Each says what is so, or what to do first."""
    assert _told(commands, line) == told


def test_help_names_all(commands: Commands) -> None:
    """Every command, and what can be typed besides."""
    told = _told(commands, "/help")
    names = {name.removeprefix("_do_") for name in vars(Commands) if name.startswith("_do_")}
    assert names >= {"model", "mode", "cost", "save", "thoughts", "session", "help"}
    assert all(f"/{name}" in told for name in {*names, "exit"})


@pytest.mark.parametrize("line", ["/exit", " /quit "])
def test_leaving(commands: Commands, line: str) -> None:
    """Both words."""
    with pytest.raises(Leave):
        commands.run(line)


def test_saving_needs_a_session(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written where there is nothing to write."""
    monkeypatch.chdir(tmp_path)
    commands.run("/save here.md")
    assert list(tmp_path.iterdir()) == []
