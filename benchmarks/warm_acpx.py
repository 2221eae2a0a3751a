"""acpx, another warm client: fetched into a folder of its own, and used from a shell as its users do."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.start import PROMPT, User
from benchmarks.table import say
from benchmarks.warm_model import ANSWER
from geminids.config.paths import Places
from geminids.errors import GeminidsError
from geminids.gemini.install.npm import npm_for
from geminids.gemini.locate.node import Node, managed_nodes

__all__ = ["ACPX", "Acpx", "find_acpx"]

ACPX = "acpx 0.19.1"
# It asks for 22.13: below that it does not start.
_OLDEST_NODE = 22
# A named one, as all sides have: its default would ask a router before each answer. It takes only those that the
# CLI lists, and the scripted model is as fast by every name.
_MODEL = "gemini-2.5-pro"


def find_acpx(user: User) -> Acpx | str:
    """acpx with a session, fetched where it is not there yet; else one sentence that says why not."""
    nodes = [node for node in managed_nodes(user.installs) if int(node.version.split(".")[0]) >= _OLDEST_NODE]
    if not nodes:
        return f"{ACPX} needs Node {_OLDEST_NODE}, and there is no managed one"
    try:
        acpx = Acpx(user, nodes[0], _fetched(user.installs, nodes[0]))
        acpx.open()
    except (GeminidsError, OSError) as error:
        return f"{ACPX} cannot be had: {' '.join(str(error).split())}"
    return acpx


def _fetched(places: Places, node: Node) -> Path:
    into = places.root / "benchmarks" / ACPX.replace(" ", "-")
    if not into.is_dir():
        say(f"  fetching {ACPX}")
        into.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=into.parent) as folder:
            aside = Path(folder, "acpx")
            aside.mkdir()
            flags = ("--ignore-scripts", "--no-audit", "--no-fund", f"--prefix={aside}")
            npm = npm_for(node, Path(folder), os.environ)
            npm.run("install", *flags, ACPX.replace(" ", "@"), timeout=600)
            shutil.move(aside, into)
    return into / "node_modules" / "acpx" / "dist" / "cli.js"


class Acpx:
    """A session of acpx, whose process stays between prompts. Its gemini is the one on PATH."""

    def __init__(self, user: User, node: Node, script: Path) -> None:
        self.name = f"{ACPX}, in a session that is there, Node {node.version}"
        self._user = user
        path = (str(node.path.parent), str(user.gemini.parent), user.env["PATH"])
        self._env = {**user.env, "PATH": os.pathsep.join(path)}
        self._argv = (str(node.path), str(script), "--format=quiet", f"--model={_MODEL}", "gemini")

    def open(self) -> None:
        """A session; the first prompt starts the process that stays."""
        self._run("sessions", "new")

    def prompt(self) -> None:
        said = self._run(PROMPT)
        assert said.strip() == ANSWER, said

    def close(self) -> None:
        self._run("sessions", "close")

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            (*self._argv, *words),
            cwd=self._user.cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode != 0:
            raise GeminidsError(f"{words[0]}: {(done.stderr or done.stdout).strip()}")
        return done.stdout
