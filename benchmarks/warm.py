"""Measure the warm transport: turns compared with a bare loop, `gemini` and acpx; memory of 30 chats."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import warm_memory, warm_shell, warm_turn
from benchmarks.start import User
from benchmarks.table import Row, log
from benchmarks.warm_model import model

__all__ = ["run"]


def run(work: Path, *, quick: bool) -> list[Row]:
    if not shutil.which("node"):
        log("  skipped: plain gemini needs a Node on PATH")
        return []
    with model() as env:
        user = User(work, env)
        with _home(user.managed.root):
            return [
                *warm_turn.run(user.cwd, user.env, quick=quick),
                *warm_shell.run(user, quick=quick),
                *warm_memory.run(user.cwd, user.env, quick=quick),
            ]


@contextmanager
def _home(root: Path) -> Iterator[None]:
    """Set GEMINIDS_HOME to `root`, so that warm processes of the user are not used."""
    before = os.environ.get("GEMINIDS_HOME")
    os.environ["GEMINIDS_HOME"] = str(root)
    try:
        yield
    finally:
        os.environ.pop("GEMINIDS_HOME")
        if before is not None:
            os.environ["GEMINIDS_HOME"] = before
