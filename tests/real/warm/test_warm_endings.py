"""A turn on the warm transport ends in the same way as a headless run of the same script."""

from __future__ import annotations

import socket
from typing import Any

import pytest

import geminids
from geminids.gateway.script.replies import make_reply
from geminids.gateway.script.scripted_upstream import Scripted
from warm_endings import ROWS, Row

pytestmark = [pytest.mark.real, pytest.mark.anyio]

FAST = ("plain", "404", "429 by the minute", "nothing", "max turns", "max turns, just enough")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def make_script(row: Row) -> Scripted:
    *first, last = [make_reply(dict(reply)) for reply in row.replies]  # type: ignore[arg-type]
    from msgspec.structs import replace

    return Scripted([*first, replace(last, times=None)])


def summarize(result: geminids.Result, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the outcome, the kind of failure and the other expected fields of a result."""
    summary: dict[str, Any] = {"outcome": result.outcome, "kind": result.failure and result.failure.kind}
    for name in expected.keys() - summary.keys():
        summary[name] = getattr(result.failure, name, None)
    return summary


async def find_differences(world: Any, rows: list[Row]) -> dict[str, Any]:
    """Run each row in a warm chat. Return the rows that do not end as expected."""
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
                world.gateway.upstream = make_script(row)
            async with pool.chat(**options) as chat:
                result = await chat.ask("hello")
            expected = row.expected
            if summarize(result, expected) != expected:
                wrong[row.name] = (summarize(result, expected), expected, result.failure)
    return wrong


async def test_a_turn_ends_as_a_headless_run(make_world: Any) -> None:
    """One script of each class ends in a warm chat with the outcome and failure that its `Row`
    expects."""
    assert await find_differences(make_world("0.61.0"), [row for row in ROWS if row.name in FAST]) == {}


@pytest.mark.deep
async def test_every_row_warm(make_world: Any) -> None:
    """Each of the other scripts ends in a warm chat with the outcome and failure that its `Row`
    expects."""
    assert await find_differences(make_world("0.61.0"), [row for row in ROWS if row.name not in FAST]) == {}


@pytest.mark.deep
async def test_every_row_headless(make_world: Any) -> None:
    """Counter-check: each script also ends in a headless run with the outcome and failure that its
    `Row` expects."""
    world = make_world("0.61.0")
    wrong: dict[str, Any] = {}
    for row in ROWS:
        if row.closed:
            continue  # tests/real/endings/test_endings_api.py tests it
        world.gateway.upstream = make_script(row)
        result = await geminids.ask("hello", world.options(**row.options))
        expected = row.expected
        if summarize(result, expected) != expected:
            wrong[row.name] = (summarize(result, expected), expected)
    assert wrong == {}


async def test_a_chat_that_cannot_start(make_world: Any) -> None:
    """If a chat cannot start, its first turn fails with the cause: no sign-in, a missing release or
    a blank prompt. A missing folder raises `OptionsError`."""
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


async def test_error_reports_are_private(make_world: Any) -> None:
    """Only the user who owns the files can read the error reports that the CLI writes for a failed
    turn, and they contain no secret."""
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
