"""No two places of the source share more than 15 lines of code."""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
MOST_SHARED = 15

Line = tuple[int, str]
"""The number of a line and its code, without indentation."""


def test_no_two_places_share_more_than_15_lines() -> None:
    """No two places share more than 15 lines.

    Blank lines, comments, docstrings, imports and indentation do not count.
    """
    files = {str(file.relative_to(SOURCE)): file.read_text() for file in sorted(SOURCE.rglob("*.py"))}
    shared = find_shared(files, MOST_SHARED)
    assert not shared, "\n".join(["", *shared])


def test_shared_lines_are_found() -> None:
    """Sixteen equal lines are found, also with comments between them and other indentation; fifteen
    are not."""
    body = [f"value_{number} = {number}" for number in range(16)]
    first = "\n".join(["import os", "# A comment", *body])
    second = textwrap.indent(
        "\n".join(['"""A docstring,', 'of two lines."""', "", *body[:8], "# Why", *body[8:]]), "    "
    )
    files = {"first.py": first, "second.py": f"def function():\n{second}\n    return 1\n"}
    assert find_shared(files, 15) == ["first.py:3-18 and second.py:5-21 share 16 lines"]
    assert find_shared(files, 16) == []
    assert find_shared({"one.py": f"{first}\nother = 1\n{first}"}, 15) == [
        "one.py:3-18 and one.py:22-37 share 16 lines"
    ]


def find_shared(files: Mapping[str, str], most: int) -> list[str]:
    """Return one line for each pair of places that share more than `most` lines; only the longest
    runs."""
    code = {name: _code_lines(text) for name, text in files.items()}
    windows: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, lines in code.items():
        for start in range(len(lines) - most):
            windows[tuple(text for _, text in lines[start : start + most + 1])].append((name, start))
    shared = []
    for places in windows.values():
        for index, (first, i) in enumerate(places):
            for second, j in places[index + 1 :]:
                overlaps = first == second and j - i <= most
                is_continued = i > 0 and j > 0 and code[first][i - 1][1] == code[second][j - 1][1]
                if not overlaps and not is_continued:
                    size = _shared_from(code[first][i:], code[second][j:])
                    ours, theirs = _place(first, code[first], i, size), _place(second, code[second], j, size)
                    shared.append(f"{ours} and {theirs} share {size} lines")
    return shared


def _shared_from(first: list[Line], second: list[Line]) -> int:
    size = 0
    while size < min(len(first), len(second)) and first[size][1] == second[size][1]:
        size += 1
    return size


def _place(name: str, lines: list[Line], start: int, size: int) -> str:
    return f"{name}:{lines[start][0]}-{lines[start + size - 1][0]}"


def _code_lines(text: str) -> list[Line]:
    """The lines of code, with their numbers."""
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt) and node.end_lineno is not None
            skipped |= set(range(node.lineno, node.end_lineno + 1))
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return [
        (number, line.strip())
        for number, line in enumerate(lines, 1)
        if line.strip() and number not in skipped
    ]
