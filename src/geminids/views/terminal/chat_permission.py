"""A permission request with all details: the exact command, or the exact change."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rich.text import Text

from geminids.events.model import Change, PermissionAsked
from geminids.views.amounts import count
from geminids.views.sanitize import clean, one_line

__all__ = ["choices", "is_cut", "question"]

# The number of lines before `v` must be pressed to see the rest.
_SHOWN = 40
_WANTS = {"created": "make", "edited": "change", "deleted": "delete", "moved": "move"}


def question(asked: PermissionAsked, *, whole: bool = False) -> Iterator[Text]:
    """The lines of a request, cut after a screenful unless `whole`; all text is sanitized."""
    rows = list(_rows(asked))
    yield Text.assemble(("? ", "bold yellow"), (_wants(asked), "bold"))
    for row in rows if whole else rows[:_SHOWN]:
        row.no_wrap = True  # the terminal wraps it, so nothing is cut
        yield row
    if not whole and len(rows) > _SHOWN:
        yield Text(f"… {count(len(rows) - _SHOWN, 'more line')}: v shows all", "yellow")


def is_cut(asked: PermissionAsked) -> bool:
    """Whether `question` cuts lines."""
    return len(list(_rows(asked))) > _SHOWN


def choices(
    asked: PermissionAsked, *, more: bool = False, reason: bool = False, within: str = "chat"
) -> Iterator[Text]:
    """The keys to answer with. A second line explains "always"; `within` names its scope."""
    short = [("y", "yes, once"), ("n", "no (or Enter)")]
    short += [("r", "no, with a reason")] if reason else []
    line = Text()
    for key, meaning in [*short, ("v", "view all")] if more else short:
        line.append("   " if line else "").append(key, "bold cyan").append(f" {meaning}", "dim")
    yield line
    if "allow_always" in asked.options:
        meaning = one_line(asked.always or "the same")
        yield Text.assemble(("a", "bold cyan"), (f" always, in this {within}: {meaning}", "dim"))


def _wants(asked: PermissionAsked) -> str:
    if asked.command is not None:
        return "the agent wants to run a command"
    if asked.changes:
        kinds = {_WANTS[change.kind] for change in asked.changes}
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
        # The first two rows repeat the path above; later such a row is a line of the file.
        if number > 1 or not row.startswith(("--- ", "+++ ")):
            yield Text(row, _colour(row))


def _colour(row: str) -> str:
    return {"+": "green", "-": "red", "@": "cyan"}.get(row[:1], "dim" if row.startswith("\\") else "")


def _lines(text: str) -> list[str]:
    return clean(text).rstrip("\n").split("\n")


def _display_path(path: str, cwd: str | None) -> str:
    """A path relative to the folder; the full path if it is outside."""
    full = os.path.normpath(os.path.join(cwd, path)) if cwd else path
    if cwd and os.path.commonpath((full, cwd)) == cwd:
        return one_line(os.path.relpath(full, cwd))
    return one_line(_short(full))


def _short(path: str) -> str:
    home = os.path.expanduser("~")
    return clean(f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path)
