"""A price table in a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from geminids.errors import GeminidsError
from geminids.prices import ModelRate, RateTier, read_prices

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
    "text", [TOML, JSON, JSON[JSON.index("[") : -1], "# mine\n" + TOML.lstrip(), TOML.lstrip()]
)
def test_toml_or_json(tmp_path: Path, text: str) -> None:
    """Whatever the file is called; JSON with the key `models` or without."""
    file = tmp_path / "prices"
    file.write_text(text)
    assert read_prices(str(file)) == LINES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "array"),
        ("[]", "no model"),
        ("models = 3", "array"),
        ("[[models]]\nmodel = 'x'\ninput = 1", "output"),
        ("[[models]]\nmodel = 'x'\ninput = 1\noutput = 1\nprice = 3", "price"),
        ("[[models]]\nmodel = 'x'\ninput = -1\noutput = 1", "input is -1"),
        ("[[models]]\nmodel = 'x'\ninput = 1\noutput = nan", "output is nan"),
        ("[[models]]\nmodel = 'x'\ninput = 1\noutput = inf", "output is inf"),
        ("[[models]]\nmodel = 'x'\ninput = 'free'\noutput = 1", "input"),
        ("{", "JSON"),
        ("[[models", "prices"),
        ("\udcff", "prices"),
    ],
)
def test_what_is_no_table(tmp_path: Path, text: str, words: str) -> None:
    """One clear error with the file's name, and a hint."""
    file = tmp_path / "prices"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(GeminidsError, match=words) as caught:
        read_prices(str(file))
    assert str(file) in caught.value.message and caught.value.hint


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The same."""
    with pytest.raises(GeminidsError, match="No such file"):
        read_prices(str(tmp_path / "none"))


def test_a_file_that_was_changed(tmp_path: Path) -> None:
    """Is read anew."""
    file = tmp_path / "prices"
    file.write_text(TOML)
    assert read_prices(str(file))[0].input == 1
    file.write_text(TOML.replace("input = 1", "input = 7"))
    os.utime(file, ns=(1, 1))
    assert read_prices(str(file))[0].input == 7
