"""Check an answer in a separate process, with a time limit.

The reason: a slow pattern in a schema would block all threads of the process that checks it.
"""

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
# The new process uses the sys.path of this process, because the program may have added the path of
# geminids to it.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from geminids.run.schema.isolated_validation import main; main()"
)


def checked_in_time(
    text: str, schema: Any, longest: float = _LONGEST, *, given_up: Callable[[], object] = lambda: False
) -> Checked | None:
    """Check the JSON in a text as `checked` does, but with a time limit for the schema's patterns.

    If the schema contains patterns (regular expressions), the check runs in a separate process for
    at most `longest` seconds. A time-out or a failure of this process is returned as a problem.
    While the process runs, the function `given_up` is called regularly. When nobody needs the
    result any more, `given_up` must return a true value; the check then ends, and its result is
    None.
    """
    request = json.dumps([text, schema, longest])
    if '"pattern' not in request:
        return checked(text, schema)
    try:
        # Start a new process session, so that Ctrl-C does not end the process. Otherwise a valid
        # answer would be lost.
        child = subprocess.Popen(_argv(), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True)
    except OSError as error:
        return _unchecked(error.strerror or str(error))
    with child:
        try:
            output = _output(child, request.encode(), time.monotonic() + longest, given_up)
        finally:
            child.kill()
    if output is None:
        return (
            None
            if given_up()
            else _unchecked(f"checking the patterns of the schema took longer than {longest:g} s")
        )
    if child.returncode:
        return _unchecked(f"the validation process ended with exit code {child.returncode}")
    try:
        found, value, problems = json.loads(output)
    except (ValueError, RecursionError) as error:
        return _unchecked(f"the output of the validation process cannot be parsed: {error}")
    return Checked(found, value, tuple(problems))


def _output(
    child: subprocess.Popen[bytes], request: bytes, until: float, given_up: Callable[[], object]
) -> bytes | None:
    """Send the request to the process and return its output.

    `until` is the end of the time limit (monotonic). Return None after the time limit, or if
    `given_up` returned a true value.
    """
    unsent: bytes | None = request
    while not given_up() and time.monotonic() < until:
        try:
            return child.communicate(unsent, timeout=_POLL)[0]
        except subprocess.TimeoutExpired:
            unsent = None  # the next `communicate` continues to send the input of the first call
    return None


def _argv() -> list[str]:
    # Never import from the current folder: it may be the agent's, and contain a json.py.
    paths = [path for path in sys.path if os.path.isabs(path)]
    return [sys.executable, "-I" if sys.flags.isolated else "-P", "-c", _PROGRAM, *paths]


def _unchecked(why: str) -> Checked:
    return Checked(False, problems=(f"the answer could not be validated: {why}",))


def main() -> None:
    """Check one answer in the separate process.

    Read the text, the schema and the time limit as JSON from stdin. Write the result to stdout.
    """
    text, schema, longest = json.load(sys.stdin)
    if hasattr(signal, "alarm"):
        signal.alarm(int(longest) + 2)  # end even if the process that started this one has died
    result = checked(text, schema)
    json.dump([result.found, result.value, result.problems], sys.stdout)
