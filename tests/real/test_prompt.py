"""What the real CLI sends of instructions, templates and prompts: word by word, and no file that nobody asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real

SECRET = "the contents of a file"


def _said(world: Any) -> list[str]:
    """Every text of the first request's last content, without the CLI's own context."""
    request = next(request for request in world.gateway.requests if request.method == "stream")
    parts = request.contents[-1]["parts"]
    return [part["text"] for part in parts if "text" in part and "<session_context>" not in part["text"]]


def test_the_model_is_told_what_was_composed(world: Any) -> None:
    """Instructions, template, values and prompt, exactly; no `@path` or `/command` of theirs acts."""
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
    assert _said(world) == [
        " /help is a word. Ask \\@secret.txt and \\@ops.\n\n"
        '\\@secret.txt {{runId}} r1: Fix {{it}}. style={{color: "red"}}'
    ]
    assert SECRET not in str(world.gateway.requests[-1].body)


def test_a_value_begins_no_command(world: Any) -> None:
    """`/quit` as a name reaches the model as a word."""
    world.gateway.reply(text="ok")
    result = world.ask("hello", template="{{agent.name}} {{prompt}}", variables={"agent.name": "/quit"})
    assert result.outcome == "success"
    assert _said(world) == [" /quit hello"]


def test_the_prompt_and_the_template_keep_their_paths(world: Any) -> None:
    """`@path` of the user's own puts the file in, behind instructions and in a template too."""
    (world.cwd / "asked.txt").write_text(SECRET)
    (world.root / "AGENT.md").write_text("Be brief.")
    world.gateway.reply(text="ok")
    world.ask("See @asked.txt now.", instructions=str(world.root / "AGENT.md"), template="{{prompt}}")
    said = _said(world)
    assert said[0] == "Be brief.\n\nSee @asked.txt now."
    assert SECRET in said


def test_the_example_of_the_page_runs(make_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/how-to/prompt.md: the code as it stands there, in a folder that has its files."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "prompt.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    world = make_world("0.61.0")
    (world.cwd / "AGENT.md").write_text("Be brief.")
    (world.cwd / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(16))
    monkeypatch.chdir(world.cwd)
    for name, value in {**world.gateway.env, "HOME": str(world.home), "TMPDIR": str(world.tmp)}.items():
        monkeypatch.setenv(name, value)
    world.gateway.reply(text="ok")
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["result"].outcome == "success"
    said = _said(world)[0]
    assert re.match(
        r"Be brief\.\n\nYou are Ada of Acme, run run-\w+\.\n\nWhat is wrong in this picture\?", said
    )
    assert said.endswith("(attached as cat.png)")
