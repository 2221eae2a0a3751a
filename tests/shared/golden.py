"""Golden files of the dialects: what each says of the recorded runs, to the byte."""

from __future__ import annotations

import os
from pathlib import Path

from geminids.dialects.dialect import encode_run
from random_events import recorded

__all__ = ["GOLDEN", "check_golden", "spoken"]

GOLDEN = Path(__file__).parents[1] / "recordings" / "dialects"


def spoken(dialect: str, recording: str) -> bytes:
    """A recorded run in another format."""
    return b"".join(encode_run(dialect, recorded(recording)))


def check_golden(file: Path, said: bytes) -> None:
    """Raise AssertionError where a golden file is not what is said now; GEMINIDS_GOLDEN=write writes it."""
    if os.environ.get("GEMINIDS_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(said)
    assert said == file.read_bytes()
