"""Create the files that a run needs before it starts, as its plan lists them.

No other module of this package creates files for a run.
"""

from __future__ import annotations

import os

from geminids.gemini.locate.node import write_preload
from geminids.launch.errors import Refused
from geminids.launch.home import write_home
from geminids.launch.plan import Plan, WarmPlan, Writes
from geminids.launch.scratch import Scratch, StagedFiles, sweep

__all__ = ["write"]


def write(plan: Plan | WarmPlan) -> Scratch:
    """Write the private home and the files of a run, and return the run's scratch folder.

    The caller must close the scratch folder. Raises `Refused` if a file cannot be written. After an
    error, no scratch folder is left.
    """
    writes = plan.writes
    sweep(writes.places)
    _write_home(writes)
    if writes.cwd is not None:
        _make_cwd(writes.cwd)
    scratch = Scratch(writes.places, writes.staged.scratch if writes.staged is not None else None)
    try:
        if writes.staged is not None:
            _stage(writes.staged, scratch)
        if writes.telemetry is not None:
            _create_telemetry_file(writes.telemetry)
    except BaseException:
        scratch.close()
        raise
    return scratch


def _write_home(writes: Writes) -> None:
    try:
        if writes.preload and write_preload(writes.places) is None:
            raise OSError(f"cannot write to the folder {writes.places.root}")
        write_home(writes.home)
    except OSError as error:
        raise Refused(
            "config",
            f"the CLI's private home cannot be written: {error}",
            _writable_hint(error, writes),
        ) from None


def _writable_hint(error: OSError, writes: Writes) -> str:
    source = writes.home.source
    is_users = str(error.filename or "").startswith(f"{source.path}{os.sep}") and source.name != "isolated"
    if is_users:
        return f"Make {source.path} writable (sessions are stored there), or run with `home='isolated'`."
    return f"Make {writes.places.root} writable, or set GEMINIDS_HOME to another folder."


def _make_cwd(cwd: str) -> None:
    try:
        os.makedirs(cwd, exist_ok=True)
    except OSError as error:
        raise Refused(
            "bad_option",
            f"`cwd`: {cwd} cannot be created: {error.strerror}",
            "Use a folder that exists, or one that you can create.",
        ) from None


def _stage(staged: StagedFiles, scratch: Scratch) -> None:
    try:
        scratch.stage(staged)
    except OSError as error:
        hint = "Free some disk space, or set GEMINIDS_HOME to another folder."
        raise Refused(
            "config", f"the files that are attached to the prompt cannot be copied: {error}", hint
        ) from None


def _create_telemetry_file(path: str) -> None:
    """Create the telemetry file with mode 0600 before the CLI opens it.

    With this mode, other users cannot read the file. The CLI may write prompts to it. Raises
    `Refused` if the file cannot be created.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        hint = "Use a file in a folder that you can write to."
        raise Refused(
            "bad_option", f"`telemetry`: {path} cannot be written: {error.strerror}", hint
        ) from None
