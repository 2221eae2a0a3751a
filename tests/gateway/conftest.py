"""The real CLI, where there is one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geminids.gateway import Gateway

RunCli = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run_cli(tmp_path: Path) -> RunCli:
    """Run the real CLI against a gateway; gives the lines of its stream-json."""
    script = os.environ.get("GEMINIDS_TEST_GEMINI_JS")
    if not script or not Path(script).exists() or not shutil.which("node"):
        pytest.skip("no Node, or GEMINIDS_TEST_GEMINI_JS does not name the gemini.js of an installed CLI")
    home = tmp_path / "home"
    (home / ".gemini").mkdir(parents=True)
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"maxAttempts": 1}}
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))

    def run(gateway: Gateway, prompt: str, cwd: Path, *flags: str) -> list[dict[str, Any]]:
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "GEMINI_CLI_HOME": str(home), "NO_COLOR": "1"}
        done = subprocess.run(
            ["node", script, "--output-format=stream-json", *flags],
            input=prompt,
            text=True,
            capture_output=True,
            env={**env, "GEMINI_CLI_NO_RELAUNCH": "true", **gateway.env},
            cwd=cwd,
            timeout=60,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines, done.stderr
        return lines

    return run
