"""Write a command's output to stdout, or to a file that appears complete or not at all."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import click

from geminids.errors import GeminidsError
from geminids.views.sanitize import clean

__all__ = ["check_output_path", "write_output"]


def check_output_path(out: str, *, force: bool) -> Path:
    """The path to write; raises if it exists, unless `force`. Called before any work is done."""
    target = Path(os.path.realpath(out))
    try:
        status = target.stat()
    except FileNotFoundError:
        return target
    except (OSError, ValueError) as error:
        raise _cannot(out, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise GeminidsError(f"{out} exists and is not a file", hint="Name another file with --out.")
    if not force:
        raise GeminidsError(f"{out} already exists", hint="Use --force to overwrite it.")
    return target


def write_output(pieces: Iterable[bytes], target: Path | None, *, force: bool = False) -> None:
    """Write to stdout, or to a file with mode 0600 that appears only when it is complete."""
    if target is None:
        _print(pieces)
        return
    draft = target.parent / f".{target.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as error:
        raise _cannot(str(target), error) from None
    try:
        with os.fdopen(fd, "wb") as out:
            for piece in pieces:
                out.write(piece)
            out.flush()
            os.fsync(fd)
        _publish(draft, target, force)
    except OSError as error:
        raise _cannot(str(target), error) from None
    finally:
        draft.unlink(missing_ok=True)


def _publish(draft: Path, target: Path, force: bool) -> None:
    if force:
        os.replace(draft, target)
        return
    try:
        os.link(draft, target)  # fails if another process has created the file
    except FileExistsError:
        raise GeminidsError(f"{target} already exists", hint="Use --force to overwrite it.") from None
    except OSError:
        os.rename(draft, target)  # a file system without links


def _print(pieces: Iterable[bytes]) -> None:
    out = sys.stdout
    if out is None:
        raise click.UsageError("stdout is closed: name a file with --out.")
    for piece in pieces:
        if out.isatty():
            text = clean(piece.decode("utf-8", "replace"))
            _put(out.write, text.encode(out.encoding, "replace").decode(out.encoding))
        else:
            _put(out.buffer.write, piece)
    _put(out.flush)


def _put(write: Callable[..., object], *text: object) -> None:
    try:
        write(*text)
    except BrokenPipeError:
        # The reader is gone. Not BrokenPipeError: click turns it into exit code 1.
        raise click.exceptions.Exit(141) from None
    except OSError as error:
        raise GeminidsError(f"cannot write to stdout: {error.strerror}") from None


def _cannot(out: str, error: Exception) -> GeminidsError:
    why = getattr(error, "strerror", None) or str(error)
    return GeminidsError(f"cannot write {out}: {why}", hint="Name another file with --out.")
