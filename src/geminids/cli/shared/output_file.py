"""Write the output of a command to stdout or to a file."""

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
    """Check the path of the output file, and return it with links resolved.

    Raises `GeminidsError` if the file exists and `force` is not set, if `out` is something other
    than a regular file, or if `out` cannot be checked. Call this before the output is computed.
    """
    target = Path(os.path.realpath(out))
    try:
        status = target.stat()
    except FileNotFoundError:
        return target
    except (OSError, ValueError) as error:
        raise _write_error(out, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise GeminidsError(f"{out} exists and is not a regular file", hint="Name another file with --out.")
    if not force:
        raise GeminidsError(f"{out} already exists", hint="Use --force to overwrite it.")
    return target


def write_output(pieces: Iterable[bytes], target: Path | None, *, force: bool = False) -> None:
    """Write the output to the file `target`, or to stdout if `target` is None.

    Only the current user can read the file. The file appears under its name only when it is
    complete. With `force`, an existing file is replaced. Raises `GeminidsError` if the output
    cannot be written.
    """
    if target is None:
        _print(pieces)
        return
    draft = target.parent / f".{target.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}"
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as error:
        raise _write_error(str(target), error) from None
    try:
        with os.fdopen(fd, "wb") as out:
            for piece in pieces:
                out.write(piece)
            out.flush()
            os.fsync(fd)
        _publish(draft, target, force)
    except OSError as error:
        raise _write_error(str(target), error) from None
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
        os.rename(draft, target)  # the file system may not support hard links


def _print(pieces: Iterable[bytes]) -> None:
    out = sys.stdout
    if out is None:
        raise click.UsageError("stdout is closed: name a file with --out.")
    for piece in pieces:
        if out.isatty():
            text = clean(piece.decode("utf-8", "replace"))
            _write_stdout(out.write, text.encode(out.encoding, "replace").decode(out.encoding))
        else:
            _write_stdout(out.buffer.write, piece)
    _write_stdout(out.flush)


def _write_stdout(write: Callable[..., object], *text: object) -> None:
    try:
        write(*text)
    except BrokenPipeError:
        # The reader of stdout has ended. Do not raise BrokenPipeError: click would exit with code
        # 1.
        raise click.exceptions.Exit(141) from None
    except OSError as error:
        # No hint: the reader of stdout knows best where its output goes.
        raise GeminidsError(f"cannot write to stdout: {error.strerror}", hint=None) from None


def _write_error(out: str, error: Exception) -> GeminidsError:
    why = getattr(error, "strerror", None) or str(error)
    return GeminidsError(f"cannot write {out}: {why}", hint="Name another file with --out.")
