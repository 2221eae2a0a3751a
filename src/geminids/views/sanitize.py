"""Make text from an agent safe to show, so that it cannot control the terminal."""

from __future__ import annotations

import re

__all__ = ["clean", "one_line"]

# Control characters except \t and \n; characters that change the writing direction, with which a
# command can look different from what it does; and lone surrogates, which cannot be encoded.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_LINE_END = re.compile(r"\r+(?=\n|\Z)")


def clean(text: str) -> str:
    r"""Remove color codes, and replace control characters with visible symbols. Tabs and line
    breaks are kept.

    Characters that change the writing direction are removed. Each control character is replaced
    separately. So an escape sequence has no effect even if its first half is in one text and its
    second half is in the next text.

    >>> clean("\x1b[31mred\x1b[0m\r\n\x1b]0;title\x07")
    'red\n␛]0;title␇'
    """
    if _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(_symbol, _LINE_END.sub("", _COLOUR.sub("", text)))


def one_line(text: str, max_length: int = 400) -> str:
    r"""Return the text on one line without control characters, of at most `max_length` characters.

    >>> one_line("  a\n\tb  "), one_line("abcdef", 4)
    ('a b', 'abc…')
    """
    line = " ".join(clean(text[: 4 * max_length]).split())
    return line if len(line) <= max_length else line[: max_length - 1] + "…"


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode has a symbol for each control character: ␛, ␇, …
    if code == 0x7F:
        return "␡"
    return "" if 0x2000 < code < 0x2100 else "�"
