"""The prompt that the model receives on the warm transport: commands as text, files and images."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from geminids.warm.pool import Pool

pytestmark = pytest.mark.real

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
PDF = b"%PDF-1.7 x"
# A prompt with further options.
Prompt = tuple[str, dict[str, Any]]


def _prompt_parts(request: Any) -> list[dict[str, Any]]:
    """Return the parts of the user's last prompt, without the CLI's own context."""
    parts = request.contents[-1]["parts"]
    return [part for part in parts if "<session_context>" not in part.get("text", "")]


def _ask_warm(world: Any, prompts: Sequence[Prompt]) -> list[list[dict[str, Any]]]:
    """Send each prompt in a new chat of one process. Return the prompt parts that the model
    received."""
    results = []

    async def ask_all() -> None:
        async with Pool(world.options(), size=1) as pool:
            for prompt, fields in prompts:
                async with pool.chat() as chat:
                    results.append(await chat.ask(prompt, **fields))
            assert len(pool.status()) == 1

    before = len(world.gateway.requests)
    for _ in prompts:
        world.gateway.reply(text="ok")
    anyio.run(ask_all)
    assert [result.text for result in results] == ["ok"] * len(prompts)
    assert [result.outcome for result in results] == ["success"] * len(prompts)
    requests = [request for request in world.gateway.requests[before:] if request.method == "stream"]
    assert len(requests) == len(prompts), "each prompt reached the model once"
    return [_prompt_parts(request) for request in requests]


def _ask_headless(world: Any, prompt: str, **fields: Any) -> list[dict[str, Any]]:
    world.gateway.reply(text="ok")
    assert world.ask(prompt, **fields).outcome == "success"
    return _prompt_parts(world.gateway.requests[-1])


def _texts(parts: list[dict[str, Any]]) -> list[str]:
    return [part["text"].strip() for part in parts if part.get("text", "").strip()]


def test_commands_reach_the_model_as_text(make_world: Any) -> None:
    """The CLI on ACP would run prompts such as `/help` and `$about` as commands. geminids sends
    them to the model as text."""
    world = make_world("0.61.0")
    prompts = [
        "/help",
        "$about",
        " /memory show",
        "/ help",
        "\ufeff/init",
        "$\u3000extensions list",
        "/usr is a folder",
    ]
    for prompt, parts in zip(prompts, _ask_warm(world, [(prompt, {}) for prompt in prompts]), strict=True):
        assert [part["text"].lstrip("\u2060") for part in parts] == [prompt]


def test_a_file_is_sent_as_on_the_headless_transport(make_world: Any) -> None:
    """`@path` adds the same text and file contents to the request on both transports. An `@` that
    names no file, an escaped one and one outside the workspace stay text."""
    world = make_world("0.61.0")
    (world.cwd / "a.txt").write_text("the contents of a\n")
    (world.cwd / "src").mkdir()
    (world.cwd / "src" / "b.txt").write_text("the contents of b\n")
    outside = world.root / "secret.txt"
    outside.write_text("the contents of a secret\n")
    prompt = f"Read @a.txt, please, (and @src/b.txt) but not @{outside} nor @nobody, me\\@a.txt."
    (warm,) = _ask_warm(world, [(prompt, {})])
    headless = _ask_headless(world, prompt)
    assert _texts(warm)[0] == _texts(headless)[0]
    for parts in (warm, headless):
        contents = [text for text in _texts(parts) if text.startswith("the contents of")]
        assert contents == ["the contents of a", "the contents of b"]
        assert "secret\n" not in str(parts)


def test_images_and_files_arrive_with_their_type(make_world: Any) -> None:
    """Images and PDFs arrive as inline data with their type, text files as text. An image also
    arrives if the prompt has an `@path` or a text file too; the CLI by itself would drop it."""
    world = make_world("0.61.0")
    (world.cwd / "a.txt").write_text("the contents of a\n")
    files = {"cat.png": PNG, "a.pdf": PDF, "notes.txt": b"the notes\n"}
    picture, pdf, notes = (str(world.root / name) for name in files)
    for name, data in files.items():
        (world.root / name).write_bytes(data)
    prompts: list[Prompt] = [
        ("Look.", {"images": (picture,)}),
        ("Look at @a.txt too.", {"images": (picture,)}),
        ("Look.", {"images": (picture,), "files": (pdf, notes)}),
    ]
    alone, linked, several = _ask_warm(world, prompts)
    cat = {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}
    document = {"mimeType": "application/pdf", "data": base64.b64encode(PDF).decode()}
    assert [part["inlineData"] for part in alone if "inlineData" in part] == [cat]
    assert [part["inlineData"] for part in linked if "inlineData" in part] == [cat]
    assert "the contents of a" in _texts(linked)
    assert [part["inlineData"] for part in several if "inlineData" in part] == [cat, document]
    assert "the notes" in _texts(several)
    assert all("cat.png" in str(_texts(parts)) for parts in (alone, linked, several))
