"""Files that go with the prompt: what is taken, what is refused before a spawn, and that nothing of them stays."""

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

# A CLI that keeps what it was given, and what lies where it was told to look, and then does as it is told.
_KEEP = """
prompt = sys.stdin.read()
folders = [a.split("=", 1)[1] for a in sys.argv if a.startswith("--include-directories=")]
seen = {{f: sorted(os.listdir(f)) for f in folders}}
json.dump(dict(prompt=prompt, seen=seen), open("../kept.json", "w"))
out(INIT)
{then}
"""


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., str]:
    """Writes a file and gives its path."""

    def write(name: str, data: bytes) -> str:
        file = tmp_path / "given" / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
        return str(file)

    return write


def _kept(tmp_path: Path) -> Any:
    return json.loads((tmp_path / "kept.json").read_text())


def _staged(found: Attachments, places: Places) -> Scratch:
    """Write the files to where the prompt says that they are."""
    scratch = Scratch(places, found.staged.scratch)
    scratch.stage(found.staged)
    return scratch


def _left(tmp_path: Path) -> list[str]:
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
def test_types_are_told_by_content(put: Callable[..., str], name: str, data: bytes, kind: str) -> None:
    """What the CLI sends as inline data, and text whatever its ending."""
    (one,) = read_media(Options(files=(put(name, data),)))
    assert one.type.name == kind


@pytest.mark.parametrize(
    ("option", "name", "data", "what"),
    [
        ("images", "a.png", b"no picture", "is not a PNG image: it contains text"),
        ("images", "a.png", JPEG, "is not a PNG image: it contains a JPEG image"),
        ("files", "a.png", b"\0\1\2", "is not a PNG image: it contains an unsupported type"),
        ("images", "a.txt", b"hello", "contains text; images accepts png, jpg"),
        ("images", "a.svg", b"<svg/>", "contains text; images accepts"),
        ("images", "a.mp4", MP4, "contains an MP4 video; images accepts"),
        ("videos", "a.png", PNG, "contains a PNG image; videos accepts mp4"),
        (
            "videos",
            "a.avi",
            b"RIFF\1\2\3\4AVI LIST\0",
            "contains an unsupported type; videos accepts mp4, mov",
        ),
        ("files", "a.zip", b"PK\3\4\0\0", "cannot be sent: .* it contains NUL bytes"),
        ("files", "a.txt", b"caf\xe9", r"it is not UTF-8 \(byte 4\)"),
        ("files", "a.txt", b" \n", "contains only whitespace"),
        ("files", "a.mkv", b"\x1aE\xdf\xa3\x42\x82\x88matroska\0", "cannot be sent: only text and"),
        ("files", "a.avif", b"\0\0\0\x18ftypavif\0", "cannot be sent: only text and"),
        ("files", "a.txt", b"", "is empty"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    put: Callable[..., str], option: str, name: str, data: bytes, what: str
) -> None:
    """With the option, the file and the reason; the CLI would drop it, or send it as what it is not."""
    path = put(name, data)
    fields: dict[str, Any] = {option: (path,)}
    with pytest.raises(PromptProblem, match=what) as caught:
        list(read_media(Options(**fields)))
    assert str(caught.value).startswith(f"{option}: {path} ")
    assert caught.value.kind == "bad_option"


def test_what_is_too_large_is_refused(put: Callable[..., str]) -> None:
    """20 MB are sent, a byte more is not: the CLI would drop it and tell the model alone."""
    path = put("a.png", PNG)
    os.truncate(path, MAX_MEDIA_BYTES)
    assert len(next(read_media(Options(images=(path,)))).data) == MAX_MEDIA_BYTES
    os.truncate(path, MAX_MEDIA_BYTES + 1)
    with pytest.raises(PromptProblem, match="has 20,971,521 bytes"):
        list(read_media(Options(images=(path,))))


def test_what_is_too_much_together_is_refused(put: Callable[..., str]) -> None:
    """Before all of it is in memory."""
    path = put("a.png", PNG)
    os.truncate(path, MAX_MEDIA_BYTES)
    sent = read_media(Options(images=(path,) * 1000))
    with pytest.raises(PromptProblem, match="is one file too many: at most 104,857,600 bytes"):
        sum(len(one.data) for one in sent)


def test_the_limits_hold_for_the_whole(
    stand_in: Callable[..., Options], put: Callable[..., str], tmp_path: Path
) -> None:
    """Instructions, prompt and texts together: refused as a prompt, and nothing is started."""
    body = _KEEP.format(then="out(DONE)")
    instructions = put("AGENT.md", b"x" * 5_000_000)
    texts = tuple(put(f"{n}.txt", (b"y" * 1999 + b"\n") * 1500) for n in range(2))
    for options, what in [
        (stand_in(body, instructions=instructions), "has 9,000,002 bytes"),
        (stand_in(body, files=texts), "the prompt with its files has 10,000,"),
    ]:
        result = geminids.ask_sync("z" * 4_000_000, options)
        assert result.failure is not None
        assert result.failure.kind == "bad_prompt"
        assert what in result.failure.message
    assert not (tmp_path / "kept.json").exists()
    assert _left(tmp_path) == []


@given(st.binary(max_size=64), st.text(max_size=10))
def test_any_bytes_have_a_type_or_none(data: bytes, name: str) -> None:
    """No file, however odd, raises."""
    found = type_in(data, name)
    assert found is not TEXT or b"\0" not in data or data[:1] in (b"\xff", b"\xfe", b"\0")


def test_a_text_counts_as_what_the_cli_shows_of_it(put: Callable[..., str]) -> None:
    """2,000 lines of 2,000 characters; an image adds nothing."""
    files = (put("long", b"x" * 9000 + b"\n" + b"y\n" * 5000), put("a.png", PNG))
    text, image = read_media(Options(files=files))
    assert (text.units, image.units) == (2001 + 1999 * 2, 0)


@pytest.mark.parametrize(
    ("rule", "hides"),
    [("*", True), (".*", True), ("/.*/", True), ("**/.gem*/**", True), ("*.png", False), ("dist/", False)],
)
def test_rules_that_could_hide_a_folder_are_found(rule: str, hides: bool) -> None:
    """Rather one too many: a file that is hidden is dropped in silence."""
    assert (hiding_pattern([(".gitignore", rule)], [".geminids-run-1"]) is not None) is hides


def test_files_are_staged_privately_under_safe_names(put: Callable[..., str], tmp_path: Path) -> None:
    """Numbered in the order given, 0600 in a folder of 0700, with their own names told beside them, on one line."""
    names = ["a b.png", "-x.png", "q\"u'o@te.png", "new\nline.png", "日本.png", "..png"]
    images = [put(name, PNG) for name in names]
    (tmp_path / "link.png").symlink_to(images[0])
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "a b.png"
    twin.write_bytes(PNG)
    work = tmp_path / "work"
    work.mkdir()
    places = Places(tmp_path / "geminids")
    options = Options(images=(*images, str(tmp_path / "link.png"), str(twin)), files=(put("n.md", b"# n"),))
    found = attach(options, str(work), places)
    folder = places.runs / found.staged.scratch / "media"
    assert not places.root.exists()
    scratch = _staged(found, places)
    assert found.flags == (f"--include-directories={folder}",)
    called = [
        "a b.png",
        "-x.png",
        "q'u'o\\@te.png",
        "new_line.png",
        "日本.png",
        "..png",
        "link.png",
        "a b.png",
    ]
    lines = [f"@{folder}/media-{n:03}.png (attached as {name})" for n, name in enumerate(called, 1)]
    assert found.suffix == "\n\n" + "\n".join([*lines, f"@{folder}/media-009.txt (attached as n.md)"])
    assert len(os.listdir(folder)) == 9
    assert not any(stat.S_IMODE(file.lstat().st_mode) & 0o177 for file in folder.iterdir())
    assert not any(file.is_symlink() for file in folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    scratch.close()
    assert os.listdir(work) == []


@pytest.mark.parametrize("root", ["with, comma", "with [brackets]", "work/.geminids"])
def test_a_place_that_the_cli_would_not_read_is_not_used(
    put: Callable[..., str], tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that no prompt can name, or one in the working folder, whose ignore files would hide it."""
    temporary = tmp_path / "temporary"
    for folder in (tmp_path / "work", temporary):
        folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    places = Places(tmp_path / root)
    found = attach(Options(images=(put("a.png", PNG),)), str(tmp_path / "work"), places)
    folder = temporary / name_elsewhere(found.staged.scratch)
    assert found.flags == (f"--include-directories={folder}",)
    scratch = _staged(found, places)
    assert os.listdir(folder) == ["media-001.png"]
    scratch.close()
    assert os.listdir(temporary) == []


def test_blanks_in_the_place_are_escaped(put: Callable[..., str], tmp_path: Path) -> None:
    """`Application Support`, where macOS keeps such things."""
    (tmp_path / "work").mkdir()
    places = Places(tmp_path / "Application Support")
    found = attach(Options(images=(put("a.png", PNG),)), str(tmp_path / "work"), places)
    assert f"@{tmp_path}/Application\\ Support/runs/" in found.suffix


@pytest.mark.parametrize(
    ("rules", "staged"),
    [("*.png\n", "hidden"), (".*\n", "seen"), ("*\n", None)],
)
def test_files_are_staged_in_the_folder_if_they_cannot_be_outside(
    put: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: str, staged: str | None
) -> None:
    """Under a name that the ignore files do not hide, else it is refused; nothing is left in the folder."""
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / ".gitignore").write_text(rules)
    before = sorted(os.listdir(work))
    # Neither path can be named after `@`.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "a, b"))
    places = Places(tmp_path / "c, d")
    options = Options(images=(put("a.png", PNG),))
    if staged is None:
        with pytest.raises(PromptProblem, match=r"copied only to .*'\*' of \.gitignore"):
            attach(options, str(work), places)
    else:
        found = attach(options, str(work), places)
        name = name_elsewhere(found.staged.scratch, hidden=staged == "hidden")
        assert found.suffix == f"\n\n@{name}/media-001.png (attached as a.png)"
        assert found.flags == ()
        scratch = _staged(found, places)
        assert sorted(os.listdir(work / name)) == [".gitignore", "media-001.png"]
        scratch.close()
    assert sorted(os.listdir(work)) == before


def test_the_order_is_instructions_template_files(
    stand_in: Callable[..., Options], put: Callable[..., str], tmp_path: Path
) -> None:
    """What the CLI reads on its stdin, with the files where the flag says; `literal` attaches them too."""
    options = stand_in(
        _KEEP.format(then="out(DONE)"),
        instructions=put("AGENT.md", b"Be brief.\n"),
        template="[{{x}}] {{prompt}}",
        variables={"x": "@v"},
        images=(put("cat.png", PNG),),
        literal=True,
    )
    assert geminids.ask_sync("look @a", options).outcome == "success"
    kept = _kept(tmp_path)
    ((folder, names),) = kept["seen"].items()
    assert names == ["media-001.png"]
    assert kept["prompt"] == (
        f"Be brief.\n\n[\\@v] look \\@a\n\n@{folder}/media-001.png (attached as cat.png)"
    )
    assert _left(tmp_path) == []


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
def test_nothing_of_the_files_is_left(
    stand_in: Callable[..., Options],
    put: Callable[..., str],
    tmp_path: Path,
    then: str,
    fields: dict[str, Any],
    outcome: str,
) -> None:
    """However the run ended, a spawn that the system refused included: gone when `Finished` is seen."""
    options = stand_in(_KEEP.format(then=then), images=(put("cat.png", PNG),), **fields)
    seen = [
        (event.outcome, _left(tmp_path))
        for event in geminids.stream_sync("x", options)
        if isinstance(event, geminids.Finished)
    ]
    assert seen == [(outcome, [])]


def test_nothing_of_the_files_is_left_by_a_caller_who_leaves(
    stand_in: Callable[..., Options], put: Callable[..., str], tmp_path: Path
) -> None:
    """A cancelled block, and a run that is never entered but stopped."""
    options = stand_in(_KEEP.format(then="time.sleep(60)"), images=(put("cat.png", PNG),))

    async def leave() -> None:
        async with geminids.open_run("x", options) as run:
            async for _ in run:
                assert _left(tmp_path) != []
                break

    anyio.run(leave)
    assert _left(tmp_path) == []


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"images": ("cat.png",), "files": ("bad.zip",)}, "files: .* cannot be sent"),
        ({"images": ("cat.png",), "gemini": "no/such/gemini"}, "no/such/gemini"),
        ({"images": ("cat.png",), "template": "{{nobody}}"}, "unknown names: {{nobody}}"),
    ],
)
def test_a_refused_run_starts_nothing_and_leaves_nothing(
    stand_in: Callable[..., Options],
    put: Callable[..., str],
    tmp_path: Path,
    fields: dict[str, Any],
    what: str,
) -> None:
    """Whatever was staged before it was refused."""
    put("cat.png", PNG)
    put("bad.zip", b"PK\3\4\0")
    for option in ("images", "files"):
        fields = {**fields, option: tuple(str(tmp_path / "given" / name) for name in fields.get(option, ()))}
    result = geminids.ask_sync("x", stand_in(_KEEP.format(then="out(DONE)"), **fields))
    assert result.failure is not None
    assert re.search(what, result.failure.message)
    assert not (tmp_path / "kept.json").exists()
    assert _left(tmp_path) == []


def test_missing_files_and_folders_are_bad_options(tmp_path: Path) -> None:
    """Both told at once, before there is a run."""
    with pytest.raises(OptionsError) as caught:
        geminids.open_run("x", images=[tmp_path / "no.png"], files=[tmp_path])
    assert [name for name, _ in caught.value.problems] == ["images", "files"]


def test_a_run_without_files_makes_no_folder(stand_in: Callable[..., Options], tmp_path: Path) -> None:
    """The usual run pays nothing."""
    geminids.ask_sync("x", stand_in(_KEEP.format(then="out(DONE)")))
    assert _kept(tmp_path)["seen"] == {}
    assert not (tmp_path / "geminids" / "runs").exists()
