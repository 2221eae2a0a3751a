"""The same check in a process of its own: a regular expression can take for ever, and stops all of Python meanwhile."""

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
_LOOK = 0.1  # seconds between two looks whether it is waited for still
# It looks where its host looks: a host may have found us by a path that it has added itself.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from geminids.run.schema.isolated_validation import main; main()"
)


def checked_in_time(
    text: str, schema: Any, longest: float = _LONGEST, *, given_up: Callable[[], object] = lambda: False
) -> Checked | None:
    """`checked`; where the schema has patterns, aside and within so many seconds. None where it was given up."""
    order = json.dumps([text, schema, longest])
    if '"pattern' not in order:
        return checked(text, schema)
    try:
        # In a session of its own: Ctrl-C is for the host, and an answer that was valid is not spoiled by it.
        child = subprocess.Popen(_argv(), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True)
    except OSError as error:
        return _unchecked(error.strerror or str(error))
    with child:
        try:
            said = _said(child, order.encode(), time.monotonic() + longest, given_up)
        finally:
            child.kill()
    if said is None:
        return None if given_up() else _unchecked(f"its patterns took longer than {longest:g} s")
    if child.returncode:
        return _unchecked(f"the check ended with {child.returncode}")
    try:
        found, value, problems = json.loads(said)
    except (ValueError, RecursionError) as error:
        return _unchecked(f"the check said what nobody can read: {error}")
    return Checked(found, value, tuple(problems))


def _said(
    child: subprocess.Popen[bytes], order: bytes, until: float, given_up: Callable[[], object]
) -> bytes | None:
    """What it says; None where nobody waits for it any more."""
    told: bytes | None = order
    while not given_up() and time.monotonic() < until:
        try:
            return child.communicate(told, timeout=_LOOK)[0]
        except subprocess.TimeoutExpired:
            told = None  # it is on its way
    return None


def _argv() -> list[str]:
    # Never from where we happen to stand: a folder of the agent's may hold a json.py.
    places = [place for place in sys.path if os.path.isabs(place)]
    return [sys.executable, "-I" if sys.flags.isolated else "-P", "-c", _PROGRAM, *places]


def _unchecked(why: str) -> Checked:
    return Checked(False, problems=(f"the answer could not be checked by the schema: {why}",))


def main() -> None:
    """Read text, schema and time from stdin, and write what was found to stdout."""
    text, schema, longest = json.load(sys.stdin)
    if hasattr(signal, "alarm"):
        signal.alarm(int(longest) + 2)  # should the host be gone by then
    found = checked(text, schema)
    json.dump([found.found, found.value, found.problems], sys.stdout)
