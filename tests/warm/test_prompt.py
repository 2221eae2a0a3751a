"""A prompt as blocks: commands are guarded, files become links or content, and what cannot be sent is refused."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.gemini.protocol.acp.calls import (
    Audio,
    Image,
    Resource,
    ResourceBlob,
    ResourceLink,
    ResourceText,
    Text,
)
from geminids.launch.errors import Refused
from geminids.launch.prompt.compose import MAX_PROMPT_UNITS
from geminids.options import Options
from geminids.warm.prompt import blocks_of, is_command

COMMANDS = ("memory", "extensions", "init", "restore", "about", "help")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)
GUARD = "\u2060"


def _blocks(prompt: str, cwd: Path | str = "/", before: str = "", **fields: Any) -> tuple[Any, ...]:
    return blocks_of(prompt, Options(cwd=str(cwd), **fields), str(cwd), "run-1", before)


def _taken_for_a_command(text: str) -> bool:
    """As the CLI itself does it (acpCommandHandler.ts), with JavaScript's white space."""
    blank = " \t\n\v\f\r\u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
        map(chr, range(0x2000, 0x200B))
    )
    trimmed = text.strip(blank)
    if not trimmed.startswith(("/", "$")):
        return False
    for one in blank:
        trimmed = trimmed.replace(one, " ")
    return trimmed[1:].split(" ") != [] and next(iter(trimmed[1:].split()), "") in COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("sign", ["/", "$"])
def test_a_command_reaches_the_model_as_text(command: str, sign: str) -> None:
    """With white space before it or behind the sign, with words behind it: nothing of it is run."""
    words = f"{sign}{command}"
    for said in (
        words,
        f" \n\t{words}",
        f"{words} install x",
        f"{sign} {command}",
        f"\ufeff{words}",
        f"{words}\n",
    ):
        assert _taken_for_a_command(said)
        (block,) = _blocks(said)
        assert block == Text(text=GUARD + said)
        assert not _taken_for_a_command(block.text)


@given(st.text(alphabet="/$ \ufeff\n\u3000helpinit-x@.", max_size=12))
def test_nothing_that_the_cli_takes_for_a_command_is_sent_as_one(words: str) -> None:
    """Whatever the white space."""
    if words.strip():
        texts = "".join(block.text for block in _blocks(words) if isinstance(block, Text))
        assert not _taken_for_a_command(texts)


@pytest.mark.parametrize(
    "words", ["hello", "/usr/bin is where?", "$5 is little", "what is /help", "a $help", "/", "$"]
)
def test_other_words_are_sent_as_they_are(words: str) -> None:
    """To the character."""
    assert not is_command(words)
    assert _blocks(words) == (Text(text=words),)


def test_words_before_the_prompt_are_a_block_of_their_own() -> None:
    """What is handed over comes first; behind it nothing is a command."""
    assert _blocks("/help", before="Before:\n") == (Text(text="Before:\n"), Text(text="/help"))


def test_a_path_that_is_there_becomes_a_link(tmp_path: Path) -> None:
    """Words around it stay; a dot that ends the sentence is no part of it; escaped blanks are."""
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "my file.txt").write_text("x")
    (tmp_path / "src").mkdir()
    found = _blocks("See @a.txt, @my\\ file.txt and @src. Then (@./a.txt)", tmp_path)
    assert found == (
        Text(text="See "),
        ResourceLink(uri="file://a.txt", name="a.txt"),
        Text(text=", "),
        ResourceLink(uri="file://my file.txt", name="my file.txt"),
        Text(text=" and "),
        ResourceLink(uri="file://src", name="src"),
        Text(text=". Then ("),
        ResourceLink(uri="file://./a.txt", name="a.txt"),
        Text(text=")"),
    )
    assert _blocks("@a.txt", tmp_path) == (ResourceLink(uri="file://a.txt", name="a.txt"),)


def test_what_is_no_file_stays_a_word(tmp_path: Path) -> None:
    """Names, addresses, escaped signs, files that are not there, and all of them where the prompt is literal."""
    (tmp_path / "a.txt").write_text("x")
    for words in ("ask @ops", "me@example.com", "see \\@a.txt", "@", "@ a.txt", "@b.txt", "@" + "x" * 5000):
        assert _blocks(words, tmp_path) == (Text(text=words),)
    assert _blocks("see @a.txt", tmp_path, literal=True) == (Text(text="see @a.txt"),)


def test_a_path_out_of_the_folder_stays_a_word(tmp_path: Path) -> None:
    """As on the headless lane: the CLI would ask for it. A folder that was given with `include_dirs` is in."""
    work, other = tmp_path / "work", tmp_path / "other"
    for folder in (work, other):
        folder.mkdir()
        (folder / "a.txt").write_text("x")
    (work / "link").symlink_to(other / "a.txt")
    for path in ("../other/a.txt", str(other / "a.txt"), "link"):
        assert _blocks(f"@{path}", work) == (Text(text=f"@{path}"),)
        (linked,) = _blocks(f"@{path}", work, include_dirs=(str(other),))
        assert linked == ResourceLink(uri=f"file://{path}", name=path.rpartition("/")[2])
    (absolute,) = _blocks(f"@{work}/a.txt", work)
    assert absolute == ResourceLink(uri=f"file://{work}/a.txt", name="a.txt")


def test_files_are_sent_as_what_they_are(tmp_path: Path) -> None:
    """Pictures and sound as such, with their type; PDF and video as content; each with its name before it."""
    files = {
        "cat.png": (PNG, "image/png"),
        "cat.jpeg": (b"\xff\xd8\xff" + bytes(16), "image/jpeg"),
        "a.mp3": (b"ID3" + bytes(16), "audio/mpeg"),
        "a.wav": (b"RIFF\0\0\0\0WAVE" + bytes(16), "audio/wav"),
    }
    for name, (data, _) in files.items():
        (tmp_path / name).write_bytes(data)
    found = _blocks("look", files=tuple(str(tmp_path / name) for name in files))
    assert found[0] == Text(text="look") and found[1::2] == tuple(
        Text(text=f"\n(attached: {name})\n") for name in files
    )
    assert [(type(one), one.mime_type, base64.b64decode(one.data)) for one in found[2::2]] == [
        (Image if mime.startswith("image") else Audio, mime, data) for data, mime in files.values()
    ]


def test_a_pdf_and_a_video_are_content(tmp_path: Path) -> None:
    """The protocol has no blocks for them."""
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 x")
    (tmp_path / "a.mov").write_bytes(b"\0\0\0\x14ftypqt  " + bytes(16))
    _, _, pdf, _, video = _blocks("look", files=(str(tmp_path / "a.pdf"), str(tmp_path / "a.mov")))
    assert pdf.resource == ResourceBlob(
        uri="a.pdf", blob=base64.b64encode(b"%PDF-1.7 x").decode(), mime_type="application/pdf"
    )
    assert (video.resource.uri, video.resource.mime_type) == ("a.mov", "video/quicktime")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_text_file_is_read_by_its_mark(tmp_path: Path, encoding: str) -> None:
    """And sent whole, without the mark."""
    (tmp_path / "a.txt").write_bytes("Grüße\n".encode(encoding))
    *_, found = _blocks("look", files=(str(tmp_path / "a.txt"),))
    assert found == Resource(resource=ResourceText(uri="a.txt", text="Grüße\n", mime_type="text/plain"))


def test_beside_content_a_picture_is_content_too(tmp_path: Path) -> None:
    """The CLI drops pictures and sound where a link or a resource is in the prompt: with neither they are blocks."""
    (tmp_path / "cat.png").write_bytes(PNG)
    (tmp_path / "a.txt").write_text("x")
    picture = str(tmp_path / "cat.png")
    for found in (
        _blocks("see @a.txt", tmp_path, images=(picture,)),
        _blocks("see", tmp_path, images=(picture,), files=(str(tmp_path / "a.txt"),)),
    ):
        assert not any(isinstance(one, (Image, Audio)) for one in found)
        (blob,) = [
            one.resource for one in found if isinstance(one, Resource) and hasattr(one.resource, "blob")
        ]
        assert (base64.b64decode(blob.blob), blob.mime_type) == (PNG, "image/png")
    assert isinstance(_blocks("see", tmp_path, images=(picture,))[-1], Image)


@pytest.mark.parametrize(
    ("words", "why"), [("", "empty"), (" \n", "empty"), ("a\0b", "NUL"), (None, "not text")]
)
def test_what_is_no_prompt_is_refused(words: Any, why: str) -> None:
    """Before anything is sent, with a hint."""
    with pytest.raises(Refused, match=why) as caught:
        _blocks(words)
    assert caught.value.failure.kind == "bad_prompt" and caught.value.failure.hint


def test_what_is_too_long_is_refused(tmp_path: Path) -> None:
    """By itself, with what is handed over, and with its text files."""
    half = "x" * (MAX_PROMPT_UNITS // 2 + 1)
    (tmp_path / "a.txt").write_text(half)
    assert _blocks(half)
    for how in ({"prompt": half * 2}, {"prompt": half, "before": half}):
        with pytest.raises(Refused, match="fit into a model"):
            _blocks(**how)
    with pytest.raises(Refused, match="with its files"):
        _blocks(half, files=(str(tmp_path / "a.txt"),))


def test_a_file_that_cannot_be_sent_is_refused(tmp_path: Path) -> None:
    """Not there, or no picture."""
    (tmp_path / "cat.png").write_bytes(b"no picture")
    for name in ("none.png", "cat.png"):
        with pytest.raises(Refused, match=name):
            _blocks("look", images=(str(tmp_path / name),))


def test_many_signs_take_no_long_time(tmp_path: Path) -> None:
    """Paths are found in linear time, quotes and backslashes included."""
    began = time.process_time()
    for words in ('@"' * 20_000, "@\\" * 20_000, "@." * 20_000, '@"x' + "a" * 20_000):
        _blocks(words, tmp_path)
    assert time.process_time() - began < 5


def test_a_link_right_behind_a_command_makes_it_none(tmp_path: Path) -> None:
    """The CLI puts a blank between the two: `/help@a.txt` would be a command to it."""
    (tmp_path / "a.txt").touch()
    first, link = _blocks("/help@a.txt", tmp_path)
    assert first == Text(text=f"{GUARD}/help") and isinstance(link, ResourceLink)
