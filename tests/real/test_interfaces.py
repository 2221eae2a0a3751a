"""The interfaces on the real CLI, and what it leaves in the user's home when it is only asked for its version."""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from geminids.gateway import Usage
from geminids.gemini import find
from geminids.gemini.install.cli import install

pytestmark = pytest.mark.real


def test_ask_sync_works_inside_a_running_loop(world: Any) -> None:
    """A notebook has one."""
    world.gateway.reply(text="hello")

    async def inside() -> Any:
        return geminids.ask_sync("hi", world.options())

    assert asyncio.run(inside()).answer == "hello"


def test_ask_sync_works_from_four_threads_at_once(world: Any) -> None:
    """In one folder, with one home."""
    for word in ("one", "two", "three", "four"):
        world.gateway.when(f"say {word}", text=f"it is {word}")
    with ThreadPoolExecutor(4) as threads:
        prompts = [f"say {word}" for word in ("one", "two", "three", "four")]
        results = list(threads.map(lambda prompt: geminids.ask_sync(prompt, world.options()), prompts))
    assert [result.answer for result in results] == ["it is one", "it is two", "it is three", "it is four"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_both_event_loops(world: Any, backend: str) -> None:
    """The same answer on either."""
    world.gateway.reply(text="hello")
    assert anyio.run(lambda: geminids.ask("hi", world.options()), backend=backend).answer == "hello"


def test_tokens_are_told_apart_by_the_journal(world: Any) -> None:
    """Thinking and tool prompts each by themselves, and how many requests there were."""
    world.gateway.reply(text="a", usage=Usage(input=100, output=10, thinking=5, tool=40, total=155))
    usage = world.ask().usage
    assert (usage.input, usage.output, usage.total) == (100, 10, 155)
    assert (usage.thinking, usage.tool, usage.requests) == (5, 40, 1)


def test_asking_for_a_version_leaves_nothing_in_the_users_home(world: Any, installs: Any) -> None:
    """The CLI itself would write there even for `--version`."""
    gemini = install(world.version, places=installs)
    shim = world.root / "gemini"
    words = " ".join(gemini.command(installs))
    shim.write_text(f'#!/bin/sh\nenv > {world.root}/seen\nexec {words} "$@"\n')
    shim.chmod(0o755)
    environ = {"HOME": str(world.home), "PATH": os.environ["PATH"], "GEMINI_API_KEY": "AIzaSy" + "x" * 33}
    assert find(str(shim), environ=environ, places=world.places).version == world.version
    assert list(world.home.iterdir()) == []
    assert "AIzaSy" not in (world.root / "seen").read_text()


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_a_clone_sets_itself_up_and_runs(tmp_path: Path) -> None:
    """`make run` in an empty clone with an empty home: real tool calls, and README's first screen is what it prints."""
    import subprocess

    root = Path(__file__).parents[2]
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    git = ["git", "-c", f"safe.directory={root}"]
    subprocess.run([*git, "clone", "--quiet", str(root), str(clone)], check=True, timeout=60)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GEMINI", "GOOGLE"))}
    env = {**kept, "HOME": str(home), "PYTHON": sys.executable}
    shown = []
    for prompt in ({}, {"PROMPT": 'Say "hi" & it\'s $HOME'}):
        done = subprocess.run(
            ["make", "--no-print-directory", "run"],
            cwd=clone,
            env={**env, **prompt},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        shown.append(done.stdout)
    for told in (
        "offline: the answers come from a script",
        "✓ List .",
        "✓ Read README.md",
        "✓ success in",
        "resume:",
    ):
        assert told in shown[0]
        assert told in (root / "README.md").read_text()
    assert "setting up" not in shown[1]
    assert "fetching" not in shown[1]
    assert 'You asked: “Say "hi" & it\'s $HOME”' in shown[1]
    assert not (home / ".local").exists()
