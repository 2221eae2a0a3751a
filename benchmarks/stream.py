"""Write files of stream-json, and a fake CLI that prints such a file with `cat`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

__all__ = ["cat_of", "mixed", "one_long_line", "worker"]

_BEGAN = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)
# Pieces of text like those of the API, with six to twelve characters each.
_PIECES = (
    "The quick ",
    "brown fox ",
    "jumps over",
    " the lazy ",
    "def main()",
    ":\n    run",
    " naïvely, ",
    "return 1\n",
)


def _line(kind: str, ms: int, **fields: Any) -> str:
    stamp = (_BEGAN + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")[:-6] + "Z"
    return (
        json.dumps({"type": kind, "timestamp": stamp, **fields}, separators=(",", ":"), ensure_ascii=False)
        + "\n"
    )


def mixed(file: Path, count: int) -> Path:
    """Write `count` events, one per millisecond: text, and a tool with its result every fifty events."""
    choose = random.Random(1)
    with file.open("w", encoding="utf-8") as out:
        out.write(_line("init", 0, session_id="s-1", model="auto"))
        out.write(_line("message", 0, role="user", content="hi"))
        for at in range(1, count):
            if at % 50 == 48:
                parameters = {"file_path": f"src/module_{at}.py"}
                use = {"tool_name": "read_file", "tool_id": f"read_file__{at}", "parameters": parameters}
                out.write(_line("tool_use", at, **use))
            elif at % 50 == 49:
                result = {"tool_id": f"read_file__{at - 1}", "status": "success", "output": ""}
                out.write(_line("tool_result", at, **result))
            else:
                piece = {"role": "assistant", "content": choose.choice(_PIECES), "delta": True}
                out.write(_line("message", at, **piece))
        stats = {
            "total_tokens": 3,
            "input_tokens": 1,
            "output_tokens": 2,
            "duration_ms": count,
            "tool_calls": 1,
        }
        out.write(_line("result", count, status="success", stats=stats))
    return file


def one_long_line(file: Path, size: int) -> Path:
    """Write an answer whose text is one line of `size` bytes."""
    with file.open("w") as out:
        out.write(_line("init", 0, session_id="s-1", model="auto"))
        out.write(_line("message", 1, role="assistant", content="x" * size, delta=True))
        out.write(_line("result", 2, status="success", stats={}))
    return file


def cat_of(file: Path) -> Path:
    """Write a fake CLI that prints a version for `--version`, otherwise the content of `file`."""
    script = file.with_suffix(".sh")
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo 0.61.0 && exit\nexec cat "{file}"\n')
    script.chmod(0o755)
    return script


def worker(side: str, work: Path, script: Path, warm_up: Path, **env: str) -> dict[str, float]:
    """Measure one side once, in its own process."""
    argv = [sys.executable, "-m", "benchmarks.worker", side, str(work), str(script), str(warm_up)]
    environ = {**os.environ, "GEMINIDS_HOME": str(work / "geminids"), "GEMINI_SDK_COMPAT": "silent", **env}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise SystemExit(f"benchmarks.worker {side} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures
