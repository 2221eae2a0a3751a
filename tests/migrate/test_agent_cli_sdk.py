"""A program for agent-cli-sdk works with the names of its document, on the real Gemini CLI."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminids import sessions
from geminids.adapters.agent_cli_sdk import (
    UnifiedContent,
    UnifiedMessage,
    as_dict,
    detect_cli,
    execute,
    get_capabilities,
    load_session,
    parse,
)
from recordings import FIXTURES

pytestmark = pytest.mark.real

PAGE = Path(__file__).parents[2] / "docs" / "migrate" / "agent-cli-sdk.md"
Run = Callable[..., Any]


@pytest.fixture
def run(world: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `execute` in the world's folder, home and scripted model.

    The world is set in the environment, as a user does, so that the calls have only the document's
    parameters.
    """
    variables = {"HOME": str(world.home), "TMPDIR": str(world.tmp), **world.gateway.env}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("GEMINI_CLI_PATH", raising=False)

    def run(prompt: str = "Go.", **parameters: Any) -> Any:
        defaults = {"working_dir": world.cwd, "model": "flash", "gemini": world.version}
        return asyncio.run(execute(prompt=prompt, **{**defaults, **parameters}))

    return run


def blocks_of(message: UnifiedMessage) -> list[UnifiedContent]:
    assert not isinstance(message.content, str)
    return message.content


def find_block(message: UnifiedMessage, kind: str) -> Any:
    """The document's `content.find(c => c.type === kind)`."""
    return next(block for block in blocks_of(message) if block.type == kind)


# --- parse: the ten single messages ---------------------------------------------------------------

# Name of the fixture → the tool's name, a part of each of its inputs, a part of its result, is_error.
_SINGLE: dict[str, tuple[str, dict[str, str], str, bool]] = {
    "tool-read_file": ("Read", {"file_path": "main.py"}, "def main()", False),
    "tool-write-file": ("Write", {"file_path": "/", "content": "\n"}, "Successfully", False),
    "tool-replace": (
        "Edit",
        {"file_path": "/", "old_string": "", "new_string": ""},
        "Successfully modified file",
        False,
    ),
    "tool-run_shell_command": (
        "Bash",
        {"command": "python3", "description": ""},
        "[Operation Cancelled]",
        True,
    ),
    "tool-google_web_search": ("WebSearch", {"query": ""}, "Web search results", False),
    "tool-list_directory": ("Glob", {"pattern": "*", "path": "/"}, "is empty", False),
    "tool-result-error": ("Glob", {"pattern": "*", "path": "."}, "Path must be absolute", True),
    "tool-result-cancelled": ("Bash", {"command": "", "description": ""}, "[Operation Cancelled]", True),
    "tool-result-success": ("Glob", {"pattern": "*", "path": "/"}, "is empty", False),
    "gemini-with-thoughts": ("Glob", {"pattern": "*", "path": "/"}, "is empty", False),
}
needs_fixtures = pytest.mark.skipif(not FIXTURES.is_dir(), reason="needs ../shared/fixtures/sessions-0.11")


@needs_fixtures
@pytest.mark.parametrize("name", sorted(_SINGLE))
def test_a_single_message(name: str) -> None:
    """Each of the document's ten single messages gives the tool_use and tool_result that the document
    expects, and keeps the source message."""
    source = json.loads((FIXTURES / "individual" / f"{name}.json").read_text())
    tool, tool_input, content, is_error = _SINGLE[name]
    message = parse(source)
    assert (message.role, message.tool) == ("assistant", "gemini")
    assert message._original == source
    tool_use, tool_result = find_block(message, "tool_use"), find_block(message, "tool_result")
    assert (tool_use.name, list(tool_use.input)) == (tool, list(tool_input))
    assert all(part in tool_use.input[key] for key, part in tool_input.items())
    assert (tool_result.tool_use_id, tool_result.is_error) == (tool_use.id, is_error)
    assert content in tool_result.content
    check_message(source, message)


@needs_fixtures
@pytest.mark.parametrize("name", ["gemini-with-thoughts", "tool-write-file"])
def test_thoughts_become_thinking_blocks(name: str) -> None:
    """Each thought becomes a thinking block `subject: description`, before the tools."""
    source = json.loads((FIXTURES / "individual" / f"{name}.json").read_text())
    (thought,) = source["thoughts"]
    first = blocks_of(parse(source))[0]
    assert first.type == "thinking"
    assert first.thinking == f"{thought['subject']}: {thought['description']}"


def check_message(source: dict[str, Any], message: UnifiedMessage) -> None:
    """Check all fields of a message against its source, by the document's rules for order, results,
    time and tokens."""
    calls = source.get("toolCalls") or []
    expected = ["thinking"] * len(source.get("thoughts") or [])
    for call in calls:
        expected += ["tool_use", "tool_result"] if call.get("result") else ["tool_use"]
    text = source["content"]
    expected += ["text"] if text.strip() else []
    value = as_dict(message)
    if expected:
        assert [block["type"] for block in value["content"]] == expected
    else:
        assert value["content"] == text
    results = [block for block in value["content"] if block["type"] == "tool_result"] if expected else []
    for call, result in zip([call for call in calls if call.get("result")], results, strict=True):
        response = call["result"][0]["functionResponse"]["response"]
        assert result == {
            "type": "tool_result",
            "tool_use_id": call["id"],
            "content": response.get("output") or response.get("error") or "",
            "is_error": call["status"] == "error" or bool(response.get("error")),
        }
    time = datetime.fromisoformat(source["timestamp"])
    tokens = source.get("tokens")
    usage = tokens and {
        "input_tokens": tokens["input"],
        "output_tokens": tokens["output"],
        "total_tokens": tokens["total"],
        "cache_read_tokens": tokens["cached"],
        "thinking_tokens": tokens["thoughts"],
        "tool_tokens": tokens["tool"],
    }
    rest = {name: field for name, field in value.items() if name != "content"}
    assert rest == {
        "id": source["id"],
        "role": "user" if source["type"] == "user" else "assistant",
        "timestamp": round(time.timestamp() * 1000),
        "tool": "gemini",
        **({"model": source["model"]} if "model" in source else {}),
        **({"usage": usage} if usage else {}),
        "_original": source,
    }


# --- the six full sessions ------------------------------------------------------------------------

_FULL = sorted(file.name for file in FIXTURES.glob("full/*.json"))


@needs_fixtures
def test_there_are_sixteen_fixtures() -> None:
    """The tests above and below cover all fixtures of the document: ten single, six full."""
    assert (len(_SINGLE), len(_FULL)) == (10, 6)
    assert {file.stem for file in FIXTURES.glob("individual/*.json")} == set(_SINGLE)


@needs_fixtures
@pytest.mark.parametrize("name", _FULL)
def test_a_full_session(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the document's six sessions loads by its id and as the newest of its project, with every
    field of every message."""
    data = (FIXTURES / "full" / name).read_bytes()
    source = json.loads(data)
    project = tmp_path / "project"
    project.mkdir()
    project_hash = hashlib.sha256(str(project).encode()).hexdigest()
    chats = tmp_path / ".gemini" / "tmp" / project_hash / "chats"
    chats.mkdir(parents=True)
    (chats / name).write_bytes(data)
    monkeypatch.setenv("HOME", str(tmp_path))
    messages = load_session(source["sessionId"], project)
    assert len(messages) == len(source["messages"])
    for stored, message in zip(source["messages"], messages, strict=True):
        check_message(stored, message)
    assert [as_dict(message) for message in messages] == [as_dict(parse(m)) for m in source["messages"]]
    monkeypatch.chdir(project)
    assert [message.id for message in load_session()] == [message.id for message in messages]


@needs_fixtures
def test_the_documents_full_session() -> None:
    """The session that the document tests has three messages, and the second one reads a file."""
    source = json.loads((FIXTURES / "full" / "session-2025-10-29T10-36-9c9a14e1.json").read_text())
    messages = [parse(message) for message in source["messages"]]
    assert [message.role for message in messages] == ["user", "assistant", "assistant"]
    assert find_block(messages[1], "tool_use").name == "Read"


# --- the table of tools ---------------------------------------------------------------------------


def parsed_tool(name: str, args: dict[str, Any], **fields: Any) -> tuple[str, dict[str, Any]]:
    call = {"id": "t1", "name": name, "args": args, "status": "success", **fields}
    message = parse({"id": "m1", "type": "gemini", "content": "", "timestamp": "", "toolCalls": [call]})
    block = find_block(message, "tool_use")
    return block.name, block.input


@pytest.mark.parametrize(
    ("name", "args", "tool", "tool_input"),
    [
        # The rows of the document.
        ("read_file", {"absolute_path": "/a.py"}, "Read", {"file_path": "/a.py"}),
        ("read_file", {"file_path": "/a.py"}, "Read", {"file_path": "/a.py"}),
        ("write_file", {"file_path": "/a", "content": "x"}, "Write", {"file_path": "/a", "content": "x"}),
        (
            "replace",
            {"file_path": "/a", "instruction": "Do it.", "old_string": "x", "new_string": "y"},
            "Edit",
            {"file_path": "/a", "old_string": "x", "new_string": "y"},
        ),
        ("list_directory", {"path": "/d"}, "Glob", {"pattern": "*", "path": "/d"}),
        (
            "run_shell_command",
            {"command": "ls", "description": "List."},
            "Bash",
            {"command": "ls", "description": "List."},
        ),
        ("google_web_search", {"query": "comets"}, "WebSearch", {"query": "comets"}),
        ("unknown_tool", {"a": 1}, "unknown_tool", {"a": 1}),
        # Argument names of newer releases, and tools that the document does not have.
        ("list_directory", {"dir_path": "/d"}, "Glob", {"pattern": "*", "path": "/d"}),
        (
            "read_file",
            {"file_path": "/a", "start_line": 3, "end_line": 4},
            "Read",
            {"file_path": "/a", "offset": 3, "limit": 2},
        ),
        ("glob", {"pattern": "*.py", "dir_path": "/d"}, "Glob", {"pattern": "*.py", "path": "/d"}),
        ("grep_search", {"pattern": "x"}, "Grep", {"pattern": "x", "output_mode": "content"}),
        ("search_file_content", {"pattern": "x"}, "Grep", {"pattern": "x", "output_mode": "content"}),
        (
            "web_fetch",
            {"prompt": "Read https://a.org/x."},
            "WebFetch",
            {"url": "https://a.org/x", "prompt": "Read https://a.org/x."},
        ),
        (
            "write_todos",
            {"todos": [{"description": "Look", "status": "pending"}]},
            "TodoWrite",
            {"todos": [{"content": "Look", "status": "pending", "activeForm": "Look"}]},
        ),
        ("read_file", {"file_path": "b.py", "absolute_path": "/a.py"}, "Read", {"file_path": "/a.py"}),
        ("read_many_files", {"include": ["a", "b"]}, "Read", {"file_path": "a, b"}),
        ("activate_skill", {"name": "pdf"}, "Skill", {"skill": "pdf"}),
        ("mcp_lab_mark", {"x": 1}, "mcp__lab__mark", {"x": 1}),
    ],
)
def test_the_table_of_tools(name: str, args: dict[str, Any], tool: str, tool_input: dict[str, Any]) -> None:
    """Each tool of the document and of newer releases has Claude's name and input. An unknown tool
    keeps its own."""
    assert parsed_tool(name, args) == (tool, tool_input)


_CALLS: list[tuple[str, dict[str, Any], str, dict[str, Any], bool]] = [
    ("read_file", {"file_path": "a.py"}, "Read", {"file_path": "a.py"}, False),
    (
        "write_file",
        {"file_path": "b.txt", "content": "one\n"},
        "Write",
        {"file_path": "b.txt", "content": "one\n"},
        False,
    ),
    (
        "replace",
        {"file_path": "b.txt", "instruction": "Count.", "old_string": "one", "new_string": "two"},
        "Edit",
        {"file_path": "b.txt", "old_string": "one", "new_string": "two"},
        False,
    ),
    ("list_directory", {"dir_path": "."}, "Glob", {"pattern": "*", "path": "."}, False),
    (
        "run_shell_command",
        {"command": "echo hi > c.txt", "description": "Write."},
        "Bash",
        {"command": "echo hi > c.txt", "description": "Write."},
        False,
    ),
    ("google_web_search", {"query": "comets"}, "WebSearch", {"query": "comets"}, False),
    ("glob", {"pattern": "*.py"}, "Glob", {"pattern": "*.py"}, False),
    ("grep_search", {"pattern": "x"}, "Grep", {"pattern": "x", "output_mode": "content"}, False),
    (
        "web_fetch",
        {"prompt": "Read http://127.0.0.1:9/page"},
        "WebFetch",
        {"url": "http://127.0.0.1:9/page", "prompt": "Read http://127.0.0.1:9/page"},
        True,
    ),
    ("read_file", {"file_path": "missing"}, "Read", {"file_path": "missing"}, True),
    ("no_such_tool", {"a": 1}, "no_such_tool", {"a": 1}, True),
]


def test_a_real_session_loads_back(world: Any, run: Run) -> None:
    """A session of the real CLI loads by its id and as the newest: thinking, each tool_use with its
    tool_result, text. Failed calls have `is_error`. `execute` returns the same messages, except for the
    wording of results."""
    (world.cwd / "a.py").write_text("x = 1\n")
    world.gateway.reply(
        thought="**Look**\nRead first.",
        text="I look.",
        calls=[call[:2] for call in _CALLS],
        usage={"input": 100, "output": 8, "cached": 20, "thinking": 10},
    )
    world.gateway.reply(text="Done.")
    result = run(permission_mode="bypassPermissions")
    assert result.success, result.error
    assert (world.cwd / "b.txt").read_text() == "two\n"

    messages = load_session(result.session_id, world.cwd)
    assert [message.role for message in messages] == ["user", "assistant", "assistant"]
    first, answer, last = messages
    assert find_block(first, "text").text == "Go."
    assert find_block(last, "text").text == result.data.removeprefix("I look.") == "Done."
    blocks: list[Any] = blocks_of(answer)
    assert [block.type for block in blocks] == [
        "thinking",
        *["tool_use", "tool_result"] * len(_CALLS),
        "text",
    ]
    assert (blocks[0].thinking, blocks[-1].text) == ("Look: Read first.", "I look.")
    uses, results = blocks[1:-1:2], blocks[2:-1:2]
    assert [(use.name, use.input) for use in uses] == [call[2:4] for call in _CALLS]
    assert [result.tool_use_id for result in results] == [use.id for use in uses]
    assert [result.is_error for result in results] == [call[4] for call in _CALLS]
    assert results[0].content == "x = 1\n"
    assert "not found" in results[-2].content
    assert as_dict(answer)["usage"] == {
        "input_tokens": 100,
        "output_tokens": 8,
        "total_tokens": 118,
        "cache_read_tokens": 20,
        "thinking_tokens": 10,
        "tool_tokens": 0,
    }
    assert str(answer.model).startswith("gemini-3")
    assert len(answer._original["toolCalls"]) == len(_CALLS)
    assert first.timestamp is not None and answer.timestamp is not None
    assert 0 <= answer.timestamp - first.timestamp < 120_000

    assert load_session(project_path=world.cwd) == messages
    assert [outline_of(message) for message in result.messages] == [
        outline_of(message) for message in messages
    ]
    assert [message.usage for message in result.messages] == [message.usage for message in messages]


def outline_of(message: UnifiedMessage) -> list[Any]:
    """Return the blocks of a message without the contents of tool results.

    `execute` reports the output of a command, and the session has the text that the model received.
    """
    blocks: list[dict[str, Any]] = as_dict(message)["content"]
    return [
        {name: value for name, value in block.items() if (block["type"], name) != ("tool_result", "content")}
        for block in blocks
    ]


def test_all_tools_of_the_real_cli_are_mapped(world: Any, run: Run) -> None:
    """Each tool that the CLI offers to the model has Claude's name. Five tools that Claude does not
    have keep their own name."""
    world.gateway.reply(text="Done.")
    run(permission_mode="bypassPermissions")
    offered = {
        function["name"]
        for tool in world.gateway.requests[0].body["tools"]
        for function in tool.get("functionDeclarations", ())
    }
    assert {"read_file", "write_file", "replace", "run_shell_command"} < offered
    unmapped = {name for name in offered if parsed_tool(name, {})[0] == name}
    assert unmapped <= {
        "enter_plan_mode",
        "exit_plan_mode",
        "list_background_processes",
        "read_background_output",
        "update_topic",
    }


# --- load_session ---------------------------------------------------------------------------------


def test_the_newest_session_is_the_one_that_was_changed_last(world: Any, run: Run) -> None:
    """Without an id, `load_session` returns the session that was changed last, in this project only."""
    world.gateway.reply(text="one")
    first = run("First.")
    world.gateway.reply(text="two")
    second = run("Second.")
    assert first.session_id != second.session_id
    assert find_block(load_session(project_path=world.cwd)[0], "text").text == "Second."
    world.gateway.reply(text="three")
    assert run("Again.", resume=first.session_id).success
    texts = [find_block(message, "text").text for message in load_session(project_path=world.cwd)]
    assert texts == ["First.", "one", "Again.", "three"]
    other = world.root / "other"
    other.mkdir()
    with pytest.raises(sessions.SessionNotFound):
        load_session(project_path=other)
    with pytest.raises(sessions.SessionNotFound):
        load_session(first.session_id, other)


def test_no_session_is_an_error_that_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a session, `load_session` raises `SessionNotFound` with the searched folders, by id and
    for the newest, also if the CLI has never run."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert issubclass(sessions.SessionNotFound, sessions.SessionError)
    storage = tmp_path / ".gemini" / "tmp"
    for session_id in (None, "0e8b0bd4-0000-4000-8000-000000000001"):
        with pytest.raises(sessions.SessionNotFound) as caught:
            load_session(session_id)
        assert caught.value.looked == (str(storage),)
        assert str(storage) in str(caught.value)
        assert str(tmp_path) in str(caught.value)
    chats = storage / hashlib.sha256(str(tmp_path).encode()).hexdigest() / "chats"
    chats.mkdir(parents=True)
    with pytest.raises(sessions.SessionNotFound) as caught:
        load_session()
    assert caught.value.looked == (str(chats),)


def test_a_damaged_newer_file_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that the CLI cannot resume does not replace the newest session."""
    monkeypatch.setenv("HOME", str(tmp_path))
    chats = tmp_path / ".gemini" / "tmp" / hashlib.sha256(str(tmp_path).encode()).hexdigest() / "chats"
    chats.mkdir(parents=True)
    stamp = "2025-10-29T10:36:00.000Z"
    message = {"id": "m1", "timestamp": stamp, "type": "user", "content": "hello"}
    session = {"sessionId": "0e8b0bd4-0000-4000-8000-000000000001", "projectHash": "x", "startTime": stamp}
    whole = {**session, "lastUpdated": stamp, "messages": [message]}
    (chats / "session-2025-10-29T10-36-0e8b0bd4.json").write_text(json.dumps(whole))
    (chats / "session-2025-10-30T10-36-aaaaaaaa.json").write_text('{"sessionId": "aaaaa')
    assert [message.id for message in load_session(project_path=tmp_path)] == ["m1"]


# --- execute --------------------------------------------------------------------------------------

_WRITE = ("write_file", {"file_path": "new.txt", "content": "one\n"})
_SHELL = ("run_shell_command", {"command": "echo two > shell.txt"})


@pytest.mark.parametrize(
    ("mode", "writes", "runs_shell"),
    [
        ("default", False, False),
        pytest.param("plan", False, False, marks=pytest.mark.deep),
        ("acceptEdits", True, False),
        ("bypassPermissions", True, True),
    ],
)
def test_permission_modes(world: Any, run: Run, mode: str, writes: bool, runs_shell: bool) -> None:
    """`default` and `plan` write no file and run no command. `acceptEdits` writes, but runs no command.
    `bypassPermissions` does both. Each blocked call has `is_error`."""
    world.gateway.reply(calls=[_WRITE, _SHELL])
    world.gateway.reply(text="Done.")
    result = run(permission_mode=mode)
    assert result.success, result.error
    assert (world.cwd / "new.txt").exists() == writes
    assert (world.cwd / "shell.txt").exists() == runs_shell
    answer = result.messages[1]
    blocks: list[Any] = [block for block in blocks_of(answer) if block.type != "thinking"]
    assert [block.name for block in blocks[::2]] == ["Write", "Bash"]
    assert [block.is_error for block in blocks[1::2]] == [not writes, not runs_shell]


def test_the_result_of_execute(world: Any, run: Run) -> None:
    """The result has the document's fields, and its JSON has their camelCase names."""
    world.gateway.reply(text="Hello!")
    result = run("Say hello", permission_mode="acceptEdits")
    assert result.success is True
    assert len(result.messages) > 0
    assert (result.exit_code, result.data, result.error) == (0, "Hello!", None)
    assert result.duration > 0
    stored = json.loads(msgspec.json.encode(result))
    assert set(stored) == {"success", "exitCode", "sessionId", "duration", "messages", "data"}
    assert [message["role"] for message in stored["messages"]] == ["user", "assistant"]
    assert all({"id", "timestamp", "tool", "_original"} < set(message) for message in stored["messages"])


def test_stored_options(world: Any, run: Run) -> None:
    """Options that were stored as JSON, with camelCase names, have the same effect."""
    world.gateway.reply(calls=[_WRITE])
    world.gateway.reply(text="Done.")
    stored = json.loads(
        json.dumps({"prompt": "Write.", "permissionMode": "acceptEdits", "workingDir": str(world.cwd)})
    )
    result = asyncio.run(execute(**stored, model="flash", gemini=world.version))
    assert result.success, result.error
    assert (world.cwd / "new.txt").read_text() == "one\n"


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"permission_mode": "yes"}, "permission_mode: 'yes' is not one of default, plan, acceptEdits"),
        (
            {"permissionMode": "plan", "permission_mode": "default"},
            "cannot be used together with permission_mode",
        ),
        ({"permission_mode": "plan", "approval": "yolo"}, "cannot be used together with permission_mode"),
        ({"cwd": "."}, "cannot be used together with working_dir"),
        ({"working_dir": "/no/such/folder"}, "/no/such/folder"),
    ],
)
def test_invalid_parameters_start_nothing(
    world: Any, run: Run, parameters: dict[str, Any], problem: str
) -> None:
    """Invalid parameters return a failed result that names the problem. No request is sent."""
    result = run(**parameters)
    assert (result.success, result.exit_code, result.messages) == (False, -1, [])
    assert problem in result.error
    assert world.gateway.requests == []


def test_a_run_that_cannot_start(world: Any, run: Run) -> None:
    """A run for which no CLI was started has the exit code -1, whatever was wrong."""
    for parameters in ({"prompt": ""}, {"gemini": "/no/such/gemini"}, {"resume": "0" * 8}):
        result = run(**parameters)
        assert (result.success, result.exit_code, bool(result.error)) == (False, -1, True)
    assert world.gateway.requests == []


def test_a_failed_run(world: Any, run: Run) -> None:
    """A run that the API refuses is no success. It has an error, and no message of the model."""
    world.gateway.reply(status=400, error="bad request", times=None)
    result = run()
    assert (result.success, result.exit_code == 0) == (False, False)
    assert result.error
    assert [message.role for message in result.messages] == ["user"]


def test_a_call_that_the_user_declines(world: Any, run: Run) -> None:
    """A declined call has no effect. It has `is_error` in the result and in the stored session."""
    from geminids import Permissions

    world.gateway.reply(calls=[_SHELL])
    world.gateway.reply(text="Done.")
    result = run(on_permission=lambda asked: "deny", permissions=Permissions(shell="ask"))
    assert not (world.cwd / "shell.txt").exists()
    for messages in (result.messages, load_session(result.session_id, world.cwd)):
        call = next(
            message for message in messages if any(block.type == "tool_use" for block in blocks_of(message))
        )
        assert find_block(call, "tool_use").name == "Bash"
        assert find_block(call, "tool_result").is_error


@pytest.mark.deep
def test_a_call_that_is_cut_off(world: Any, run: Run) -> None:
    """A call that a time-out cuts off has `is_error`. The CLI does not store such a call: the loaded
    session has an empty answer."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "touch started; sleep 300"})])
    result = run(permission_mode="bypassPermissions", timeout=30, grace=2.0)
    assert (world.cwd / "started").exists()
    assert (result.success, result.exit_code) == (False, -1)
    assert find_block(result.messages[-1], "tool_result").is_error
    assert load_session(result.session_id, world.cwd)[-1].content == ""


@pytest.mark.parametrize(
    ("status", "response", "content", "is_error"),
    [
        ("success", {"output": "x"}, "x", False),
        ("error", {"error": "no such file"}, "no such file", True),
        ("error", {"output": "half"}, "half", True),
        ("cancelled", {"error": "[Operation Cancelled]"}, "[Operation Cancelled]", True),
        ("success", {}, "", False),
    ],
)
def test_states_of_a_call(status: str, response: dict[str, str], content: str, is_error: bool) -> None:
    """The result of a call is its output, else its error, else empty. It is an error if the status or
    the response says so."""
    result = [{"functionResponse": {"id": "t1", "name": "read_file", "response": response}}]
    call = {"id": "t1", "name": "read_file", "args": {}, "status": status, "result": result}
    message = parse({"id": "m", "type": "gemini", "content": "", "timestamp": "", "toolCalls": [call]})
    block = find_block(message, "tool_result")
    assert (block.tool_use_id, block.content, block.is_error) == ("t1", content, is_error)


@pytest.mark.parametrize("status", ["cancelled", "error", "success"])
def test_a_call_without_a_result(status: str) -> None:
    """A call without a result has a tool_use block and no tool_result block."""
    call = {"id": "t1", "name": "read_file", "args": {}, "status": status}
    message = parse({"id": "m", "type": "gemini", "content": "", "timestamp": "", "toolCalls": [call]})
    assert [block.type for block in blocks_of(message)] == ["tool_use"]


def test_unknown_fields_are_none() -> None:
    """A message without time, model and tokens has None for each. Without blocks, the content is the
    stored string."""
    message = parse({"id": "m1", "type": "user", "content": " ", "timestamp": "no time"})
    assert (message.timestamp, message.model, message.usage, message.content) == (None, None, None, " ")
    assert as_dict(message)["timestamp"] is None


# --- detect_cli and get_capabilities --------------------------------------------------------------


def package_of(world: Any) -> Path:
    """Return the folder of the installed CLI of the world's release."""
    folder: Path = world.places.releases / world.version / "node_modules" / "@google" / "gemini-cli"
    return folder


def make_package(folder: Path, version: str = "0.61.0") -> Path:
    """Write a package of Gemini CLI that prints its version; return its script."""
    script = folder / "bundle" / "gemini.js"
    script.parent.mkdir(parents=True)
    manifest = {"name": "@google/gemini-cli", "version": version, "bin": {"gemini": "bundle/gemini.js"}}
    (folder / "package.json").write_text(json.dumps(manifest))
    script.write_text(f"#!/usr/bin/env node\nconsole.log('{version}')\n")
    script.chmod(0o755)
    return script


@pytest.fixture
def machine(tmp_path: Path, node: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty HOME, and a PATH with Node only; return the home."""
    home, folder = tmp_path / "home", tmp_path / "node-bin"
    home.mkdir()
    folder.mkdir()
    (folder / "node").symlink_to(node)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    monkeypatch.delenv("GEMINI_CLI_PATH", raising=False)
    return home


def test_no_cli(machine: Path) -> None:
    """Without a CLI, `detect_cli` returns None, and `get_capabilities` and `execute` report it."""
    if any(Path(place, "gemini").exists() for place in ("/usr/local/bin", "/opt/homebrew/bin")):
        pytest.skip("this machine has its own gemini")
    assert detect_cli() is None
    capabilities = get_capabilities()
    assert (capabilities.installed, capabilities.cli_path, capabilities.models) == (False, None, ())
    result = asyncio.run(execute(prompt="Say hello", permission_mode="acceptEdits", working_dir=machine))
    assert (result.success, result.messages) == (False, [])
    assert result.error


@pytest.mark.parametrize(
    "place",
    [
        # The document's places.
        ".local/share/mise/installs/node/24.1.0/bin/gemini",
        ".npm-global/bin/gemini",
        # Places of other managers.
        ".nvm/versions/node/v24.1.0/bin/gemini",
        ".volta/bin/gemini",
        ".local/share/fnm/node-versions/v24.1.0/installation/bin/gemini",
        ".asdf/installs/nodejs/24.1.0/bin/gemini",
        ".local/bin/gemini",
        ".bun/bin/gemini",
        ".local/share/pnpm/gemini",
    ],
)
def test_common_places(machine: Path, place: str) -> None:
    """`detect_cli` finds a CLI in each common place below the home, and returns its path there."""
    script = make_package(machine / "package")
    link = machine / place
    link.parent.mkdir(parents=True)
    link.symlink_to(script)
    assert detect_cli() == str(link)
    version = subprocess.run([str(link)], capture_output=True, text=True, timeout=60, check=True).stdout
    assert version == "0.61.0\n"


def test_the_newest_node_of_a_manager(machine: Path) -> None:
    """Of several Node versions of mise, the newest with a CLI is used."""
    installs = machine / ".local/share/mise/installs/node"
    for version in ("9.0.0", "22.1.0", "24.1.0"):
        (installs / version / "bin").mkdir(parents=True)
    script = make_package(machine / "package")
    for version in ("9.0.0", "22.1.0"):
        (installs / version / "bin" / "gemini").symlink_to(script)
    assert detect_cli() == str(installs / "22.1.0/bin/gemini")


def test_usr_local_bin(machine: Path, tmp_path: Path) -> None:
    """`detect_cli` finds /usr/local/bin/gemini if that folder is not on PATH. The test mounts its own
    folder there, in a mount namespace of one process."""
    folder = tmp_path / "usr-local-bin"
    folder.mkdir()
    (folder / "gemini").symlink_to(make_package(machine / "package"))
    program = "from geminids.adapters.agent_cli_sdk import detect_cli; print(detect_cli())"
    mount = 'mount --bind "$0" /usr/local/bin && exec "$@"'
    search_path = f"{os.environ['PATH']}:/usr/sbin:/usr/bin:/sbin:/bin"
    argv = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(folder)]
    try:
        allowed = subprocess.run(
            [*argv, "true"], env={"PATH": search_path}, capture_output=True, timeout=60, check=False
        )
    except FileNotFoundError:
        pytest.skip("needs unshare")
    if allowed.returncode:
        pytest.skip("needs a mount namespace")
    if any(Path(place, "gemini").exists() for place in ("/usr/bin", "/bin", "/usr/sbin", "/sbin")):
        pytest.skip("this machine has its own gemini")
    env = {**os.environ, "PATH": search_path}
    done = subprocess.run(
        [*argv, sys.executable, "-c", program],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.strip() == "/usr/local/bin/gemini"


def test_the_order_of_the_search(machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The order is GEMINI_CLI_PATH, PATH, installs of geminids, common places. A GEMINI_CLI_PATH that
    names nothing is ignored, as the document has it."""
    common = machine / ".npm-global/bin/gemini"
    common.parent.mkdir(parents=True)
    common.symlink_to(make_package(machine / "common"))
    assert detect_cli() == str(common)
    managed = make_package(tmp_path / "geminids/gemini/0.61.0/node_modules/@google/gemini-cli")
    assert detect_cli() == str(managed)
    on_path = tmp_path / "bin" / "gemini"
    on_path.parent.mkdir()
    on_path.symlink_to(make_package(machine / "global"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(on_path.parent), os.environ["PATH"]]))
    assert detect_cli() == str(on_path)
    named = make_package(machine / "named")
    monkeypatch.setenv("GEMINI_CLI_PATH", str(named))
    assert detect_cli() == str(named)
    (machine / "notes.txt").write_text("no program")
    for nothing in ("nowhere", "notes.txt"):
        monkeypatch.setenv("GEMINI_CLI_PATH", str(machine / nothing))
        assert detect_cli() == str(on_path)
    assert get_capabilities().cli_path == str(on_path)


@pytest.fixture
def not_gemini(machine: Path, request: pytest.FixtureRequest) -> Path:
    """A file or folder that is not Gemini CLI."""
    path = machine / "other" / "gemini"
    path.parent.mkdir()
    match request.param:
        case "shell":
            path.write_text("#!/bin/sh\necho hi\n")
        case "program":
            path.write_bytes(Path("/bin/true").read_bytes())
        case "script":
            path = path.with_suffix(".js")
            path.write_text("console.log(1)\n")
        case "folder":
            path.mkdir()
            (path / "gemini").symlink_to(make_package(machine / "inside"))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("not_gemini", ["shell", "program", "script", "folder"], indirect=True)
def test_what_is_not_gemini_cli_is_skipped(
    machine: Path, not_gemini: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A GEMINI_CLI_PATH that names another program or a folder is ignored. Without a CLI, `execute`
    starts nothing, and its error names the path."""
    if any(Path(place, "gemini").exists() for place in ("/usr/local/bin", "/opt/homebrew/bin")):
        pytest.skip("this machine has its own gemini")
    monkeypatch.setenv("GEMINI_CLI_PATH", str(not_gemini))
    assert detect_cli() is None
    capabilities = get_capabilities()
    assert (capabilities.installed, capabilities.version, capabilities.models) == (False, None, ())
    result = asyncio.run(execute(prompt="Say hello", working_dir=machine))
    assert (result.success, result.exit_code) == (False, -1)
    assert result.error and "GEMINI_CLI_PATH" in result.error and str(not_gemini) in result.error
    managed = make_package(tmp_path / "geminids/gemini/0.61.0/node_modules/@google/gemini-cli")
    assert detect_cli() == get_capabilities().cli_path == str(managed)


def test_another_program_on_path_is_skipped(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A program named `gemini` on PATH that prints no version does not count."""
    if any(Path(place, "gemini").exists() for place in ("/usr/local/bin", "/opt/homebrew/bin")):
        pytest.skip("this machine has its own gemini")
    fake = tmp_path / "bin" / "gemini"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\necho started >> {tmp_path}/log\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(fake.parent), os.environ["PATH"]]))
    assert detect_cli() is None
    result = asyncio.run(execute(prompt="Say hello", working_dir=machine))
    assert result.error and f"{fake} is not Gemini CLI" in result.error
    assert (tmp_path / "log").read_text() == "started\n", "started more often than for --version"
    managed = make_package(tmp_path / "geminids/gemini/0.61.0/node_modules/@google/gemini-cli")
    assert detect_cli() == get_capabilities().cli_path == str(managed)


def test_a_release_that_is_too_old_is_skipped(machine: Path) -> None:
    """A release that geminids cannot run does not count, because `execute` would refuse it."""
    link = machine / ".npm-global/bin/gemini"
    link.parent.mkdir(parents=True)
    link.symlink_to(make_package(machine / "package", "0.41.2"))
    assert detect_cli() is None
    assert not get_capabilities().installed


@pytest.mark.deep
def test_execute_passes_over_another_program(world: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`execute` runs the real CLI although GEMINI_CLI_PATH and PATH name another program first."""
    fake = world.root / "bin" / "gemini"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho hi\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(fake.parent), os.environ["PATH"]]))
    for named in (str(fake), ""):
        monkeypatch.setenv("GEMINI_CLI_PATH", named)
        world.gateway.reply(text="Hello!")
        result = run("Say hello", gemini=None)
        assert (result.success, result.data) == (True, "Hello!"), result.error


def test_the_detected_cli_runs(world: Any, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`execute` runs the CLI that `detect_cli` returns, also if GEMINI_CLI_PATH names nothing."""
    link = world.root / "bin" / "gemini"
    link.parent.mkdir()
    link.symlink_to(package_of(world) / "bundle" / "gemini.js")
    monkeypatch.setenv("PATH", os.pathsep.join([str(link.parent), os.environ["PATH"]]))
    monkeypatch.setenv("GEMINI_CLI_PATH", str(world.root / "nowhere"))
    path = detect_cli()
    assert path == str(link)
    environ = {**os.environ, "GEMINI_CLI_NO_RELAUNCH": "true"}
    done = subprocess.run(
        [path, "--version"], env=environ, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == world.version
    world.gateway.reply(text="Hello!")
    result = run("Say hello", permission_mode="acceptEdits", gemini=None)
    assert (result.success, result.data) == (True, "Hello!"), result.error


def test_capabilities_of_the_real_cli(world: Any, run: Run) -> None:
    """The capabilities have the document's fields and its models, with the path of the CLI."""
    capabilities = get_capabilities(gemini=world.version)
    stored = json.loads(msgspec.json.encode(capabilities))
    assert stored["supportsSlashCommands"] is False
    assert stored["supportsModels"] is True
    assert stored["supportsWebSearch"] is True
    assert stored["supportsThinking"] is True
    assert stored["installed"] is True
    assert Path(stored["cliPath"]).is_file()
    assert stored["version"] == world.version
    for model in (
        {"id": "gemini-2.5-pro", "name": "Gemini 2.5 Pro"},
        {"id": "gemini-2.5-flash", "name": "Gemini 2.5 Flash"},
    ):
        assert model in stored["models"]


def test_a_listed_model_is_used(world: Any, run: Run) -> None:
    """A model that `get_capabilities` lists can be passed to `execute`, and the CLI requests it."""
    model = "gemini-2.5-pro"
    assert model in {listed.id for listed in get_capabilities(gemini=world.version).models}
    world.gateway.reply(text="Hello!")
    result = run("Say hello", model=model)
    assert result.success, result.error
    assert world.gateway.requests[0].model == model


# --- the page -------------------------------------------------------------------------------------


def test_the_program_of_the_page(world: Any) -> None:
    """The complete program of docs/migrate/agent-cli-sdk.md runs as it is, offline."""
    (program,) = re.findall(r"```python\n(import asyncio\n.*?)```", PAGE.read_text(), re.DOTALL)
    file = world.root / "program.py"
    file.write_text(program)
    variables = {
        "HOME": str(world.home),
        "TMPDIR": str(world.tmp),
        "GEMINI_CLI_PATH": str(package_of(world) / "bundle" / "gemini.js"),
    }
    done = subprocess.run(
        [sys.executable, str(file)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "user text What is in this folder?" in done.stdout
    assert "assistant tool_use Glob" in done.stdout
    assert "assistant tool_result" in done.stdout
    assert f"Gemini CLI {world.version}" in done.stdout
