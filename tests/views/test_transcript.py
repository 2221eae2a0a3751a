"""A stored session in a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest

import hostile_session
from geminids.events.model import Change
from geminids.sessions.transcript import AgentText, Entry, Prompt, Remark, Thought, Tool, TurnEnd, entries
from geminids.views.transcript.transcript import TranscriptView

_DIFF = (
    "Index: a.py\n=====\n--- a.py\tCurrent\n+++ a.py\tProposed\n@@ -1,2 +1,2 @@\n import os\n-x = 1\n+x = 2\n"
)
_TALK: list[Entry] = [
    Prompt(message="47a465fa-c640", text="Mend it.\nPlease."),
    Thought(subject="Look first", text="I read\nthe file."),
    AgentText(text="**I** will look.\n"),
    Tool(id="1", name="read_file", title="Read a.py", status="ok", output="1\n2\n3\n4\n5\n"),
    Tool(id="2", name="run_shell_command", title="pytest", status="ok", exit_code=1, output="no\n"),
    Tool(
        id="3",
        name="replace",
        title="Edit a.py",
        status="ok",
        output="Successfully modified",
        changes=(Change("a.py", "edited", _DIFF),),
    ),
    Tool(id="4", name="x", title="rm -rf /", status="denied", error="denied by policy"),
    Prompt(text="In the agent", depth=1),
    AgentText(text="Seen.", depth=1),
    Remark(level="error", text="Oops."),
    TurnEnd(models=("g-pro",), requests=2, input=1200, cached=200, output=12, thinking=5),
]


def _shown(talk: list[Entry], *, width: int = 80, terminal: bool = False, full: bool = False) -> str:
    file = io.StringIO()
    view = TranscriptView(file, full=full, terminal=terminal, width=width)
    view.head("Mend it.", "id · time", "/repo")
    view.show(talk)
    view.foot("resume: geminids run --resume id")
    return file.getvalue()


def test_a_whole_session() -> None:
    """Prompts, thoughts, text as it is, a line a tool with the first lines of its output, subagents indented."""
    assert _shown(_TALK) == (
        "Mend it.\nid · time\n/repo\n\n"
        "> Mend it.\n  Please.\n  47a465fa\n\n"
        "  ∙ Look first: I read the file.\n\n"
        "**I** will look.\n\n"
        "  ✓ Read a.py\n      1\n      2\n      3\n      … 2 more lines\n"
        "  ✓ pytest  exit code 1\n      no\n"
        "  ✓ Edit a.py  +1 -1\n      @@ -1,2 +1,2 @@\n       import os\n      -x = 1\n      +x = 2\n"
        "  ⊘ rm -rf /  denied\n      denied by policy\n\n"
        "    > In the agent\n\n"
        "    Seen.\n\n"
        "! Oops.\n\n"
        "g-pro · 2 requests · 1,200 tokens in (200 cached) · 12 out · 5 thinking\n\n"
        "--full shows folded output\nresume: geminids run --resume id\n"
    )


def test_full_unfolds() -> None:
    """Every line of every output and thought; and nothing is said to be folded."""
    seen = _shown(_TALK, full=True)
    assert "      4\n      5\n" in seen
    assert "Successfully modified" in seen
    assert "more line" not in seen
    assert "--full" not in seen


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A diff is green and red there; in a pipe, and with NO_COLOR, nothing is coloured."""
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    seen = _shown(_TALK, terminal=True)
    assert "\x1b[32m+x = 2" in seen
    assert "\x1b[31m-x = 1" in seen
    assert "\x1b" not in _shown(_TALK)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in _shown(_TALK, terminal=True)


@pytest.mark.parametrize("width", [40, 80])
def test_lines_of_tools_fit(width: int) -> None:
    """The title is cut, and not what became of it."""
    long = Tool(id="1", name="x", title="word " * 40, status="failed", exit_code=7, output="y" * 300)
    rows = _shown([long], width=width, terminal=True).splitlines()
    row = next(row for row in rows if "word" in row)
    assert "exit code 7" in row
    assert "…" in row


@pytest.mark.parametrize("full", [True, False])
def test_nothing_steers_the_terminal(full: bool) -> None:
    """Control characters of a session are shown as symbols, and its colours dropped."""
    seen = _shown(list(entries(hostile_session.messages())), full=full)
    assert "␛]0;owned␇" in seen
    assert not [letter for letter in seen if letter < " " and letter != "\n"]
    assert "\u202e" not in seen


def test_a_turn_of_which_nothing_is_known_is_not_told() -> None:
    """A checkpoint has no tokens."""
    seen: Any = _shown([AgentText(text="x"), TurnEnd()])
    assert "token" not in seen
