"""Fixture that runs the real CLI directly, to test the gateway without the rest of geminids."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geminids.config.paths import Places
from geminids.gateway import Gateway
from geminids.gemini.install.cli import install

RunCli = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run_cli(tmp_path: Path, installs: Places, release: str) -> RunCli:
    """Run the real CLI against a gateway and return the lines of its stream-json output."""
    gemini = install(release, places=installs)
    home = tmp_path / "home"
    (home / ".gemini").mkdir(parents=True)
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"maxAttempts": 1}}
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))

    def run(gateway: Gateway, prompt: str, cwd: Path, *flags: str) -> list[dict[str, Any]]:
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "GEMINI_CLI_HOME": str(home), "NO_COLOR": "1"}
        completed = subprocess.run(
            [*gemini.command(installs), "--output-format=stream-json", *flags],
            input=prompt,
            text=True,
            capture_output=True,
            env={**env, "GEMINI_CLI_NO_RELAUNCH": "true", **gateway.env},
            cwd=cwd,
            timeout=60,
        )
        lines = [json.loads(line) for line in completed.stdout.splitlines()]
        assert lines, completed.stderr
        return lines

    return run
