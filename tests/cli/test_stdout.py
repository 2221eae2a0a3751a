"""Stdout that cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "words", ["--help", "usage", "usage --json", "usage --csv", "sessions list", "config list"]
)
def test_a_full_disk_is_said(tmp_path: Path, words: str) -> None:
    """One line that says so and exit code 1: no traceback, no silence, and no flag that the command does not have."""
    argv = [sys.executable, "-m", "geminids", *words.split()]
    environ = {**os.environ, "HOME": str(tmp_path), "GEMINIDS_HOME": str(tmp_path / "ours")}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=environ, cwd=tmp_path
        )
    assert done.returncode == 1
    assert done.stderr == "geminids: cannot write to stdout: No space left on device\n"
