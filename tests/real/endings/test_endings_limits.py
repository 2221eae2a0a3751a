"""A run that a limit or the caller ended has a failure with a kind and a hint, on both transports."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import geminids

pytestmark = pytest.mark.real

OPTIONS: dict[str, dict[str, Any]] = {
    "timed_out": {"timeout": 6.0},
    "max_turns": {"max_turns": 1},
    "over_budget": {"max_requests": 1},
    "interrupted": {},
}


@pytest.mark.parametrize("how", ["run", "chat"])
@pytest.mark.parametrize("kind", list(OPTIONS))
def test_the_failure_of_a_limit(make_world: Any, kind: str, how: str) -> None:
    """The failure has the name of the outcome, a message and a hint, and no retry is recommended.
    The error that `raise_for_failure` raises has the hint too."""
    world = make_world("0.61.0")
    if kind in ("timed_out", "interrupted"):
        world.gateway.reply(text="a", stall=True)
    else:
        world.gateway.reply(calls=[("glob", {"pattern": "*"})])
        world.gateway.reply(calls=[("glob", {"pattern": "*"})], times=None)
    options = world.options(approval="yolo", **OPTIONS[kind])

    async def consume(stream: Any) -> geminids.Result:
        async with stream:
            async for event in stream:
                if kind == "interrupted" and isinstance(event, geminids.Text):
                    stream.stop()
        return stream.result  # type: ignore[no-any-return]

    async def main() -> geminids.Result:
        if how == "run":
            return await consume(geminids.open_run("hello", options))
        async with geminids.Pool(options) as pool, pool.chat() as chat:
            return await consume(chat.send("hello"))

    result = anyio.run(main)
    assert result.outcome == kind, result.failure
    assert result.failure is not None
    assert (result.failure.kind, result.failure.retryable) == (kind, False)
    assert result.failure.message and result.failure.hint
    with pytest.raises(geminids.RunFailed) as raised:
        result.raise_for_failure()
    assert raised.value.hint == result.failure.hint
