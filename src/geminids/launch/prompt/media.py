"""Attach files to the prompt: read and check them, and choose a folder for their copies."""

from __future__ import annotations

import fnmatch
import os
import tempfile
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

# The CLI does not send larger files, and reports that only to the model
# (core/src/utils/fileUtils.ts).
MAX_MEDIA_BYTES = 20 * 1024 * 1024
# The CLI sends all files in one request. Both geminids and the CLI keep them in memory.
MAX_TOTAL_BYTES = 100 * 1024 * 1024
# The CLI sends at most this number of lines of a text file, and of characters in a line.
_LINES = _LINE = 2000
_LONGEST_NAME = 100
_KINDS: tuple[tuple[str, MediaKind | None], ...] = (("images", "image"), ("videos", "video"), ("files", None))


class Attachment(msgspec.Struct, frozen=True):
    """A file to send: its name in the prompt (`called`), its type and its contents."""

    called: str
    type: MediaType
    data: bytes

    @property
    def units(self) -> int:
        """The number of characters that a text file adds to the prompt; 0 for other files."""
        if self.type is not TEXT:
            return 0
        lines = self.data.split(b"\n", _LINES)[:_LINES]
        return sum(min(len(line), _LINE) + 1 for line in lines)


class Attachments(msgspec.Struct, frozen=True):
    """What attached files add to the prompt (`suffix`) and to the command line (`flags`).

    `units` is the number of characters that the text files add. `staged` contains the files to
    write.
    """

    suffix: str
    flags: tuple[str, ...]
    units: int
    staged: StagedFiles


def attach(options: Options, cwd: str, places: Places) -> Attachments:
    """Read and check the files of the options, and choose the folder to write them to.

    This function writes nothing. Raises `PromptProblem` if a file cannot be sent, or if there is no
    folder from which the CLI would read the files.
    """
    attachments = list(read_media(options))
    # Put numbers into the names, because the CLI sends the files in the order of their names, and
    # sends images without a name.
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
    """Read and check the files of the options `images`, `videos` and `files`, in this order.

    Raises `PromptProblem` if a file cannot be sent.
    """
    total = 0
    for option, kind in _KINDS:
        for path in getattr(options, option):
            data = read_input_file(option, path, MAX_MEDIA_BYTES)
            total += len(data)
            if total > MAX_TOTAL_BYTES:
                problem = f"makes the total too large: all files together may have at most {MAX_TOTAL_BYTES:,} bytes"
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
        problem = f"contains {_described(actual)}; the option `{option}` accepts {accepted(kind)}"
        raise input_file_problem(option, path, problem)
    if actual is None:
        problem = (
            f"cannot be sent: only text and {accepted(None)} can be sent, "
            f"and this file is not text: it {text_problem(data)}"
        )
        raise input_file_problem(option, path, problem)
    return actual


def _described(media_type: MediaType | None) -> str:
    if media_type is None:
        return "an unsupported type"
    if media_type is TEXT:
        return media_type.name
    return f"{'an' if media_type.name[0] in 'AM' else 'a'} {media_type.name}"


def _called(path: str) -> str:
    """Return the name of a file for use in the prompt: short, on one line, with `@` escaped."""
    name = "".join(char if char.isprintable() else "_" for char in os.path.basename(path))
    return without_at(name.replace('"', "'")[:_LONGEST_NAME])


# Special characters in a path after `@`: those that must be escaped, and those that are safe.
_ESCAPED = " '&#$;"
_SAFE = "/._-+=:%@~"


class _Place(msgspec.Struct, frozen=True):
    """A folder to which attached files are written.

    `path_in_prompt` is the folder's path as it is written after `@` in the prompt. `flags` allow
    the CLI to read the folder. `files` are further files to write to the folder. `is_outside` says
    whether the folder is outside the scratch folder.
    """

    folder: Path
    path_in_prompt: str
    flags: tuple[str, ...] = ()
    files: dict[str, bytes] = {}
    is_outside: bool = True


def _choose_place(scratch: Path, cwd: str, names: Sequence[str]) -> _Place:
    """Choose a folder to which the attached files are written. `names` are the files' names there.

    A folder outside `cwd` is preferred, because in `cwd`, the user's ignore files could hide the
    files from the CLI. The first choice is a new folder inside the scratch folder. The scratch
    folder itself is not used, because the agent may write to every folder that the CLI may read.

    Raises `PromptProblem` if there is no folder from which the CLI would read the files.
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
    """Return the folder for temporary files.

    This is the folder that `tempfile.gettempdir` returns. That function can write a test file; this
    function writes nothing.
    """
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
    """Escape a path for use after `@` in the prompt.

    Return None if the CLI would misread the path even if it is escaped (atCommandProcessor.ts).
    """
    for char in path:
        if not (char.isalnum() or char in _SAFE or char in _ESCAPED):
            # A comma would also end the value of --include-directories. Brackets are patterns.
            return None
    return "".join("\\" + char if char in _ESCAPED else char for char in path)


def _place_in_cwd(scratch: str, cwd: Path, names: Sequence[str]) -> _Place:
    rules = _rules(cwd, ".gitignore", ".git/info/exclude") if _in_repository(cwd) else []
    gemini_rules = _rules(cwd, ".geminiignore")
    for hidden in (True, False):
        name = name_elsewhere(scratch, hidden=hidden)
        pattern = hiding_pattern(rules, [name]) or hiding_pattern(gemini_rules, [name, *names])
        if pattern is None:
            # In this folder, our ignore file overrides patterns of the user such as `*.png`.
            return _Place(cwd / name, name, files={".gitignore": b"!*\n"})
    raise PromptProblem(
        f"the attached files would be copied to {cwd}, but the ignore pattern {pattern} of this folder "
        "hides them from Gemini CLI",
        f"Run in another folder, or set TMPDIR to a folder outside {cwd}.",
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
    """Return a description of the first ignore rule that could hide one of these names, or None.

    `rules` are pairs: the name of an ignore file, and a pattern in this file. Exceptions (`!name`)
    in ignore files are not taken into account. So a file that the CLI would read may be refused,
    but no file is lost silently.

    >>> hiding_pattern([(".gitignore", "*.png"), (".gitignore", "/.*/")], [".geminids-1"])
    "'/.*/' of .gitignore"
    """
    for file, rule in rules:
        words = [word for word in rule.split("/") if word and word != "**"] or ["*"]
        if any(fnmatch.fnmatchcase(name, word) for name in names for word in words):
            return f"{rule!r} of {file}"
    return None
