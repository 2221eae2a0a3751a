"""Public functions with the real CLI: `ask_sync`, both event loops, token kinds, version lookup and
`make run`."""

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
from geminids.gateway import ReplyUsage
from geminids.gemini import find
from geminids.gemini.install.cli import install

pytestmark = pytest.mark.real


def test_ask_sync_works_inside_a_running_loop(world: Any) -> None:
    """`ask_sync` works while an event loop runs, as in a notebook."""
    world.gateway.reply(text="hello")

    async def inside() -> Any:
        return geminids.ask_sync("hi", world.options())

    assert asyncio.run(inside()).answer == "hello"


def test_ask_sync_works_from_four_threads_at_once(world: Any) -> None:
    """`ask_sync` works from four threads at once, with one folder and one home."""
    for word in ("one", "two", "three", "four"):
        world.gateway.when(f"say {word}", text=f"it is {word}")
    with ThreadPoolExecutor(4) as threads:
        prompts = [f"say {word}" for word in ("one", "two", "three", "four")]
        results = list(threads.map(lambda prompt: geminids.ask_sync(prompt, world.options()), prompts))
    assert [result.answer for result in results] == ["it is one", "it is two", "it is three", "it is four"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_both_event_loops(world: Any, backend: str) -> None:
    """asyncio and trio give the same answer."""
    world.gateway.reply(text="hello")
    assert anyio.run(lambda: geminids.ask("hi", world.options()), backend=backend).answer == "hello"


def test_the_journal_separates_token_kinds(world: Any) -> None:
    """The usage has thinking tokens, tool-prompt tokens and the number of requests, which come from
    the journal."""
    world.gateway.reply(text="a", usage=ReplyUsage(input=100, output=10, thinking=5, tool=40, total=155))
    usage = world.ask().usage
    assert (usage.input, usage.output, usage.total) == (100, 10, 155)
    assert (usage.thinking, usage.tool, usage.requests) == (5, 40, 1)


def test_version_lookup_leaves_nothing_in_the_users_home(world: Any, installs: Any) -> None:
    """Looking up a CLI's version writes nothing into the user's home and does not pass the API key,
    although the CLI itself writes there even for `--version`."""
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
    """`make run` works in a new clone with an empty home. It makes real tool calls and prints the
    lines that the tutorial shows."""
    import subprocess

    root = Path(__file__).parents[3]
    clone, home = tmp_path / "clone", tmp_path / "home"
    home.mkdir()
    git = ["git", "-c", f"safe.directory={root}"]
    subprocess.run([*git, "clone", "--quiet", str(root), str(clone)], check=True, timeout=60)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("GEMINI", "GOOGLE"))
    }
    env = {**inherited, "HOME": str(home), "PYTHON": sys.executable}
    outputs = []
    for prompt in ({}, {"PROMPT": 'Say "hi" & it\'s $HOME'}):
        done = subprocess.run(
            ["make", "--no-print-directory", "run"],
            cwd=clone,
            env={**env, **prompt},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        outputs.append(done.stdout)
    for line in (
        "offline: the answers come from a script",
        "✓ List .",
        "✓ Read README.md",
        "✓ success in",
        "resume:",
    ):
        assert line in outputs[0]
        assert line in (root / "docs" / "tutorial.md").read_text()
    assert "setting up" not in outputs[1]
    assert "fetching" not in outputs[1]
    assert 'You asked: “Say "hi" & it\'s $HOME”' in outputs[1]
    assert not (home / ".local").exists()
