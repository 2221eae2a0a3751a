"""Read a file whose path is the value of an option."""

from __future__ import annotations

import os
import stat

from geminids.launch.errors import PromptProblem

__all__ = ["input_file_problem", "read_input_file"]


def read_input_file(option: str, path: str, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes.

    Raises a `PromptProblem` with the name of the option if the file is empty, too large or cannot
    be read. The file is opened without blocking, because opening a FIFO could block the run.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise input_file_problem(option, path, f"cannot be read: {cause}") from None
    try:
        _check(option, path, os.fstat(fd), limit)
        with os.fdopen(fd, "rb", closefd=False) as file:
            # Read one byte more than the limit, to detect a file that has grown since `fstat`.
            data = file.read(limit + 1)
    except OSError as error:
        raise input_file_problem(option, path, f"cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)
    if len(data) > limit:
        raise input_file_problem(option, path, f"is too large: at most {limit:,} bytes can be sent")
    if not data:
        raise input_file_problem(option, path, "is empty")
    return data


def _check(option: str, path: str, status: os.stat_result, limit: int) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise input_file_problem(option, path, "is a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise input_file_problem(option, path, "is not a regular file")
    if status.st_size > limit:
        raise input_file_problem(option, path, f"has {status.st_size:,} bytes; at most {limit:,} can be sent")


def input_file_problem(option: str, path: str, problem: str) -> PromptProblem:
    """Return a `PromptProblem` about the file `path` of an option. `problem` says what is wrong."""
    return PromptProblem(
        f"`{option}`: {path} {problem}", "Use another file, or omit the option.", "bad_option"
    )
