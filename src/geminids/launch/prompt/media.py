"""Files that go with the prompt: read and checked, named in the prompt, and staged where the CLI reads them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from geminids.config.paths import Places
from geminids.launch.errors import PromptProblem
from geminids.launch.prompt.compose import without_at
from geminids.launch.prompt.input_file import input_file_problem, read_input_file
from geminids.launch.prompt.media_types import (
    TEXT,
    MediaKind,
    MediaType,
    accepted,
    odd_text,
    type_by_name,
    type_in,
)
from geminids.launch.scratch import StagedFiles, name_elsewhere, new_scratch_name
from geminids.options import Options

__all__ = [
    "MAX_MEDIA_BYTES",
    "MAX_TOTAL_BYTES",
    "Attachment",
    "Attachments",
    "attach",
    "hiding_pattern",
    "read_media",
]

# The CLI drops what is larger (core/src/utils/fileUtils.ts), and says so to the model alone.
MAX_MEDIA_BYTES = 20 * 1024 * 1024
# All of them go into one request, and are held in memory here and there.
MAX_TOTAL_BYTES = 100 * 1024 * 1024
# Of a text it shows no more than so many lines, of so many characters each.
_LINES = _LINE = 2000
_LONGEST_NAME = 100
_KINDS: tuple[tuple[str, MediaKind | None], ...] = (("images", "image"), ("videos", "video"), ("files", None))


class Attachment(msgspec.Struct, frozen=True):
    """One file as it will be sent: what it was called, what it is, and its contents."""

    called: str
    type: MediaType
    data: bytes

    @property
    def units(self) -> int:
        """The characters that it adds to the prompt."""
        if self.type is not TEXT:
            return 0
        lines = self.data.split(b"\n", _LINES)[:_LINES]
        return sum(min(len(line), _LINE) + 1 for line in lines)


class Attachments(msgspec.Struct, frozen=True):
    """What the prompt and the command line get for the files: `words` come after the prompt."""

    words: str
    flags: tuple[str, ...]
    units: int
    staged: StagedFiles


def attach(options: Options, cwd: str, places: Places) -> Attachments:
    """Read and check the files, and choose where they are staged; writes nothing.

    Raises a `PromptProblem` for the first that cannot be sent, or if the CLI would read no folder.
    """
    attachments = list(read_media(options))
    # Numbered: the CLI sends them in the order of their names, and an image without its name.
    names = [f"media-{number:03}{one.type.endings[0]}" for number, one in enumerate(attachments, 1)]
    scratch = new_scratch_name()
    place = _choose_place(places.runs / scratch, cwd, names)
    lines = [
        f"@{place.path_in_prompt}/{name} (attached as {one.called})"
        for name, one in zip(names, attachments, strict=True)
    ]
    files = {name: one.data for name, one in zip(names, attachments, strict=True)}
    staged = StagedFiles(scratch, place.folder, {**place.files, **files}, place.is_outside)
    return Attachments("\n\n" + "\n".join(lines), place.flags, sum(one.units for one in attachments), staged)


def read_media(options: Options) -> Iterator[Attachment]:
    """The files of the options, images first, each with what it is; a `PromptProblem` for one that cannot be sent."""
    total = 0
    for option, kind in _KINDS:
        for path in getattr(options, option):
            data = read_input_file(option, path, MAX_MEDIA_BYTES)
            total += len(data)
            if total > MAX_TOTAL_BYTES:
                what = f"is one too many: no more than {MAX_TOTAL_BYTES:,} bytes can be sent together"
                raise input_file_problem(option, path, what)
            yield Attachment(_called(path), _type_of(option, kind, path, data), data)


def _type_of(option: str, kind: MediaKind | None, path: str, data: bytes) -> MediaType:
    name = os.path.basename(path)
    promised, found = type_by_name(name), type_in(data, name)
    if promised is not None and promised is not found:
        raise input_file_problem(option, path, f"is no {promised.name}: it holds {_told(found)}")
    if kind is not None and (found is None or found.kind != kind):
        raise input_file_problem(option, path, f"holds {_told(found)}; {option} takes {accepted(kind)}")
    if found is None:
        what = f"is of a type that cannot be sent: text, or {accepted(None)}; as a text, it {odd_text(data)}"
        raise input_file_problem(option, path, what)
    return found


def _told(found: MediaType | None) -> str:
    if found is None:
        return "what cannot be sent"
    return found.name if found is TEXT else f"{'an' if found.name[0] in 'AM' else 'a'} {found.name}"


def _called(path: str) -> str:
    """A file's own name, fit to stand in a prompt: one line, no `@path`, and no quote that could swallow one."""
    name = "".join(char if char.isprintable() else "_" for char in os.path.basename(path))
    return without_at(name.replace('"', "'")[:_LONGEST_NAME])


# The characters that are escaped in a path after `@`, and those that are not.
_ESCAPED = " '&#$;"
_SAFE = "/._-+=:%@~"


class _Place(msgspec.Struct, frozen=True):
    """A folder for the files, its path after `@`, and the flags that open it to the CLI."""

    folder: Path
    path_in_prompt: str
    flags: tuple[str, ...] = ()
    files: dict[str, bytes] = {}
    is_outside: bool = True


def _choose_place(scratch: Path, cwd: str, names: Sequence[str]) -> _Place:
    """A folder for files of these names; raises `PromptProblem` if the CLI would read none.

    Outside `cwd` if possible: in it, the user's ignore files would hide them. Not the whole scratch folder: what the
    CLI is shown, the agent may write.
    """
    if not _within(str(scratch), cwd) and (path := _path_in_prompt(str(scratch / "media"))) is not None:
        folder = scratch / "media"
        return _Place(folder, path, (f"--include-directories={folder}",), is_outside=False)
    shared = _temporary_folder()
    folder = shared / name_elsewhere(scratch.name)
    if not _within(str(shared), cwd) and (path := _path_in_prompt(str(folder))) is not None:
        return _Place(folder, path, (f"--include-directories={folder}",))
    return _place_in_cwd(scratch.name, Path(cwd), names)


def _temporary_folder() -> Path:
    """As `tempfile.gettempdir`, which writes a file to find out."""
    import tempfile  # imported late: few runs have files

    if tempfile.tempdir is not None:
        return Path(os.fsdecode(tempfile.tempdir)).absolute()
    named = [os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    folders = (*named, "/tmp", "/var/tmp", "/usr/tmp")
    usable = (folder for folder in folders if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK))
    return Path(next(usable, os.curdir)).absolute()


def _within(path: str, folder: str) -> bool:
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath((path, folder)) == folder


def _path_in_prompt(path: str) -> str | None:
    """A path as it is written after `@`, None where no release would read it back (atCommandProcessor.ts)."""
    for char in path:
        if not (char.isalnum() or char in _SAFE or char in _ESCAPED):
            return None  # a comma also ends a value of --include-directories, and brackets are patterns
    return "".join("\\" + char if char in _ESCAPED else char for char in path)


def _place_in_cwd(scratch: str, cwd: Path, names: Sequence[str]) -> _Place:
    rules = _rules(cwd, ".gitignore", ".git/info/exclude") if _in_repository(cwd) else []
    shut = _rules(cwd, ".geminiignore")
    for hidden in (True, False):
        name = name_elsewhere(scratch, hidden=hidden)
        by = hiding_pattern(rules, [name]) or hiding_pattern(shut, [name, *names])
        if by is None:
            # Its own ignore file: the user's `*.png` does not count in the folder.
            return _Place(cwd / name, name, files={".gitignore": b"!*\n"})
    raise PromptProblem(
        f"files can be staged only below {cwd}, and {by} there hides them from Gemini CLI",
        "Use another folder, or name one outside it with TMPDIR.",
        "bad_option",
    )


def _in_repository(cwd: Path) -> bool:
    return any((folder / ".git").exists() for folder in (cwd, *cwd.parents))


def _rules(cwd: Path, *files: str) -> list[tuple[str, str]]:
    found = []
    for file in files:
        try:
            text = (cwd / file).read_text("utf-8", "replace")
        except OSError:
            continue
        found += [(file, line.strip()) for line in text.splitlines()]
    return [(file, line) for file, line in found if line and not line.startswith(("#", "!"))]


def hiding_pattern(rules: Iterable[tuple[str, str]], names: Sequence[str]) -> str | None:
    """The first rule that could hide one of these names. Exceptions (`!name`) are ignored: a mistake then refuses the
    run, and does not drop a file in silence.

    >>> hiding_pattern([(".gitignore", "*.png"), (".gitignore", "/.*/")], [".geminids-1"])
    "'/.*/' of .gitignore"
    """
    import fnmatch

    for file, rule in rules:
        words = [word for word in rule.split("/") if word and word != "**"] or ["*"]
        if any(fnmatch.fnmatchcase(name, word) for name in names for word in words):
            return f"{rule!r} of {file}"
    return None
