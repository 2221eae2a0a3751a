"""Which line of a TOML text each key stands on: the standard library's reader does not tell."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["key_lines"]

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|\n|[\[\]{}]',
    re.DOTALL,
)
_KEY = re.compile(r'[ \t]*(?:([\w-]+)|"((?:\\.|[^"\\])*)"|\'([^\']*)\')[ \t]*([.=\]])', re.ASCII)


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line, from 1, of every table and every key that begins a line. `text` is valid TOML.

    >>> key_lines('[gemini]\\nmodel = "pro"')
    {('gemini',): 1, ('gemini', 'model'): 2}
    """
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for line, start in _statements(text):
        at = start
        while text[at] in " \t[":
            at += 1
        keys = _dotted(text, at)
        if text[start:at].strip():
            table = keys
        else:
            keys = (*table, *keys)
        found.setdefault(keys, line)
    return found


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """Line and position of each header and each assignment: not of what goes on over several lines."""
    line, depth, start = 1, 0, 0
    for token in _TOKEN.finditer(text + "\n"):
        word = token[0]
        if word in ("[", "{"):
            depth += 1
        elif word in ("]", "}"):
            depth -= 1
        elif word == "\n" and depth == 0:
            if text[start : token.start()].strip() and not text[start : token.start()].lstrip().startswith(
                "#"
            ):
                yield line, start
            start = token.end()
            line = text.count("\n", 0, start) + 1


def _dotted(text: str, at: int) -> tuple[str, ...]:
    keys = []
    while match := _KEY.match(text, at):
        keys.append(next(part for part in match.groups()[:3] if part is not None))
        at = match.end()
        if match[4] != ".":
            break
    return tuple(keys)
