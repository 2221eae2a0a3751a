"""Golden files of the dialects: the exact bytes that each dialect writes for the recorded runs."""

from __future__ import annotations

import os
from pathlib import Path

from geminids.dialects.dialect import encode_run
from random_events import recorded

__all__ = ["GOLDEN", "check_golden", "encode_recording"]

GOLDEN = Path(__file__).parents[1] / "recordings" / "dialects"


def encode_recording(dialect: str, recording: str) -> bytes:
    """Return a recorded run, encoded in a dialect."""
    return b"".join(encode_run(dialect, recorded(recording)))


def check_golden(file: Path, output: bytes) -> None:
    """Raise AssertionError if a golden file differs from `output`. If the environment has
    GEMINIDS_GOLDEN=write, write the file first."""
    if os.environ.get("GEMINIDS_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(output)
    assert output == file.read_bytes()
