"""Tests of the rate limiter that all runs of a process share. The clock is simulated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from geminids.gateway.limits.rate_limiter import MAX_WAIT, RateLimiter, rate_limiter_for

_PRO, _FLASH = "gemini-2.5-pro", "gemini-2.5-flash"


def _run_with_mock_clock(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def _limiter(per_minute: int | None = None) -> RateLimiter:
    return RateLimiter(per_minute, clock=trio.current_time)


def _ignore_notice(seconds: float, why: str) -> None:
    pass


class _Requests:
    """Requests that wait for the rate limiter. Stores when each was sent and its notices."""

    def __init__(self, rate_limiter: RateLimiter) -> None:
        self.rate_limiter = rate_limiter
        self.started = trio.current_time()
        self.sent: list[tuple[str, float]] = []
        self.refused: dict[str, float] = {}
        self.notices: list[tuple[str, float, str]] = []

    async def ask(self, name: str, model: str = _PRO) -> None:
        refused = await self.rate_limiter.wait(
            model, lambda seconds, why: self.notices.append((name, seconds, why))
        )
        if refused:
            self.refused[name] = refused
        else:
            self.sent.append((name, round(trio.current_time() - self.started, 2)))

    async def add(self, nursery: trio.Nursery, *names: str, model: str = _PRO) -> None:
        """Start these requests in this order. Each one waits before the next one starts."""
        for name in names:
            nursery.start_soon(self.ask, name, model)
            await trio.testing.wait_all_tasks_blocked()


def test_no_limit_no_wait() -> None:
    """Without a limit and a back-off, requests are sent at once and without a notice."""

    async def main() -> None:
        requests = _Requests(_limiter())
        for name in "abc":
            await requests.ask(name)
        assert requests.sent == [("a", 0.0), ("b", 0.0), ("c", 0.0)]
        assert requests.notices == []

    _run_with_mock_clock(main)


def test_requests_keep_their_order() -> None:
    """With a limit of six a minute, one request is sent every ten seconds, in the order of arrival.
    Each waiting request gets one notice."""

    async def main() -> None:
        requests = _Requests(_limiter(6))
        async with trio.open_nursery() as nursery:
            await requests.add(nursery, "a", "b", "c", "d")
        assert requests.sent == [("a", 0.0), ("b", 10.0), ("c", 20.0), ("d", 30.0)]
        assert requests.notices == [
            (name, seconds, "the limit is 6 requests a minute")
            for name, seconds in (("b", 10.0), ("c", 20.0), ("d", 30.0))
        ]

    _run_with_mock_clock(main)


def test_cancelled_request_leaves_the_queue() -> None:
    """When a waiting request is cancelled, the next one takes its place."""

    async def main() -> None:
        requests = _Requests(_limiter(6))
        async with trio.open_nursery() as nursery:
            await requests.add(nursery, "a")
            async with trio.open_nursery() as cancelled:
                await requests.add(cancelled, "gone")
                await requests.add(nursery, "b")
                cancelled.cancel_scope.cancel()
        assert requests.sent == [("a", 0.0), ("b", 10.0)]

    _run_with_mock_clock(main)


def test_request_that_would_wait_too_long_is_refused() -> None:
    """A request that would wait longer than the CLI does is not sent.
    It gets the remaining seconds instead."""

    async def main() -> None:
        requests = _Requests(_limiter(1))
        async with trio.open_nursery() as nursery:
            await requests.add(nursery, "a", "b")
        assert requests.sent == [("a", 0.0)]
        assert requests.refused == {"b": pytest.approx(60.0 - MAX_WAIT)}

    _run_with_mock_clock(main)


def test_backoff_applies_to_one_model() -> None:
    """After a 429, all requests to that model wait, and requests to other models do not."""

    async def main() -> None:
        requests = _Requests(_limiter())
        requests.rate_limiter.back_off(_PRO, 12.0)
        async with trio.open_nursery() as nursery:
            await requests.add(nursery, "a", "b", "c")
            await requests.add(nursery, "other", model=_FLASH)
        assert requests.sent == [("other", 0.0), ("a", 12.0), ("b", 12.0), ("c", 12.0)]
        assert [notice[:2] for notice in requests.notices] == [("a", 12.0), ("b", 12.0), ("c", 12.0)]
        assert "429 (too many requests) for gemini-2.5-pro" in requests.notices[0][2]

    _run_with_mock_clock(main)


def test_second_backoff_extends_a_wait() -> None:
    """A later, longer back-off also delays a request that is already waiting."""

    async def main() -> None:
        requests = _Requests(_limiter())
        requests.rate_limiter.back_off(_PRO, 5.0)
        async with trio.open_nursery() as nursery:
            await requests.add(nursery, "a")
            requests.rate_limiter.back_off(_PRO, 20.0)
        assert requests.sent == [("a", 20.0)]

    _run_with_mock_clock(main)


def test_backoff_does_not_block_other_models() -> None:
    """A request in back-off does not delay requests to other models under the same rate limit."""

    async def main() -> None:
        requests = _Requests(_limiter(6))
        requests.rate_limiter.back_off(_PRO, 25.0)
        async with trio.open_nursery() as nursery:
            await requests.add(nursery, "pro")
            await requests.add(nursery, "1", "2", "3", model=_FLASH)
        assert [name for name, _ in requests.sent] == ["1", "2", "3", "pro"]
        assert [at for _, at in requests.sent] == [0.0, 10.0, 20.0, 30.0]

    _run_with_mock_clock(main)


def test_backoff_wait_is_limited() -> None:
    """A request waits at most `MAX_WAIT` for a back-off and is then sent."""

    async def main() -> None:
        requests = _Requests(_limiter())
        requests.rate_limiter.back_off(_PRO, 600.0)
        await requests.ask("a")
        assert requests.sent == [("a", MAX_WAIT)]
        assert requests.notices[0][1] == MAX_WAIT

    _run_with_mock_clock(main)


def test_daily_quota_causes_no_wait() -> None:
    """An exhausted daily quota causes no back-off, because waiting does not help."""

    async def main() -> None:
        requests = _Requests(_limiter())
        requests.rate_limiter.back_off(_PRO, 30.0, daily=True)
        await requests.ask("a")
        assert requests.sent == [("a", 0.0)]

    _run_with_mock_clock(main)


def test_backoff_grows_until_an_answer() -> None:
    """Without `retry_after`, the back-off doubles from one second, and an answer resets it.
    Jitter adds up to a quarter."""

    async def main() -> None:
        limiter = _limiter()
        waits = []
        for answered in (False, False, True, False):
            if answered:
                limiter.answered(_PRO)
            limiter.back_off(_PRO, None)
            started = trio.current_time()
            await limiter.wait(_PRO, _ignore_notice)
            waits.append(trio.current_time() - started)
        for wait, least in zip(waits, (1, 2, 1, 2), strict=True):
            assert least <= wait <= least * 1.25 + 0.01

    _run_with_mock_clock(main)


def test_one_limiter_per_key_and_api() -> None:
    """Runs with the same key and API share one rate limiter. The key itself is not stored."""
    limiter = rate_limiter_for("key-of-the-test", "https://one.example")
    assert rate_limiter_for("key-of-the-test", "https://one.example", 30) is limiter
    assert rate_limiter_for("another-key", "https://one.example") is not limiter
    assert rate_limiter_for("key-of-the-test", "https://two.example") is not limiter
    from geminids.gateway.limits import rate_limiter as module

    assert "key-of-the-test" not in repr(vars(module))
