"""Attach files to the prompt: read them, check them, and choose where the CLI reads them."""

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
    text_problem,
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

# The CLI drops larger files (core/src/utils/fileUtils.ts), and reports that only to the model.
MAX_MEDIA_BYTES = 20 * 1024 * 1024
# All files go into one request, and both geminids and the CLI hold them in memory.
MAX_TOTAL_BYTES = 100 * 1024 * 1024
# The CLI sends at most this many lines of a text file, and this many characters of a line.
_LINES = _LINE = 2000
_LONGEST_NAME = 100
_KINDS: tuple[tuple[str, MediaKind | None], ...] = (("images", "image"), ("videos", "video"), ("files", None))


class Attachment(msgspec.Struct, frozen=True):
    """A file to send: its name in the prompt, its type and its contents."""

    called: str
    type: MediaType
    data: bytes

    @property
    def units(self) -> int:
        """The number of characters that it adds to the prompt."""
        if self.type is not TEXT:
            return 0
        lines = self.data.split(b"\n", _LINES)[:_LINES]
        return sum(min(len(line), _LINE) + 1 for line in lines)


class Attachments(msgspec.Struct, frozen=True):
    """What the files add to the prompt (`suffix`) and to the command line (`flags`)."""

    suffix: str
    flags: tuple[str, ...]
    units: int
    staged: StagedFiles


def attach(options: Options, cwd: str, places: Places) -> Attachments:
    """Read and check the files, and choose the folder to write them to. Writes nothing.

    Raises `PromptProblem` if a file cannot be sent, or if there is no folder that the CLI would
    read.
    """
    attachments = list(read_media(options))
    # Number the names: the CLI sends the files in the order of their names, and images without a
    # name.
    names = [f"media-{number:03}{file.type.endings[0]}" for number, file in enumerate(attachments, 1)]
    scratch = new_scratch_name()
    place = _choose_place(places.runs / scratch, cwd, names)
    lines = [
        f"@{place.path_in_prompt}/{name} (attached as {file.called})"
        for name, file in zip(names, attachments, strict=True)
    ]
    files = {name: file.data for name, file in zip(names, attachments, strict=True)}
    staged = StagedFiles(scratch, place.folder, {**place.files, **files}, place.is_outside)
    units = sum(file.units for file in attachments)
    return Attachments("\n\n" + "\n".join(lines), place.flags, units, staged)


def read_media(options: Options) -> Iterator[Attachment]:
    """Read the files of the options, images first; raises `PromptProblem` if one cannot be sent."""
    total = 0
    for option, kind in _KINDS:
        for path in getattr(options, option):
            data = read_input_file(option, path, MAX_MEDIA_BYTES)
            total += len(data)
            if total > MAX_TOTAL_BYTES:
                problem = f"is one file too many: at most {MAX_TOTAL_BYTES:,} bytes can be sent together"
                raise input_file_problem(option, path, problem)
            yield Attachment(_called(path), _type_of(option, kind, path, data), data)


def _type_of(option: str, kind: MediaKind | None, path: str, data: bytes) -> MediaType:
    name = os.path.basename(path)
    expected, actual = type_by_name(name), type_in(data, name)
    if expected is not None and expected is not actual:
        raise input_file_problem(
            option, path, f"is not {_described(expected)}: it contains {_described(actual)}"
        )
    if kind is not None and (actual is None or actual.kind != kind):
        problem = f"contains {_described(actual)}; {option} accepts {accepted(kind)}"
        raise input_file_problem(option, path, problem)
    if actual is None:
        problem = f"cannot be sent: only text and {accepted(None)} can; as text, it {text_problem(data)}"
        raise input_file_problem(option, path, problem)
    return actual


def _described(media_type: MediaType | None) -> str:
    if media_type is None:
        return "an unsupported type"
    if media_type is TEXT:
        return media_type.name
    return f"{'an' if media_type.name[0] in 'AM' else 'a'} {media_type.name}"


def _called(path: str) -> str:
    """Return a file's name for the prompt, on one line and without `@path` and quotes."""
    name = "".join(char if char.isprintable() else "_" for char in os.path.basename(path))
    return without_at(name.replace('"', "'")[:_LONGEST_NAME])


# Characters in a path after `@`: those that must be escaped, and those that need not.
_ESCAPED = " '&#$;"
_SAFE = "/._-+=:%@~"


class _Place(msgspec.Struct, frozen=True):
    """A folder for the files, its path after `@`, and the flags that give the CLI access to it."""

    folder: Path
    path_in_prompt: str
    flags: tuple[str, ...] = ()
    files: dict[str, bytes] = {}
    is_outside: bool = True


def _choose_place(scratch: Path, cwd: str, names: Sequence[str]) -> _Place:
    """Choose a folder for files of these names; raises `PromptProblem` if the CLI would read none.

    Prefer a folder outside `cwd`, because inside, the user's ignore files could hide the files. Do
    not use the scratch folder itself, because the agent may write to every folder that the CLI can
    read.
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
    """Like `tempfile.gettempdir`, but without writing a test file."""
    import tempfile  # imported late: few runs have files

    if tempfile.tempdir is not None:
        return Path(os.fsdecode(tempfile.tempdir)).absolute()
    from_env = [os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    folders = (*from_env, "/tmp", "/var/tmp", "/usr/tmp")
    usable = (folder for folder in folders if os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK))
    return Path(next(usable, os.curdir)).absolute()


def _within(path: str, folder: str) -> bool:
    path, folder = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath((path, folder)) == folder


def _path_in_prompt(path: str) -> str | None:
    """Escape a path for use after `@`.

    None if the CLI would not read it back (atCommandProcessor.ts).
    """
    for char in path:
        if not (char.isalnum() or char in _SAFE or char in _ESCAPED):
            return None  # a comma also ends a value of --include-directories, and brackets are patterns
    return "".join("\\" + char if char in _ESCAPED else char for char in path)


def _place_in_cwd(scratch: str, cwd: Path, names: Sequence[str]) -> _Place:
    rules = _rules(cwd, ".gitignore", ".git/info/exclude") if _in_repository(cwd) else []
    gemini_rules = _rules(cwd, ".geminiignore")
    for hidden in (True, False):
        name = name_elsewhere(scratch, hidden=hidden)
        pattern = hiding_pattern(rules, [name]) or hiding_pattern(gemini_rules, [name, *names])
        if pattern is None:
            # This ignore file overrides patterns of the user such as `*.png` in the folder.
            return _Place(cwd / name, name, files={".gitignore": b"!*\n"})
    raise PromptProblem(
        f"the files can be copied only to {cwd}, and {pattern} there hides them from Gemini CLI",
        "Use another folder, or set TMPDIR to a folder outside it.",
        "bad_option",
    )


def _in_repository(cwd: Path) -> bool:
    return any((folder / ".git").exists() for folder in (cwd, *cwd.parents))


def _rules(cwd: Path, *files: str) -> list[tuple[str, str]]:
    lines = []
    for file in files:
        try:
            text = (cwd / file).read_text("utf-8", "replace")
        except OSError:
            continue
        lines += [(file, line.strip()) for line in text.splitlines()]
    return [(file, line) for file, line in lines if line and not line.startswith(("#", "!"))]


def hiding_pattern(rules: Iterable[tuple[str, str]], names: Sequence[str]) -> str | None:
    """Return the first rule that could hide one of these names.

    Exceptions (`!name`) are ignored: it is better to refuse a run than to lose a file silently.

    >>> hiding_pattern([(".gitignore", "*.png"), (".gitignore", "/.*/")], [".geminids-1"])
    "'/.*/' of .gitignore"
    """
    import fnmatch

    for file, rule in rules:
        words = [word for word in rule.split("/") if word and word != "**"] or ["*"]
        if any(fnmatch.fnmatchcase(name, word) for name in names for word in words):
            return f"{rule!r} of {file}"
    return None
