"""Format a permission request for the terminal, with the exact command or the exact change."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rich.text import Text

from geminids.events.model import Change, PermissionAsked
from geminids.views.amounts import count
from geminids.views.sanitize import clean, one_line

__all__ = ["choices", "is_cut", "question"]

# Only this many lines of a request are shown. The user can press `v` to see all of them.
_MAX_LINES = 40
_VERBS = {"created": "create", "edited": "change", "deleted": "delete", "moved": "move"}


def question(asked: PermissionAsked, *, whole: bool = False) -> Iterator[Text]:
    """Yield the lines of a permission request: all of them with `whole`, otherwise the first 40.

    Control characters in the text are replaced.
    """
    rows = list(_rows(asked))
    yield Text.assemble(("? ", "bold yellow"), (_summary(asked), "bold"))
    for row in rows if whole else rows[:_MAX_LINES]:
        row.no_wrap = True  # let the terminal wrap the line, so that no text is lost
        yield row
    if not whole and len(rows) > _MAX_LINES:
        yield Text(f"… {count(len(rows) - _MAX_LINES, 'more line')}: v shows all", "yellow")


def is_cut(asked: PermissionAsked) -> bool:
    """Return whether the request has so many lines that `question` shows only the first ones."""
    return len(list(_rows(asked))) > _MAX_LINES


def choices(
    asked: PermissionAsked, *, more: bool = False, reason: bool = False, within: str = "chat"
) -> Iterator[Text]:
    """Yield a line with the keys for the answer. If the answer "always" is possible, also yield a
    line that explains it.

    `more` adds the key that shows all lines of the request. `reason` adds the key that denies the
    request with a reason. `within` says how long the answer "always" is valid: for this "chat" or
    this "run".
    """
    short = [("y", "yes, once"), ("n", "no (or Enter)")]
    short += [("r", "no, with a reason")] if reason else []
    line = Text()
    for key, meaning in [*short, ("v", "view all")] if more else short:
        line.append("   " if line else "").append(key, "bold cyan").append(f" {meaning}", "dim")
    yield line
    if "allow_always" in asked.options:
        meaning = one_line(asked.always or "the same")
        yield Text.assemble(("a", "bold cyan"), (f" always, in this {within}: {meaning}", "dim"))


def _summary(asked: PermissionAsked) -> str:
    if asked.command is not None:
        return "the agent wants to run a command"
    if asked.changes:
        kinds = {_VERBS[change.kind] for change in asked.changes}
        verb = kinds.pop() if len(kinds) == 1 else "change"
        return f"the agent wants to {verb} {count(len(asked.changes), 'file')}"
    return f"the agent wants to use {one_line(asked.tool)}"


def _rows(asked: PermissionAsked) -> Iterator[Text]:
    if asked.command is not None:
        for number, row in enumerate(_lines(asked.command)):
            yield Text.assemble(("$ " if not number else "  ", "dim"), (row, "bold"))
        if asked.cwd is not None:
            yield Text(f"in {_short(asked.cwd)}", "dim")
        yield from (Text(row, "dim") for row in _lines(asked.details or "") if row)
        return
    if not asked.changes:
        yield from (Text(row) for row in _lines(asked.title))
        yield from (Text(row) for row in _lines(asked.details or "") if row)
        yield from (
            Text(_display_path(path, asked.cwd), "dim") for path in asked.paths if path not in asked.title
        )
    for change in asked.changes:
        yield from _change(change, asked.cwd)


def _change(change: Change, cwd: str | None) -> Iterator[Text]:
    yield Text(_display_path(change.path, cwd), "bold")
    if not change.diff:
        yield Text("no lines to show", "dim")
        return
    for number, row in enumerate(_lines(change.diff)):
        # Skip the first two lines of the diff (`---`, `+++`), which repeat the path. Later in the
        # diff, such a line is a line of the file.
        if number > 1 or not row.startswith(("--- ", "+++ ")):
            yield Text(row, _colour(row))


def _colour(row: str) -> str:
    return {"+": "green", "-": "red", "@": "cyan"}.get(row[:1], "dim" if row.startswith("\\") else "")


def _lines(text: str) -> list[str]:
    return clean(text).rstrip("\n").split("\n")


def _display_path(path: str, cwd: str | None) -> str:
    """Return a path relative to the folder `cwd`. If the path is outside `cwd`, return the full
    path."""
    full = os.path.normpath(os.path.join(cwd, path)) if cwd else path
    if cwd and os.path.commonpath((full, cwd)) == cwd:
        return one_line(os.path.relpath(full, cwd))
    return one_line(_short(full))


def _short(path: str) -> str:
    home = os.path.expanduser("~")
    return clean(f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path)
