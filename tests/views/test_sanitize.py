"""Text from the CLI, the model or files is made safe for a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.views.sanitize import clean, one_line

_ANY = st.text(st.characters(), max_size=60) | st.text(
    st.sampled_from("\x1b[]0;31mJ\x07\r\n\t\x9b\x9dab\u202e")
)


@given(_ANY)
def test_no_control_character_is_left(text: str) -> None:
    """The result of `clean` has no control characters except newlines and tabs, and can be encoded
    as UTF-8.
    """
    cleaned = clean(text)
    assert not [c for c in cleaned if ord(c) < 0x20 and c not in "\n\t"]
    assert not [c for c in cleaned if 0x7F <= ord(c) <= 0x9F]
    cleaned.encode("utf-8")


@given(_ANY, _ANY)
def test_joined_pieces_are_safe(first: str, second: str) -> None:
    """Two cleaned pieces are safe when joined: cleaning the joined text changes nothing."""
    joined = clean(first) + clean(second)
    assert clean(joined) == joined


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain ünïcode 日本語 👩‍👩‍👧 a\tb\n", "plain ünïcode 日本語 👩‍👩‍👧 a\tb\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("one\r\ntwo\r", "one\ntwo"),
        ("safe\rrm -rf /", "safe␍rm -rf /"),
        ("\x1b[2J\x1b]52;c;ZXZpbA==\x07", "␛[2J␛]52;c;ZXZpbA==␇"),
        ("\x9b2J\x7f", "�2J␡"),
        ("rm \u202etxt.elif\u202c", "rm txt.elif"),
        ("half \ud83d", "half �"),
    ],
)
def test_text_stays_and_control_codes_are_shown(raw: str, shown: str) -> None:
    """Text stays, colour codes are removed, and other control codes become visible symbols."""
    assert clean(raw) == shown


def test_one_line_has_no_line_breaks() -> None:
    """`one_line` replaces line breaks of every kind and limits the length to 400 characters."""
    assert one_line("a\r\nb\u2028c\x0bd") == "a b c␋d"
    assert len(one_line("x" * 10_000_000)) == 400
