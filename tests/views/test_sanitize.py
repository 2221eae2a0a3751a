"""Foreign text made safe."""

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
    """Whatever comes in, only printable characters, newlines and tabs come out, and they can be encoded."""
    done = clean(text)
    assert not [c for c in done if ord(c) < 0x20 and c not in "\n\t"]
    assert not [c for c in done if 0x7F <= ord(c) <= 0x9F]
    done.encode("utf-8")


@given(_ANY, _ANY)
def test_a_sequence_in_two_pieces_is_as_safe_as_in_one(first: str, second: str) -> None:
    """Pieces are cleaned one by one: what is safe in both is safe joined."""
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
def test_what_is_made_of_it(raw: str, shown: str) -> None:
    """Text stays, colours go, and what would steer a terminal is seen instead of done."""
    assert clean(raw) == shown


def test_one_line_is_one_line() -> None:
    """A title has no line breaks of any kind, and a length that bounds the work."""
    assert one_line("a\r\nb\u2028c\x0bd") == "a b c␋d"
    assert len(one_line("x" * 10_000_000)) == 400
