"""List prices that need no library."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest
from genai_prices import Usage
from genai_prices.data_snapshot import get_snapshot

from geminids.spending import list_prices
from geminids.spending.list_prices import library_prices, listed_rates
from geminids.spending.table import Rates

_LOOK = """
import sys
from datetime import date
from geminids.spending.list_prices import listed_rates, load
load()
for name in sys.argv[1:]:
    print(listed_rates(name, 300_000, date(2026, 11, 16)))
print("genai_prices" in sys.modules)
"""
_DAYS = [date(2024, 1, 1), date(2026, 1, 4), date(2026, 1, 5), date(2026, 11, 16), date(2027, 1, 1)]
_SIZES = [0, 128_000, 128_001, 200_000, 200_001, 272_001, 1_000_000]
_PRO = "Rates(input=Decimal('2.5'), cached=Decimal('0.25'), output=Decimal('15'))"


def look(home: Path, *names: str) -> tuple[list[str], bool]:
    """What another process says of these names, and whether it has loaded the library."""
    environ = {**os.environ, "GEMINIDS_HOME": str(home)}
    ran = subprocess.run(
        [sys.executable, "-c", _LOOK, *names], env=environ, capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    *rates, loaded = ran.stdout.splitlines()
    return rates, loaded == "True"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ours with nothing in it, and nothing remembered in this process either."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    list_prices.clear_cache()
    list_prices._steps.cache_clear()
    yield tmp_path / "geminids"
    list_prices.clear_cache()
    list_prices._steps.cache_clear()


@pytest.fixture
def file(home: Path) -> Path:
    """A file that was written."""
    again()
    return home / "prices" / "listed"


def again() -> None:
    """Ask for a price, as a process that has just begun."""
    list_prices.clear_cache()
    list_prices._steps.cache_clear()
    assert str(listed_rates("gemini-2.5-pro", 300_000, _DAYS[0])) == _PRO


def is_taken() -> bool:
    """Whether the file is believed by a process that has just begun."""
    list_prices.clear_cache()
    return list_prices.stored_prices("gemini-2.5-pro") is not None


def by_library(name: str, size: int, day: date) -> Rates | None:
    """What the library bills for a million tokens of each kind, in a request of that size."""
    google = next(provider for provider in get_snapshot().providers if provider.id == "google")
    model = next((model for model in google.models if model.is_match(name)), None)
    if model is None:
        return None
    prices = model.get_prices(datetime.combine(day, time(12), UTC))

    def at(price: object) -> Decimal | None:
        if price is None or isinstance(price, Decimal):
            return price
        reached = [tier.price for tier in price.tiers if size > tier.start]  # type: ignore[attr-defined]
        return reached[-1] if reached else price.base  # type: ignore[attr-defined, no-any-return]

    given = at(prices.input_mtok) or Decimal(0)
    cached = at(prices.cache_read_mtok)
    return Rates(given, given if cached is None else cached, at(prices.output_mtok) or Decimal(0))


def test_agrees_with_the_library(home: Path) -> None:
    """All models of Google, on days before, between and after changes, in every tier: it remembers the same."""
    google = next(provider for provider in get_snapshot().providers if provider.id == "google")
    days = {*_DAYS}
    for model in google.models:
        for line in model.prices if isinstance(model.prices, list) else []:
            if start := getattr(line.constraint, "start_date", None):
                days |= {start, date.fromordinal(start.toordinal() - 1)}
    listed_rates("gemini-2.5-pro", 0, _DAYS[0])
    list_prices.clear_cache()
    for model in google.models:
        assert list_prices.stored_prices(model.id) == (library_prices(model.id),)
        for day in days:
            for size in _SIZES:
                assert listed_rates(model.id, size, day) == by_library(model.id, size, day), (model.id, day)
    assert len(google.models) > 50 and len(days) > len(_DAYS)


def test_agrees_with_a_bill(home: Path) -> None:
    """A request that the library prices itself costs the same by what is remembered."""
    google = next(provider for provider in get_snapshot().providers if provider.id == "google")
    for name in ("gemini-2.5-pro", "gemini-3.8-flash", "gemini-3-flash-preview"):
        model = next(model for model in google.models if model.is_match(name))
        for day in _DAYS:
            usage = Usage(input_tokens=250_000, cache_read_tokens=50_000, output_tokens=1000)
            bill = model.calc_price(
                usage, google, genai_request_timestamp=datetime.combine(day, time(12), UTC)
            )
            rates = listed_rates(name, 250_000, day)
            assert rates is not None
            own = 200_000 * rates.input + 50_000 * rates.cached + 1000 * rates.output
            assert own / 1_000_000 == bill.total_price


def test_the_library_is_loaded_once(home: Path) -> None:
    """The first process asks the library; the next ones know all of Google's models, and names that were asked for."""
    first = look(home, "gemini-2.5-pro", "gemini-2.5-flash-001", "of-the-house")
    assert first[1] is True and first[0][0] == _PRO and first[0][2] == "None"
    assert look(home, "gemini-2.5-pro", "gemini-2.5-flash-001", "of-the-house") == (first[0], False)
    assert look(home, "gemini-3.8-flash", "gemini-3.1-pro-preview")[1] is False
    rates, loaded = look(home, "gemini-2.5-pro-09-2026")
    assert (rates, loaded) == ([_PRO], True)
    assert look(home, "gemini-2.5-pro-09-2026", "gemini-2.5-pro") == ([_PRO, _PRO], False)


def test_private(file: Path) -> None:
    """The folder is its owner's alone, and no draft is left."""
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert os.listdir(file.parent) == ["listed"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"\0" * len(data),
        lambda data: data[:-40],
        lambda data: b"[" * 100_000,
    ],
    ids=["empty", "noughts", "cut", "deep"],
)
def test_damaged(file: Path, damage: object) -> None:
    """What is damaged is as if it were missing, and is written anew."""
    good = file.read_bytes()
    assert is_taken()
    file.write_bytes(damage(good))  # type: ignore[operator]
    assert not is_taken()
    again()
    assert file.read_bytes() == good and is_taken()


def test_another_library(file: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices of another version, or of other data, are not taken."""
    assert is_taken()
    for library in ("1 ['genai_prices-9.9.9.dist-info'] 1 1", None):
        monkeypatch.setattr(list_prices, "_library", lambda library=library: library)
        assert not is_taken()


def test_nowhere_to_write(tmp_path: Path) -> None:
    """Where nothing can be written, the library is asked each time, and nobody is told of it."""
    (tmp_path / "geminids").write_text("a file where the folder should be")
    for _ in range(2):
        assert look(tmp_path / "geminids", "gemini-2.5-pro") == ([_PRO], True)


def test_nothing_asked(tmp_path: Path) -> None:
    """Who asks for no price writes nothing."""
    assert look(tmp_path / "geminids") == ([], True)
    assert not (tmp_path / "geminids").exists()


def test_names_do_not_pile_up(home: Path) -> None:
    """What anybody has written into session files as a model's name cannot make the file grow without end."""
    listed_rates("gemini-2.5-pro", 0, _DAYS[0])
    for number in range(40):
        list_prices.store_prices({f"made-up-{number}-{at}": None for at in range(40)})
    list_prices.store_prices({"x" * 10_000: None})
    assert (home / "prices" / "listed").stat().st_size < 60_000
    assert list_prices.stored_prices("gemini-2.5-pro") is not None


def test_prices_of_this_process(home: Path) -> None:
    """Who gives the library other prices has those, and they are not kept for others."""
    from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot

    assert listed_rates("gemini-2.5-pro", 0, _DAYS[0]) is not None
    list_prices._steps.cache_clear()
    google = next(provider for provider in get_snapshot().providers if provider.id == "google")
    only = type(google)(id="google", name="", api_pattern="", models=[])
    set_custom_snapshot(DataSnapshot(providers=[only], from_auto_update=False))
    try:
        assert listed_rates("gemini-2.5-pro", 0, _DAYS[0]) is None
    finally:
        set_custom_snapshot(None)
        list_prices._steps.cache_clear()
    assert listed_rates("gemini-2.5-pro", 0, _DAYS[0]) is not None
