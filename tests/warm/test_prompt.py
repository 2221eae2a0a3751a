"""Tests of `encode_prompt`: a prompt and its files become ACP content blocks, or the prompt is
refused."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.gemini.protocol.acp.calls import (
    AudioContent,
    ImageContent,
    Resource,
    ResourceBlob,
    ResourceLink,
    ResourceText,
    TextContent,
)
from geminids.launch.errors import Refused
from geminids.launch.prompt.compose import MAX_PROMPT_UNITS
from geminids.options import Options
from geminids.warm.acp.prompt import encode_prompt, is_command

COMMANDS = ("memory", "extensions", "init", "restore", "about", "help")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
GUARD = "\u2060"


def _blocks(prompt: str, cwd: Path | str = "/", before: str = "", **fields: Any) -> tuple[Any, ...]:
    return encode_prompt(prompt, Options(cwd=str(cwd), **fields), str(cwd), "run-1", before)


def _is_command_for_the_cli(text: str) -> bool:
    """Whether the CLI would run this text as a command: acpCommandHandler.ts, with JavaScript's
    white space."""
    blank = " \t\n\v\f\r\u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
        map(chr, range(0x2000, 0x200B))
    )
    trimmed = text.strip(blank)
    if not trimmed.startswith(("/", "$")):
        return False
    for character in blank:
        trimmed = trimmed.replace(character, " ")
    return trimmed[1:].split(" ") != [] and next(iter(trimmed[1:].split()), "") in COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("sign", ["/", "$"])
def test_a_command_reaches_the_model_as_text(command: str, sign: str) -> None:
    """A prompt that the CLI would run as a command is guarded, so that the model receives it as
    text."""
    typed = f"{sign}{command}"
    for prompt in (
        typed,
        f" \n\t{typed}",
        f"{typed} install x",
        f"{sign} {command}",
        f"\ufeff{typed}",
        f"{typed}\n",
    ):
        assert _is_command_for_the_cli(prompt)
        (block,) = _blocks(prompt)
        assert block == TextContent(text=GUARD + prompt)
        assert not _is_command_for_the_cli(block.text)


@given(st.text(alphabet="/$ \ufeff\n\u3000helpinit-x@.", max_size=12))
def test_no_prompt_is_sent_as_a_command(prompt: str) -> None:
    """No prompt is sent in a form that the CLI would run as a command, with any white space."""
    if prompt.strip():
        texts = "".join(block.text for block in _blocks(prompt) if isinstance(block, TextContent))
        assert not _is_command_for_the_cli(texts)


@pytest.mark.parametrize(
    "prompt", ["hello", "/usr/bin is where?", "$5 is little", "what is /help", "a $help", "/", "$"]
)
def test_other_text_is_sent_unchanged(prompt: str) -> None:
    """Other text is sent unchanged."""
    assert not is_command(prompt)
    assert _blocks(prompt) == (TextContent(text=prompt),)


def test_a_handover_is_a_separate_block() -> None:
    """A handover is a separate block before the prompt.

    After it the CLI recognises no command, so the prompt is not guarded.
    """
    assert _blocks("/help", before="Before:\n") == (TextContent(text="Before:\n"), TextContent(text="/help"))


def test_an_existing_path_becomes_a_link(tmp_path: Path) -> None:
    """`@` with an existing path becomes a link.

    A final dot is not part of the path; an escaped blank is.
    """
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "my file.txt").write_text("x")
    (tmp_path / "src").mkdir()
    blocks = _blocks("See @a.txt, @my\\ file.txt and @src. Then (@./a.txt)", tmp_path)
    assert blocks == (
        TextContent(text="See "),
        ResourceLink(uri="file://a.txt", name="a.txt"),
        TextContent(text=", "),
        ResourceLink(uri="file://my file.txt", name="my file.txt"),
        TextContent(text=" and "),
        ResourceLink(uri="file://src", name="src"),
        TextContent(text=". Then ("),
        ResourceLink(uri="file://./a.txt", name="a.txt"),
        TextContent(text=")"),
    )
    assert _blocks("@a.txt", tmp_path) == (ResourceLink(uri="file://a.txt", name="a.txt"),)


def test_an_at_sign_without_a_file_stays_text(tmp_path: Path) -> None:
    """`@` stays text for names, addresses, escaped signs and missing files, and always in a literal
    prompt."""
    (tmp_path / "a.txt").write_text("x")
    for prompt in ("ask @ops", "me@example.com", "see \\@a.txt", "@", "@ a.txt", "@b.txt", "@" + "x" * 5000):
        assert _blocks(prompt, tmp_path) == (TextContent(text=prompt),)
    assert _blocks("see @a.txt", tmp_path, literal=True) == (TextContent(text="see @a.txt"),)


def test_a_path_outside_the_folder_stays_text(tmp_path: Path) -> None:
    """`@` with a path outside the folder and `include_dirs` stays text, because the CLI would ask
    for permission to read it."""
    work, other = tmp_path / "work", tmp_path / "other"
    for folder in (work, other):
        folder.mkdir()
        (folder / "a.txt").write_text("x")
    (work / "link").symlink_to(other / "a.txt")
    for path in ("../other/a.txt", str(other / "a.txt"), "link"):
        assert _blocks(f"@{path}", work) == (TextContent(text=f"@{path}"),)
        (linked,) = _blocks(f"@{path}", work, include_dirs=(str(other),))
        assert linked == ResourceLink(uri=f"file://{path}", name=path.rpartition("/")[2])
    (absolute,) = _blocks(f"@{work}/a.txt", work)
    assert absolute == ResourceLink(uri=f"file://{work}/a.txt", name="a.txt")


def test_pictures_and_sound_become_blocks(tmp_path: Path) -> None:
    """Pictures and sound become blocks with their MIME type, each after a text block with the file
    name."""
    files = {
        "cat.png": (PNG, "image/png"),
        "cat.jpeg": (b"\xff\xd8\xff" + bytes(16), "image/jpeg"),
        "a.mp3": (b"ID3" + bytes(16), "audio/mpeg"),
        "a.wav": (b"RIFF\0\0\0\0WAVE" + bytes(16), "audio/wav"),
    }
    for name, (data, _) in files.items():
        (tmp_path / name).write_bytes(data)
    blocks = _blocks("look", files=tuple(str(tmp_path / name) for name in files))
    assert blocks[0] == TextContent(text="look") and blocks[1::2] == tuple(
        TextContent(text=f"\n(attached: {name})\n") for name in files
    )
    assert [(type(block), block.mime_type, base64.b64decode(block.data)) for block in blocks[2::2]] == [
        (ImageContent if mime.startswith("image") else AudioContent, mime, data)
        for data, mime in files.values()
    ]


def test_a_pdf_and_a_video_are_resources(tmp_path: Path) -> None:
    """A PDF and a video are sent as resources, because ACP has no blocks for them."""
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 x")
    (tmp_path / "a.mov").write_bytes(b"\0\0\0\x14ftypqt  " + bytes(16))
    _, _, pdf, _, video = _blocks("look", files=(str(tmp_path / "a.pdf"), str(tmp_path / "a.mov")))
    assert pdf.resource == ResourceBlob(
        uri="a.pdf", blob=base64.b64encode(b"%PDF-1.7 x").decode(), mime_type="application/pdf"
    )
    assert (video.resource.uri, video.resource.mime_type) == ("a.mov", "video/quicktime")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_text_file_is_decoded_by_its_byte_order_mark(tmp_path: Path, encoding: str) -> None:
    """A text file is decoded by its byte order mark, and sent without the mark."""
    (tmp_path / "a.txt").write_bytes("Grüße\n".encode(encoding))
    *_, block = _blocks("look", files=(str(tmp_path / "a.txt"),))
    assert block == Resource(resource=ResourceText(uri="a.txt", text="Grüße\n", mime_type="text/plain"))


def test_a_picture_with_a_resource_is_a_resource(tmp_path: Path) -> None:
    """A picture is sent as a resource if the prompt has a link or another resource: the CLI would
    drop an image block there."""
    (tmp_path / "cat.png").write_bytes(PNG)
    (tmp_path / "a.txt").write_text("x")
    picture = str(tmp_path / "cat.png")
    for blocks in (
        _blocks("see @a.txt", tmp_path, images=(picture,)),
        _blocks("see", tmp_path, images=(picture,), files=(str(tmp_path / "a.txt"),)),
    ):
        assert not any(isinstance(block, (ImageContent, AudioContent)) for block in blocks)
        (blob,) = [
            block.resource
            for block in blocks
            if isinstance(block, Resource) and hasattr(block.resource, "blob")
        ]
        assert (base64.b64decode(blob.blob), blob.mime_type) == (PNG, "image/png")
    assert isinstance(_blocks("see", tmp_path, images=(picture,))[-1], ImageContent)


@pytest.mark.parametrize(
    ("prompt", "message"), [("", "empty"), (" \n", "empty"), ("a\0b", "NUL"), (None, "must be text")]
)
def test_an_invalid_prompt_is_refused(prompt: Any, message: str) -> None:
    """An invalid prompt is refused before anything is sent, with a hint."""
    with pytest.raises(Refused, match=message) as caught:
        _blocks(prompt)
    assert caught.value.failure.kind == "bad_prompt" and caught.value.failure.hint


def test_a_prompt_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """A prompt that is too long is refused: by itself, with its handover, or with its text
    files."""
    half = "x" * (MAX_PROMPT_UNITS // 2 + 1)
    (tmp_path / "a.txt").write_text(half)
    assert _blocks(half)
    for arguments in ({"prompt": half * 2}, {"prompt": half, "before": half}):
        with pytest.raises(Refused, match="the CLI sends at most"):
            _blocks(**arguments)
    with pytest.raises(Refused, match="with its files"):
        _blocks(half, files=(str(tmp_path / "a.txt"),))


def test_a_file_that_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    """A picture that is missing or is not a picture is refused, and the error names it."""
    (tmp_path / "cat.png").write_bytes(b"no picture")
    for name in ("none.png", "cat.png"):
        with pytest.raises(Refused, match=name):
            _blocks("look", images=(str(tmp_path / name),))


def test_paths_are_found_in_linear_time(tmp_path: Path) -> None:
    """`@` paths are found in linear time, also with many quotes and backslashes."""
    began = time.process_time()
    for prompt in ('@"' * 20_000, "@\\" * 20_000, "@." * 20_000, '@"x' + "a" * 20_000):
        _blocks(prompt, tmp_path)
    assert time.process_time() - began < 5


def test_a_command_directly_before_a_link_is_guarded(tmp_path: Path) -> None:
    """`/help@a.txt` is guarded: the CLI puts a blank between text and link, which would make it the
    command `/help`."""
    (tmp_path / "a.txt").touch()
    first, link = _blocks("/help@a.txt", tmp_path)
    assert first == TextContent(text=f"{GUARD}/help") and isinstance(link, ResourceLink)
