"""The history of the prompts that a user typed in chats."""

from __future__ import annotations

import stat
from pathlib import Path

from geminids.cli.chat.prompt import PromptHistory


def _load(file: Path) -> list[str]:
    return list(PromptHistory(file).load_history_strings())


def test_history_outlives_a_chat(tmp_path: Path) -> None:
    """A later chat loads the prompts of earlier ones, the newest first, also those of several lines.

    The file has mode 0600, and characters that cannot be encoded become `?`.
    """
    file = tmp_path / "new" / "chat-history"
    for text in ("one", "two\nlines", " ", "ümlaut \ud800 half"):
        PromptHistory(file).append_string(text)
    assert _load(file) == ["ümlaut ? half", "two\nlines", "one"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_history_is_bounded(tmp_path: Path) -> None:
    """The history keeps the newest 1000 prompts.

    A file that is too long is truncated and keeps mode 0600.
    """
    file = tmp_path / "chat-history"
    history = PromptHistory(file)
    for number in range(2100):
        history.store_string(f"prompt {number}")
    history.store_string("x" * 100_001)
    assert _load(file) == [f"prompt {number}" for number in range(2099, 1099, -1)]
    assert len(file.read_bytes().splitlines()) == 1000
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["chat-history"]


def test_a_broken_history_is_no_error(tmp_path: Path) -> None:
    """Unreadable lines of the history are skipped. A history that cannot be written is no error."""
    file = tmp_path / "chat-history"
    file.write_bytes(b'"good"\nbroken\n\xff\xfe\n7\n"also"\n')
    assert _load(file) == ["also", "good"]
    PromptHistory(file / "x").store_string("text")
    assert _load(file / "x") == []
