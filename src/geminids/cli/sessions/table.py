"""Print the table of `geminids sessions list`, with one line per session."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from geminids.sessions.finder import SessionInfo
from geminids.views.sanitize import one_line
from geminids.views.terminal.screen import Screen

__all__ = ["ago", "as_rows", "print_table", "short_ids", "why_not_resumable"]

_RELEASES = {"sha256_json": "to 0.28", "slug_json": "0.29-0.38", "slug_journal": "0.39+"}
_MIN_ID_LENGTH = 8
_MAX_FOLDER_WIDTH = 18


def why_not_resumable(info: SessionInfo) -> str | None:
    """Return why Gemini CLI cannot resume a session.

    Return None if the CLI can resume the session, or if this is unknown.
    """
    if info.damaged:
        return "damaged: rescue it"
    if info.resumable is False:
        return "a subagent's" if info.kind == "subagent" else "nothing to resume"
    return None


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Return a dict that maps each id to its short form.

    The short form is the first eight characters of the id, or more if needed to make the short form
    unique.
    """
    ordered = sorted(set(ids))
    prefixes: dict[str, str] = {}
    for number, session_id in enumerate(ordered):
        neighbours = ordered[max(number - 1, 0) : number] + ordered[number + 1 : number + 2]
        shared = max((_shared_length(session_id, other) for other in neighbours), default=0)
        prefixes[session_id] = session_id[: max(_MIN_ID_LENGTH, shared + 1)]
    return prefixes


def _shared_length(first: str, second: str) -> int:
    for number, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return number
    return min(len(first), len(second))


def ago(then: datetime, now: datetime) -> str:
    """Return how long ago the time `then` was, rounded down to one unit.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> ago(noon, noon.replace(minute=5)), ago(noon, noon.replace(day=3)), ago(noon, noon.replace(second=9))
    ('5 min ago', '2 d ago', 'now')
    """
    seconds = (now - then).total_seconds()
    for unit, size in (("y", 31_557_600), ("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "now"


def as_rows(sessions: Sequence[SessionInfo], shown: Sequence[SessionInfo]) -> list[dict[str, Any]]:
    """Return the sessions in `shown` as JSON objects for `--json`.

    `sessions` contains all sessions. A short id is unique among all of them.
    """
    short = short_ids([info.id for info in sessions])
    now = datetime.now(UTC)
    return [
        {
            "short": short[info.id],
            **{name: getattr(info, name) for name in ("id", "title", "messages", "project", "file", "size")},
            "started": info.started,
            "updated": info.updated,
            "ago": ago(info.updated, now),
            "generation": info.generation,
            "releases": _RELEASES[info.generation],
            "resumable": info.resumable,
            "why_not": why_not_resumable(info),
            "damaged": info.damaged,
            "others": info.others,
        }
        for info in shown
    ]


class _Row(msgspec.Struct, frozen=True):
    cells: tuple[str, ...]
    title: str
    note: str


def print_table(sessions: Sequence[SessionInfo], shown: Sequence[SessionInfo], *, folders: bool) -> None:
    """Print a table of the sessions in `shown`, with shortened ids.

    `sessions` contains all sessions: each shortened id is unique among them. `folders` adds a column
    with the folder of each session.
    """
    screen = Screen(sys.stdout)
    short = short_ids([info.id for info in sessions])
    now = datetime.now(UTC)
    heads = ("ID", "CHANGED", "MSGS", "RELEASE", *(("FOLDER",) if folders else ()))
    rows = [_row(info, short[info.id], now, folders) for info in shown]
    widths = [
        max(cell_len(cell) for cell in column)
        for column in zip(heads, *(row.cells for row in rows), strict=True)
    ]
    screen.line(Text("  ".join([*_fitted(heads, widths), "TITLE"]), "bold"))
    for row in rows:
        name, *cells = _fitted(row.cells, widths)
        style = "dim" if row.note else ""
        note = Text(f"  [{row.note}]" if row.note else "", "yellow")
        title = Text(row.title, style)
        if screen.width is not None:
            title_width = screen.width - sum(widths) - 2 * len(widths) - cell_len(note.plain)
            title.truncate(max(title_width, 1), overflow="ellipsis")
        screen.line(Text(name, style or "cyan"), Text(f"  {'  '.join(cells)}  ", "dim"), title, note)
    if len(shown) < len(sessions):
        screen.line(Text(f"and {len(sessions) - len(shown):,} more; use --limit 0 to list all", "dim"))
    screen.flush()


def _row(info: SessionInfo, short: str, now: datetime, folders: bool) -> _Row:
    folder = one_line(os.path.basename(info.project or "") or "?", _MAX_FOLDER_WIDTH)
    messages = "?" if info.messages is None else str(info.messages)
    cells = (one_line(short), ago(info.updated, now), messages, _RELEASES[info.generation])
    note = why_not_resumable(info) or ""
    return _Row((*cells, folder) if folders else cells, one_line(info.title or "-", 200), note)


def _fitted(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Pad the cells of a line to the widths of the columns.

    The third cell, the number of messages, is aligned right; the other cells are aligned left.
    """
    fitted = []
    for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        fitted.append(cell.rjust(width) if number == 2 else set_cell_size(cell, width))
    return fitted
