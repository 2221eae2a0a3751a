"""The slash commands of a chat before its first turn: they show the state and change nothing."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from geminids import Options
from geminids.cli.chat.session import ChatSession
from geminids.cli.chat.slash_commands import Commands, LeaveChat


@pytest.fixture
def commands() -> Commands:
    session = ChatSession(Options(model="flash", approval="plan"), asks=True)
    return Commands(session, list, lambda: None)


def _output(commands: Commands, line: str) -> str:
    return "\n".join(line.plain for line in anyio.run(commands.run, line))


@pytest.mark.parametrize("word", ["/nonesuch", "/help2", "/do_help", "/__init__", "/é"])
def test_an_unknown_command_gets_one_line_with_the_next_step(commands: Commands, word: str) -> None:
    """The message for an unknown command names `/help` and says how to send the text as a prompt."""
    expected = f"unknown command {word}; see /help, or type /{word} to send {word} to the agent"
    assert _output(commands, f"{word} more") == expected


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("/model", "model: flash"),
        ("/mode", "mode: plan"),
        ("/mode wild", "unknown mode wild. Use one of default, auto_edit, yolo, plan."),
        ("/cost", "no tokens yet: no prompt was answered"),
        ("/thoughts", "no thoughts: the model reported none"),
        ("/session", "no session yet: send a prompt first"),
        ("/save", "there is nothing to save yet. Send a prompt first."),
    ],
)
def test_output_before_the_first_turn(commands: Commands, line: str, output: str) -> None:
    """Before the first turn, a command shows its state or says what to do first."""
    assert _output(commands, line) == output


def test_help_lists_every_command(commands: Commands) -> None:
    """`/help` lists every command and `/exit`."""
    output = _output(commands, "/help")
    names = {name.removeprefix("_do_") for name in vars(Commands) if name.startswith("_do_")}
    assert names >= {"model", "mode", "cost", "save", "thoughts", "session", "help"}
    assert all(f"/{name}" in output for name in {*names, "exit"})


def test_help_fits_into_the_terminal(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a narrow terminal, the descriptions are wrapped in a column of their own."""
    monkeypatch.setenv("COLUMNS", "50")
    assert _output(commands, "/help").startswith(
        "/model [NAME]    show or set the model for the\n"
        "                 next prompts: auto, pro,\n"
        "                 flash, flash-lite or an id\n"
        "/mode [MODE]"
    )


@pytest.mark.parametrize("line", ["/exit", " /quit "])
def test_exit_and_quit_leave_the_chat(commands: Commands, line: str) -> None:
    """`/exit` and `/quit` leave the chat."""
    with pytest.raises(LeaveChat):
        anyio.run(commands.run, line)


def test_save_needs_a_session(commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`/save` writes nothing without a session."""
    monkeypatch.chdir(tmp_path)
    anyio.run(commands.run, "/save here.md")
    assert list(tmp_path.iterdir()) == []
