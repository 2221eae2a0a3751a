"""`geminids run -o record --strict` writes a complete record of a real run."""

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
    """Use the newest release only: differences between releases are tested with the events."""
    return "0.61.0"


def test_a_strict_record_with_its_files(world: Any, tmp_path: Path) -> None:
    """A strict record has no missing fields, also counts the requests of the `auto` model's router,
    and names the trajectory file that the run wrote."""
    flags = ["--offline", "--strict", "--record-dir", str(tmp_path / "out"), "--gemini", world.version]
    argv = [sys.executable, "-m", "geminids", "run", "What is here?", "-o", "record", "--cwd", str(world.cwd)]
    env = {**os.environ, "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    completed = subprocess.run(
        [*argv, *flags], stdin=subprocess.DEVNULL, capture_output=True, timeout=120, env=env
    )
    assert completed.returncode == 0, completed.stderr
    record = decode(completed.stdout)
    assert check(record, trajectory=True) == []
    assert record.llm_calls is not None and record.llm_calls > len(record.models_usage) > 1
    assert record.trajectory_path is not None
    assert Path(record.trajectory_path).read_text().startswith("title: Coding Agent Trace\n")
