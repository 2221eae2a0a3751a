"""Run `gemini` without geminids, as a user does; also releases that are too old for geminids."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from geminids.gemini import find

__all__ = ["plain_gemini"]


def plain_gemini(
    world: Any, *flags: str, cwd: Path | None = None, data: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Run the world's release with these flags, in the world's home and with its scripted model.
    `data` is piped to its stdin."""
    gemini = find(world.version, places=world.places)
    settings = world.home / ".gemini" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
    env = {**os.environ, **world.gateway.env, "HOME": str(world.home), "TMPDIR": str(world.tmp)}
    env["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
    argv = [*gemini.command(world.places), "--model=flash", *flags]
    return subprocess.run(argv, cwd=cwd or world.cwd, env=env, input=data, capture_output=True, timeout=120)
