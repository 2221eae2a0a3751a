"""A warm turn ends as a headless run of the same script does."""

from __future__ import annotations

import socket
from typing import Any

import pytest

import geminids
from geminids.gateway.script.script import make_reply
from geminids.gateway.script.scripted import Scripted
from warm_endings import ROWS, Row

pytestmark = [pytest.mark.real, pytest.mark.anyio]

FAST = ("plain", "404", "429 by the minute", "nothing", "max turns", "max turns, just enough")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def script(row: Row) -> Scripted:
    *first, last = [make_reply(dict(reply)) for reply in row.replies]  # type: ignore[arg-type]
    from msgspec.structs import replace

    return Scripted([*first, replace(last, times=None)])


def told(result: geminids.Result, expected: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"outcome": result.outcome, "kind": result.failure and result.failure.kind}
    for name in expected.keys() - found.keys():
        found[name] = getattr(result.failure, name, None)
    return found


async def endings(world: Any, rows: list[Row]) -> dict[str, Any]:
    """The rows that end otherwise than they should."""
    wrong: dict[str, Any] = {}
    async with geminids.Pool(world.options(), size=8) as pool:
        for row in rows:
            options: dict[str, Any] = dict(row.options)
            if row.closed:
                with socket.socket() as free:
                    free.bind(("127.0.0.1", 0))
                    url = f"http://127.0.0.1:{free.getsockname()[1]}"
                options["env"] = {**world.options().env, "GOOGLE_GEMINI_BASE_URL": url}
            else:
                world.gateway.upstream = script(row)
            async with pool.chat(**options) as chat:
                result = await chat.ask("hello")
            expected = row.expected
            if told(result, expected) != expected:
                wrong[row.name] = (told(result, expected), expected, result.failure)
    return wrong


async def test_a_turn_ends_as_a_headless_run(make_world: Any) -> None:
    """One row of each class."""
    assert await endings(make_world("0.61.0"), [row for row in ROWS if row.name in FAST]) == {}


@pytest.mark.deep
async def test_every_row(make_world: Any) -> None:
    """Every script that tests/real has for headless endings."""
    assert await endings(make_world("0.61.0"), [row for row in ROWS if row.name not in FAST]) == {}


@pytest.mark.deep
async def test_every_row_headless(make_world: Any) -> None:
    """The other side of the rows: the same scripts on the headless lane, or the comparison says nothing."""
    world = make_world("0.61.0")
    wrong: dict[str, Any] = {}
    for row in ROWS:
        if row.closed:
            continue  # tests/real/test_endings_api.py has it
        world.gateway.upstream = script(row)
        result = await geminids.ask("hello", world.options(**row.options))
        expected = row.expected
        if told(result, expected) != expected:
            wrong[row.name] = (told(result, expected), expected)
    assert wrong == {}


async def test_what_cannot_be_opened(make_world: Any) -> None:
    """No sign-in, a folder that is gone: the first turn says so, and says what to do."""
    world = make_world("0.61.0")
    env = {"HOME": str(world.home), "TMPDIR": str(world.tmp)}
    async with geminids.Pool(world.options()) as pool:
        options = geminids.Options(gemini=world.version, cwd=str(world.cwd), env=env, env_only=())
        async with pool.chat(options) as chat:
            result = await chat.ask("hello")
            assert result.failure is not None and result.failure.kind == "auth", result.failure
            assert result.failure.hint
        with pytest.raises(geminids.OptionsError, match="does not exist"):
            pool.chat(cwd=str(world.root / "gone"))
        async with pool.chat(gemini="0.1.0") as chat:
            result = await chat.ask("hello")
            assert result.failure is not None and result.failure.kind in ("cli_missing", "cli_unsupported")
        async with pool.chat() as chat:
            result = await chat.ask("  ")
            assert result.failure is not None and result.failure.kind == "bad_prompt"
    assert not pool.status()


async def test_error_reports_are_sealed(make_world: Any) -> None:
    """What the CLI leaves in the temporary folder of a failed turn is for its owner alone, and has no secret in it."""
    world = make_world("0.61.0")
    world.gateway.reply(status=400, error="nothing doing")
    async with (
        geminids.Pool(world.options(env={"MY_TOKEN": "correct-horse-battery"})) as pool,
        pool.chat() as chat,
    ):
        assert not (await chat.ask("my token is correct-horse-battery")).ok
    reports = list(world.tmp.glob("gemini-client-error-*.json"))
    assert reports
    for report in reports:
        assert report.stat().st_mode & 0o077 == 0
        assert "correct-horse" not in report.read_text()
