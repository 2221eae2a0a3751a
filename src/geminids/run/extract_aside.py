"""The same check in a process of its own: a regular expression can take for ever, and stops all of Python meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

from geminids.run.extract import Checked, checked

__all__ = ["checked_in_time", "main"]

_LONGEST = 20.0


def checked_in_time(text: str, schema: Any, longest: float = _LONGEST) -> Checked:
    """`checked`; where the schema has patterns, aside and within so many seconds."""
    order = json.dumps([text, schema, longest])
    if '"pattern' not in order:
        return checked(text, schema)
    try:
        argv = [sys.executable, "-P", "-m", "geminids.run.extract_aside"]
        done = subprocess.run(argv, input=order.encode(), capture_output=True, timeout=longest)
    except subprocess.TimeoutExpired:
        return _unchecked(f"its patterns took longer than {longest:g} s")
    except OSError as error:
        return _unchecked(error.strerror or str(error))
    if done.returncode:
        return _unchecked(f"the check ended with {done.returncode}")
    found, value, problems = json.loads(done.stdout)
    return Checked(found, value, tuple(problems))


def _unchecked(why: str) -> Checked:
    return Checked(False, problems=(f"the answer could not be checked by the schema: {why}",))


def main() -> None:
    """Read text, schema and time from stdin, and write what was found to stdout."""
    text, schema, longest = json.load(sys.stdin)
    if hasattr(signal, "alarm"):
        signal.alarm(int(longest) + 2)  # should the host be gone by then
    found = checked(text, schema)
    json.dump([found.found, found.value, found.problems], sys.stdout)


if __name__ == "__main__":
    main()
