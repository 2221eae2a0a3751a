"""What a CLI can say that the real one cannot be brought to here: a stand-in says it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from endings import ended

pytestmark = pytest.mark.real


STAND_IN = """#!{python}
import sys
if "--version" in sys.argv:
    print("0.61.0")
    sys.exit(0)
sys.stdin.read()
{body}
"""


def stand_in(folder: Path, body: str) -> str:
    """An executable that stands for the CLI where the real one cannot be brought to say something."""
    file = folder / "gemini-stand-in"
    file.write_text(STAND_IN.format(python=sys.executable, body=body))
    file.chmod(0o755)
    return str(file)


TIER = (
    "IneligibleTierError: This client is no longer supported for Gemini Code Assist for individuals. "
    "To continue, please migrate to the Antigravity suite.\n    at setupUser (setup.js:1:2)"
)


@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_retired_consumer_tier(tmp_path: Path, make_world: Any, exit_code: int) -> None:
    """Google's own words on stderr decide, whatever the exit code."""
    cli = stand_in(tmp_path, f"print({TIER!r}, file=sys.stderr)\nsys.exit({exit_code})")
    events = make_world("0.61.0").events(gemini=cli)
    finished = ended(events, "failed", "tier_retired", exit_code=exit_code, retryable=False)
    assert "GEMINI_API_KEY" in finished.failure.hint


SAYS = """
import json
def say(**line): print(json.dumps(line), flush=True)
say(type="init", session_id="s", model="m")
say(type="message", role="assistant", content="fine", delta=True)
{lines}
"""


@pytest.mark.parametrize(
    ("lines", "outcome", "kind"),
    [
        (
            'say(type="error", severity="error", message="odd")\nsay(type="result", status="success")',
            "success",
            None,
        ),
        ('say(type="result", status="success")\nsys.exit(1)', "success", None),
        ('print("Error: boom", file=sys.stderr)\nsay(type="result", status="success")', "success", None),
        ('print("TypeError: boom\\n    at f (x.js)", file=sys.stderr)\nsys.exit(1)', "failed", "crashed"),
        ('say(type="result", status="success")\nimport os; os.kill(os.getpid(), 9)', "success", None),
        ("import os; os.kill(os.getpid(), 11)", "failed", "crashed"),
        ("", "failed", "cut_off"),
    ],
)
def test_the_result_line_decides(
    tmp_path: Path, make_world: Any, lines: str, outcome: str, kind: str | None
) -> None:
    """Not an `error` line, not an exit code, not stderr: and where there is no result, nothing makes a success."""
    cli = stand_in(tmp_path, SAYS.format(lines=lines))
    finished = ended(make_world("0.61.0").events(gemini=cli), outcome, kind)
    assert finished.text == "fine"
    if "TypeError" in lines:
        assert (
            finished.failure.message == "the CLI ended with exit code 1 and gave no result: TypeError: boom"
        )
