"""The offline scene, step by step, on the requests that each generation of the CLI makes."""

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


def said(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def gave(tool: str, output: str, key: str = "output") -> dict[str, Any]:
    return said({"functionResponse": {"name": tool, "response": {key: output}}})


def step(*since: dict[str, Any], tools: dict[str, str] = NEW, context: str = CONTEXT) -> Reply:
    declared = [
        {"name": name, "parametersJsonSchema": {"type": "object", "properties": {argument: {}}}}
        for name, argument in tools.items()
    ]
    contents = [said(context), said("What is here?"), *since]
    body = json.dumps({"contents": contents, "tools": [{"functionDeclarations": declared}]}).encode()
    request = Request.read(1, 0.0, "POST", "/v1beta/models/m:streamGenerateContent", {}, body)
    reply = offline_scene(pause=0)(request)
    assert reply is not None
    return reply


def told(reply: Reply) -> str:
    return "".join(reply.text or ())


def test_first_it_lists_the_folder() -> None:
    """The first step says what it does and calls list_directory."""
    reply = step()
    assert told(reply) == "I will look at the files of this folder first."
    assert reply.calls == [Call("list_directory", {"dir_path": "."})]


def test_then_it_reads_the_most_telling_file() -> None:
    """The second step reads a file that the listing named."""
    assert step(gave("list_directory", LISTED)).calls == [Call("read_file", {"file_path": "README.md"})]


def test_at_last_it_tells_what_the_tools_gave() -> None:
    """The answer quotes the prompt, counts and names what there is, and says that a script made it."""
    reply = step(gave("list_directory", LISTED), gave("read_file", "# Hello\n\nSome text.\n"))
    assert told(reply) == (
        "You asked: “What is here?”\n\n"
        "This folder holds 2 files and 1 folder: a.py, README.md, src/.\n\n"
        "README.md has the heading “Hello”, and goes on: “Some text.”\n\n"
        f"{SCRIPTED_NOTE}"
    )
    assert reply.calls == []
    assert len(reply.text or ()) > 1


def test_what_is_not_there_is_not_counted() -> None:
    """A folder without folders is not said to hold 0 of them."""
    reply = step(gave("list_directory", "Directory listing for /w:\nphoto.png (9 bytes)"))
    assert "This folder holds 1 file: photo.png." in told(reply)


def test_empty_folder() -> None:
    """An empty folder is answered right after the listing."""
    reply = step(gave("list_directory", "Directory /w/project is empty."))
    assert "This folder is empty." in told(reply)
    assert reply.calls == []


@pytest.mark.parametrize("tool", ["list_directory", "read_file"])
def test_tools_that_fail_are_told(tool: str) -> None:
    """What a tool could not do is said, with its own words."""
    before = [gave("list_directory", LISTED)] if tool == "read_file" else []
    assert "permission denied" in told(step(*before, gave(tool, "permission denied", key="error")))


def test_without_tools() -> None:
    """Where no tool is offered the scene says so and ends."""
    reply = step(tools={})
    assert "No tool" in told(reply)
    assert reply.calls == []


def test_a_second_prompt_begins_anew() -> None:
    """The scene plays again for each prompt of a conversation: old results do not count."""
    reply = step(gave("list_directory", LISTED), gave("read_file", "x"), said("And now?"))
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
def test_telling_file(files: tuple[str, ...], expected: str | None) -> None:
    """README, then the project's file, then a text; never a hidden file, which can hold secrets."""
    assert informative_file(Listing("/w", files)) == expected


def test_listing_of_an_old_release() -> None:
    """Listings without sizes, and with a note on ignored files, are read too."""
    found = read_listing("Directory listing for /w:\n[DIR] src\na.py\n\n(2 git-ignored)")
    assert found == Listing("/w", ("a.py",), ("src",))
