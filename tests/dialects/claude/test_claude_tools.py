"""Translate tools of all CLI releases to Claude's tool names and arguments."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.dialects.claude.tools import claude_tool
from geminids.gemini.tools import BUILT_IN

_TABLE: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    ("read_file", {"absolute_path": "/a"}, "Read", {"file_path": "/a"}),
    (
        "read_file",
        {"file_path": "/a", "offset": 0, "limit": 5},
        "Read",
        {"file_path": "/a", "offset": 1, "limit": 5},
    ),
    (
        "read_file",
        {"file_path": "/a", "start_line": 10, "end_line": 12},
        "Read",
        {"file_path": "/a", "offset": 10, "limit": 3},
    ),
    ("read_file", {"file_path": "/a", "end_line": 2}, "Read", {"file_path": "/a", "limit": 2}),
    ("write_file", {"file_path": "/a", "content": "", "new": 1}, "Write", {"file_path": "/a", "content": ""}),
    (
        "replace",
        {
            "file_path": "/a",
            "instruction": "i",
            "old_string": "x",
            "new_string": "",
            "expected_replacements": 1,
        },
        "Edit",
        {"file_path": "/a", "old_string": "x", "new_string": ""},
    ),
    (
        "replace",
        {"file_path": "/a", "old_string": "x", "new_string": "y", "expected_replacements": 2},
        "Edit",
        {"file_path": "/a", "old_string": "x", "new_string": "y", "replace_all": True},
    ),
    (
        "replace",
        {"file_path": "/a", "old_string": "x", "new_string": "y", "allow_multiple": True},
        "Edit",
        {"file_path": "/a", "old_string": "x", "new_string": "y", "replace_all": True},
    ),
    ("list_directory", {"path": "/d"}, "Glob", {"pattern": "*", "path": "/d"}),
    ("list_directory", {"dir_path": "/d", "ignore": ["x"]}, "Glob", {"pattern": "*", "path": "/d"}),
    ("glob", {"pattern": "*.py", "path": "/d"}, "Glob", {"pattern": "*.py", "path": "/d"}),
    (
        "glob",
        {"pattern": "*.py", "dir_path": "/d", "case_sensitive": True},
        "Glob",
        {"pattern": "*.py", "path": "/d"},
    ),
    (
        "search_file_content",
        {"pattern": "x", "path": "/d", "include": "*.py"},
        "Grep",
        {"pattern": "x", "path": "/d", "glob": "*.py", "output_mode": "content"},
    ),
    (
        "grep_search",
        {
            "pattern": "x",
            "dir_path": "/d",
            "include_pattern": "*.py",
            "names_only": True,
            "total_max_matches": 3,
        },
        "Grep",
        {"pattern": "x", "path": "/d", "glob": "*.py", "output_mode": "files_with_matches", "head_limit": 3},
    ),
    (
        "grep_search",
        {"pattern": "x", "case_sensitive": False, "after": 1, "before": 2, "context": 3},
        "Grep",
        {"pattern": "x", "output_mode": "content", "-i": True, "-A": 1, "-B": 2, "-C": 3},
    ),
    ("run_shell_command", {"command": "ls", "directory": "/d"}, "Bash", {"command": "ls"}),
    (
        "run_shell_command",
        {"command": "ls", "description": "List.", "is_background": True},
        "Bash",
        {"command": "ls", "description": "List.", "run_in_background": True},
    ),
    ("google_web_search", {"query": "q"}, "WebSearch", {"query": "q"}),
    (
        "web_fetch",
        {"prompt": "Sum up https://example.com/a?b=1."},
        "WebFetch",
        {"url": "https://example.com/a?b=1", "prompt": "Sum up https://example.com/a?b=1."},
    ),
    ("web_fetch", {"prompt": "nothing"}, "WebFetch", {"prompt": "nothing"}),
    ("read_many_files", {"paths": ["a", "b"]}, "Read", {"file_path": "a, b"}),
    ("read_many_files", {"include": ["src/**"], "exclude": ["x"]}, "Read", {"file_path": "src/**"}),
    (
        "write_todos",
        {
            "todos": [
                {"description": "one", "status": "completed"},
                {"description": "two", "status": "blocked"},
                {"description": "no", "status": "cancelled"},
            ]
        },
        "TodoWrite",
        {
            "todos": [
                {"content": "one", "status": "completed", "activeForm": "one"},
                {"content": "two", "status": "pending", "activeForm": "two"},
            ]
        },
    ),
    ("activate_skill", {"name": "pdf"}, "Skill", {"skill": "pdf"}),
    (
        "invoke_agent",
        {"agent_name": "generalist", "prompt": "Look.\nMore."},
        "Task",
        {"prompt": "Look.\nMore.", "description": "Look.", "subagent_type": "generalist"},
    ),
    (
        "delegate_to_agent",
        {"agent_name": "codebase_investigator", "objective": "Find x"},
        "Task",
        {"prompt": "Find x", "description": "Find x", "subagent_type": "codebase_investigator"},
    ),
    (
        "codebase_investigator",
        {"objective": "y" * 80},
        "Task",
        {"prompt": "y" * 80, "description": "y" * 59 + "…", "subagent_type": "codebase_investigator"},
    ),
    (
        "delegate_to_agent",
        {"agent_name": "mine", "depth": 2, "where": "src"},
        "Task",
        {
            "prompt": '{"depth":2,"where":"src"}',
            "description": '{"depth":2,"where":"src"}',
            "subagent_type": "mine",
        },
    ),
    ("mcp_github_search_code", {"q": "x"}, "mcp__github__search_code", {"q": "x"}),
    ("github__search", {"q": "x"}, "mcp__github__search", {"q": "x"}),
    ("mcp__a__b", {}, "mcp__a__b", {}),
    ("mcp_", {}, "mcp_", {}),
    ("discovered_tool_a__b", {}, "discovered_tool_a__b", {}),
    ("save_memory", {"fact": "f"}, "save_memory", {"fact": "f"}),
    ("of_next_year", {"a": [1]}, "of_next_year", {"a": [1]}),
    ("", {}, "", {}),
]


def test_every_call_of_the_table() -> None:
    """A tool call is translated to Claude's name and input. A tool without a counterpart keeps its
    own."""
    for name, args, claude_name, claude_input in _TABLE:
        assert claude_tool(name, args) == (claude_name, claude_input), (name, args)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("mcp_my_server_do_it", "do_it (my_server MCP Server)"),
        ("do_it", "do_it (my_server MCP Server)"),
        ("my_server__do_it", "do_it (my_server MCP Server)"),
    ],
)
def test_the_title_of_an_mcp_tool_names_its_server(name: str, title: str) -> None:
    """The title of an MCP call gives the server's name. The tool's name alone does not show where a
    server name with `_` ends."""
    assert claude_tool(name, {}, title) == ("mcp__my_server__do_it", {})


def test_a_title_does_not_make_a_built_in_tool_foreign() -> None:
    """A built-in tool keeps Claude's name, even if its title looks like that of an MCP tool."""
    assert claude_tool("read_file", {"file_path": "a"}, "read_file (x MCP Server)")[0] == "Read"


def test_every_built_in_tool_takes_any_arguments() -> None:
    """Every built-in tool can be translated with any arguments, because a model can send
    anything."""
    invalid = {"todos": 3, "prompt": 7, "include": "x", "offset": "y", "agent_name": [], "questions": None}
    for tool in BUILT_IN:
        for args in ({}, invalid):
            claude_name, claude_input = claude_tool(tool.name, args)
            assert claude_name
            assert isinstance(claude_input, dict)
