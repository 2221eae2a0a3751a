"""One prompt to its end, beside plain `gemini`: the same release, the same scripted model that answers at once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import anyio

import geminids
from benchmarks.table import Row, Side, say
from geminids.config.paths import Places
from geminids.gateway import Gateway
from geminids.gemini import Gemini, find
from geminids.gemini.install.cli import install

__all__ = ["COMMAND", "MODEL", "PROMPT", "RELEASE", "User", "run"]

RELEASE = "0.61.0"
PROMPT = "Say hello."
MODEL = "gemini-2.5-flash"
COMMAND = Path(sys.executable).with_name("geminids")


class User:
    """A user with a home, a folder and a key; the release once with our Node and once without."""

    def __init__(self, work: Path, model: Mapping[str, str]) -> None:
        installs = self.installs = _installs()
        install(RELEASE, places=installs)
        self.cwd = work / "project"
        self.cwd.mkdir()
        home = work / "home"
        (home / ".gemini").mkdir(parents=True)
        settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        (home / ".gemini" / "settings.json").write_text(json.dumps(settings))
        self.env = {
            "PATH": os.environ["PATH"],
            "LANG": os.environ.get("LANG", "C.UTF-8"),
            "HOME": str(home),
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            **model,
        }
        self.managed = _linked(
            work / "managed", installs.releases, installs.node, installs.root / "compile-cache"
        )
        self.plain_node = _linked(work / "path-node", installs.releases)
        self.gemini = installs.releases / RELEASE / "node_modules" / ".bin" / "gemini"

    def plain(self) -> None:
        """As a user runs it: its own start, on the Node of PATH, with the process that it starts again."""
        argv = [str(self.gemini), "--output-format=stream-json", f"--model={MODEL}", f"--prompt={PROMPT}"]
        done = subprocess.run(
            argv, cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
        )
        assert b'"status":"success"' in done.stdout, done.stderr.decode()

    def library(self, places: Places) -> None:
        """`open_run` to `Finished`, in a Python that has imported geminids."""
        os.environ["GEMINIDS_HOME"] = str(places.root)

        async def follow() -> None:
            options = geminids.Options(gemini=RELEASE, model=MODEL, cwd=str(self.cwd), env=self.env)
            async with geminids.open_run(PROMPT, options) as run:
                async for _ in run:
                    pass
            run.result.raise_for_failure()

        anyio.run(follow)

    def command(self, places: Places, *flags: str) -> None:
        """`geminids run -o text`, its own interpreter included."""
        given = ("--output=text", f"--gemini={RELEASE}", f"--model={MODEL}", *flags)
        argv = [str(COMMAND), "run", *given, PROMPT]
        env = {**self.env, "GEMINIDS_HOME": str(places.root)}
        done = subprocess.run(
            argv, cwd=self.cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
        )
        assert done.returncode == 0, done.stderr.decode()


def run(work: Path, *, quick: bool) -> list[Row]:
    if not shutil.which("node"):
        say("  skipped: plain gemini needs a Node on PATH (the bounds are for Node 20), and there is none")
        return []
    before = os.environ.get("GEMINIDS_HOME")
    with Gateway() as gateway:
        setup = User(work, gateway.env)
        try:
            found = _measure(setup, 3 if quick else 9)
        finally:
            os.environ.pop("GEMINIDS_HOME")
            if before is not None:
                os.environ["GEMINIDS_HOME"] = before
    return _rows(setup, found)


def _measure(setup: User, rounds: int) -> dict[str, tuple[float, ...]]:
    sides: dict[str, Callable[[], None]] = {
        "plain": setup.plain,
        "library managed": lambda: setup.library(setup.managed),
        "library path": lambda: setup.library(setup.plain_node),
        "command managed": lambda: setup.command(setup.managed),
        "command path": lambda: setup.command(setup.plain_node),
    }
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        say(f"  round {number} of {rounds}" if number else "  warming up")
        for name, side in sides.items():
            began = time.perf_counter()
            side()
            if number:
                found[name].append((time.perf_counter() - began) * 1000)
    return {name: tuple(times) for name, times in found.items()}


def _rows(setup: User, found: dict[str, tuple[float, ...]]) -> list[Row]:
    environ = {**os.environ, **setup.env}
    ours = _node(find(RELEASE, environ=environ, places=setup.managed))
    path = _node(find(RELEASE, environ=environ, places=setup.plain_node))
    plain = Side(f"gemini {RELEASE}, {path} of PATH", "ms", found["plain"])
    rows = []
    for name, key, node, bound in (
        ("open_run to Finished, managed Node, beside gemini", "library managed", ours, 0.55),
        ("open_run to Finished, Node of PATH, beside gemini", "library path", path, 0.68),
        ("geminids run -o text, managed Node, beside gemini", "command managed", ours, 0.62),
        ("geminids run -o text, Node of PATH, beside gemini", "command path", path, 0.75),
    ):
        side = Side(f"geminids, {node}", "ms", found[key])
        ratio = side.median / plain.median
        rows.append(Row(name=name, sides=(side, plain), figure=ratio, shown=f"{ratio:.2f} x", bound=bound))
    return rows


def _node(gemini: Gemini) -> str:
    return f"Node {gemini.node.version}" if gemini.node else "a Node of its own"


def _installs() -> Places:
    named = os.environ.get("GEMINIDS_HOME")
    return Places(Path(named or Path(__file__).parents[1] / ".geminids").absolute())


def _linked(root: Path, *shared: Path) -> Places:
    """A place of its own, with only these parts of an installation in it."""
    root.mkdir()
    for folder in shared:
        folder.mkdir(exist_ok=True)
        (root / folder.name).symlink_to(folder)
    return Places(root)
