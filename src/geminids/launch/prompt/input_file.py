"""Read a file that an option names, or say in one sentence why it cannot be read."""

from __future__ import annotations

import os
import stat

from geminids.launch.errors import PromptProblem

__all__ = ["input_file_problem", "read_input_file"]


def read_input_file(option: str, path: str, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; a `PromptProblem` that names the option otherwise.

    Opened without blocking: a FIFO that nobody writes to would hang the run.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise input_file_problem(option, path, f"cannot be read: {why}") from None
    try:
        _check(option, path, os.fstat(fd), limit)
        with os.fdopen(fd, "rb", closefd=False) as file:
            # One byte more than the limit: the file can have grown since `fstat`.
            data = file.read(limit + 1)
    except OSError as error:
        raise input_file_problem(option, path, f"cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)
    if len(data) > limit:
        raise input_file_problem(option, path, f"is longer than the {limit:,} bytes that can be sent")
    if not data:
        raise input_file_problem(option, path, "is empty")
    return data


def _check(option: str, path: str, seen: os.stat_result, limit: int) -> None:
    if stat.S_ISDIR(seen.st_mode):
        raise input_file_problem(option, path, "is a folder, not a file")
    if not stat.S_ISREG(seen.st_mode):
        raise input_file_problem(option, path, "is no regular file")
    if seen.st_size > limit:
        raise input_file_problem(
            option, path, f"has {seen.st_size:,} bytes, and no more than {limit:,} can be sent"
        )


def input_file_problem(option: str, path: str, what: str) -> PromptProblem:
    """The problem with a file that an option names."""
    return PromptProblem(f"{option}: {path} {what}", "Name another file, or leave it out.", "bad_option")
