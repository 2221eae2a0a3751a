"""The transcript of a stored session in a terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

import hostile_session
from geminids.events.model import Change
from geminids.sessions.transcript import (
    PromptEntry,
    RemarkEntry,
    TextEntry,
    ThoughtEntry,
    ToolEntry,
    TranscriptEntry,
    TurnEnd,
    entries,
)
from geminids.views.transcript.transcript import TranscriptView

_DIFF = (
    "Index: a.py\n=====\n--- a.py\tCurrent\n+++ a.py\tProposed\n@@ -1,2 +1,2 @@\n import os\n-x = 1\n+x = 2\n"
)
_ENTRIES: list[TranscriptEntry] = [
    PromptEntry(message="47a465fa-c640", text="Fix it.\nPlease."),
    ThoughtEntry(subject="Look first", text="I read\nthe file."),
    TextEntry(text="**I** will look.\n"),
    ToolEntry(id="1", name="read_file", title="Read a.py", status="ok", output="1\n2\n3\n4\n5\n"),
    ToolEntry(id="2", name="run_shell_command", title="pytest", status="ok", exit_code=1, output="no\n"),
    ToolEntry(
        id="3",
        name="replace",
        title="Edit a.py",
        status="ok",
        output="Successfully modified",
        changes=(Change("a.py", "edited", _DIFF),),
    ),
    ToolEntry(id="4", name="x", title="rm -rf /", status="denied", error="denied by policy"),
    PromptEntry(text="In the agent", depth=1),
    TextEntry(text="Seen.", depth=1),
    RemarkEntry(level="error", text="Oops."),
    TurnEnd(models=("g-pro",), requests=2, input=1200, cached=200, output=12, thinking=5),
]


def _show(
    entries_to_show: list[TranscriptEntry], *, width: int = 80, terminal: bool = False, full: bool = False
) -> str:
    file = io.StringIO()
    view = TranscriptView(file, full=full, terminal=terminal, width=width)
    view.head("Fix it.", "id · time", "/repo")
    view.show(entries_to_show)
    view.foot("resume: geminids run --resume id")
    return file.getvalue()


def test_a_whole_session() -> None:
    """A transcript has prompts, thoughts, unchanged text, and a line for each tool with the first
    lines of its output.

    Subagents are indented.
    """
    assert _show(_ENTRIES) == (
        "Fix it.\nid · time\n/repo\n\n"
        "> Fix it.\n  Please.\n  47a465fa\n\n"
        "  ∙ Look first: I read the file.\n\n"
        "**I** will look.\n\n"
        "  ✓ Read a.py\n      1\n      2\n      3\n      … 2 more lines\n"
        "  ✗ pytest  exit code 1\n      no\n"
        "  ✓ Edit a.py  +1 -1\n      @@ -1,2 +1,2 @@\n       import os\n      -x = 1\n      +x = 2\n"
        "  ⊘ rm -rf /  denied\n      denied by policy\n\n"
        "    > In the agent\n\n"
        "    Seen.\n\n"
        "! Oops.\n\n"
        "g-pro · 2 requests · 1,200 tokens in (200 cached) · 12 out · 5 thinking\n\n"
        "use --full to show the complete output of tools\nresume: geminids run --resume id\n"
    )


def test_full_shows_all_output() -> None:
    """With `full`, all output is shown and there is no note about folded output."""
    shown = _show(_ENTRIES, full=True)
    assert "      4\n      5\n" in shown
    assert "Successfully modified" in shown
    assert "more line" not in shown
    assert "--full" not in shown


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal a diff is green and red.

    In a pipe there are no colours, and NO_COLOR removes them.
    """
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    shown = _show(_ENTRIES, terminal=True)
    assert "\x1b[32m+x = 2" in shown
    assert "\x1b[31m-x = 1" in shown
    assert "\x1b" not in _show(_ENTRIES)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in _show(_ENTRIES, terminal=True)


@pytest.mark.parametrize("width", [40, 80])
def test_lines_of_tools_fit(width: int) -> None:
    """A long tool title is cut; its outcome is kept."""
    long = ToolEntry(id="1", name="x", title="word " * 40, status="failed", exit_code=7, output="y" * 300)
    rows = _show([long], width=width, terminal=True).splitlines()
    row = next(row for row in rows if "word" in row)
    assert "exit code 7" in row
    assert "…" in row


@pytest.mark.parametrize("full", [True, False])
def test_nothing_steers_the_terminal(full: bool) -> None:
    """Control characters of a session are shown as symbols."""
    shown = _show(list(entries(hostile_session.messages())), full=full)
    assert "␛]0;owned␇" in shown
    assert not [letter for letter in shown if letter < " " and letter != "\n"]
    assert "\u202e" not in shown


def test_a_turn_without_known_usage_is_not_shown() -> None:
    """A turn whose tokens are unknown shows no line about tokens."""
    shown: Any = _show([TextEntry(text="x"), TurnEnd()])
    assert "token" not in shown


def test_an_answer_is_rendered_as_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal, answers are rendered as Markdown and wrapped at words, also those of subagents."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    answer = "A **bold** word and\n- an item that is longer than forty columns"
    shown = _show([TextEntry(text=answer), TextEntry(text=answer, depth=1)], width=41, terminal=True)
    rows = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert rows[4:7] == ["A bold word and", "• an item that is longer than forty", "  columns"]
    assert rows[8:11] == ["    A bold word and", "    • an item that is longer than forty", "      columns"]
