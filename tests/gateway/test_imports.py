"""What a gateway's thread imports while the program that started it imports, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import sys, threading

parsers = []

def note(event, arguments):
    if event == "compile" and str(arguments[1]).endswith(("anyio/__init__.py", "anyio/abc/__init__.py")):
        parsers.append(threading.current_thread().name)

sys.addaudithook(note)
from geminids.gateway import Gateway
with Gateway():
    import anyio, anyio.abc
print(*parsers)
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 can parse in two threads at once")
def test_anyio_is_imported_by_one_thread() -> None:
    """Python 3.11 raises SystemError if two threads parse source at once, and anyio parses its own on import."""
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60)
    assert set(ended.stdout.split()) == {"MainThread"}, ended.stderr
