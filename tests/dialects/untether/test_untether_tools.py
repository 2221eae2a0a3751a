"""Kinds and titles of tool calls, for the document's names and for the real ones."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.dialects.untether.tools import kind_and_title, path_in

_FILE = {"file_path": "/repo/src/a.py"}


@pytest.mark.parametrize(
    ("name", "given", "kind", "title"),
    [
        # The document's names.
        ("Bash", {"command": "echo hello"}, "command", "echo hello"),
        ("shell", {}, "command", "shell"),
        ("killshell", {}, "command", "killshell"),
        ("edit_file", _FILE, "file_change", "src/a.py"),
        ("multiedit", {"filePath": "b.py"}, "file_change", "b.py"),
        ("notebookedit", {}, "file_change", "notebookedit"),
        ("web_search", {"query": "cats"}, "web_search", "cats"),
        ("list_dir", {"path": "src"}, "tool", "ls: `src`"),
        ("find_files", {"pattern": "*.py"}, "tool", "glob: `*.py`"),
        ("search_files", {"pattern": "TODO"}, "tool", "grep: TODO"),
        ("find", {"pattern": "x"}, "tool", "find: x"),
        ("todoread", {}, "note", "read todos"),
        ("agent", {"prompt": "look"}, "tool", "look"),
        # The CLI's.
        ("run_shell_command", {"command": "cat /repo/a /repo/b"}, "command", "cat a b"),
        ("run_shell_command", {}, "command", "run_shell_command"),
        ("read_file", _FILE, "tool", "read: `src/a.py`"),
        ("read_file", {"absolute_path": "/repo/a.py"}, "tool", "read: `a.py`"),
        ("read_file", {}, "tool", "read"),
        ("read_many_files", {"include": ["*.py"]}, "tool", "read"),
        ("write_file", {"file_path": "/etc/x"}, "file_change", "/etc/x"),
        ("replace", _FILE, "file_change", "src/a.py"),
        ("list_directory", {"dir_path": "/repo"}, "tool", "ls: `.`"),
        ("list_directory", {}, "tool", "ls"),
        ("glob", {"pattern": "*.py"}, "tool", "glob: `*.py`"),
        ("glob", {}, "tool", "glob"),
        ("grep_search", {"pattern": "TODO"}, "tool", "grep: TODO"),
        ("search_file_content", {"pattern": "TODO"}, "tool", "grep: TODO"),
        ("grep_search", {}, "tool", "grep"),
        ("google_web_search", {}, "web_search", "search"),
        ("web_fetch", {"url": "https://a.b"}, "web_search", "https://a.b"),
        ("web_fetch", {"prompt": "Sum up https://a.b/c, please"}, "web_search", "https://a.b/c"),
        ("web_fetch", {"prompt": "nothing there"}, "web_search", "fetch"),
        ("write_todos", {"todos": []}, "note", "update todos"),
        ("ask_user", {"questions": []}, "note", "ask user"),
        ("invoke_agent", {"agent_name": "generalist", "prompt": "look"}, "tool", "look"),
        ("invoke_agent", {"description": "short", "prompt": "long"}, "tool", "short"),
        ("delegate_to_agent", {}, "tool", "delegate_to_agent"),
        ("mcp_github_Search", {"q": 1}, "tool", "mcp_github_Search"),
        ("", {}, "tool", ""),
    ],
)
def test_each_call_has_its_kind_and_title(name: str, given: dict[str, Any], kind: str, title: str) -> None:
    """As the document's table has it, paths from the run's own folder."""
    assert kind_and_title(name, given, "/repo") == (kind, title)


def test_where_the_input_is_not_known_the_call_tells_itself() -> None:
    """By its path, or by its one line for people; an input that is known and empty is no reason for that."""
    assert kind_and_title("read_file", {}, "/repo", paths=("/repo/a",), title="Read a") == (
        "tool",
        "read: `a`",
    )
    assert kind_and_title("run_shell_command", {}, "/repo", title="npm test") == ("command", "npm test")
    assert kind_and_title("glob", {}, "", title="Find *.py") == ("tool", "Find *.py")
    assert kind_and_title("glob", {"dir_path": "."}, "", title="Find ?") == ("tool", "glob")


def test_a_folder_that_only_begins_alike_is_another() -> None:
    """/repository is not in /repo; the root needs no second slash; without a folder nothing is cut."""
    assert kind_and_title("write_file", {"path": "/repository/a"}, "/repo")[1] == "/repository/a"
    assert kind_and_title("write_file", {"path": "/etc/a"}, "/")[1] == "etc/a"
    assert kind_and_title("write_file", {"path": "/etc/a"}, "")[1] == "/etc/a"
    assert kind_and_title("Bash", {"command": "ls /etc"}, "")[1] == "ls /etc"


def test_the_path_keys_have_an_order() -> None:
    """`file_path`, `path`, `filePath`; what is no text is none."""
    assert path_in({"filePath": "c", "path": "b", "file_path": "a"}) == "a"
    assert path_in({"filePath": "c", "path": "b"}) == "b"
    assert path_in({"filePath": "c", "path": 5}) == "c"
    assert path_in({"file_path": ""}) is None
