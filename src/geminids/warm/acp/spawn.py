"""Start a `gemini --acp` process.

This module imports no event loop. So the CLI starts early, and loads while Python imports the event
loop.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from geminids.config.paths import Places, private_dir
from geminids.ids import new_run_id
from geminids.launch.plan import WarmPlan
from geminids.launch.scratch import Scratch
from geminids.process.child import Child, spawn
from geminids.process.guard import guard_run, release_run
from geminids.process.marker import Mark, new_mark, with_mark

__all__ = ["SpawnedCli", "idle_dir", "spawn_warm"]


class SpawnedCli(msgspec.Struct, frozen=True):
    """A CLI process that was started.

    `mark` identifies the CLI and all processes that it starts: all have it in their environment.
    `scratch` is the folder with private files of the process.
    """

    child: Child
    mark: Mark
    scratch: Scratch


def idle_dir() -> Path:
    """Return the working folder of warm processes.

    All warm processes use the same folder, because the CLI remembers every folder in which it was
    started.
    """
    return Places.of().root / "warm" / "idle"


def spawn_warm(plan: WarmPlan) -> SpawnedCli:
    """Start the CLI with the values of a plan. Raises `OSError` if it cannot be started."""
    mark, scratch = new_mark(new_run_id()), Scratch(Places.of())
    idle = private_dir(idle_dir())
    guard_run(mark)
    try:
        env = with_mark({**plan.env, **_own_home(plan, scratch)}, mark)
        return SpawnedCli(spawn(plan.argv, cwd=str(idle), env=env), mark, scratch)
    except BaseException:
        release_run(mark)
        scratch.close()
        raise


def _own_home(plan: WarmPlan, scratch: Scratch) -> dict[str, str]:
    """Copy the private home folder of the CLI for this process, if each session of the process
    signs in with its own token.

    The CLI rewrites the home's settings file when a session signs in. If two processes shared the
    home, one could read an incomplete file.

    Return the environment variable with the path of the copy, or an empty dict if no copy is
    needed.
    """
    if not plan.signs_in_sessions:
        return {}
    home = scratch.folder / "home"
    shutil.copytree(plan.env["GEMINI_CLI_HOME"], home, symlinks=True)
    return {"GEMINI_CLI_HOME": str(home)}
