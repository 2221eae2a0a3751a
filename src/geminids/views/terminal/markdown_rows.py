"""Format the blocks of a Markdown text (paragraphs, lists, tables, code) as rows of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from markdown_it.token import Token
from rich.cells import cell_len
from rich.text import Text

from geminids.views.markdown_parser import MarkdownParser
from geminids.views.sanitize import clean
from geminids.views.terminal.wrap import wrap

__all__ = [
    "MAX_NUMBER",
    "MarkdownBlock",
    "Rows",
    "block_rows",
    "code_row",
    "list_items",
    "list_number",
    "parse",
    "render",
]

MAX_NUMBER = 999_999_999
"""The largest number of a list item in Markdown."""
_MIN_WIDTH = 10
_MAX_RULE_WIDTH = 40
_CODE = "cyan"
_DIFF_STYLES = {"+": "green", "-": "red", "@": _CODE}
_INLINE_STYLES = {"strong": "bold", "em": "italic", "s": "strike", "link": "underline"}
_GAP_BEFORE = ("heading", "fence", "code_block", "table")
_GAP_AFTER = ("fence", "code_block", "table")
_COLUMN_GAP = 3  # of " │ "


class MarkdownBlock(NamedTuple):
    """A block of a Markdown text: its tokens, and its first and last line (`end` is exclusive)."""

    kind: str
    tokens: list[Token]
    start: int
    end: int


class Rows:
    """Collects the rows of blocks, with an empty row between blocks where one is needed.

    An empty row comes where the source has an empty line, and around code and tables.
    """

    def __init__(self) -> None:
        self._new: list[Text] = []
        self._last_kind: str | None = None
        self._gap = False
        self._begun = False

    def add(self, kind: str, rows: Iterable[Text], *, gap: bool) -> None:
        """Add the rows of a block. With `gap`, the source has an empty line before the block."""
        self._gap |= gap or kind in _GAP_BEFORE or self._last_kind in _GAP_AFTER
        self._last_kind = kind
        self.extend(rows)

    def extend(self, rows: Iterable[Text]) -> None:
        """Add more rows of the last block."""
        for row in rows:
            if self._gap and self._begun:
                self._new.append(Text())
            self._gap, self._begun = False, True
            self._new.append(row)

    def take(self) -> list[Text]:
        """Return the rows that were added since the last call."""
        rows, self._new = self._new, []
        return rows


@cache
def _parser() -> MarkdownParser:
    return MarkdownParser()


def parse(lines: Sequence[str]) -> list[MarkdownBlock]:
    """Parse the lines of a Markdown text, and return its top-level blocks."""
    tokens: list[Token] = []
    _parser().block.parse("\n".join(lines) + "\n", _parser(), {}, tokens)
    return _blocks(tokens)


def render(text: str, width: int | None) -> list[Text]:
    """Return the rows of a whole Markdown text. With a width of None, no line is wrapped."""
    lines = [clean(line) for line in text.split("\n")]
    return _sequence(parse(lines), lines, width)


def block_rows(
    block: MarkdownBlock, lines: Sequence[str], width: int | None, *, quoted: bool = False, skip: int = 0
) -> list[Text]:
    """Return the rows of one block of the text `lines`.

    `quoted` says whether the block is in a quotation. The first `skip` items of a list are left out.
    """
    token = block.tokens[0]
    if block.kind == "paragraph":
        return wrap(_inline(block.tokens[1]), width)
    if block.kind == "heading":
        heading = _inline(block.tokens[1])
        heading.stylize("bold underline" if token.tag == "h1" else "bold")
        return wrap(heading, width)
    if block.kind in ("fence", "code_block"):
        code = token.content.rstrip("\n")
        return [code_row(line, token.info) for line in code.split("\n")] if code else []
    if block.kind == "list":
        return _list(block, lines, width, quoted, skip)
    if block.kind == "blockquote":
        inner = _sequence(_blocks(block.tokens[1:-1]), lines, _less(width, 2), quoted=True)
        return [_joined(Text("│ ", "dim"), row) for row in inner]
    if block.kind == "table":
        return _table(block.tokens, width)
    if block.kind == "hr":
        return [Text("─" * min(width or _MAX_RULE_WIDTH, _MAX_RULE_WIDTH), "dim")]
    return [Text(clean(line), no_wrap=True) for line in lines[block.start : block.end]]


def code_row(line: str, language: str) -> Text:
    """Return a line of code. It is not wrapped, so that it can be copied."""
    shown = clean(line).expandtabs(4)
    is_diff = language.strip() in ("diff", "patch")
    return Text(shown, _DIFF_STYLES.get(shown[:1], "") if is_diff else _CODE, no_wrap=True)


def list_items(block: MarkdownBlock) -> list[MarkdownBlock]:
    return _blocks(block.tokens[1:-1])


def list_number(block: MarkdownBlock) -> int:
    """Return the number of the first item of an ordered list."""
    start = block.tokens[0].attrGet("start")
    return 1 if start is None else int(start)


def _blocks(tokens: Sequence[Token]) -> list[MarkdownBlock]:
    blocks, depth, begin = [], 0, 0
    for number, token in enumerate(tokens):
        if depth == 0:
            begin = number
        depth += token.nesting
        if depth == 0:
            first = tokens[begin]
            kind = first.type.removesuffix("_open").removeprefix("bullet_").removeprefix("ordered_")
            start, end = first.map or (0, 0)
            blocks.append(MarkdownBlock(kind, list(tokens[begin : number + 1]), start, end))
    return blocks


def _sequence(
    blocks: Iterable[MarkdownBlock], lines: Sequence[str], width: int | None, *, quoted: bool = False
) -> list[Text]:
    rows = Rows()
    for block in blocks:
        gap = _is_blank_before(block, lines, quoted)
        rows.add(block.kind, block_rows(block, lines, width, quoted=quoted), gap=gap)
    return rows.take()


def _is_blank_before(block: MarkdownBlock, lines: Sequence[str], quoted: bool) -> bool:
    return block.start > 0 and not lines[block.start - 1].strip(" \t>" if quoted else None)


def _list(
    block: MarkdownBlock, lines: Sequence[str], width: int | None, quoted: bool, skip: int
) -> list[Text]:
    opening, number = block.tokens[0], list_number(block)
    rows = Rows()
    for index, item in enumerate(list_items(block)):
        if index < skip:
            continue
        is_ordered = opening.type == "ordered_list_open"
        mark = f"{min(number + index, MAX_NUMBER)}{opening.markup} " if is_ordered else "• "
        inner = _sequence(_blocks(item.tokens[1:-1]), lines, _less(width, len(mark)), quoted=quoted)
        marked = [
            _joined(Text(" " * len(mark) if at else mark), row) if row or not at else row
            for at, row in enumerate(inner or [Text()])
        ]
        rows.add("list", marked, gap=_is_blank_before(item, lines, quoted))
    return rows.take()


def _table(tokens: Sequence[Token], width: int | None) -> list[Text]:
    table: list[list[Text]] = []
    aligns: list[str] = []
    for number, token in enumerate(tokens):
        if token.type == "tr_open":
            table.append([])
        elif token.type in ("th_open", "td_open"):
            table[-1].append(_inline(tokens[number + 1]))
            if token.type == "th_open":
                aligns.append(str(token.attrGet("style") or "").removeprefix("text-align:"))
    for cell in table[0]:
        cell.stylize("bold")
    widths = _column_widths(table, width)
    if widths is None:
        return _records(table, width)
    bodies = [[wrap(cell, columns) for cell, columns in zip(row, widths, strict=True)] for row in table]
    rule = Text("─┼─".join("─" * columns for columns in widths), "dim", no_wrap=True)
    # If a cell has several rows, a rule between the rows of the table shows where each ends.
    is_ruled = any(len(cell) > 1 for row in bodies[1:] for cell in row)
    rows: list[Text] = []
    for number, body in enumerate(bodies):
        if number == 1 or (number > 1 and is_ruled):
            rows.append(rule.copy())
        for at in range(max(map(len, body))):
            cells = [cell[at] if at < len(cell) else Text() for cell in body]
            rows.append(_table_row(cells, widths, aligns))
    return rows


def _table_row(cells: Sequence[Text], widths: Sequence[int], aligns: Sequence[str]) -> Text:
    row = Text(no_wrap=True)
    for number, (cell, columns, align) in enumerate(zip(cells, widths, aligns, strict=True)):
        free = max(columns - cell.cell_len, 0)
        left = free if align == "right" else free // 2 if align == "center" else 0
        row.append(" │ " if number else "", "dim").append(" " * left).append_text(cell)
        row.append(" " * (free - left))
    row.rstrip()
    return row


def _column_widths(table: Sequence[Sequence[Text]], width: int | None) -> list[int] | None:
    """Return the widths of the columns; None if the columns do not fit, even with wrapped cells."""
    columns = list(zip(*table, strict=True))
    widths = [max(1, *(cell.cell_len for cell in column)) for column in columns]
    if width is None:
        return widths
    free = width - _COLUMN_GAP * (len(columns) - 1)
    words = [
        max((cell_len(word) for cell in column for word in cell.plain.split()), default=1)
        for column in columns
    ]
    if sum(words) > free:
        return None
    widths = [min(columns, free) for columns in widths]
    while (excess := sum(widths) - free) > 0:
        # Narrow the widest column that can still be narrowed.
        at = max(range(len(widths)), key=lambda at: (widths[at] > words[at], widths[at]))
        others = [wide for other, wide in enumerate(widths) if other != at and wide > words[other]]
        step = widths[at] - max(words[at], max(others, default=0))
        widths[at] -= min(excess, max(step, 1))
    return widths


def _records(table: Sequence[Sequence[Text]], width: int | None) -> list[Text]:
    """Return a table that is too wide as a list: a line with the heading and the value for each cell."""
    rows: list[Text] = []
    for number, record in enumerate(table[1:]):
        rows += [Text()] if number else []
        for heading, cell in zip(table[0], record, strict=True):
            line = Text.assemble(heading, ": ", cell) if heading else cell
            first, *rest = wrap(line, _less(width, 2))
            rows += [first, *(_joined(Text("  "), row) for row in rest)]
    return rows


def _inline(token: Token) -> Text:
    children: list[Token] = []
    _parser().inline.parse(token.content, _parser(), {}, children)
    text = Text()
    opened: list[tuple[int, str]] = []
    for child in children:
        kind = child.type
        if child.nesting == 1:
            opened.append((len(text), _target(child, "href")))
        elif child.nesting == -1:
            start, target = opened.pop()
            text.stylize(_INLINE_STYLES.get(kind.removesuffix("_close"), ""), start)
            # The address is shown, because a text can name another address than its link has.
            if target and target.removeprefix("mailto:") != text.plain[start:]:
                text.append(f" ({target})", "dim")
        elif kind in ("softbreak", "hardbreak"):
            text.append("\n")
        elif kind == "image":
            text.append(f"{_flat(child.content) or 'image'}").append(f" ({_target(child, 'src')})", "dim")
        else:
            text.append(_flat(child.content), _CODE if kind == "code_inline" else "")
    return text


def _target(token: Token, name: str) -> str:
    return _flat(str(token.attrGet(name) or ""))


def _flat(text: str) -> str:
    """Clean a piece of text. The parser decodes entities such as `&#13;` to control characters."""
    return clean(text).replace("\n", " ").replace("\t", " ")


def _less(width: int | None, columns: int) -> int | None:
    return None if width is None else max(width - columns, _MIN_WIDTH)


def _joined(lead: Text, row: Text) -> Text:
    joined = Text.assemble(lead, row)
    joined.no_wrap = True
    joined.rstrip()
    return joined
