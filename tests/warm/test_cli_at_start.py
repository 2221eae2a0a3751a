"""A CLI that crashes, hangs or refuses at its warm start: a single run and a chat end the same
way."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import geminids
from geminids import Pool

DIES = "out('boom\\n', 2)\nsys.exit(7)\n"
HANGS = "time.sleep(60)\n"
REFUSES = """
request = json.loads(sys.stdin.readline())
error = {'code': -32603, 'message': 'Internal error'}
out(json.dumps({'jsonrpc': '2.0', 'id': request['id'], 'error': error}) + '\\n')
time.sleep(30)
"""


def ask(options: geminids.Options, handle: str) -> geminids.Result:
    async def main() -> geminids.Result:
        if handle == "run":
            return await geminids.ask("hello", options, on_permission=lambda request: "allow")
        async with Pool(options) as pool, pool.chat() as chat:
            return await chat.ask("hello")

    return anyio.run(main)


@pytest.mark.parametrize("handle", ["run", "chat"])
@pytest.mark.parametrize(
    ("script", "outcome", "kind"),
    [
        pytest.param(DIES, "failed", "crashed", id="dies"),
        pytest.param(HANGS, "timed_out", "timed_out", id="hangs"),
        pytest.param(REFUSES, "failed", "protocol", id="refuses"),
    ],
)
def test_a_failed_start_ends_the_run(
    fake_cli: Any, handle: str, script: str, outcome: str, kind: str | None
) -> None:
    """A crash at the start is a retryable failure; a CLI that hangs ends the run after
    `start_timeout`; an error answer is a `protocol` failure."""
    options = fake_cli(script, start_timeout=2.0, env={"GEMINI_API_KEY": "k" * 39})
    result = ask(options, handle)
    assert (result.outcome, result.failure.kind if result.failure else None) == (outcome, kind)
    if kind == "crashed":
        assert result.failure is not None and result.failure.retryable and result.exit_code == 7
    if outcome == "timed_out":
        assert "2 s" in (result.reason or "") and result.duration_ms < 3500


def test_a_crash_at_the_start_is_retried(fake_cli: Any) -> None:
    """A crash at the start is retried, and each attempt counts even though no session was
    opened."""
    options = fake_cli(DIES, retries=1, env={"GEMINI_API_KEY": "k" * 39})
    result = ask(options, "run")
    assert (result.outcome, result.attempts) == ("failed", 2)
