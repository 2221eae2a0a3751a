"""What a chat offers to complete: slash commands, their arguments, and `@paths`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from geminids import Options
from geminids.cli.chat.completion import ChatCompleter
from geminids.cli.chat.slash_commands import ARGUMENTS, COMMANDS
from geminids.warm.acp.prompt import encode_prompt


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("src/app.py", "src/my file (1).txt", "setup.py", ".hidden", "a\nb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("content\n")
    return tmp_path


def _completed(folder: Path, text: str) -> list[str]:
    """Return the whole input for each completion of `text`."""
    completer = ChatCompleter(COMMANDS, ARGUMENTS, str(folder))
    completions = list(completer.get_completions(Document(text), CompleteEvent()))
    assert completer.applies_to(text) or not completions
    return [text[: len(text) + completion.start_position] + completion.text for completion in completions]


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("/m", ["/model", "/mode"]),
        ("/s", ["/save", "/session"]),
        ("/mode a", ["/mode auto_edit"]),
        ("/model fl", ["/model flash", "/model flash-lite"]),
        ("/save a", []),
        ("/nonesuch", []),
        ("say /mo", []),
        ("//mo", []),
    ],
)
def test_commands_are_completed(folder: Path, text: str, completed: list[str]) -> None:
    """At the start of a prompt, commands and their arguments are completed; elsewhere they are not."""
    assert _completed(folder, text) == completed


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("see @s", ["see @setup.py", "see @src/"]),
        ("@src/", ["@src/app.py", r"@src/my\ file\ \(1\).txt"]),
        (r"two\nlines (@src/my\ f", [r"two\nlines (@src/my\ file\ \(1\).txt"]),
        ("@.", ["@.hidden"]),
        ("@", ["@setup.py", "@src/"]),
        ("@nonesuch/", []),
        ("mail me@s", []),
        ("see @src ", []),
    ],
)
def test_paths_are_completed(folder: Path, text: str, completed: list[str]) -> None:
    """After `@`, the names in the working folder are completed, with a backslash where the CLI needs
    one. Hidden names need their dot, and names that cannot be typed are left out."""
    assert _completed(folder, text) == completed


def test_a_completed_path_is_the_path_that_is_sent(folder: Path) -> None:
    """The prompt with a completed path links that file, whatever characters its name has."""
    name = 'it\'s [a], {b}; "c"! é?.txt'
    (folder / "odd").mkdir()
    (folder / "odd" / name).write_text("content\n")
    (text,) = _completed(folder, "read @odd/")
    options = Options(cwd=str(folder))
    links = [block for block in encode_prompt(text, options, str(folder), "run") if hasattr(block, "uri")]
    assert [os.path.basename(link.uri) for link in links] == [name]


def test_a_large_folder_gives_few_names(folder: Path) -> None:
    """A folder with many files gives the first 200 names."""
    for number in range(300):
        (folder / f"n{number:03}").touch()
    assert _completed(folder, "@n") == [f"@n{number:03}" for number in range(200)]
