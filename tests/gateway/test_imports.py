"""Test of imports in the gateway's thread while the host program imports modules, too."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys, threading, urllib.request

late = []

class Finder:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread() and name.partition(".")[0] in PARSED:
            late.append(name)

PARSED = ("geminids", "anyio")
sys.meta_path.insert(0, Finder())
from geminids.gateway import Gateway
with Gateway() as gateway:
    gateway.reply(text="hello")
    urllib.request.urlopen(gateway.url + "/v1beta/models/x:generateContent", b"{}").read()
print(*late)
"""


def test_the_gateways_thread_imports_nothing_that_is_parsed() -> None:
    """The gateway's thread imports neither modules of geminids nor of anyio.
    pytest parses our modules, anyio parses its own source, and Python 3.11 raises SystemError if
    two threads parse at once."""
    completed = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60)
    assert (completed.stdout.strip(), completed.returncode) == ("", 0), completed.stderr
