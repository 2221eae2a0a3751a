"""What the model is given on the warm lane: commands as words, files as the headless lane gives them, pictures."""

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
Asked = tuple[str, dict[str, Any]]


def _given(request: Any) -> list[dict[str, Any]]:
    """The parts of what the user said last, without the CLI's own context."""
    parts = request.contents[-1]["parts"]
    return [part for part in parts if "<session_context>" not in part.get("text", "")]


def _warm(world: Any, asked: Sequence[Asked]) -> list[list[dict[str, Any]]]:
    """What the model was given for each of these prompts, in chats of one process."""
    results = []

    async def ask_all() -> None:
        async with Pool(world.options(), size=1) as pool:
            for prompt, fields in asked:
                async with pool.chat() as chat:
                    results.append(await chat.ask(prompt, **fields))
            assert len(pool.status()) == 1

    before = len(world.gateway.requests)
    for _ in asked:
        world.gateway.reply(text="ok")
    anyio.run(ask_all)
    assert [result.text for result in results] == ["ok"] * len(asked)
    assert [result.outcome for result in results] == ["success"] * len(asked)
    requests = [one for one in world.gateway.requests[before:] if one.method == "stream"]
    assert len(requests) == len(asked), "each reached the model, once"
    return [_given(request) for request in requests]


def _headless(world: Any, prompt: str, **fields: Any) -> list[dict[str, Any]]:
    world.gateway.reply(text="ok")
    assert world.ask(prompt, **fields).outcome == "success"
    return _given(world.gateway.requests[-1])


def _texts(parts: list[dict[str, Any]]) -> list[str]:
    return [part["text"].strip() for part in parts if part.get("text", "").strip()]


def test_commands_reach_the_model_as_words(make_world: Any) -> None:
    """`/help`, `$about` and their like, in whatever dress, are run by an ACP server: none of ours is."""
    world = make_world("0.61.0")
    said = [
        "/help",
        "$about",
        " /memory show",
        "/ help",
        "\ufeff/init",
        "$\u3000extensions list",
        "/usr is a folder",
    ]
    for words, parts in zip(said, _warm(world, [(words, {}) for words in said]), strict=True):
        assert [part["text"].lstrip("\u2060") for part in parts] == [words]


def test_a_file_is_given_as_on_the_headless_lane(make_world: Any) -> None:
    """`@a.txt` puts the same words and the same text into the request; names that are no files stay words."""
    world = make_world("0.61.0")
    (world.cwd / "a.txt").write_text("the contents of a\n")
    (world.cwd / "src").mkdir()
    (world.cwd / "src" / "b.txt").write_text("the contents of b\n")
    outside = world.root / "secret.txt"
    outside.write_text("the contents of a secret\n")
    prompt = f"Read @a.txt, please, (and @src/b.txt) but not @{outside} nor @nobody, me\\@a.txt."
    (warm,) = _warm(world, [(prompt, {})])
    headless = _headless(world, prompt)
    assert _texts(warm)[0] == _texts(headless)[0], "the words"
    for parts in (warm, headless):
        found = [text for text in _texts(parts) if text.startswith("the contents of")]
        assert found == ["the contents of a", "the contents of b"]
        assert "secret\n" not in str(parts)


def test_files_arrive_as_what_they_are(make_world: Any) -> None:
    """A picture as inline data of its type, also beside a link or a text, where the CLI by itself drops it."""
    world = make_world("0.61.0")
    (world.cwd / "a.txt").write_text("the contents of a\n")
    files = {"cat.png": PNG, "a.pdf": PDF, "notes.txt": b"the notes\n"}
    picture, pdf, notes = (str(world.root / name) for name in files)
    for name, data in files.items():
        (world.root / name).write_bytes(data)
    asked: list[Asked] = [
        ("Look.", {"images": (picture,)}),
        ("Look at @a.txt too.", {"images": (picture,)}),
        ("Look.", {"images": (picture,), "files": (pdf, notes)}),
    ]
    alone, linked, several = _warm(world, asked)
    cat = {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}
    document = {"mimeType": "application/pdf", "data": base64.b64encode(PDF).decode()}
    assert [part["inlineData"] for part in alone if "inlineData" in part] == [cat]
    assert [part["inlineData"] for part in linked if "inlineData" in part] == [cat]
    assert "the contents of a" in _texts(linked)
    assert [part["inlineData"] for part in several if "inlineData" in part] == [cat, document]
    assert "the notes" in _texts(several)
    assert all("cat.png" in str(_texts(parts)) for parts in (alone, linked, several))
