"""The values of a front matter that have their own ends: quoted text, `[lists]` and `{mappings}`; what words mean."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["NO_PLAIN_START", "Flow", "NotYaml", "is_text"]

NO_PLAIN_START = "\",[]{}#&*!|>'%@`"
# What a plain word is where it is no text (js-yaml's default schema).
_NOT_TEXT = re.compile(
    r"""~|null|Null|NULL|true|True|TRUE|false|False|FALSE
    |[-+]?0b[01_]*[01]|[-+]?0x[0-9a-fA-F_]*[0-9a-fA-F]|[-+]?0o[0-7_]*[0-7]
    |[-+]?[0-9](?:[0-9_]*[0-9])?
    |(?:[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9_]+(?:[eE][-+]?[0-9]+)?)(?<!_)
    |[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)
    |[0-9]{4}-[0-9]{2}-[0-9]{2}
    |[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]*)?
     (?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?""",
    re.VERBOSE,
)
_ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r",
    "e": "\x1b", " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028", "P": "\u2029",
}  # fmt: skip
_HEX = {"x": 2, "u": 4, "U": 8}


class NotYaml(Exception):
    """js-yaml would refuse this, or it is no mapping."""


def is_text(word: str) -> bool:
    """Whether a plain word is text: not a number, a date, true, false or null."""
    return not _NOT_TEXT.fullmatch(word)


class Flow:
    """Quoted text, `[lists]` and `{mappings}`, which may go over several rows."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.text = ""
        self.at = 0

    def read(self, row: int, col: int) -> tuple[Any, int, int]:
        self.text = "\n".join([self.lines[row][col:], *self.lines[row + 1 :]])
        self.at = 0
        value = self.item()
        taken = self.text[: self.at]
        rows = taken.count("\n")
        return value, row + rows, len(taken) - taken.rfind("\n") - 1 + (0 if rows else col)

    def item(self) -> Any:
        char = self.text[self.at : self.at + 1]
        if char == '"':
            return self.double()
        if char == "'":
            return self.single()
        if char in ("[", "{"):
            return self.collection("]" if char == "[" else "}")
        match = re.compile(
            r"(?:[^\s,\[\]{}:#]|:(?![\s,\[\]{}]|$)|(?<=\S)#|[ \t\n]+(?![\s#,\[\]{}:]))+"
        ).match(self.text, self.at)
        if not match or match[0][0] in NO_PLAIN_START:
            raise NotYaml
        self.at = match.end()
        return _folded(match[0]) if is_text(match[0]) else None

    def collection(self, close: str) -> list[Any] | dict[str, Any]:
        found: list[Any] = []
        names: dict[str, Any] = {}
        self.at += 1
        while True:
            self.gap()
            if self.text.startswith(close, self.at):
                self.at += 1
                return names if close == "}" else found
            item, value = self.item(), None
            self.gap()
            if self.text.startswith(":", self.at):
                self.at += 1
                self.gap()
                value = None if self.text[self.at : self.at + 1] in (",", close) else self.item()
                self.gap()
            found.append(item)
            if close == "}" and str(item) in names:
                raise NotYaml
            names[str(item)] = value
            if self.text.startswith(",", self.at):
                self.at += 1
            elif not self.text.startswith(close, self.at):
                raise NotYaml

    def gap(self) -> None:
        match = re.compile(r"(?:\s|(?:(?<=\s)|(?<=^))#[^\n]*)*").match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        if self.at >= len(self.text):
            raise NotYaml

    def single(self) -> str:
        match = re.compile(r"'((?:[^']|'')*)'").match(self.text, self.at)
        if not match:
            raise NotYaml
        self.at = match.end()
        return _folded(match[1]).replace("''", "'")

    def double(self) -> str:
        match = re.compile(r'"((?:[^"\\]|\\[\s\S])*)"').match(self.text, self.at)
        if not match:
            raise NotYaml
        self.at = match.end()
        pieces = re.split(
            r"(\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|\n[ \t\n]*|[\s\S]))", match[1]
        )
        return "".join(_unescaped(piece) if piece.startswith("\\") else _folded(piece) for piece in pieces)


def _unescaped(piece: str) -> str:
    kind = piece[1]
    if kind == "\n":
        return ""
    if kind in _HEX and len(piece) == 2 + _HEX[kind]:
        return chr(int(f"0x{piece[2:]}", 0))
    if kind not in _ESCAPES:
        raise NotYaml
    return _ESCAPES[kind]


def _folded(text: str) -> str:
    """A line break is a space, and each blank row a line break."""
    return re.sub(r"[ \t]*\n[ \t\n]*", lambda gap: "\n" * (gap[0].count("\n") - 1) or " ", text)
