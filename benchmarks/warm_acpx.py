"""Install acpx, another client that keeps the CLI running, and call it as its users do."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.start import PROMPT, User
from benchmarks.table import log
from benchmarks.warm_model import ANSWER
from geminids.config.paths import Places
from geminids.errors import GeminidsError
from geminids.gemini.install.npm import npm_for
from geminids.gemini.locate.node import Node, managed_nodes

__all__ = ["ACPX", "Acpx", "find_acpx"]

ACPX = "acpx 0.19.1"
# acpx needs Node 22.13 and does not start with an older one.
_OLDEST_NODE = 22
# Name a model, as all sides do: with the default, the CLI asks a router before each answer. acpx
# accepts only models that the CLI lists; the scripted model is equally fast under every name.
_MODEL = "gemini-2.5-pro"


def find_acpx(user: User) -> Acpx | str:
    """Return acpx with an open session, and install it if necessary; or a sentence that says why not."""
    nodes = [node for node in managed_nodes(user.installs) if int(node.version.split(".")[0]) >= _OLDEST_NODE]
    if not nodes:
        return f"{ACPX} needs a managed Node {_OLDEST_NODE} or newer"
    try:
        acpx = Acpx(user, nodes[0], _install(user.installs, nodes[0]))
        acpx.open()
    except (GeminidsError, OSError) as error:
        return f"{ACPX} cannot be installed: {' '.join(str(error).split())}"
    return acpx


def _install(places: Places, node: Node) -> Path:
    into = places.root / "benchmarks" / ACPX.replace(" ", "-")
    if not into.is_dir():
        log(f"  installing {ACPX}")
        into.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=into.parent) as folder:
            draft = Path(folder, "acpx")
            draft.mkdir()
            flags = ("--ignore-scripts", "--no-audit", "--no-fund", f"--prefix={draft}")
            npm = npm_for(node, Path(folder), os.environ)
            npm.run("install", *flags, ACPX.replace(" ", "@"), timeout=600)
            shutil.move(draft, into)
    return into / "node_modules" / "acpx" / "dist" / "cli.js"


class Acpx:
    """A session of acpx. Its process keeps running between prompts; it uses the gemini on PATH."""

    def __init__(self, user: User, node: Node, script: Path) -> None:
        self.name = f"{ACPX}, in an open session, Node {node.version}"
        self._user = user
        path = (str(node.path.parent), str(user.gemini.parent), user.env["PATH"])
        self._env = {**user.env, "PATH": os.pathsep.join(path)}
        self._argv = (str(node.path), str(script), "--format=quiet", f"--model={_MODEL}", "gemini")

    def open(self) -> None:
        """Create a session; the first prompt starts its process."""
        self._run("sessions", "new")

    def prompt(self) -> None:
        answer = self._run(PROMPT)
        assert answer.strip() == ANSWER, answer

    def close(self) -> None:
        self._run("sessions", "close")

    def _run(self, *args: str) -> str:
        done = subprocess.run(
            (*self._argv, *args),
            cwd=self._user.cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode != 0:
            raise GeminidsError(f"{args[0]}: {(done.stderr or done.stdout).strip()}")
        return done.stdout
