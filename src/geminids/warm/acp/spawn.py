"""Start a `gemini --acp` process.

This module imports no event loop, so that the CLI loads while Python still imports modules.
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

    `mark` is a value in the environment of the CLI and of all processes that it starts. `scratch`
    is the folder with private files of the process.
    """

    child: Child
    mark: Mark
    scratch: Scratch


def idle_dir() -> Path:
    """Return the working folder of warm processes.

    It is always the same, because the CLI stores every folder in which it was started.
    """
    return Places.of().root / "warm" / "idle"


def spawn_warm(plan: WarmPlan) -> SpawnedCli:
    """Start the CLI of a plan. Raises `OSError` if that fails."""
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
    """Copy the private home for this process, if each of its sessions signs in with its own token.

    Return the environment variable with the path of the copy; an empty dict if no copy is needed.
    The copy is needed because the CLI rewrites the home's settings file when a session signs in,
    and another process could then read an incomplete file.
    """
    if not plan.signs_in_sessions:
        return {}
    home = scratch.folder / "home"
    shutil.copytree(plan.env["GEMINI_CLI_HOME"], home, symlinks=True)
    return {"GEMINI_CLI_HOME": str(home)}
