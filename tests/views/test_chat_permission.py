"""What the agent wants to do, as it is shown to whoever decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geminids.events.model import Change, PermissionAsked
from geminids.views.terminal.chat_permission import choices, is_cut, question


def _asked(**fields: Any) -> PermissionAsked:
    given = {"id": "t", "tool": "run_shell_command", "kind": "execute", "title": "it", "cwd": "/repo"}
    return PermissionAsked(**{"at": 0, "seq": 0, "attempt": 1, "turn": 1, **given, **fields})


def _lines(asked: PermissionAsked, **how: Any) -> list[str]:
    return [line.plain for line in question(asked, **how)]


def test_a_command_is_shown_exactly() -> None:
    """Every line of it, spaces and all, with the folder that it runs in; control characters can be seen."""
    shown = _lines(_asked(command="cat  <<X\n  a\x1b[2J\r b\nX"))
    assert shown == [
        "? the agent wants to run a command",
        "$ cat  <<X",
        "    a␛[2J␍ b",
        "  X",
        "in /repo",
    ]


def test_a_change_is_shown_as_a_diff() -> None:
    """By the file's name in the folder, without saying it thrice; added and removed lines have their colours."""
    diff = "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n\\ No newline at end of file\n"
    asked = _asked(kind="edit", tool="replace", changes=(Change("/repo/src/a.py", "edited", diff),))
    lines = list(question(asked))
    assert [line.plain for line in lines] == [
        "? the agent wants to change 1 file",
        "src/a.py",
        "@@ -1,2 +1,2 @@",
        " same",
        "-old",
        "+new",
        "\\ No newline at end of file",
    ]
    assert [str(line.style) for line in lines[2:6]] == ["cyan", "", "red", "green"]


def test_a_line_of_the_file_that_looks_like_a_head_is_shown() -> None:
    """`++ x` that is added and `-- x` that is removed are lines of the change, as all others."""
    diff = "--- before\n+++ /repo/a.js\n@@ -1 +1 @@\n--- old\n+++ i, evil();\n"
    shown = _lines(_asked(kind="edit", tool="replace", changes=(Change("/repo/a.js", "edited", diff),)))
    assert shown[2:] == ["@@ -1 +1 @@", "--- old", "+++ i, evil();"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "/repository/x"])
def test_a_file_elsewhere_is_named_in_full(path: str) -> None:
    """Nobody takes it for one of the folder."""
    shown = _lines(_asked(kind="write", changes=(Change(path, "created", "+x"),)))
    assert shown[1] == {"../secret": "/secret"}.get(path, path)


def test_another_tool_is_shown_by_its_name_and_title() -> None:
    """As one of an MCP server."""
    shown = _lines(_asked(tool="mcp_db_drop", kind="other", title='drop {"table": "t"}'))
    assert shown == ["? the agent wants to use mcp_db_drop", 'drop {"table": "t"}']


def test_what_the_cli_tells_besides_is_shown() -> None:
    """The arguments of a server's tool stand nowhere else; nor does a folder that can be read in two ways."""
    shown = _lines(_asked(tool="mcp_db_drop", kind="other", title="drop", details='{\n"table": "t\x1b[2J"}'))
    assert shown[1:] == ["drop", "{", '"table": "t␛[2J"}']
    assert _lines(_asked(command="ls", cwd=None, details="[in a] (b] (c)"))[1:] == ["$ ls", "[in a] (b] (c)"]


def test_a_long_one_is_cut_and_says_so() -> None:
    """What is left out can be seen with a key; a short one has no such key."""
    long, short = _asked(command="\n".join("x" * 50)), _asked(command="ls")
    assert _lines(long)[-1] == "… 11 more lines: v shows all"
    assert len(_lines(long, whole=True)) == 52
    assert (is_cut(long), is_cut(short)) == (True, False)
    assert "v view all" in next(choices(long, more=True)).plain


def test_always_is_offered_with_its_meaning_or_not_at_all() -> None:
    """Nobody gives a blank cheque."""
    given = _asked(command="ls", always="commands that begin with `ls`")
    assert [line.plain for line in choices(given)][
        1
    ] == "a always, in this chat: commands that begin with `ls`"
    assert len(list(choices(_asked(command="ls", options=("allow", "deny"))))) == 1


def test_the_home_is_shortened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A long path says less than `~`; a folder whose name begins like the home's is another one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _lines(_asked(command="ls", cwd=f"{tmp_path}/repo"))[-1] == "in ~/repo"
    assert _lines(_asked(command="ls", cwd=f"{tmp_path}x"))[-1] == f"in {tmp_path}x"


@pytest.mark.parametrize("diff", ["", None])
def test_a_change_without_lines_says_so(diff: str | None) -> None:
    """A file that is written as it was, or a new one with nothing in it: no empty row that looks like a mistake."""
    shown = _lines(_asked(kind="edit", tool="write_file", changes=(Change("/repo/a", "edited", diff),)))
    assert shown[1:] == ["a", "no lines to show"]


def test_always_says_how_far_it_reaches() -> None:
    """To the end of a chat, or of the one run that asks."""
    asked = _asked(command="ls", always="this very command")
    assert [*choices(asked)][-1].plain == "a always, in this chat: this very command"
    assert [*choices(asked, within="run")][-1].plain == "a always, in this run: this very command"
