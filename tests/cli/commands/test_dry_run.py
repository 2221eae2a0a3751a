"""`geminids run --dry-run`: it shows what a run would do and starts nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geminids.options.flag_names import with_flags

KEY = "AIzaSy-not-a-real-key-0123456789"
VERTEX = ("--env", "GOOGLE_GENAI_USE_VERTEXAI=true", "--env", "GEMINI_API_KEY=")


def dry_run(options: Any, *flags: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "geminids", "run", "hello", "--dry-run"]
    where = ["--gemini", options.gemini, "--cwd", options.cwd]
    env = [word for name, value in options.env.items() for word in ("--env", f"{name}={value}")]
    return subprocess.run([*argv, *where, *env, *flags], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("flags", "route"),
    [
        (("--env", f"GEMINI_API_KEY={KEY}"), "gateway: Gemini API with a key"),
        ((*VERTEX, "--env", f"GOOGLE_API_KEY={KEY}"), "gateway: Vertex AI with a key"),
        (("--env", f"GEMINI_API_KEY={KEY}", "--gateway", "off"), "direct: `gateway='off'`"),
        (("--offline",), "gateway: no real API"),
    ],
)
def test_the_route_is_shown(fake_cli: Any, tmp_path: Path, flags: tuple[str, ...], route: str) -> None:
    """A dry run shows the route of the requests, as text with flags and as JSON.

    It shows no key and starts no CLI.
    """
    options = fake_cli("open('started', 'w')")
    text, as_json = dry_run(options, *flags), dry_run(options, *flags, "-o", "events")
    assert with_flags(route) in text.stdout, text.stderr
    assert KEY not in text.stdout
    assert json.loads(as_json.stdout)["route"].startswith(route), as_json.stderr
    assert not (Path(options.cwd) / "started").exists()


def test_a_refused_route_is_an_error(fake_cli: Any) -> None:
    """If the route is refused, the error names the option, and the exit code is not 0."""
    options = fake_cli("open('started', 'w')")
    done = dry_run(options, "--env", f"GEMINI_API_KEY={KEY}", "--gateway", "off", "--max-requests", "3")
    assert done.returncode != 0
    assert (
        "--max-requests: needs the gateway; use `--gateway on`" in done.stderr
        and "Traceback" not in done.stderr
    )
