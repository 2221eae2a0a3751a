"""A program without root's powers, whoever runs the tests: root reads everything, so that nothing could be shown.

It stays the same user, whose files it needs, and has no capabilities, nor has anything that it starts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["powerless"]

# With an empty bounding set, nobody gets a capability by being root.
_DROP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
for capability in range(64):
    libc.prctl(24, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def powerless(argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` so; `argv[0]` is a path."""
    return [*argv] if os.getuid() else [sys.executable, "-IS", "-c", _DROP, *argv]
