"""Tests of attached files: which are sent, which are refused before the spawn, and that no copy is
left."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import geminids
from geminids import Options, OptionsError
from geminids.config.paths import Places
from geminids.launch.errors import PromptProblem
from geminids.launch.prompt.media import MAX_MEDIA_BYTES, Attachments, attach, hiding_pattern, read_media
from geminids.launch.prompt.media_types import TEXT, type_in
from geminids.launch.scratch import Scratch, name_elsewhere

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF"
MP4 = b"\0\0\0\x18ftypisom\0\0\0\0"
PDF = b"%PDF-1.7\n"

# A CLI that records its prompt and the files in its folders, and then runs the script of the test.
_RECORDING_CLI = """
prompt = sys.stdin.read()
folders = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--include-directories=")]
seen = {{f: sorted(os.listdir(f)) for f in folders}}
json.dump(dict(prompt=prompt, seen=seen), open("../kept.json", "w"))
out(INIT)
{then}
"""


@pytest.fixture
def write_file(tmp_path: Path) -> Callable[..., str]:
    """A function that writes a file and returns its path."""

    def write(name: str, data: bytes) -> str:
        file = tmp_path / "given" / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        return str(file)

    return write


def _recorded(tmp_path: Path) -> Any:
    return json.loads((tmp_path / "kept.json").read_text())


def _stage(attachments: Attachments, places: Places) -> Scratch:
    """Write the attached files to the paths that the prompt names."""
    scratch = Scratch(places, attachments.staged.scratch)
    scratch.stage(attachments.staged)
    return scratch


def _leftover_files(tmp_path: Path) -> list[str]:
    runs = tmp_path / "geminids" / "runs"
    return [*(os.listdir(runs) if runs.exists() else []), *os.listdir(tmp_path / "work")]


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.png", PNG, "PNG image"),
        ("A.JPEG", JPEG, "JPEG image"),
        ("a.gif", b"GIF89a..", "GIF image"),
        ("a.webp", b"RIFF\1\2\3\4WEBPVP8 ", "WebP image"),
        ("a.bmp", b"BM\1\2\3\4\0\0\0\0" + bytes(20), "BMP image"),
        ("a.heic", b"\0\0\0\x18ftypheic\0\0", "HEIC image"),
        ("a.heif", b"\0\0\0\x18ftypheic\0\0", "HEIF image"),
        ("a.mp4", MP4, "MP4 video"),
        ("a.m4v", MP4, "MP4 video"),
        ("a.mov", b"\0\0\0\x14ftypqt  ", "QuickTime video"),
        ("a.3gp", b"\0\0\0\x14ftyp3gp4", "3GPP video"),
        ("a.webm", b"\x1aE\xdf\xa3\x01\0\0\0", "WebM video"),
        ("a.mpg", b"\0\0\1\xba", "MPEG video"),
        ("a.mp3", b"ID3\3\0", "MP3 audio"),
        ("b.mp3", b"\xff\xfb\x90\0", "MP3 audio"),
        ("a.aac", b"\xff\xf1\x50\0", "AAC audio"),
        ("a.wav", b"RIFF\1\2\3\4WAVEfmt ", "WAV audio"),
        ("a.ogg", b"OggS\0", "Ogg audio"),
        ("a.pdf", PDF, "PDF document"),
        ("no ending", PNG, "PNG image"),
        ("a.ts", b"const a = 1", "text"),
        ("a.bin", "Grüße".encode(), "text"),
        (".env", b"A=1", "text"),
        ("a.svg", b"<svg/>", "text"),
        ("utf16.txt", "hello".encode("utf-16"), "text"),
    ],
)
def test_the_content_decides_the_type(
    write_file: Callable[..., str], name: str, data: bytes, kind: str
) -> None:
    """The content decides the type of a file: a media type that the CLI can send, or text with any
    file extension."""
    (media,) = read_media(Options(files=(write_file(name, data),)))
    assert media.type.name == kind


@pytest.mark.parametrize(
    ("option", "name", "data", "message"),
    [
        ("images", "a.png", b"no picture", "is not a PNG image: it contains text"),
        ("images", "a.png", JPEG, "is not a PNG image: it contains a JPEG image"),
        ("files", "a.png", b"\0\1\2", "is not a PNG image: it contains an unsupported type"),
        ("images", "a.txt", b"hello", "contains text; the option `images` accepts png, jpg"),
        ("images", "a.svg", b"<svg/>", "contains text; the option `images` accepts"),
        ("images", "a.mp4", MP4, "contains an MP4 video; the option `images` accepts"),
        ("videos", "a.png", PNG, "contains a PNG image; the option `videos` accepts mp4"),
        (
            "videos",
            "a.avi",
            b"RIFF\1\2\3\4AVI LIST\0",
            "contains an unsupported type; the option `videos` accepts mp4, mov",
        ),
        ("files", "a.zip", b"PK\3\4\0\0", "cannot be sent: .* it contains NUL bytes"),
        ("files", "a.txt", b"caf\xe9", r"it is not UTF-8 \(byte 4\)"),
        ("files", "a.txt", b" \n", "contains only whitespace"),
        ("files", "a.mkv", b"\x1aE\xdf\xa3\x42\x82\x88matroska\0", "cannot be sent: only text and"),
        ("files", "a.avif", b"\0\0\0\x18ftypavif\0", "cannot be sent: only text and"),
        ("files", "a.txt", b"", "is empty"),
    ],
)
def test_a_file_that_cannot_be_sent_is_refused(
    write_file: Callable[..., str], option: str, name: str, data: bytes, message: str
) -> None:
    """A file that the CLI would drop or send as a wrong type is refused, with the option, the file
    and the reason."""
    path = write_file(name, data)
    fields: dict[str, Any] = {option: (path,)}
    with pytest.raises(PromptProblem, match=message) as caught:
        list(read_media(Options(**fields)))
    assert str(caught.value).startswith(f"`{option}`: {path} ")
    assert caught.value.kind == "bad_option"


def test_a_file_that_is_too_large_is_refused(write_file: Callable[..., str]) -> None:
    """A file of 20 MiB is sent, and one with a byte more is refused: the CLI would drop it and
    inform only the model."""
    path = write_file("a.png", PNG)
    os.truncate(path, MAX_MEDIA_BYTES)
    assert len(next(read_media(Options(images=(path,)))).data) == MAX_MEDIA_BYTES
    os.truncate(path, MAX_MEDIA_BYTES + 1)
    with pytest.raises(PromptProblem, match="has 20,971,521 bytes"):
        list(read_media(Options(images=(path,))))


def test_files_that_are_too_large_together_are_refused(write_file: Callable[..., str]) -> None:
    """Too many bytes in total are refused before all files are in memory."""
    path = write_file("a.png", PNG)
    os.truncate(path, MAX_MEDIA_BYTES)
    files = read_media(Options(images=(path,) * 1000))
    with pytest.raises(
        PromptProblem,
        match="makes the total too large: all files together may have at most 104,857,600 bytes",
    ):
        sum(len(media.data) for media in files)


def test_the_limits_apply_to_the_whole_prompt(
    fake_cli: Callable[..., Options], write_file: Callable[..., str], tmp_path: Path
) -> None:
    """The limits apply to instructions, prompt and text files together.

    A run above them is refused as `bad_prompt` and starts nothing.
    """
    body = _RECORDING_CLI.format(then="out(DONE)")
    instructions = write_file("AGENT.md", b"x" * 5_000_000)
    texts = tuple(write_file(f"{n}.txt", (b"y" * 1999 + b"\n") * 1500) for n in range(2))
    for options, message in [
        (fake_cli(body, instructions=instructions), "has 9,000,002 bytes"),
        (fake_cli(body, files=texts), "the prompt with its files has 10,000,"),
    ]:
        result = geminids.ask_sync("z" * 4_000_000, options)
        assert result.failure is not None
        assert result.failure.kind == "bad_prompt"
        assert message in result.failure.message
    assert not (tmp_path / "kept.json").exists()
    assert _leftover_files(tmp_path) == []


@given(st.binary(max_size=64), st.text(max_size=10))
def test_any_bytes_have_a_type_or_none(data: bytes, name: str) -> None:
    """No file content raises; content with NUL is text only if it begins like UTF-16 or UTF-32."""
    media_type = type_in(data, name)
    assert media_type is not TEXT or b"\0" not in data or data[:1] in (b"\xff", b"\xfe", b"\0")


def test_a_text_file_counts_as_the_cli_sends_it(write_file: Callable[..., str]) -> None:
    """A text file counts as the part that the CLI sends, 2,000 lines of 2,000 characters; an image
    counts as nothing."""
    files = (write_file("long", b"x" * 9000 + b"\n" + b"y\n" * 5000), write_file("a.png", PNG))
    text, image = read_media(Options(files=files))
    assert (text.units, image.units) == (2001 + 1999 * 2, 0)


@pytest.mark.parametrize(
    ("rule", "is_found"),
    [("*", True), (".*", True), ("/.*/", True), ("**/.gem*/**", True), ("*.png", False), ("dist/", False)],
)
def test_ignore_patterns_that_hide_the_folder_are_found(rule: str, is_found: bool) -> None:
    """An ignore pattern that could match the folder is reported: the CLI would drop a hidden file
    without a message."""
    assert (hiding_pattern([(".gitignore", rule)], [".geminids-run-1"]) is not None) is is_found


def test_files_are_staged_privately_under_safe_names(write_file: Callable[..., str], tmp_path: Path) -> None:
    """Files are numbered in the given order and private (0600 in a 0700 folder).

    The prompt names each original on one line.
    """
    names = ["a b.png", "-x.png", "q\"u'o@te.png", "new\nline.png", "日本.png", "..png"]
    images = [write_file(name, PNG) for name in names]
    (tmp_path / "link.png").symlink_to(images[0])
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "a b.png"
    twin.write_bytes(PNG)
    work = tmp_path / "work"
    work.mkdir()
    places = Places(tmp_path / "geminids")
    options = Options(
        images=(*images, str(tmp_path / "link.png"), str(twin)), files=(write_file("n.md", b"# n"),)
    )
    attachments = attach(options, str(work), places)
    folder = places.runs / attachments.staged.scratch / "media"
    assert not places.root.exists()
    scratch = _stage(attachments, places)
    assert attachments.flags == (f"--include-directories={folder}",)
    shown_names = [
        "a b.png",
        "-x.png",
        "q'u'o\\@te.png",
        "new_line.png",
        "日本.png",
        "..png",
        "link.png",
        "a b.png",
    ]
    lines = [f"@{folder}/media-{n:03}.png (attached as {name})" for n, name in enumerate(shown_names, 1)]
    assert attachments.suffix == "\n\n" + "\n".join([*lines, f"@{folder}/media-009.txt (attached as n.md)"])
    assert len(os.listdir(folder)) == 9
    assert not any(stat.S_IMODE(file.lstat().st_mode) & 0o177 for file in folder.iterdir())
    assert not any(file.is_symlink() for file in folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    scratch.close()
    assert os.listdir(work) == []


@pytest.mark.parametrize("root", ["with, comma", "with [brackets]", "work/.geminids"])
def test_an_unusable_folder_is_replaced(
    write_file: Callable[..., str], tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the usual folder cannot be named in a prompt, or is in the working folder, the files are
    staged in the temporary folder."""
    temporary = tmp_path / "temporary"
    for folder in (tmp_path / "work", temporary):
        folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    places = Places(tmp_path / root)
    attachments = attach(Options(images=(write_file("a.png", PNG),)), str(tmp_path / "work"), places)
    folder = temporary / name_elsewhere(attachments.staged.scratch)
    assert attachments.flags == (f"--include-directories={folder}",)
    scratch = _stage(attachments, places)
    assert os.listdir(folder) == ["media-001.png"]
    scratch.close()
    assert os.listdir(temporary) == []


def test_blanks_in_the_path_are_escaped(write_file: Callable[..., str], tmp_path: Path) -> None:
    """Blanks in the folder's path are escaped, as in `Application Support` on macOS."""
    (tmp_path / "work").mkdir()
    places = Places(tmp_path / "Application Support")
    attachments = attach(Options(images=(write_file("a.png", PNG),)), str(tmp_path / "work"), places)
    assert f"@{tmp_path}/Application\\ Support/runs/" in attachments.suffix


@pytest.mark.parametrize(
    ("rules", "prefix"),
    [("*.png\n", "hidden"), (".*\n", "seen"), ("*\n", None)],
)
def test_files_are_staged_in_the_working_folder_as_a_last_resort(
    write_file: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rules: str,
    prefix: str | None,
) -> None:
    """If no outside path can be named, files are staged in the working folder under a name that the
    ignore files do not hide. Otherwise the run is refused."""
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / ".gitignore").write_text(rules)
    before = sorted(os.listdir(work))
    # A path with a comma cannot be named after `@`.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a, b"))
    places = Places(tmp_path / "c, d")
    options = Options(images=(write_file("a.png", PNG),))
    if prefix is None:
        with pytest.raises(PromptProblem, match=r"would be copied to .*'\*' of \.gitignore"):
            attach(options, str(work), places)
    else:
        attachments = attach(options, str(work), places)
        name = name_elsewhere(attachments.staged.scratch, hidden=prefix == "hidden")
        assert attachments.suffix == f"\n\n@{name}/media-001.png (attached as a.png)"
        assert attachments.flags == ()
        scratch = _stage(attachments, places)
        assert sorted(os.listdir(work / name)) == [".gitignore", "media-001.png"]
        scratch.close()
    assert sorted(os.listdir(work)) == before


def test_the_order_of_the_prompt_parts(
    fake_cli: Callable[..., Options], write_file: Callable[..., str], tmp_path: Path
) -> None:
    """The CLI reads instructions, the filled template and the attached files, in this order;
    `literal` attaches files too."""
    options = fake_cli(
        _RECORDING_CLI.format(then="out(DONE)"),
        instructions=write_file("AGENT.md", b"Be brief.\n"),
        template="[{{x}}] {{prompt}}",
        variables={"x": "@v"},
        images=(write_file("cat.png", PNG),),
        literal=True,
    )
    assert geminids.ask_sync("look @a", options).outcome == "success"
    recorded = _recorded(tmp_path)
    ((folder, names),) = recorded["seen"].items()
    assert names == ["media-001.png"]
    assert recorded["prompt"] == (
        f"Be brief.\n\n[\\@v] look \\@a\n\n@{folder}/media-001.png (attached as cat.png)"
    )
    assert _leftover_files(tmp_path) == []


@pytest.mark.parametrize(
    ("then", "fields", "outcome"),
    [
        ("out(DONE)", {}, "success"),
        ("sys.exit(1)", {}, "failed"),
        ("time.sleep(60)", {"timeout": 1.0}, "timed_out"),
        ("time.sleep(60)", {"env": {"LONG": "x" * 200_000}}, "failed"),
    ],
    ids=["success", "failure", "timeout", "spawn"],
)
def test_no_copy_is_left_after_a_run(
    fake_cli: Callable[..., Options],
    write_file: Callable[..., str],
    tmp_path: Path,
    then: str,
    fields: dict[str, Any],
    outcome: str,
) -> None:
    """The copies are gone when `Finished` is emitted, however the run ended, also if the spawn
    failed."""
    options = fake_cli(_RECORDING_CLI.format(then=then), images=(write_file("cat.png", PNG),), **fields)
    endings = [
        (event.outcome, _leftover_files(tmp_path))
        for event in geminids.stream_sync("x", options)
        if isinstance(event, geminids.Finished)
    ]
    assert endings == [(outcome, [])]


def test_no_copy_is_left_if_the_caller_leaves(
    fake_cli: Callable[..., Options], write_file: Callable[..., str], tmp_path: Path
) -> None:
    """The copies are gone when the caller leaves the `async with` block early."""
    options = fake_cli(_RECORDING_CLI.format(then="time.sleep(60)"), images=(write_file("cat.png", PNG),))

    async def leave() -> None:
        async with geminids.open_run("x", options) as run:
            async for _ in run:
                assert _leftover_files(tmp_path) != []
                break

    anyio.run(leave)
    assert _leftover_files(tmp_path) == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"images": ("cat.png",), "files": ("bad.zip",)}, "`files`: .* cannot be sent"),
        ({"images": ("cat.png",), "gemini": "no/such/gemini"}, "no/such/gemini"),
        ({"images": ("cat.png",), "template": "{{nobody}}"}, "unknown names: {{nobody}}"),
    ],
)
def test_a_refused_run_leaves_no_copy(
    fake_cli: Callable[..., Options],
    write_file: Callable[..., str],
    tmp_path: Path,
    fields: dict[str, Any],
    message: str,
) -> None:
    """A run that is refused starts no CLI and leaves no copies."""
    write_file("cat.png", PNG)
    write_file("bad.zip", b"PK\3\4\0")
    for option in ("images", "files"):
        fields = {**fields, option: tuple(str(tmp_path / "given" / name) for name in fields.get(option, ()))}
    result = geminids.ask_sync("x", fake_cli(_RECORDING_CLI.format(then="out(DONE)"), **fields))
    assert result.failure is not None
    assert re.search(message, result.failure.message)
    assert not (tmp_path / "kept.json").exists()
    assert _leftover_files(tmp_path) == []


def test_missing_files_and_folders_are_bad_options(tmp_path: Path) -> None:
    """A missing file and a folder are both reported as bad options, before the run starts."""
    with pytest.raises(OptionsError) as caught:
        geminids.open_run("x", images=[tmp_path / "no.png"], files=[tmp_path])
    assert [name for name, _ in caught.value.problems] == ["images", "files"]


def test_a_run_without_files_makes_no_folder(fake_cli: Callable[..., Options], tmp_path: Path) -> None:
    """A run without attached files creates no folder."""
    geminids.ask_sync("x", fake_cli(_RECORDING_CLI.format(then="out(DONE)")))
    assert _recorded(tmp_path)["seen"] == {}
    assert not (tmp_path / "geminids" / "runs").exists()
