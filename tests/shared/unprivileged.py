"""Run a program without the capabilities of root, even if root runs the tests.

The program keeps its user, because it needs that user's files. Neither the program nor its children
have capabilities. With capabilities, root could read the memory of every process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["without_privileges"]

# With an empty capability bounding set (prctl 24 drops one capability), root's programs get no
# capabilities.
_DROP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
for capability in range(64):
    libc.prctl(24, capability, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def without_privileges(argv: Sequence[str]) -> list[str]:
    """Return a command that runs `argv` without capabilities. `argv[0]` must be a path."""
    return [*argv] if os.getuid() else [sys.executable, "-IS", "-c", _DROP, *argv]
