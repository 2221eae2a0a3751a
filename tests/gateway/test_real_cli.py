"""Tests of the real CLI with a scripted gateway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geminids.gateway import Call, Gateway, Reply, ReplyUsage, offline_scene

pytestmark = pytest.mark.real

RunCli = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "README.md").write_text("# Meteors\n\nThey fall in December.\n")
    (project / "a.py").write_text("x = 1\n")
    return project


def answer_of(lines: list[dict[str, Any]]) -> str:
    return "".join(line["content"] for line in lines if line.get("role") == "assistant")


def test_text_and_usage(run_cli: RunCli, folder: Path) -> None:
    """The CLI reports the text and token counts of the script."""
    usage = ReplyUsage(input=100, output=7, cached=40, thinking=5)
    reply = Reply(thought="**Subject**\nmore", text=["Hel", "lo"], usage=usage)
    with Gateway([reply]) as gateway:
        lines = run_cli(gateway, "hi there", folder, "--model=flash")
        assert gateway.wait_until(lambda: gateway.open_connections == 0)
        assert [request.last_user_text for request in gateway.requests] == ["hi there"]
        assert gateway.errors == []
    stats = lines[-1]["stats"]
    assert (answer_of(lines), lines[-1]["status"]) == ("Hello", "success")
    assert (stats["input_tokens"], stats["output_tokens"], stats["total_tokens"]) == (100, 7, 112)


def test_tool_calls(run_cli: RunCli, folder: Path) -> None:
    """The CLI executes a scripted tool call and sends the result with its next request."""
    with Gateway([Reply(calls=[Call("read_file", {"file_path": "a.py"})]), Reply(text="read")]) as gateway:
        run_cli(gateway, "read it", folder, "--model=flash")
        results = gateway.requests[-1].tool_results
    assert [(result["name"], result["response"]["output"]) for result in results] == [
        ("read_file", "x = 1\n")
    ]


def test_router_with_model_auto(run_cli: RunCli, folder: Path) -> None:
    """With `--model=auto`, the router gets a default answer that uses up no reply of the script."""
    with Gateway([Reply(text="hello")]) as gateway:
        lines = run_cli(gateway, "hi", folder, "--model=auto")
        methods = [(request.method, "flash" in (request.model or "")) for request in gateway.requests]
    assert methods == [("generate", True), ("stream", True)]
    assert answer_of(lines) == "hello"


def test_error(run_cli: RunCli, folder: Path) -> None:
    """The CLI reports the error of the script as its own result."""
    with Gateway([Reply(status=400, error="API key not valid.", times=None)]) as gateway:
        lines = run_cli(gateway, "hi", folder, "--model=flash")
    assert lines[-1]["status"] == "error"
    assert "API key not valid." in lines[-1]["error"]["message"]


@pytest.mark.parametrize("model", ["auto", "flash"])
def test_offline_scene(run_cli: RunCli, folder: Path, model: str) -> None:
    """The offline scene lists and reads files with real tools and describes their results."""
    with Gateway(offline_scene()) as gateway:
        lines = run_cli(gateway, "What is here?", folder, f"--model={model}")
        assert gateway.errors == []
    used = [line["tool_name"] for line in lines if line["type"] == "tool_use"]
    ended = [line["status"] for line in lines if line["type"] in ("tool_result", "result")]
    assert (used, ended) == (["list_directory", "read_file"], ["success"] * 3)
    assert answer_of(lines).endswith(
        "You asked: “What is here?”\n\n"
        "This folder holds 2 files and 1 folder: a.py, README.md, src/.\n\n"
        "README.md has the heading “Meteors”, and continues: “They fall in December.”\n\n"
        "(This answer was made by a script, not by a model.)"
    )


def test_offline_scene_in_an_empty_folder(run_cli: RunCli, tmp_path: Path) -> None:
    """In an empty folder, the offline scene answers right after the listing."""
    empty = tmp_path / "empty"
    empty.mkdir()
    with Gateway(offline_scene()) as gateway:
        lines = run_cli(gateway, "What is here?", empty, "--model=flash")
        assert len(gateway.requests) == 2
    assert "This folder is empty." in answer_of(lines)


@pytest.mark.deep
def test_line_separator_in_an_answer(world: Any) -> None:
    """The gateway escapes U+2028 in an answer.
    Otherwise the CLI would treat the answer as cut off and repeat the request."""
    world.gateway.reply(text="one\u2028two")
    assert world.ask().text == "one\u2028two"
    assert len(world.gateway.requests) == 1
