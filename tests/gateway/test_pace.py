"""All runs of a process keep one pace. Minutes pass here in no time: the clock jumps whenever all are waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from geminids.gateway.limits.rate_limiter import MAX_WAIT, RateLimiter, rate_limiter_for

_PRO, _FLASH = "gemini-2.5-pro", "gemini-2.5-flash"


def _in_no_time(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def _pace(per_minute: int | None = None) -> RateLimiter:
    return RateLimiter(per_minute, clock=trio.current_time)


def _quiet(seconds: float, why: str) -> None:
    pass


class _Crowd:
    """Requests that want to leave: who left when, and what was told."""

    def __init__(self, rate_limiter: RateLimiter) -> None:
        self.rate_limiter = rate_limiter
        self.begun = trio.current_time()
        self.left: list[tuple[str, float]] = []
        self.early: dict[str, float] = {}
        self.told: list[tuple[str, float, str]] = []

    async def ask(self, name: str, model: str = _PRO) -> None:
        early = await self.rate_limiter.wait(
            model, lambda seconds, why: self.told.append((name, seconds, why))
        )
        if early:
            self.early[name] = early
        else:
            self.left.append((name, round(trio.current_time() - self.begun, 2)))

    async def come(self, nursery: trio.Nursery, *names: str, model: str = _PRO) -> None:
        """In this order, each waiting before the next one comes."""
        for name in names:
            nursery.start_soon(self.ask, name, model)
            await trio.testing.wait_all_tasks_blocked()


def test_without_terms_nothing_waits() -> None:
    """No rate and no refusal: a request leaves at once, and nothing is told."""

    async def main() -> None:
        crowd = _Crowd(_pace())
        for name in "abc":
            await crowd.ask(name)
        assert crowd.left == [("a", 0.0), ("b", 0.0), ("c", 0.0)]
        assert crowd.told == []

    _in_no_time(main)


def test_a_rate_is_kept_in_order() -> None:
    """Six a minute: one each ten seconds, in the order in which they came, each told once how long."""

    async def main() -> None:
        crowd = _Crowd(_pace(6))
        async with trio.open_nursery() as nursery:
            await crowd.come(nursery, "a", "b", "c", "d")
        assert crowd.left == [("a", 0.0), ("b", 10.0), ("c", 20.0), ("d", 30.0)]
        assert crowd.told == [
            (name, seconds, "the limit is 6 requests a minute")
            for name, seconds in (("b", 10.0), ("c", 20.0), ("d", 30.0))
        ]

    _in_no_time(main)


def test_who_goes_away_gives_its_place_up() -> None:
    """The others move up, and nobody waits for the one that is gone."""

    async def main() -> None:
        crowd = _Crowd(_pace(6))
        async with trio.open_nursery() as nursery:
            await crowd.come(nursery, "a")
            async with trio.open_nursery() as leaving:
                await crowd.come(leaving, "gone")
                await crowd.come(nursery, "b")
                leaving.cancel_scope.cancel()
        assert crowd.left == [("a", 0.0), ("b", 10.0)]

    _in_no_time(main)


def test_a_rate_is_not_broken_by_impatience() -> None:
    """Who would have to wait longer than a CLI does is told the seconds that are left, and does not leave."""

    async def main() -> None:
        crowd = _Crowd(_pace(1))
        async with trio.open_nursery() as nursery:
            await crowd.come(nursery, "a", "b")
        assert crowd.left == [("a", 0.0)]
        assert crowd.early == {"b": pytest.approx(60.0 - MAX_WAIT)}

    _in_no_time(main)


def test_a_refusal_holds_for_all_and_for_its_model_alone() -> None:
    """429 with `retry_after`: nobody asks this model before; another model is asked at once."""

    async def main() -> None:
        crowd = _Crowd(_pace())
        crowd.rate_limiter.back_off(_PRO, 12.0)
        async with trio.open_nursery() as nursery:
            await crowd.come(nursery, "a", "b", "c")
            await crowd.come(nursery, "other", model=_FLASH)
        assert crowd.left == [("other", 0.0), ("a", 12.0), ("b", 12.0), ("c", 12.0)]
        assert [one[:2] for one in crowd.told] == [("a", 12.0), ("b", 12.0), ("c", 12.0)]
        assert "429 (too many requests) for gemini-2.5-pro" in crowd.told[0][2]

    _in_no_time(main)


def test_a_refusal_while_waiting_is_heard() -> None:
    """Who waits already waits longer."""

    async def main() -> None:
        crowd = _Crowd(_pace())
        crowd.rate_limiter.back_off(_PRO, 5.0)
        async with trio.open_nursery() as nursery:
            await crowd.come(nursery, "a")
            crowd.rate_limiter.back_off(_PRO, 20.0)
        assert crowd.left == [("a", 20.0)]

    _in_no_time(main)


def test_those_who_wait_for_a_model_are_in_nobodys_way() -> None:
    """A rate goes on for other models while one of them is to be left alone."""

    async def main() -> None:
        crowd = _Crowd(_pace(6))
        crowd.rate_limiter.back_off(_PRO, 25.0)
        async with trio.open_nursery() as nursery:
            await crowd.come(nursery, "pro")
            await crowd.come(nursery, "1", "2", "3", model=_FLASH)
        assert [name for name, _ in crowd.left] == ["1", "2", "3", "pro"]
        assert [at for _, at in crowd.left] == [0.0, 10.0, 20.0, 30.0]

    _in_no_time(main)


def test_no_longer_than_a_cli_has_patience() -> None:
    """A refusal for ten minutes is waited for as long as the CLI waits; then the API may say it again."""

    async def main() -> None:
        crowd = _Crowd(_pace())
        crowd.rate_limiter.back_off(_PRO, 600.0)
        await crowd.ask("a")
        assert crowd.left == [("a", MAX_WAIT)]
        assert crowd.told[0][1] == MAX_WAIT

    _in_no_time(main)


def test_a_days_quota_is_not_waited_for() -> None:
    """It will not be there in a minute either."""

    async def main() -> None:
        crowd = _Crowd(_pace())
        crowd.rate_limiter.back_off(_PRO, 30.0, daily=True)
        await crowd.ask("a")
        assert crowd.left == [("a", 0.0)]

    _in_no_time(main)


def test_without_a_word_the_wait_grows_until_an_answer() -> None:
    """A second, then two, and after an answer a second again; a little more each, by chance."""

    async def main() -> None:
        pace = _pace()
        waits = []
        for answered in (False, False, True, False):
            if answered:
                pace.answered(_PRO)
            pace.back_off(_PRO, None)
            begun = trio.current_time()
            await pace.wait(_PRO, _quiet)
            waits.append(trio.current_time() - begun)
        for wait, least in zip(waits, (1, 2, 1, 2), strict=True):
            assert least <= wait <= least * 1.25 + 0.01

    _in_no_time(main)


def test_one_pace_for_a_key_and_an_api() -> None:
    """The same for the same key and address, another one otherwise; the key itself is not kept."""
    pace = rate_limiter_for("key-of-the-test", "https://one.example")
    assert rate_limiter_for("key-of-the-test", "https://one.example", 30) is pace
    assert rate_limiter_for("another-key", "https://one.example") is not pace
    assert rate_limiter_for("key-of-the-test", "https://two.example") is not pace
    from geminids.gateway.limits import rate_limiter as module

    assert "key-of-the-test" not in repr(vars(module))
