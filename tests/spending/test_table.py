"""Tests of price tables in files."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path

import pytest

from geminids.errors import GeminidsError
from geminids.spending import ModelRate, RateTier, read_prices
from geminids.spending.table import Rates, rates_in

TOML = """
[[models]]
model = "gemini-9-*"
input = 1
cached = 0.1
output = 4.0

[[models.tiers]]
above = 200_000
input = 2.0
output = 6.0

[[models]]
model = "other"
input = 0
output = 0
"""
LINES = (
    ModelRate(
        model="gemini-9-*",
        input=1,
        cached=0.1,
        output=4.0,
        tiers=(RateTier(above=200_000, input=2.0, output=6.0),),
    ),
    ModelRate(model="other", input=0, output=0),
)
JSON = (
    '{"models": [{"model": "gemini-9-*", "input": 1, "cached": 0.1, "output": 4.0, "tiers": '
    '[{"above": 200000, "input": 2.0, "output": 6.0}]}, {"model": "other", "input": 0, "output": 0}]}'
)


@pytest.mark.parametrize(
    "text",
    [TOML, JSON, JSON[JSON.index("[") : -1], "# mine\n" + TOML.lstrip(), TOML.lstrip(), "\ufeff" + TOML],
)
def test_toml_or_json(tmp_path: Path, text: str) -> None:
    """A price table may be TOML or JSON, whatever the file name, and JSON
    may omit the key `models`."""
    file = tmp_path / "prices"
    file.write_text(text)
    assert read_prices(str(file)) == LINES


TIERS = (
    "[[models]]\nmodel = 'x'\ninput = 1\noutput = 1\n"
    "[[models.tiers]]\nabove = {}\ninput = {}\noutput = 1\n[[models.tiers]]\nabove = {}\ninput = {}\noutput = 1\n"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no model"),
        ("[]", "no model"),
        ("models = 3", "array"),
        ("[[models]]\nmodel = 'x'\ninput = 1", "output"),
        ("[[models]]\nmodel = 'x'\ninput = 1\noutput = 1\nprice = 3", "price"),
        ("[[models]]\nmodel = 'x'\ninput = -1\noutput = 1", "`input` is -1"),
        ("[[models]]\nmodel = 'x'\ninput = 1\noutput = nan", "`output` is nan"),
        ("[[models]]\nmodel = 'x'\ninput = 1\noutput = inf", "`output` is inf"),
        ("[[models]]\nmodel = 'x'\ninput = 'free'\noutput = 1", "input"),
        ("[[models]]\nmodel = 'x'\ninput = 'free'\noutput = 1", r"models\[0\].input"),
        ("[[models]]\nmodel = ' '\ninput = 1\noutput = 1", "`model` is empty"),
        (
            "[[models]]\nmodel = 'x'\ninput = 1\noutput = 1\ncached = 2",
            r"x: the price `cached` \(2.0\) is higher than the price `input` \(1.0\)",
        ),
        ("[[models]]\nmodel = 'x'\ninput = true\noutput = 1", "bool"),
        (
            "currency = 'EUR'\n[[models]]\nmodel = 'x'\ninput = 1\noutput = 1",
            "currency: a price table may contain only",
        ),
        ("[models.x]\ninput = 1\noutput = 1", "array"),
        (TIERS.format(5, 1, 5, 1), "two tiers have the same value of `above`"),
        (TIERS.format(-5, 1, 5, 1), "`above` is -5: it must be 0 or more"),
        (TIERS.format(5, "-1.5", 6, 1), "the tier above 5: `input` is -1.5"),
        ("{", "JSON"),
        ("[[models", "prices"),
        ("\udcff", "prices"),
    ],
)
def test_invalid_table(tmp_path: Path, text: str, words: str) -> None:
    """An invalid table raises one error with the file name, the problem and a hint."""
    file = tmp_path / "prices"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(GeminidsError, match=words) as caught:
        read_prices(str(file))
    assert str(file) in caught.value.message and caught.value.hint


def test_missing_file(tmp_path: Path) -> None:
    """A missing file raises an error with the system's reason."""
    with pytest.raises(GeminidsError, match="No such file"):
        read_prices(str(tmp_path / "none"))


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    """A file that changed is read again."""
    file = tmp_path / "prices"
    file.write_text(TOML)
    assert read_prices(str(file))[0].input == 1
    file.write_text(TOML.replace("input = 1", "input = 7"))
    os.utime(file, ns=(1, 1))
    assert read_prices(str(file))[0].input == 7


def test_table_in_code_is_checked() -> None:
    """A table in Python code is checked by the same rules. Tiers may also be a list."""
    with pytest.raises(ValueError, match="m: `input` is -1"):
        ModelRate(model="m", input=-1, output=1)
    with pytest.raises(ValueError, match=r"the price `cached` \(2\) is higher"):
        ModelRate(model="m", input=1, output=1, cached=2)
    rate = ModelRate(model="m", input=1, output=1, tiers=[RateTier(above=5, input=2, output=2)])  # type: ignore[arg-type]
    assert rates_in([rate], "m", 6) == Rates(Decimal(2), Decimal(2), Decimal(2))


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("gemini-9-pro", True),
        ("Gemini-9-*", True),
        ("models/gemini-9-*", True),
        ("publishers/google/models/gemini-9-pro", True),
        (" gemini-9-pro ", True),
        ("*", True),
        ("gemini-?-pro", True),
        ("gemini-9", False),
        ("gemini-9-pro-*", False),
        ("9-pro", False),
    ],
)
def test_matching_of_model_names(pattern: str, matches: bool) -> None:
    """A pattern with `*` and `?` must match the whole name.
    Case and the path before the name are ignored on both sides."""
    table = [ModelRate(model=pattern, input=1, output=1)]
    assert (rates_in(table, "models/Gemini-9-pro", 1) is not None) == matches
