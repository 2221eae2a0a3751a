"""The real CLI sends exactly the composed prompt, and the contents of requested files only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

SECRET = "the contents of a file"


def _texts_sent(world: Any) -> list[str]:
    """Return all texts in the last content of the first request, without the CLI's own context."""
    request = next(request for request in world.gateway.requests if request.method == "stream")
    parts = request.contents[-1]["parts"]
    return [part["text"] for part in parts if "text" in part and "<session_context>" not in part["text"]]


def test_the_model_receives_the_composed_prompt(world: Any) -> None:
    """The model receives the exact text of instructions, template, values and prompt. An `@path` or
    `/command` in instructions or values is sent as text."""
    (world.cwd / "secret.txt").write_text(SECRET)
    (world.root / "AGENT.md").write_text("/help is a word. Ask @secret.txt and @ops.\n")
    world.gateway.reply(text="ok")
    result = world.ask(
        "Fix {{it}}.",
        instructions=str(world.root / "AGENT.md"),
        template='{{tenant.name}} {{runId}}: {{prompt}} style={{color: "red"}}',
        variables={"tenant.name": "@secret.txt {{runId}}", "runId": "r1"},
    )
    assert result.outcome == "success"
    assert _texts_sent(world) == [
        " /help is a word. Ask \\@secret.txt and \\@ops.\n\n"
        '\\@secret.txt {{runId}} r1: Fix {{it}}. style={{color: "red"}}'
    ]
    assert SECRET not in str(world.gateway.requests[-1].body)


def test_a_value_is_not_a_command(world: Any) -> None:
    """`/quit` as a template value reaches the model as text."""
    world.gateway.reply(text="ok")
    result = world.ask("hello", template="{{agent.name}} {{prompt}}", variables={"agent.name": "/quit"})
    assert result.outcome == "success"
    assert _texts_sent(world) == [" /quit hello"]


def test_a_path_in_the_prompt_adds_its_file(world: Any) -> None:
    """`@path` in the prompt adds the file's contents, also if instructions and a template are
    used."""
    (world.cwd / "asked.txt").write_text(SECRET)
    (world.root / "AGENT.md").write_text("Be brief.")
    world.gateway.reply(text="ok")
    world.ask("See @asked.txt now.", instructions=str(world.root / "AGENT.md"), template="{{prompt}}")
    texts = _texts_sent(world)
    assert texts[0] == "Be brief.\n\nSee @asked.txt now."
    assert SECRET in texts


def test_the_example_in_the_docs_runs(make_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python example in docs/how-to/prompt.md runs without changes and sends the prompt that
    the page describes."""
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "prompt.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    world = make_world("0.61.0")
    (world.cwd / "AGENT.md").write_text("Be brief.")
    (world.cwd / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(16))
    monkeypatch.chdir(world.cwd)
    for name, value in {**world.gateway.env, "HOME": str(world.home), "TMPDIR": str(world.tmp)}.items():
        monkeypatch.setenv(name, value)
    world.gateway.reply(text="ok")
    namespace: dict[str, Any] = {}
    exec(example, namespace)
    assert namespace["result"].outcome == "success"
    text = _texts_sent(world)[0]
    assert re.match(
        r"Be brief\.\n\nYou are Ada of Acme, run run-\w+\.\n\nWhat is wrong in this picture\?", text
    )
    assert text.endswith("(attached as cat.png)")
