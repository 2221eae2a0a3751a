"""Kinds and titles of tool calls, for the tool names in Untether's document and for those of the
CLI."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.dialects.untether.tools import path_in, tool_kind_and_title

_FILE = {"file_path": "/repo/src/a.py"}


@pytest.mark.parametrize(
    ("name", "parameters", "kind", "title"),
    [
        # Names in Untether's document.
        ("Bash", {"command": "echo hello"}, "command", "echo hello"),
        ("read_file", {"path": "a.py"}, "tool", "read: a.py"),
        ("edit_file", _FILE, "file_change", "edit: /repo/src/a.py"),
        ("write_file", {"filePath": "b.py"}, "file_change", "write: b.py"),
        ("web_search", {"query": "cats"}, "tool", "websearch: cats"),
        ("web_fetch", {"url": "https://a.b"}, "tool", "webfetch: https://a.b"),
        ("list_dir", {"path": "src"}, "tool", "ls: src"),
        ("find_files", {"pattern": "*.py"}, "tool", "glob: *.py"),
        ("search_files", {"pattern": "TODO"}, "tool", "grep: TODO"),
        ("Custom_Tool", {"path": "x"}, "tool", "custom_tool"),
        # The document normalizes names before it compares them, so these are known too.
        ("bash", {"command": "ls"}, "command", "ls"),
        ("Edit", _FILE, "file_change", "edit: /repo/src/a.py"),
        ("Write_File", _FILE, "file_change", "write: /repo/src/a.py"),
        # Names of the CLI.
        ("run_shell_command", {"command": "cat /repo/a"}, "command", "cat /repo/a"),
        ("read_file", {"absolute_path": "/repo/a.py"}, "tool", "read: /repo/a.py"),
        ("read_many_files", {"include": ["*.py", "b.md"]}, "tool", "read: *.py, b.md"),
        ("replace", _FILE, "file_change", "edit: /repo/src/a.py"),
        ("list_directory", {"dir_path": "/repo"}, "tool", "ls: /repo"),
        ("glob", {"pattern": "*.py"}, "tool", "glob: *.py"),
        ("grep_search", {"pattern": "TODO", "dir_path": "src"}, "tool", "grep: TODO"),
        ("search_file_content", {"pattern": "TODO"}, "tool", "grep: TODO"),
        ("google_web_search", {"query": "cats"}, "tool", "websearch: cats"),
        ("web_fetch", {"prompt": "Sum up https://a.b/c, please"}, "tool", "webfetch: https://a.b/c"),
        ("write_todos", {"todos": []}, "tool", "write_todos"),
        ("ask_user", {"questions": []}, "tool", "ask_user"),
        ("invoke_agent", {"agent_name": "generalist", "prompt": "look"}, "tool", "invoke_agent"),
        ("mcp_github_Search", {"q": 1}, "tool", "mcp_github_search"),
        ("", {}, "tool", ""),
        # Without the parameter, the title is the name.
        ("run_shell_command", {}, "command", "bash"),
        ("read_file", {"path": ""}, "tool", "read"),
        ("read_many_files", {"include": [1]}, "tool", "read"),
        ("write_file", {"file_path": 5}, "file_change", "write"),
        ("glob", {}, "tool", "glob"),
        ("google_web_search", {}, "tool", "websearch"),
        ("web_fetch", {"prompt": "nothing there"}, "tool", "webfetch"),
    ],
)
def test_each_call_has_its_kind_and_title(
    name: str, parameters: dict[str, Any], kind: str, title: str
) -> None:
    """A call has the kind and the title of the document's table, with paths and commands as the
    model wrote them."""
    assert tool_kind_and_title(name, parameters) == (kind, title)


def test_the_title_of_a_call_without_parameters() -> None:
    """If the parameters of a call are not known yet, its title comes from its path or from the CLI's
    title. Otherwise it comes from the parameters."""
    assert tool_kind_and_title("read_file", {}, paths=("/a",), title="Read a") == ("tool", "read: /a")
    assert tool_kind_and_title("run_shell_command", {}, title="npm test") == ("command", "npm test")
    assert tool_kind_and_title("glob", {}, title="Find *.py") == ("tool", "Find *.py")
    assert tool_kind_and_title("glob", {"dir_path": "."}, title="Find ?") == ("tool", "glob")


def test_the_path_keys_have_an_order() -> None:
    """The path of a call is `file_path`, else `path`, else `filePath`. Values that are empty or not
    text are ignored."""
    assert path_in({"filePath": "c", "path": "b", "file_path": "a"}) == "a"
    assert path_in({"filePath": "c", "path": "b"}) == "b"
    assert path_in({"filePath": "c", "path": 5}) == "c"
    assert path_in({"file_path": ""}) is None
