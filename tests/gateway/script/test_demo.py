"""Tests of the offline scene, step by step, with the requests of old and new CLI releases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.gateway import Call, Reply, Request, offline_scene
from geminids.gateway.script.demo import SCRIPTED_NOTE, Listing, informative_file, read_listing

CONTEXT = "<session_context>\n- **Workspace Directories:**\n  - /w/project\n</session_context>"
OLD_CONTEXT = "This is the Gemini CLI.\nI'm currently working in the directory: /w/project\n"
NEW = {"list_directory": "dir_path", "read_file": "file_path"}
OLD = {"list_directory": "path", "read_file": "absolute_path"}
LISTED = "Directory listing for /w/project:\n[DIR] src\na.py (4 bytes)\nREADME.md (25 bytes)"


def user_content(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def tool_result(tool: str, output: str, key: str = "output") -> dict[str, Any]:
    return user_content({"functionResponse": {"name": tool, "response": {key: output}}})


def step(*since: dict[str, Any], tools: dict[str, str] = NEW, context: str = CONTEXT) -> Reply:
    declared = [
        {"name": name, "parametersJsonSchema": {"type": "object", "properties": {argument: {}}}}
        for name, argument in tools.items()
    ]
    contents = [user_content(context), user_content("What is here?"), *since]
    body = json.dumps({"contents": contents, "tools": [{"functionDeclarations": declared}]}).encode()
    request = Request.read(1, 0.0, "POST", "/v1beta/models/m:streamGenerateContent", {}, body)
    reply = offline_scene(pause=0)(request)
    assert reply is not None
    return reply


def reply_text(reply: Reply) -> str:
    return "".join(reply.text or ())


def test_first_step_lists_the_folder() -> None:
    """The first reply announces what it does and calls `list_directory`."""
    reply = step()
    assert reply_text(reply) == "I will look at the files of this folder first."
    assert reply.calls == [Call("list_directory", {"dir_path": "."})]


def test_second_step_reads_a_file() -> None:
    """The second reply reads the most informative file of the listing."""
    assert step(tool_result("list_directory", LISTED)).calls == [
        Call("read_file", {"file_path": "README.md"})
    ]


def test_last_step_summarizes_the_results() -> None:
    """The final answer quotes the prompt, counts and names the files, and
    says that a script wrote it."""
    reply = step(tool_result("list_directory", LISTED), tool_result("read_file", "# Hello\n\nSome text.\n"))
    assert reply_text(reply) == (
        "You asked: “What is here?”\n\n"
        "This folder holds 2 files and 1 folder: a.py, README.md, src/.\n\n"
        "README.md has the heading “Hello”, and continues: “Some text.”\n\n"
        f"{SCRIPTED_NOTE}"
    )
    assert reply.calls == []
    assert len(reply.text or ()) > 1


def test_zero_counts_are_left_out() -> None:
    """The answer does not mention folders if there are none."""
    reply = step(tool_result("list_directory", "Directory listing for /w:\nphoto.png (9 bytes)"))
    assert "This folder holds 1 file: photo.png." in reply_text(reply)


def test_empty_folder() -> None:
    """For an empty folder, the scene answers right after the listing."""
    reply = step(tool_result("list_directory", "Directory /w/project is empty."))
    assert "This folder is empty." in reply_text(reply)
    assert reply.calls == []


@pytest.mark.parametrize("tool", ["list_directory", "read_file"])
def test_the_text_quotes_the_error_of_a_failed_tool(tool: str) -> None:
    """If a tool fails, the answer quotes its error."""
    earlier_results = [tool_result("list_directory", LISTED)] if tool == "read_file" else []
    assert "permission denied" in reply_text(
        step(*earlier_results, tool_result(tool, "permission denied", key="error"))
    )


def test_without_tools() -> None:
    """If the request offers no tools, the scene says so and calls none."""
    reply = step(tools={})
    assert "No tool" in reply_text(reply)
    assert reply.calls == []


def test_second_prompt_restarts_the_scene() -> None:
    """The scene starts again for each prompt and ignores tool results before it."""
    reply = step(
        tool_result("list_directory", LISTED), tool_result("read_file", "x"), user_content("And now?")
    )
    assert reply.calls == [Call("list_directory", {"dir_path": "."})]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("a.py", "package.json", "README.rst"), "README.rst"),
        (("z.txt", "pyproject.toml"), "pyproject.toml"),
        (("photo.png", "notes.txt"), "notes.txt"),
        ((".env", "photo.png"), None),
        ((), None),
    ],
)
def test_choice_of_the_file_to_read(files: tuple[str, ...], expected: str | None) -> None:
    """The scene prefers a README, then the project file, then a text file.
    It never reads a hidden file, because that may contain secrets."""
    assert informative_file(Listing("/w", files)) == expected


def test_listing_of_an_old_release() -> None:
    """`read_listing` also reads a listing without sizes and with a note on ignored files."""
    listing = read_listing("Directory listing for /w:\n[DIR] src\na.py\n\n(2 git-ignored)")
    assert listing == Listing("/w", ("a.py",), ("src",))
