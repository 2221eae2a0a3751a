"""`yaml_text` writes readable YAML, and a YAML parser reads back every value."""

from __future__ import annotations

import math
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from geminids.dialects.record.trajectory import yaml_text

_texts = st.one_of(
    st.text(st.characters(), max_size=40),
    st.text(" \t\n-:#|>'\"{}[]&*!%@`,?aé✓\x85\u2028\ufeff\x7f\ud800\r", max_size=20),
    st.sampled_from(
        ["null", "Yes", "1", "1e5", "0x1", "1_0", "2026-01-01", "~", "-", "=", "<<", ".inf", "12:30", ""]
    ),
)
_scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), _texts)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_texts, inner, max_size=4)),
    max_leaves=12,
)


@given(st.dictionaries(_texts, _values, max_size=5))
def test_a_yaml_parser_reads_it_back(document: dict[str, Any]) -> None:
    """A YAML parser reads back every value with its type, and every text to the character."""
    assert yaml.safe_load(yaml_text(document)) == document


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb", ["k: |-", "  a", "  b"]),
        ("a\nb\n", ["k: |", "  a", "  b"]),
        ("a\n\n\n", ["k: |+", "  a", "", "", "..."]),
        ("  a\nb", ["k: |2-", "    a", "  b"]),
        ("\na", ["k: |2-", "", "  a"]),
        ("a \n\tb  ", ["k: |-", "  a ", "  \tb  "]),
        ("plain words, and more.", ["k: plain words, and more."]),
        ("a: b", ["k: 'a: b'"]),
        ("No", ["k: 'No'"]),
        ("\n", [r'k: "\n"']),
        ("a\r\nb", [r'k: "a\r\nb"']),
        ("bell\x07\x7f", [r'k: "bell\a\x7F"']),
    ],
)
def test_text_of_several_lines_is_a_block(text: str, lines: list[str]) -> None:
    """Text of several lines is written as a block. Text that a block cannot hold is quoted."""
    written = yaml_text({"k": text})
    assert written.split("\n")[:-1] == lines
    assert yaml.safe_load(written) == {"k": text}


@pytest.mark.parametrize(("number", "written"), [(math.inf, ".inf"), (-math.inf, "-.inf"), (1e16, "1.0e+16")])
def test_numbers_stay_numbers(number: float, written: str) -> None:
    """Numbers that YAML writes in another way than JSON, such as infinity and NaN, stay numbers."""
    assert yaml_text({"k": number}) == f"k: {written}\n"
    assert yaml.safe_load(f"k: {written}") == {"k": number}
    assert math.isnan(yaml.safe_load(yaml_text({"k": math.nan}))["k"])


def test_a_key_of_any_length() -> None:
    """A key of any length can be read back. YAML readers accept a key over 128 characters only
    after a `? ` marker."""
    document = {"k" * 5000: {"l" * 5000: [1]}, "one\ntwo": "x\ny"}
    assert yaml.safe_load(yaml_text(document)) == document


def test_deep_nesting_becomes_text() -> None:
    """Deeply nested values become JSON text, and extremely deep ones become the note `(a
    value with too many nested levels)`."""
    for depth, shown in ((100, "'[[[["), (100_000, "(a value with too many nested levels)")):
        deep: list[Any] = []
        for _ in range(depth):
            deep = [deep]
        written = yaml_text({"k": deep})
        assert shown in written
        assert yaml.safe_load(written)
        while deep:
            deep = deep.pop()
