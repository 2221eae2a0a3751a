"""The front matter of SKILL.md: the same text values as js-yaml, and none if js-yaml refuses it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.gemini.skills.file import yaml_texts


@pytest.mark.parametrize(
    ("head", "value"),
    [
        ("a: b", "b"),
        ("a:   b c   ", "b c"),
        ("a: 'it''s'", "it's"),
        ('a: "x\\ty\\u00e9\\x41"', "x\tyéA"),
        ("a: b # c", "b"),
        ("a: b#c", "b#c"),
        ("a: b:c", "b:c"),
        ("a: http://x/y", "http://x/y"),
        ("a: one\n  two\n\n  three", "one two\nthree"),
        ("a: |\n  one\n    two\n", "one\n  two\n"),
        ("a: |-\n  one\n\n", "one"),
        ("a: |+\n  one\n\nb: c", "one\n\n"),
        ("a: >\n  one\n  two\n\n  three", "one two\nthree\n"),
        ("a: >-\n  one\n   more\n  two", "one\n more\ntwo"),
        ("a: |2\n    one", "  one\n"),
        ('a: "one\n  two"', "one two"),
        ("a: &x b", "b"),
        ("a: yes", "yes"),
        ("a: 1.2.3", "1.2.3"),
        ("a: -x", "-x"),
        ("# c\n\na: b", "b"),
        ("b:\n- 1\n- c: d\n  e: f\na: b", "b"),
        ("b: [x, 'y',\n  {z: 1}]\na: b", "b"),
        ("b:\n  c:\n    d: e\na: b", "b"),
        ("'a': b", "b"),
        ("a: b\r\nc: d", "b"),
    ],
)
def test_texts(head: str, value: str) -> None:
    """A text value is read as YAML defines it."""
    assert yaml_texts(head)["a"] == value


@pytest.mark.parametrize("word", ["1", "-1", "0x1f", "1_000", ".5", "true", "Null", "~", "2024-01-01", ""])
def test_other_values_are_not_text(word: str) -> None:
    """Numbers, booleans, dates and empty values are not text."""
    assert "a" not in yaml_texts(f"a: {word}")


@pytest.mark.parametrize(
    "head",
    [
        "a: b: c",
        "a: b\n  c: d",
        "a: b\na: c",
        "a: 'b",
        "a: [b",
        "a: @b",
        "a: *b",
        "a: - b",
        "a: 'b' c",
        "a: b\n c: d",
        "a: b\n---\nc: d",
        "just text",
        "- a",
        "",
        "# only this",
        "a: \x07",
        "a: |x\n  b",
        'a: "\\q"',
    ],
)
def test_what_js_yaml_refuses(head: str) -> None:
    """A front matter that js-yaml refuses gives no values, so that the CLI's own fallback applies."""
    assert yaml_texts(head) == {}


@given(st.text(st.sampled_from("ab: \n\t'\"|>-#[]{},&*!?%\\\r.1~é"), max_size=40))
def test_any_input_gives_only_texts(head: str) -> None:
    """Any input gives only text values and raises nothing."""
    assert all(isinstance(value, str) for value in yaml_texts(head).values())


@pytest.mark.parametrize(
    "head", ["a" * 30_000, "a: " + "[" * 900, "a " * 15_000, '"' * 30_000, "a:\n" * 10_000]
)
def test_a_hostile_head_is_read_quickly(head: str) -> None:
    """A front matter that is built to be slow is read in less than two seconds."""
    before = time.process_time()
    yaml_texts(head)
    assert time.process_time() - before < 2
