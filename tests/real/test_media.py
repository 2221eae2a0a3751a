"""Files that go with the prompt reach the API of the real CLI, whatever git ignores; and nothing of them stays."""

from __future__ import annotations

import base64
import os
import signal
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from endings import ended
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


def _put(world: Any, name: str, data: bytes) -> str:
    file = Path(world.root / "given" / name)
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    return str(file)


def _parts(world: Any) -> list[dict[str, Any]]:
    request = next(request for request in world.gateway.requests if request.method == "stream")
    parts: list[dict[str, Any]] = request.contents[-1]["parts"]
    return parts


def _inline(world: Any) -> list[tuple[str, bytes]]:
    found = [part["inlineData"] for part in _parts(world) if "inlineData" in part]
    return [(one["mimeType"], base64.b64decode(one["data"])) for one in found]


def _texts(world: Any) -> list[str]:
    return [part["text"] for part in _parts(world) if "text" in part]


def _left(world: Any) -> list[str]:
    runs = world.places.runs
    ours = [name for name in os.listdir(world.cwd) if "geminids" in name]
    return ours + (os.listdir(runs) if runs.exists() else [])


def _repository(world: Any, rules: str) -> None:
    (world.cwd / ".git").mkdir()
    (world.cwd / ".gitignore").write_text(rules)


def test_files_reach_the_model_whatever_git_ignores(world: Any) -> None:
    """Inline data and text, in the order given and with their names, in a folder that ignores everything."""
    _repository(world, "*\n")
    ignored = world.cwd / "ignored cat.png"
    ignored.write_bytes(PNG)
    world.gateway.reply(text="ok")
    result = world.ask(
        "look",
        images=(str(ignored), _put(world, '-odd "name"\n@x.png', PNG + b"2")),
        videos=(_put(world, "v.mp4", MP4),),
        files=(
            _put(world, "main.ts", TEXT.encode()),
            _put(world, "doc.pdf", PDF),
            _put(world, "wide.dat", "Grüße".encode("utf-16")),
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
    (told,) = [text for text in _texts(world) if text.startswith("look")]
    names = ["ignored cat.png", "-odd 'name'_\\@x.png", "v.mp4", "main.ts", "doc.pdf"]
    assert [f"(attached as {name})" in told for name in names] == [True] * 5
    assert _left(world) == []


def test_what_a_killed_host_left_is_gone_after_the_next_run(hosts: Any, stage: Any, soon: Any) -> None:
    """SIGKILL leaves the staged file; the next run, which has none of its own, removes it."""
    world, where = hosts.world, stage("api")
    host = hosts.run(f"--image={_put(world, 'cat.png', PNG)}")
    where.wait()
    assert len(_left(world)) == 1
    host.kill()
    assert host.wait(10) == -signal.SIGKILL
    assert soon(lambda: not marked(os.environ[MARKER]), 5)
    assert len(_left(world)) == 1
    world.gateway.when("again", text="ok")
    assert world.ask("again").outcome == "success"
    assert _left(world) == []


@pytest.mark.parametrize("name", ["SIGINT", pytest.param("SIGTERM", marks=pytest.mark.deep)])
def test_a_signal_leaves_nothing_of_the_files(hosts: Any, stage: Any, name: str) -> None:
    """Ctrl-C while the model thinks."""
    world, where = hosts.world, stage("api")
    host = hosts.run(f"--image={_put(world, 'cat.png', PNG)}", "--grace=1.5")
    where.wait()
    assert len(_left(world)) == 1
    host.send_signal(getattr(signal, name))
    assert host.wait(30) == 130
    assert _left(world) == []


@pytest.mark.deep
def test_a_photograph_of_ten_megabytes_arrives(world: Any) -> None:
    """The CLI counts its tokens first; a count that takes it for text would keep it from being sent."""
    photograph = PNG[:-12] + _chunk(b"tEXt", b"Comment\0" + b"x" * 10_000_000) + PNG[-12:]
    world.gateway.reply(text="seen")
    finished = ended(world.events("look", images=(_put(world, "big.png", photograph),)), "success")
    assert finished.text == "seen"
    assert _inline(world) == [("image/png", photograph)]
