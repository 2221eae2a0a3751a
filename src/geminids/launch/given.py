"""A file that the user gave, read whole; or one sentence that says why it cannot be."""

from __future__ import annotations

import os
import stat

from geminids.launch.prompt import PromptProblem

__all__ = ["given_problem", "read_given"]


def read_given(option: str, path: str, limit: int) -> bytes:
    """The bytes of a regular file of at most `limit` bytes; a `PromptProblem` that names the option otherwise.

    What is no regular file is not waited for: a FIFO that nobody writes into would hang the run.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise given_problem(option, path, f"cannot be read: {why}") from None
    try:
        _check(option, path, os.fstat(fd), limit)
        with os.fdopen(fd, "rb", closefd=False) as file:
            # One more than may be: it can have grown since it was looked at.
            data = file.read(limit + 1)
    except OSError as error:
        raise given_problem(option, path, f"cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)
    if len(data) > limit:
        raise given_problem(option, path, f"is longer than the {limit:,} bytes that can be sent")
    if not data:
        raise given_problem(option, path, "is empty")
    return data


def _check(option: str, path: str, seen: os.stat_result, limit: int) -> None:
    if stat.S_ISDIR(seen.st_mode):
        raise given_problem(option, path, "is a folder, not a file")
    if not stat.S_ISREG(seen.st_mode):
        raise given_problem(option, path, "is no regular file")
    if seen.st_size > limit:
        raise given_problem(
            option, path, f"has {seen.st_size:,} bytes, and no more than {limit:,} can be sent"
        )


def given_problem(option: str, path: str, what: str) -> PromptProblem:
    """What is wrong with a file that an option names."""
    return PromptProblem(f"{option}: {path} {what}", "Name another file, or leave it out.", "bad_option")
