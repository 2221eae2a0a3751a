"""The code blocks of the documentation: read them, and run them as a reader would.

The language of a block says how it is tested:

- `sh` is run by bash. `python` is run as a program, or by pytest if it defines tests.
- `text` is what the block above it prints; `…` stands for any text.
- `json`, `toml` and `yaml` are parsed.

A block that cannot run here has the line `> **Not tested:** REASON` above it.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
NOT_TESTED = "> **Not tested:** "
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PROGRAMS = Path(sys.executable).parent


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: str
    line: int
    language: str
    code: str
    reason: str | None
    """Why it is not tested, if it is not."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str) -> list[Block]:
    """Return the code blocks of a page, whose path is relative to the repository."""
    text = (ROOT / page).read_text()
    blocks = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()].rstrip("\n").rpartition("\n")[2]
        reason = before.removeprefix(NOT_TESTED) if before.startswith(NOT_TESTED) else None
        line = text.count("\n", 0, match.start()) + 1
        blocks.append(Block(page, line, match[1], match[2], reason))
    return blocks


def run_page(blocks: list[Block], folder: Path, env: dict[str, str]) -> None:
    """Run the blocks of a page in their order, in one folder."""
    printed: str | None = None
    for block in blocks:
        if block.reason is None and block.language in ("sh", "python"):
            printed = _run(block, folder, env)
        elif block.reason is None and block.language == "text":
            assert printed is not None, f"{block}: no block above it prints this"
            assert matches(block.code, printed), f"{block}: expected\n{block.code}\nbut it prints\n{printed}"
        elif block.reason is None:
            _PARSERS[block.language](block.code)
        else:
            printed = None


def matches(expected: str, printed: str) -> bool:
    """Return whether `printed` is the expected text, in which `…` stands for any text.

    Line breaks and the number of blanks do not count, because a terminal wraps.

    >>> matches("✓ Read a.md  … s", "✓ Read a.md  0.1 s\\n")
    True
    >>> matches("one …", "two")
    False
    """
    parts = [re.escape(part) for part in " ".join(expected.split()).split("…")]
    return re.fullmatch(".*?".join(parts), " ".join(printed.split())) is not None


def _run(block: Block, folder: Path, env: dict[str, str]) -> str:
    if block.language == "sh":
        command = ["bash", "-euo", "pipefail", "-c", block.code]
    elif re.search(r"^(async )?def test_", block.code, re.MULTILINE):
        file = folder / "test_example.py"
        file.write_text(block.code)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file.name]
    else:
        command = [sys.executable, "-c", block.code]
    path = f"{_PROGRAMS}:{os.environ['PATH']}"
    terminal = {"TERM": "dumb", "NO_COLOR": "1"}
    exit_code, printed = _run_in_terminal(command, folder, {**env, "PATH": path, **terminal})
    assert exit_code == 0, f"{block}: exit code {exit_code}\n{block.code}\n{printed}"
    return printed


def _run_in_terminal(command: list[str], folder: Path, env: dict[str, str]) -> tuple[int, str]:
    """Run a command whose output goes to a terminal; return its exit code and what it prints."""
    main, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (40, 100))
    process = subprocess.Popen(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    data = bytearray()
    try:
        while piece := os.read(main, 65536):
            data += piece
    except OSError:  # Linux reports the end of a terminal as EIO.
        pass
    os.close(main)
    lines = _ESCAPE.sub("", data.decode(errors="replace")).replace("\r\n", "\n").split("\n")
    return process.wait(), "\n".join(line.rpartition("\r")[2].rstrip() for line in lines)


def _parse_json(text: str) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        for line in text.splitlines():
            json.loads(line)


_PARSERS: dict[str, Callable[[str], object]] = {
    "json": _parse_json,
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}
LANGUAGES = {"sh", "python", "text", *_PARSERS}
