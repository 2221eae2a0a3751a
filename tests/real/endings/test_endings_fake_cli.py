"""Endings that the real CLI cannot be made to produce: a fake CLI prints the output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ending_checks import check_ending

pytestmark = pytest.mark.real


FAKE_CLI = """#!{python}
import sys
if "--version" in sys.argv:
    print("0.61.0")
    sys.exit(0)
sys.stdin.read()
{body}
"""


def fake_cli(folder: Path, body: str) -> str:
    """Write an executable that replaces the CLI and runs this Python code; return its path."""
    file = folder / "fake-gemini"
    file.write_text(FAKE_CLI.format(python=sys.executable, body=body))
    file.chmod(0o755)
    return str(file)


TIER_ERROR = (
    "IneligibleTierError: This client is no longer supported for Gemini Code Assist for individuals. "
    "To continue, please migrate to the Antigravity suite.\n    at setupUser (setup.js:1:2)"
)


@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_retired_consumer_tier(tmp_path: Path, make_world: Any, exit_code: int) -> None:
    """Google's message about the retired consumer tier on stderr gives the failure `tier_retired`,
    with the exit codes 0 and 1."""
    cli = fake_cli(tmp_path, f"print({TIER_ERROR!r}, file=sys.stderr)\nsys.exit({exit_code})")
    events = make_world("0.61.0").events(gemini=cli)
    finished = check_ending(events, "failed", "tier_retired", exit_code=exit_code, retryable=False)
    assert "GEMINI_API_KEY" in finished.failure.hint


PRINTS_LINES = """
import json
def emit(**line): print(json.dumps(line), flush=True)
emit(type="init", session_id="s", model="m")
emit(type="message", role="assistant", content="fine", delta=True)
{lines}
"""


@pytest.mark.parametrize(
    ("lines", "outcome", "kind"),
    [
        (
            'emit(type="error", severity="error", message="odd")\nemit(type="result", status="success")',
            "success",
            None,
        ),
        ('emit(type="result", status="success")\nsys.exit(1)', "success", None),
        ('print("Error: boom", file=sys.stderr)\nemit(type="result", status="success")', "success", None),
        ('print("TypeError: boom\\n    at f (x.js)", file=sys.stderr)\nsys.exit(1)', "failed", "crashed"),
        ('emit(type="result", status="success")\nimport os; os.kill(os.getpid(), 9)', "success", None),
        ("import os; os.kill(os.getpid(), 11)", "failed", "crashed"),
        ("", "failed", "cut_off"),
    ],
)
def test_the_result_line_decides(
    tmp_path: Path, make_world: Any, lines: str, outcome: str, kind: str | None
) -> None:
    """The result line decides the outcome, not an `error` line, the exit code or stderr. Without a
    result line the run fails."""
    cli = fake_cli(tmp_path, PRINTS_LINES.format(lines=lines))
    finished = check_ending(make_world("0.61.0").events(gemini=cli), outcome, kind)
    assert finished.text == "fine"
    if "TypeError" in lines:
        assert (
            finished.failure.message == "the CLI ended with exit code 1 and gave no result: TypeError: boom"
        )
