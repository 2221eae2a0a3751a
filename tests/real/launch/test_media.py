"""Attached files reach the API, even if git ignores them, and no staged copy is left."""

from __future__ import annotations

import base64
import os
import signal
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from ending_checks import check_ending
from geminids.process.marker import MARKER
from geminids.process.tree import marked

pytestmark = pytest.mark.real

TEXT = "const answer = 42 // @nobody"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    + _chunk(b"IEND", b"")
)
MP4 = b"\0\0\0\x18ftypisom\0\0\2\0isommp42" + bytes(64)
PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n"


def _write_input(world: Any, name: str, data: bytes) -> str:
    file = Path(world.root / "given" / name)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    return str(file)


def _parts(world: Any) -> list[dict[str, Any]]:
    request = next(request for request in world.gateway.requests if request.method == "stream")
    parts: list[dict[str, Any]] = request.contents[-1]["parts"]
    return parts


def _inline(world: Any) -> list[tuple[str, bytes]]:
    blobs = [part["inlineData"] for part in _parts(world) if "inlineData" in part]
    return [(blob["mimeType"], base64.b64decode(blob["data"])) for blob in blobs]


def _texts(world: Any) -> list[str]:
    return [part["text"] for part in _parts(world) if "text" in part]


def _staged_files(world: Any) -> list[str]:
    runs = world.places.runs
    in_cwd = [name for name in os.listdir(world.cwd) if "geminids" in name]
    return in_cwd + (os.listdir(runs) if runs.exists() else [])


def _repository(world: Any, rules: str) -> None:
    (world.cwd / ".git").mkdir()
    (world.cwd / ".gitignore").write_text(rules)


def test_files_reach_the_model_even_if_git_ignores_them(world: Any) -> None:
    """Attached files arrive as inline data or text, in order and with their names, in a folder
    where git ignores everything."""
    _repository(world, "*\n")
    ignored = world.cwd / "ignored cat.png"
    ignored.write_bytes(PNG)
    world.gateway.reply(text="ok")
    result = world.ask(
        "look",
        images=(str(ignored), _write_input(world, '-odd "name"\n@x.png', PNG + b"2")),
        videos=(_write_input(world, "v.mp4", MP4),),
        files=(
            _write_input(world, "main.ts", TEXT.encode()),
            _write_input(world, "doc.pdf", PDF),
            _write_input(world, "wide.dat", "Grüße".encode("utf-16")),
        ),
        literal=True,
    )
    assert result.outcome == "success"
    assert _inline(world) == [
        ("image/png", PNG),
        ("image/png", PNG + b"2"),
        ("video/mp4", MP4),
        ("application/pdf", PDF),
    ]
    assert {TEXT, "Grüße"} <= set(_texts(world))
    (prompt,) = [text for text in _texts(world) if text.startswith("look")]
    names = ["ignored cat.png", "-odd 'name'_\\@x.png", "v.mp4", "main.ts", "doc.pdf"]
    assert [f"(attached as {name})" in prompt for name in names] == [True] * 5
    assert _staged_files(world) == []


def test_the_next_run_removes_staged_files(hosts: Any, stop_state: Any, wait_until: Any) -> None:
    """A host that is killed with SIGKILL leaves its staged file. The next run, which stages no
    file, removes it."""
    world, state = hosts.world, stop_state("api")
    host = hosts.run(f"--image={_write_input(world, 'cat.png', PNG)}")
    state.wait()
    assert len(_staged_files(world)) == 1
    host.kill()
    assert host.wait(10) == -signal.SIGKILL
    assert wait_until(lambda: not marked(os.environ[MARKER]), 5)
    assert len(_staged_files(world)) == 1
    world.gateway.when("again", text="ok")
    assert world.ask("again").outcome == "success"
    assert _staged_files(world) == []


@pytest.mark.parametrize("name", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.deep)])
def test_a_signal_removes_the_staged_files(hosts: Any, stop_state: Any, name: str) -> None:
    """A host that receives SIGINT or SIGTERM during an answer removes the staged files."""
    world, state = hosts.world, stop_state("api")
    host = hosts.run(f"--image={_write_input(world, 'cat.png', PNG)}", "--grace=1.5")
    state.wait()
    assert len(_staged_files(world)) == 1
    host.send_signal(getattr(signal, name))
    assert host.wait(30) == 130
    assert _staged_files(world) == []


@pytest.mark.deep
def test_an_image_of_ten_megabytes_arrives(world: Any) -> None:
    """An image of 10 MB reaches the API. The CLI counts tokens first, and would not send the image
    if it counted it as text."""
    image = PNG[:-12] + _chunk(b"tEXt", b"Comment\0" + b"x" * 10_000_000) + PNG[-12:]
    world.gateway.reply(text="seen")
    finished = check_ending(world.events("look", images=(_write_input(world, "big.png", image),)), "success")
    assert finished.text == "seen"
    assert _inline(world) == [("image/png", image)]
