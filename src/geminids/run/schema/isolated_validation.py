"""Validate in a separate process: a slow regular expression blocks all Python threads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from subprocess import DEVNULL, PIPE
from typing import Any

from geminids.run.schema.answer_json import Checked, checked

__all__ = ["checked_in_time", "main"]

_LONGEST = 20.0
_POLL = 0.1  # seconds between two calls of `given_up`
# Use the host's sys.path: the host may have added the path of geminids itself.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from geminids.run.schema.isolated_validation import main; main()"
)


def checked_in_time(
    text: str, schema: Any, longest: float = _LONGEST, *, given_up: Callable[[], object] = lambda: False
) -> Checked | None:
    """Validate as `checked` does.

    A schema with patterns is checked in a separate process, for at most `longest` seconds. None if
    `given_up` became true.
    """
    request = json.dumps([text, schema, longest])
    if '"pattern' not in request:
        return checked(text, schema)
    try:
        # In its own session, so that Ctrl-C reaches only the host and a valid answer is not lost.
        child = subprocess.Popen(_argv(), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True)
    except OSError as error:
        return _unchecked(error.strerror or str(error))
    with child:
        try:
            output = _output(child, request.encode(), time.monotonic() + longest, given_up)
        finally:
            child.kill()
    if output is None:
        return None if given_up() else _unchecked(f"its patterns took longer than {longest:g} s")
    if child.returncode:
        return _unchecked(f"the process ended with {child.returncode}")
    try:
        found, value, problems = json.loads(output)
    except (ValueError, RecursionError) as error:
        return _unchecked(f"the output of the process cannot be parsed: {error}")
    return Checked(found, value, tuple(problems))


def _output(
    child: subprocess.Popen[bytes], request: bytes, until: float, given_up: Callable[[], object]
) -> bytes | None:
    """Send the request and return the output; None after a time-out or if given up."""
    unsent: bytes | None = request
    while not given_up() and time.monotonic() < until:
        try:
            return child.communicate(unsent, timeout=_POLL)[0]
        except subprocess.TimeoutExpired:
            unsent = None  # `communicate` continues with what it was given first
    return None


def _argv() -> list[str]:
    # Never import from the current folder: the agent's folder may contain a json.py.
    paths = [path for path in sys.path if os.path.isabs(path)]
    return [sys.executable, "-I" if sys.flags.isolated else "-P", "-c", _PROGRAM, *paths]


def _unchecked(why: str) -> Checked:
    return Checked(False, problems=(f"the answer could not be validated: {why}",))


def main() -> None:
    """Read text, schema and time limit as JSON from stdin; write the result to stdout."""
    text, schema, longest = json.load(sys.stdin)
    if hasattr(signal, "alarm"):
        signal.alarm(int(longest) + 2)  # end even if the host has died
    result = checked(text, schema)
    json.dump([result.found, result.value, result.problems], sys.stdout)
