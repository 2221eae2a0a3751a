"""The permission question as the user sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geminids.events.model import Change, PermissionAsked
from geminids.views.terminal.chat_permission import choices, is_cut, question


def _request(**fields: Any) -> PermissionAsked:
    values = {"id": "t", "tool": "run_shell_command", "kind": "execute", "title": "the title", "cwd": "/repo"}
    return PermissionAsked(**{"at": 0, "seq": 0, "attempt": 1, "turn": 1, **values, **fields})


def _lines(asked: PermissionAsked, **kwargs: Any) -> list[str]:
    return [line.plain for line in question(asked, **kwargs)]


def test_a_command_is_shown_exactly() -> None:
    """A command is shown with all its lines and spaces, and its folder.

    Control characters become symbols.
    """
    shown = _lines(_request(command="cat  <<X\n  a\x1b[2J\r b\nX"))
    assert shown == [
        "? the agent wants to run a command",
        "$ cat  <<X",
        "    a␛[2J␍ b",
        "  X",
        "in /repo",
    ]


def test_a_change_is_shown_as_a_diff() -> None:
    """A change is shown as a coloured diff below the path of the file, which is relative to the
    folder.
    """
    diff = "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n\\ No newline at end of file\n"
    asked = _request(kind="edit", tool="replace", changes=(Change("/repo/src/a.py", "edited", diff),))
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


def test_lines_that_look_like_a_diff_header_are_shown() -> None:
    """An added line `++ x` and a removed line `-- x` are shown, although they look like a diff
    header.
    """
    diff = "--- before\n+++ /repo/a.js\n@@ -1 +1 @@\n--- old\n+++ i, evil();\n"
    shown = _lines(_request(kind="edit", tool="replace", changes=(Change("/repo/a.js", "edited", diff),)))
    assert shown[2:] == ["@@ -1 +1 @@", "--- old", "+++ i, evil();"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "/repository/x"])
def test_a_file_outside_the_folder_is_named_in_full(path: str) -> None:
    """A file outside the folder is shown with its full path."""
    shown = _lines(_request(kind="write", changes=(Change(path, "created", "+x"),)))
    assert shown[1] == {"../secret": "/secret"}.get(path, path)


def test_another_tool_is_shown_by_its_name_and_title() -> None:
    """A tool that is neither a command nor a change, such as one of an MCP server, is shown with
    name and title.
    """
    shown = _lines(_request(tool="mcp_db_drop", kind="other", title='drop {"table": "t"}'))
    assert shown == ["? the agent wants to use mcp_db_drop", 'drop {"table": "t"}']


def test_details_are_shown() -> None:
    """The details of a request are shown: the arguments of an MCP tool, or an ambiguous folder."""
    shown = _lines(
        _request(tool="mcp_db_drop", kind="other", title="drop", details='{\n"table": "t\x1b[2J"}')
    )
    assert shown[1:] == ["drop", "{", '"table": "t␛[2J"}']
    assert _lines(_request(command="ls", cwd=None, details="[in a] (b] (c)"))[1:] == [
        "$ ls",
        "[in a] (b] (c)",
    ]


def test_a_long_question_is_shortened() -> None:
    """A long question is shortened, and the key `v` is offered to view all of it.

    A short one is not shortened.
    """
    long, short = _request(command="\n".join("x" * 50)), _request(command="ls")
    assert _lines(long)[-1] == "… 11 more lines: v shows all"
    assert len(_lines(long, whole=True)) == 52
    assert (is_cut(long), is_cut(short)) == (True, False)
    assert "v view all" in next(choices(long, more=True)).plain


def test_always_is_offered_with_what_it_covers() -> None:
    """`always` is offered with a description of what it covers, and only if the request has that
    option.
    """
    request = _request(command="ls", always="commands that begin with `ls`")
    assert [line.plain for line in choices(request)][
        1
    ] == "a always, in this chat: commands that begin with `ls`"
    assert len(list(choices(_request(command="ls", options=("allow", "deny"))))) == 1


def test_the_home_is_shortened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The home folder is shown as `~`.

    A folder whose name only begins like the home is not shortened.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _lines(_request(command="ls", cwd=f"{tmp_path}/repo"))[-1] == "in ~/repo"
    assert _lines(_request(command="ls", cwd=f"{tmp_path}x"))[-1] == f"in {tmp_path}x"


@pytest.mark.parametrize("diff", ["", None])
def test_a_change_without_lines(diff: str | None) -> None:
    """A change without a diff shows `no lines to show` instead of an empty row."""
    shown = _lines(_request(kind="edit", tool="write_file", changes=(Change("/repo/a", "edited", diff),)))
    assert shown[1:] == ["a", "no lines to show"]


def test_always_names_its_scope() -> None:
    """`always` names its scope: this chat, or this run."""
    asked = _request(command="ls", always="this very command")
    assert [*choices(asked)][-1].plain == "a always, in this chat: this very command"
    assert [*choices(asked, within="run")][-1].plain == "a always, in this run: this very command"
