"""Which environment variables reach the CLI and the programs that it starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import geminids
from geminids.process.marker import MARKER
from hostile_repository import keys_sent

pytestmark = pytest.mark.real

deep = pytest.mark.deep


def _tool_environment(world: Any, options: geminids.Options) -> dict[str, str]:
    """Run a shell tool that prints its environment, and return that environment."""
    world.gateway.reply(calls=[("run_shell_command", {"command": "env -0 > seen"})])
    world.gateway.reply(text="done")
    result = geminids.ask_sync("hello", replace(options, approval="yolo"))
    assert result.ok, result.failure
    pairs = Path(options.cwd, "seen").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


def test_env_only_keeps_the_rest_out(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `env_only`, a tool sees only the named variables, basic ones such as PATH, and the marks
    of its runs."""
    monkeypatch.setenv("MY_TOKEN", "hidden-value-1")
    monkeypatch.setenv("MY_CHOICE", "shown")
    own = {**world.options().env, "MULTI": "two\nlines '\"$x"}
    tool_env = _tool_environment(world, world.options(env=own, env_only=("MY_CHOICE",)))
    assert "MY_TOKEN" not in tool_env
    assert (tool_env["MY_CHOICE"], tool_env["MULTI"]) == ("shown", "two\nlines '\"$x")
    assert tool_env["PATH"] == os.environ["PATH"]
    assert tool_env["HOME"] == str(world.home)
    assert os.environ[MARKER] in tool_env[MARKER].split(), "the mark of the outer run is missing"


@deep
def test_without_env_only_all_variables_are_passed_on(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `env_only`, a tool sees all variables."""
    monkeypatch.setenv("MY_TOKEN", "shown-value-1")
    assert _tool_environment(world, world.options())["MY_TOKEN"] == "shown-value-1"


@deep
def test_a_run_with_env_only_can_be_stopped(stop_state: Any) -> None:
    """A tool that ignores SIGTERM is ended with its run, also with an empty `env_only`."""
    state = stop_state("stubborn")
    world = state.world

    async def main() -> Any:
        async with geminids.open_run("hello", world.options(**state.options, env_only=())) as run:
            await state.reached()
            run.stop()
            async for _ in run:
                pass
        return run.result

    import anyio

    result = anyio.run(main)
    assert result.outcome == "interrupted"
    state.assert_gone()


@deep
def test_an_env_file_sets_key_url_model_and_project(world: Any) -> None:
    """An env file can set GEMINI_API_KEY, GOOGLE_GEMINI_BASE_URL, GEMINI_MODEL and
    GOOGLE_CLOUD_PROJECT."""
    file = world.root / "my.env"
    file.write_text(
        "GEMINI_API_KEY=a-key-from-a-file-1\n"
        f"export GOOGLE_GEMINI_BASE_URL='{world.gateway.url}'\n"
        "GEMINI_MODEL=gemini-2.5-flash\nGOOGLE_CLOUD_PROJECT=my-project\n"
    )
    env = {"HOME": str(world.home), "TMPDIR": str(world.tmp)}
    options = replace(world.options(), env=env, env_file=str(file), model=None)
    tool_env = _tool_environment(world, options)
    assert keys_sent(world) == {"a-key-from-a-file-1"}
    assert {request.model for request in world.gateway.requests} == {"gemini-2.5-flash"}
    assert tool_env["GOOGLE_CLOUD_PROJECT"] == "my-project"


@deep
def test_a_vertex_key_from_an_env_file(world: Any) -> None:
    """A Vertex key in an env file (GOOGLE_API_KEY with GOOGLE_GENAI_USE_VERTEXAI) arrives with the
    request."""
    file = world.root / "my.env"
    file.write_text(
        "GOOGLE_API_KEY=a-vertex-key-in-a-file\nGOOGLE_GENAI_USE_VERTEXAI=true\n"
        f"GOOGLE_VERTEX_BASE_URL={world.gateway.url}\n"
    )
    env = {"HOME": str(world.home), "TMPDIR": str(world.tmp)}
    options = replace(world.options(), env=env, env_file=str(file), max_attempts=1, timeout=30.0)
    world.gateway.reply(text="hi")
    geminids.ask_sync("hello", options)
    assert world.gateway.requests
    assert keys_sent(world) == {"a-vertex-key-in-a-file"}


@deep
def test_env_beats_the_env_file(world: Any) -> None:
    """`env` overrides the env file."""
    file = world.root / "my.env"
    file.write_text("GEMINI_API_KEY=a-key-from-a-file-1\nA_VARIABLE=file\n")
    tool_env = _tool_environment(world, world.options(env_file=str(file), env={"A_VARIABLE": "caller"}))
    assert tool_env["A_VARIABLE"] == "caller"
    assert keys_sent(world) == {world.gateway.env["GEMINI_API_KEY"]}
