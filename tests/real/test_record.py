"""The record of a real run: strict, with its files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geminids.dialects.record import check, decode

pytestmark = pytest.mark.real


@pytest.fixture
def release() -> str:
    """The newest: what differs by release is in the events already."""
    return "0.61.0"


def test_a_strict_record_with_its_files(world: Any, tmp_path: Path) -> None:
    """With the model `auto` the router is asked too, and counted: nothing is missing, and the trajectory is there."""
    words = ["--offline", "--strict", "--record-dir", str(tmp_path / "out"), "--gemini", world.version]
    argv = [sys.executable, "-m", "geminids", "run", "What is here?", "-o", "record", "--cwd", str(world.cwd)]
    env = {**os.environ, "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    done = subprocess.run(
        [*argv, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=120, env=env
    )
    assert done.returncode == 0, done.stderr
    record = decode(done.stdout)
    assert check(record, trajectory=True) == []
    assert record.llm_calls is not None and record.llm_calls > len(record.models_usage) > 1
    assert record.trajectory_path is not None
    assert Path(record.trajectory_path).read_text().startswith("title: Coding Agent Trace\n")
