"""A CLI that dies, hangs or refuses when it is started warm: the same ending in a run and in a chat."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import geminids
from geminids import Pool

DIES = "out('boom\\n', 2)\nsys.exit(7)\n"
HANGS = "time.sleep(60)\n"
REFUSES = """
asked = json.loads(sys.stdin.readline())
error = {'code': -32603, 'message': 'Internal error'}
out(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], 'error': error}) + '\\n')
time.sleep(30)
"""


def ask(options: geminids.Options, how: str) -> geminids.Result:
    async def main() -> geminids.Result:
        if how == "run":
            return await geminids.ask("hello", options, on_permission=lambda asked: "allow")
        async with Pool(options) as pool, pool.chat() as chat:
            return await chat.ask("hello")

    return anyio.run(main)


@pytest.mark.parametrize("how", ["run", "chat"])
@pytest.mark.parametrize(
    ("script", "outcome", "kind"),
    [
        pytest.param(DIES, "failed", "crashed", id="dies"),
        pytest.param(HANGS, "timed_out", None, id="hangs"),
        pytest.param(REFUSES, "failed", "protocol", id="refuses"),
    ],
)
def test_how_it_ends(stand_in: Any, how: str, script: str, outcome: str, kind: str | None) -> None:
    """A crash can be retried; a CLI that says nothing ends the run after `start_timeout`, once."""
    options = stand_in(script, start_timeout=2.0, env={"GEMINI_API_KEY": "k" * 39})
    result = ask(options, how)
    assert (result.outcome, result.failure.kind if result.failure else None) == (outcome, kind)
    if kind == "crashed":
        assert result.failure is not None and result.failure.retryable and result.exit_code == 7
    if outcome == "timed_out":
        assert "2 s" in (result.reason or "") and result.duration_ms < 3500


def test_a_crash_at_the_start_is_retried(stand_in: Any) -> None:
    """Each attempt has its number, also if no session could be opened."""
    options = stand_in(DIES, retries=1, env={"GEMINI_API_KEY": "k" * 39})
    result = ask(options, "run")
    assert (result.outcome, result.attempts) == ("failed", 2)
