"""The YAML at the head of a SKILL.md, read as the CLI's own js-yaml reads it: as much of it as such heads hold."""

from __future__ import annotations

import re
from typing import Any

from geminids.skills.front_matter_values import NO_PLAIN_START, Flow, NotYaml, is_text

__all__ = ["NotYaml", "read_yaml_head"]

_KEY = re.compile(
    r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^']|'')*)'|((?:[^\s:#]|:(?=\S)|(?<=\S)#|[ \t]+(?![\s#:]))+))[ \t]*:(?=\s|$)""",
    re.ASCII,
)
_ITEM = re.compile(r"-([ \t]|$)")
_NOT_PRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")


def read_yaml_head(text: str) -> dict[str, Any]:
    """The top-level entries. A text is a `str`, any other scalar is None, lists and mappings are themselves.

    >>> read_yaml_head('name: "a: b"\\ndescription: >\\n  two\\n  lines\\nversion: 1')
    {'name': 'a: b', 'description': 'two lines\\n', 'version': None}
    """
    if _NOT_PRINTABLE.search(text):
        raise NotYaml
    lines = re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    if lines[0] == "---":
        lines[0] = ""
    head = _Head(lines)
    row = head.content(0)
    if row >= len(lines):
        raise NotYaml
    value, row = head.node(row, head.indent(row), head.indent(row) - 1)
    if head.content(row) < len(lines) or not isinstance(value, dict):
        raise NotYaml
    return value


class _Head:
    """A reader that goes by rows and columns: each method gives a value and the row (or place) after it."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines

    def content(self, row: int) -> int:
        """The first row from here on with more than blanks or a comment."""
        while row < len(self.lines):
            text = self.lines[row].lstrip(" \t")
            if text and not text.startswith("#"):
                if self.ends(row):
                    if self.lines[row].startswith("---") or any(map(str.strip, self.lines[row + 1 :])):
                        raise NotYaml  # a second document
                    return len(self.lines)
                return row
            row += 1
        return row

    def ends(self, row: int) -> bool:
        """Whether the document ends here."""
        return bool(re.match(r"(---|\.\.\.)([ \t]|$)", self.lines[row]))

    def indent(self, row: int) -> int:
        line = self.lines[row]
        return len(line) - len(line.lstrip(" "))

    def node(self, row: int, col: int, outer: int) -> tuple[Any, int]:
        """What begins at this place, which is the first of its row (or follows a `- `)."""
        text = self.lines[row][col:]
        if text[:1] == "\t" or text[:2] in ("?", "? "):
            raise NotYaml
        if text == "-" or text[:2] in ("- ", "-\t"):
            return self.sequence(row, col)
        if self.key(text):
            return self.mapping(row, col)
        return self.value(row, col, outer)

    def key(self, text: str) -> re.Match[str] | None:
        match = _KEY.match(text)
        plain = match and match[3]
        if plain and (plain[0] in NO_PLAIN_START or plain == "-" or plain.startswith("- ")):
            return None
        return match

    def mapping(self, row: int, col: int) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        while row < len(self.lines):
            match = self.key(self.lines[row][col:])
            if not match:
                raise NotYaml
            name = match[3] if match[3] is not None else Flow(self.lines).read(row, col)[0]
            if name in found or name == "<<":
                raise NotYaml
            found[name], row = self.value(row, col + match.end(), col, in_mapping=True)
            row = self.content(row)
            if row < len(self.lines) and self.indent(row) < col:
                break
            if row < len(self.lines) and (self.indent(row) > col or self.lines[row][col] == "\t"):
                raise NotYaml
        return found, row

    def sequence(self, row: int, col: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while row < len(self.lines) and _ITEM.match(self.lines[row][col:]):
            inner = col + 1 + len(self.lines[row][col + 1 :]) - len(self.lines[row][col + 1 :].lstrip(" "))
            if self.lines[row][inner:].strip() and not self.lines[row][inner:].startswith("#"):
                item, row = self.node(row, inner, col)
            else:
                item, row = self.value(row, inner, col)
            found.append(item)
            row = self.content(row)
            if row < len(self.lines) and self.indent(row) > col:
                raise NotYaml
            if row < len(self.lines) and self.indent(row) < col:
                break
        return found, row

    def value(self, row: int, col: int, outer: int, *, in_mapping: bool = False) -> tuple[Any, int]:
        """A value at this place; what belongs to it on later rows is indented by more than `outer`."""
        line = self.lines[row]
        start = col + len(line[col:]) - len(line[col:].lstrip(" \t"))
        text = line[start:]
        if text[:1] == "&" and (anchor := re.match(r"&[^\s,\[\]{}]+(?=[ \t]|$)", text)):
            return self.value(row, start + anchor.end(), outer, in_mapping=in_mapping)
        if not text or text[0] == "#":
            return self.below(row + 1, outer, in_mapping)
        if text[0] in "|>":
            return self.block_scalar(row, start, outer)
        if text[0] in "'\"[{":
            value, row, col = Flow(self.lines).read(row, start)
            self.nothing_more(row, col)
            return value, row + 1
        if text[0] in NO_PLAIN_START or re.match(r"[-?]([ \t]|$)", text):
            raise NotYaml
        return self.plain(row, start, outer)

    def below(self, row: int, outer: int, in_mapping: bool) -> tuple[Any, int]:
        row = self.content(row)
        if row >= len(self.lines):
            return None, row
        indent = self.indent(row)
        if indent > outer:
            return self.node(row, indent, outer)
        if in_mapping and indent == outer and _ITEM.match(self.lines[row][indent:]):
            return self.sequence(row, indent)
        return None, row

    def nothing_more(self, row: int, col: int) -> None:
        if not re.fullmatch(r"[ \t]*(#.*)?", self.lines[row][col:]):
            raise NotYaml

    def plain(self, row: int, col: int, outer: int) -> tuple[str | None, int]:
        """Unquoted text, over as many rows as are indented for it."""
        parts: list[str] = []
        blank, text = 0, self.lines[row][col:]
        while True:
            words, comment = _without_comment(text)
            if re.search(r":([ \t]|$)", words):
                raise NotYaml
            parts.append(("\n" * blank if blank else " " if parts else "") + words)
            row, blank = row + 1, 0
            while row < len(self.lines) and not self.lines[row].strip(" \t"):
                row, blank = row + 1, blank + 1
            if comment or row >= len(self.lines) or self.indent(row) <= outer or self.ends(row):
                break
            text = self.lines[row].lstrip(" \t")
            if text.startswith("#"):
                break
        whole = "".join(parts)
        return (whole if len(parts) > 1 or is_text(whole) else None), row

    def block_scalar(self, row: int, col: int, outer: int) -> tuple[str, int]:
        """`|` and `>`, with the quirk of js-yaml that a blank first row can set the indentation."""
        header = re.fullmatch(r"([|>])([-+]?)([1-9]?)([-+]?)(?:[ \t]+(?:#.*)?)?", self.lines[row][col:])
        if not header or (header[2] and header[4]):
            raise NotYaml
        indent = outer + 1 + (int(header[3]) - 1 if header[3] else 0)
        known, began, blank, deeper = bool(header[3]), False, 0, False
        out: list[str] = []
        row += 1
        while row < len(self.lines):
            line = self.lines[row]
            spaces = len(line) - len(line.lstrip(" "))
            width = min(spaces, indent) if known else spaces
            if not known:
                indent = max(indent, width)
            if not line[width:]:
                row, blank = row + 1, blank + 1
                continue
            if width < indent:
                break
            if header[1] == "|" or line[width] in " \t":
                deeper = header[1] == ">"
                out.append("\n" * (blank + began))
            elif deeper:
                deeper = False
                out.append("\n" * (blank + 1))
            else:
                out.append("\n" * blank if blank else " " * began)
            row, began, known, blank = row + 1, True, True, 0
            out.append(line[width:])
        chomp = header[2] or header[4]
        end = "" if chomp == "-" else "\n" * (blank + began) if chomp == "+" else "\n" * began
        return "".join(out) + end, row


def _without_comment(text: str) -> tuple[str, bool]:
    match = re.search(r"[ \t]#", text)
    return (text[: match.start()] if match else text).rstrip(" \t"), match is not None
