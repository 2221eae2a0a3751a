"""Print every text that users read: error messages, hints, notices and help texts of `src`.

Usage: python tests/messages.py [--sample N SEED]
A line is `path:line: text`. A part that is filled in at run time is shown as `{expression}`.
"""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "geminids"
_WORDS = re.compile(r"[A-Za-z][a-z']+(?: |$)")
# Markup, patterns and code that are not prose.
_NOT_PROSE = re.compile(r"^[<{(\[]|[<>]/|\\[dws]|;\s*}|^\s*(?:def|import|from|SELECT|function) ")


def messages(file: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of each string of `file` that is a sentence or a part of one.
    Docstrings are left out, except those of commands, which click prints as help."""
    tree = ast.parse(file.read_bytes())
    skipped = set(_docstrings(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in ast.walk(node) if part is not node)
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr | ast.Constant):
            text = _text(node)
            if len(_WORDS.findall(text)) >= 3 and not _NOT_PROSE.search(text):
                yield node.lineno, " ".join(text.split())


def _docstrings(tree: ast.Module) -> Iterator[int]:
    """The ids of the docstrings that no command prints."""
    printed = {
        id(node.body[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(re.search(r"\.(command|group)\b", ast.unparse(each)) for each in node.decorator_list)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and id(node) not in printed:
            yield id(node.value)


def _text(node: ast.JoinedStr | ast.Constant) -> str:
    """The text of a string, with `{expression}` for each part that is filled in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}"
        for part in node.values
        if isinstance(part, ast.Constant | ast.FormattedValue)
    )


def main() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{line}: {text}"
        for file in sorted(SOURCE.rglob("*.py"))
        for line, text in messages(file)
    ]
    if sys.argv[1:2] == ["--sample"]:
        found = random.Random(int(sys.argv[3])).sample(found, int(sys.argv[2]))
    print("\n".join(found))


if __name__ == "__main__":
    main()
