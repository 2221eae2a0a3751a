"""Measure one run, compared with plain `gemini`, with the same release and the same scripted model."""

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
from benchmarks.table import Row, Side, log
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
    """A user with a home, a folder, a key, and a CLI that runs on our Node or on the Node on PATH."""

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
        """Run `gemini` as a user does, on the Node on PATH. The CLI restarts itself once."""
        argv = [str(self.gemini), "--output-format=stream-json", f"--model={MODEL}", f"--prompt={PROMPT}"]
        done = subprocess.run(
            argv, cwd=self.cwd, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
        )
        assert b'"status":"success"' in done.stdout, done.stderr.decode()

    def library(self, places: Places) -> None:
        """Run from `open_run` to `Finished`, with geminids already imported."""
        os.environ["GEMINIDS_HOME"] = str(places.root)

        async def follow() -> None:
            options = geminids.Options(gemini=RELEASE, model=MODEL, cwd=str(self.cwd), env=self.env)
            async with geminids.open_run(PROMPT, options) as run:
                async for _ in run:
                    pass
            run.result.raise_for_failure()

        anyio.run(follow)

    def command(self, places: Places, *flags: str) -> None:
        """Run `geminids run -o text`, including the start of the interpreter."""
        fixed = ("--output=text", f"--gemini={RELEASE}", f"--model={MODEL}")
        argv = [str(COMMAND), "run", *fixed, *flags, PROMPT]
        env = {**self.env, "GEMINIDS_HOME": str(places.root)}
        done = subprocess.run(
            argv, cwd=self.cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
        )
        assert done.returncode == 0, done.stderr.decode()


def run(work: Path, *, quick: bool) -> list[Row]:
    if not shutil.which("node"):
        log("  skipped: plain gemini needs a Node on PATH (the bounds are for Node 20)")
        return []
    before = os.environ.get("GEMINIDS_HOME")
    with Gateway() as gateway:
        user = User(work, gateway.env)
        try:
            times = _measure(user, 3 if quick else 9)
        finally:
            os.environ.pop("GEMINIDS_HOME")
            if before is not None:
                os.environ["GEMINIDS_HOME"] = before
    return _rows(user, times)


def _measure(user: User, rounds: int) -> dict[str, tuple[float, ...]]:
    sides: dict[str, Callable[[], None]] = {
        "plain": user.plain,
        "library managed": lambda: user.library(user.managed),
        "library path": lambda: user.library(user.plain_node),
        "command managed": lambda: user.command(user.managed),
        "command path": lambda: user.command(user.plain_node),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        log(f"  round {number} of {rounds}" if number else "  warming up")
        for name, side in sides.items():
            began = time.perf_counter()
            side()
            if number:
                times[name].append((time.perf_counter() - began) * 1000)
    return {name: tuple(measured) for name, measured in times.items()}


def _rows(user: User, times: dict[str, tuple[float, ...]]) -> list[Row]:
    environ = {**os.environ, **user.env}
    ours = _node(find(RELEASE, environ=environ, places=user.managed))
    path = _node(find(RELEASE, environ=environ, places=user.plain_node))
    plain = Side(f"gemini {RELEASE}, {path} on PATH", "ms", times["plain"])
    rows = []
    for name, key, node, bound in (
        ("open_run to Finished, managed Node, vs. gemini", "library managed", ours, 0.55),
        ("open_run to Finished, Node on PATH, vs. gemini", "library path", path, 0.68),
        ("geminids run -o text, managed Node, vs. gemini", "command managed", ours, 0.62),
        ("geminids run -o text, Node on PATH, vs. gemini", "command path", path, 0.75),
    ):
        side = Side(f"geminids, {node}", "ms", times[key])
        ratio = side.median / plain.median
        rows.append(Row(name=name, sides=(side, plain), figure=ratio, shown=f"{ratio:.2f} x", bound=bound))
    return rows


def _node(gemini: Gemini) -> str:
    return f"Node {gemini.node.version}" if gemini.node else "its own Node"


def _installs() -> Places:
    configured = os.environ.get("GEMINIDS_HOME")
    return Places(Path(configured or Path(__file__).parents[1] / ".geminids").absolute())


def _linked(root: Path, *shared: Path) -> Places:
    """Create a new root with links to these parts of an installation."""
    root.mkdir()
    for folder in shared:
        folder.mkdir(exist_ok=True)
        (root / folder.name).symlink_to(folder)
    return Places(root)
