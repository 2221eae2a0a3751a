"""Makes foreign text safe to show: text of an agent cannot control the terminal."""

from __future__ import annotations

import re

__all__ = ["clean", "one_line"]

# C0 without \t and \n, DEL, C1, characters that change the writing direction (a command would read
# differently than it runs), and lone surrogates, which no terminal's encoding can represent.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_LINE_END = re.compile(r"\r+(?=\n|\Z)")


def clean(text: str) -> str:
    r"""Remove colours and replace other control characters with visible symbols.

    It replaces single characters, not whole sequences: a sequence that is split in two is harmless
    too.

    >>> clean("\x1b[31mred\x1b[0m\r\n\x1b]0;title\x07")
    'red\n␛]0;title␇'
    """
    if _UNSAFE.search(text) is None:
        return text
    return _UNSAFE.sub(_symbol, _LINE_END.sub("", _COLOUR.sub("", text)))


def one_line(text: str, most: int = 400) -> str:
    r"""The text in one line, cut if it is very long.

    >>> one_line("  a\n\tb  "), one_line("abcdef", 4)
    ('a b', 'abc…')
    """
    line = " ".join(clean(text[: 4 * most]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode has a symbol for each of them: ␛, ␇, …
    if code == 0x7F:
        return "␡"
    return "" if 0x2000 < code < 0x2100 else "�"
