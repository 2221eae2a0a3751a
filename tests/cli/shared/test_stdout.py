"""Commands whose stdout cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "words", ["--help", "usage", "usage --json", "usage --csv", "sessions list", "config list"]
)
def test_a_full_disk_is_reported(tmp_path: Path, words: str) -> None:
    """If the disk is full, a command prints exactly one line on stderr and exits with 1."""
    argv = [sys.executable, "-m", "geminids", *words.split()]
    environ = {**os.environ, "HOME": str(tmp_path), "GEMINIDS_HOME": str(tmp_path / "ours")}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, env=environ, cwd=tmp_path
        )
    assert done.returncode == 1
    assert done.stderr == "geminids: cannot write to stdout: No space left on device\n"
