"""Files that go with the prompt: checked before anything is started, copied to where the CLI reads them, named."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from geminids.launch.given import given_problem, read_given
from geminids.launch.media_types import TEXT, MediaKind, MediaType, accepted, odd_text, type_by_name, type_in
from geminids.launch.prompt import without_at
from geminids.launch.scratch import Scratch
from geminids.launch.staging import staging_for
from geminids.options import Options

__all__ = ["MAX_MEDIA_BYTES", "MAX_TOTAL_BYTES", "Attachment", "Attachments", "attach", "read_media"]

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

    words: str = ""
    flags: tuple[str, ...] = ()
    units: int = 0


def attach(options: Options, cwd: str, scratch: Scratch) -> Attachments:
    """Check the files and stage them; a `PromptProblem` for the first that cannot be sent, OSError for the disk."""
    found = list(read_media(options))
    # Numbered: the CLI sends them in the order of their names, and an image without its name.
    names = [f"media-{number:03}{one.type.endings[0]}" for number, one in enumerate(found, 1)]
    staging = staging_for(scratch, cwd, names)
    lines = []
    for name, one in zip(names, found, strict=True):
        _write(staging.folder / name, one.data)
        lines.append(f"@{staging.spoken}/{name} (attached as {one.called})")
    return Attachments("\n\n" + "\n".join(lines), staging.flags, sum(one.units for one in found))


def read_media(options: Options) -> Iterator[Attachment]:
    """The files of the options, images first, each with what it is; a `PromptProblem` for one that cannot be sent."""
    total = 0
    for option, kind in _KINDS:
        for path in getattr(options, option):
            data = read_given(option, path, MAX_MEDIA_BYTES)
            total += len(data)
            if total > MAX_TOTAL_BYTES:
                what = f"is one too many: no more than {MAX_TOTAL_BYTES:,} bytes can be sent together"
                raise given_problem(option, path, what)
            yield Attachment(_called(path), _type_of(option, kind, path, data), data)


def _type_of(option: str, kind: MediaKind | None, path: str, data: bytes) -> MediaType:
    name = os.path.basename(path)
    promised, found = type_by_name(name), type_in(data, name)
    if promised is not None and promised is not found:
        raise given_problem(option, path, f"is no {promised.name}: it holds {_told(found)}")
    if kind is not None and (found is None or found.kind != kind):
        raise given_problem(option, path, f"holds {_told(found)}; {option} takes {accepted(kind)}")
    if found is None:
        what = f"is of a type that cannot be sent: text, or {accepted(None)}; as a text, it {odd_text(data)}"
        raise given_problem(option, path, what)
    return found


def _told(found: MediaType | None) -> str:
    if found is None:
        return "what cannot be sent"
    return found.name if found is TEXT else f"{'an' if found.name[0] in 'AM' else 'a'} {found.name}"


def _called(path: str) -> str:
    """A file's own name, fit to stand in a prompt: one line, no `@path`, and no quote that could swallow one."""
    name = "".join(char if char.isprintable() else "_" for char in os.path.basename(path))
    return without_at(name.replace('"', "'")[:_LONGEST_NAME])


def _write(file: os.PathLike[str], data: bytes) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as out:
        out.write(data)
