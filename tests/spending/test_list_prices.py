"""Tests of list prices that are cached in a file, so that the slow library is not needed."""

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

_PRINT_RATES = """
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


def rates_in_new_process(home: Path, *names: str) -> tuple[list[str], bool]:
    """Return the rates of these models as a new process prints them.
    The second value says whether that process loaded the library."""
    environ = {**os.environ, "GEMINIDS_HOME": str(home)}
    completed = subprocess.run(
        [sys.executable, "-c", _PRINT_RATES, *names], env=environ, capture_output=True, text=True, check=True
    )
    assert completed.stderr == ""
    *rates, loaded = completed.stdout.splitlines()
    return rates, loaded == "True"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty data folder, and empty caches in this process."""
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    list_prices.clear_cache()
    list_prices._steps.cache_clear()
    yield tmp_path / "geminids"
    list_prices.clear_cache()
    list_prices._steps.cache_clear()


@pytest.fixture
def file(home: Path) -> Path:
    """The path of a cache file that has been written."""
    look_up_price()
    return home / "prices" / "listed"


def look_up_price() -> None:
    """Look up a price with empty caches, as a new process does."""
    list_prices.clear_cache()
    list_prices._steps.cache_clear()
    assert str(listed_rates("gemini-2.5-pro", 300_000, _DAYS[0])) == _PRO


def is_file_used() -> bool:
    """Return whether a new process would use the file."""
    list_prices.clear_cache()
    return list_prices.stored_prices("gemini-2.5-pro") is not None


def library_rates(name: str, size: int, day: date) -> Rates | None:
    """Return the library's rates per million tokens for a request of this size."""
    google = next(provider for provider in get_snapshot().providers if provider.id == "google")
    model = next((model for model in google.models if model.is_match(name)), None)
    if model is None:
        return None
    prices = model.get_prices(datetime.combine(day, time(12), UTC))

    def price_at(price: object) -> Decimal | None:
        if price is None or isinstance(price, Decimal):
            return price
        reached = [tier.price for tier in price.tiers if size > tier.start]  # type: ignore[attr-defined]
        return reached[-1] if reached else price.base  # type: ignore[attr-defined, no-any-return]

    input_price = price_at(prices.input_mtok) or Decimal(0)
    cached = price_at(prices.cache_read_mtok)
    return Rates(
        input_price, input_price if cached is None else cached, price_at(prices.output_mtok) or Decimal(0)
    )


def test_agrees_with_the_library(home: Path) -> None:
    """Cached prices equal those of the library for all Google models, tiers and days."""
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
                assert listed_rates(model.id, size, day) == library_rates(model.id, size, day), (
                    model.id,
                    day,
                )
    assert len(google.models) > 50 and len(days) > len(_DAYS)


def test_agrees_with_a_bill(home: Path) -> None:
    """A request costs the same by the cached prices as by the library's own calculation."""
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
            cost = 200_000 * rates.input + 50_000 * rates.cached + 1000 * rates.output
            assert cost / 1_000_000 == bill.total_price


def test_the_library_is_loaded_once(home: Path) -> None:
    """Only the first process loads the library.
    Later ones know all Google models and every name that was looked up before."""
    first = rates_in_new_process(home, "gemini-2.5-pro", "gemini-2.5-flash-001", "unknown-model")
    assert first[1] is True and first[0][0] == _PRO and first[0][2] == "None"
    assert rates_in_new_process(home, "gemini-2.5-pro", "gemini-2.5-flash-001", "unknown-model") == (
        first[0],
        False,
    )
    assert rates_in_new_process(home, "gemini-3.8-flash", "gemini-3.1-pro-preview")[1] is False
    rates, loaded = rates_in_new_process(home, "gemini-2.5-pro-09-2026")
    assert (rates, loaded) == ([_PRO], True)
    assert rates_in_new_process(home, "gemini-2.5-pro-09-2026", "gemini-2.5-pro") == ([_PRO, _PRO], False)


def test_file_is_private(file: Path) -> None:
    """Only the owner can open the folder of the cache, and no temporary file is left in it."""
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
    ids=["empty", "zeros", "cut", "deep"],
)
def test_damaged_file_is_replaced(file: Path, damage: object) -> None:
    """A damaged cache file is ignored and written again."""
    good = file.read_bytes()
    assert is_file_used()
    file.write_bytes(damage(good))  # type: ignore[operator]
    assert not is_file_used()
    look_up_price()
    assert file.read_bytes() == good and is_file_used()


def test_file_of_another_library_version_is_ignored(
    file: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache file is ignored if it was written with another version of the library."""
    assert is_file_used()
    for library in ("1 ['genai_prices-9.9.9.dist-info'] 1 1", None):
        monkeypatch.setattr(list_prices, "_library", lambda library=library: library)
        assert not is_file_used()


def test_unwritable_cache(tmp_path: Path) -> None:
    """If the cache cannot be written, every process loads the library, without an error."""
    (tmp_path / "geminids").write_text("a file where the folder should be")
    for _ in range(2):
        assert rates_in_new_process(tmp_path / "geminids", "gemini-2.5-pro") == ([_PRO], True)


def test_no_lookup_writes_no_file(tmp_path: Path) -> None:
    """A process that looks up no price writes no cache file."""
    assert rates_in_new_process(tmp_path / "geminids") == ([], True)
    assert not (tmp_path / "geminids").exists()


def test_file_size_is_limited(home: Path) -> None:
    """The cache file does not grow without limit, however many model names are looked up."""
    listed_rates("gemini-2.5-pro", 0, _DAYS[0])
    for number in range(40):
        list_prices.store_prices({f"made-up-{number}-{at}": None for at in range(40)})
    list_prices.store_prices({"x" * 10_000: None})
    assert (home / "prices" / "listed").stat().st_size < 60_000
    assert list_prices.stored_prices("gemini-2.5-pro") is not None


def test_custom_prices_are_not_cached(home: Path) -> None:
    """Custom prices that the host gives to the library are used, but not cached."""
    from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot

    assert listed_rates("gemini-2.5-pro", 0, _DAYS[0]) is not None
    list_prices._steps.cache_clear()
    google = next(provider for provider in get_snapshot().providers if provider.id == "google")
    provider = type(google)(id="google", name="", api_pattern="", models=[])
    set_custom_snapshot(DataSnapshot(providers=[provider], from_auto_update=False))
    try:
        assert listed_rates("gemini-2.5-pro", 0, _DAYS[0]) is None
    finally:
        set_custom_snapshot(None)
        list_prices._steps.cache_clear()
    assert listed_rates("gemini-2.5-pro", 0, _DAYS[0]) is not None


@pytest.mark.parametrize(
    ("name", "known_as"),
    [
        ("gemini-2.5-pro-preview-06-05", "gemini-2.5-pro"),
        ("gemini-2.5-flash-lite-preview-06-17", "gemini-2.5-flash-lite"),
        ("gemini-1.5-flash-002", "gemini-1.5-flash"),
        ("gemini-3.1-pro-preview-customtools", "gemini-3.1-pro-preview"),
        ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
        ("gemini-2.5-prox", None),
        ("gemini-2.5-pro-ultra", None),
        ("gemini-1.5-flash-9b", None),
        ("gemini-3-flash-preview-mega", None),
    ],
)
def test_only_a_version_may_follow_a_known_name(home: Path, name: str, known_as: str | None) -> None:
    """A name has the price of a known model if only a date or a version follows. A longer name is
    another model, without a price."""
    expected = listed_rates(known_as, 10, _DAYS[3]) if known_as else None
    assert listed_rates(name, 10, _DAYS[3]) == expected
    assert (expected is None) == (known_as is None)
