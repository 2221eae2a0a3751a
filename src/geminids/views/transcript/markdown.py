"""A stored session as Markdown, for a pull request: tools and thoughts are folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from geminids.sessions.transcript import AgentText, Entry, Prompt, Remark, Thought, Tool, TurnEnd
from geminids.views.sanitize import clean, one_line
from geminids.views.transcript.transcript import MARKS, facts_of, taken_by

__all__ = ["markdown"]

# A tilde fence counts only without indent: an indented row may be part of a paragraph, where tildes
# mean nothing.
_FENCE = re.compile(r"( *)(`{3,})[^`]*|()(~{3,}).*")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_SPAN = re.compile(r"`[^`]*`")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~])")


def markdown(title: str, facts: str, entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the document piece by piece.

    No entry can close a fold or fence of ours, or add HTML.
    """
    yield f"# {_plain(title)}\n\n{_plain(facts)}\n"
    for entry in entries:
        quote = "> " * min(entry.depth, 5)
        text = "\n".join(_rows(entry)).strip("\n")
        if text:
            yield "\n" + "".join(f"{quote}{row}".rstrip() + "\n" for row in text.split("\n"))


def _rows(entry: Entry) -> Iterator[str]:
    if isinstance(entry, Prompt):
        yield "**You:**" if not entry.depth else "**To the agent:**"
        yield ""
        yield from (f"> {row}".rstrip() for row in sanitised(entry.text).split("\n"))
        yield from (f"> *{_plain(media.media_type)}*" for media in entry.media)
    elif isinstance(entry, AgentText):
        yield sanitised(entry.text)
    elif isinstance(entry, Thought):
        yield from _fold(f"Thought: {entry.subject}" if entry.subject else "Thought", [entry.text])
    elif isinstance(entry, Tool):
        facts = facts_of(entry)
        title = f"{MARKS[entry.status]} {entry.title}" + (f" ({facts})" if facts else "")
        diffs = [change.diff for change in entry.changes if change.diff]
        blocks = [("diff", diff) for diff in diffs]
        blocks += [("", text) for text in (entry.error, None if diffs else entry.output) if text]
        yield from _fold(title, [_fenced(kind, text) for kind, text in blocks], code=True)
    elif isinstance(entry, Remark):
        yield f"*{_plain(entry.level)}: {_plain(entry.text)}*"
    elif isinstance(entry, TurnEnd) and (summary := taken_by(entry)):
        yield f"<sub>{escape(summary)}</sub>"


def _fold(summary: str, inner: Iterable[str], *, code: bool = False) -> Iterator[str]:
    parts = [part if code else sanitised(part) for part in inner if part.strip()]
    if not parts:
        yield _plain(summary)
        return
    yield f"<details><summary>{escape(one_line(summary))}</summary>\n"
    yield "\n\n".join(parts)
    yield "\n</details>"


def _fenced(kind: str, text: str) -> str:
    """A code block whose fence is longer than any fence in the text."""
    body = clean(text).strip("\n")
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{body}\n{fence}"


def sanitised(text: str) -> str:
    """Markdown without HTML: tags become text. Text with ambiguous code blocks is shown as code.

    >>> sanitised("a <b>x</b> and `<T>`")
    'a &lt;b>x&lt;/b> and `<T>`'
    """
    text = clean(text).strip("\n")
    rows = list(_mark_code(text.split("\n")))
    outside = [row for row, inside in rows if not inside]
    if any("```" in row or "~~~" in row for row in outside):
        # A renderer might see a fence here that we do not: then code and text would be swapped
        # after it.
        return _fenced("", text)
    # A renderer might see inline code at other places than we do: then treat nothing as code.
    careful = any(row.count("`") % 2 or "``" in row or "\\`" in row for row in outside)
    shown = [row if inside and not careful else _without_tags(row, careful) for row, inside in rows]
    return "\n".join(shown)


def _mark_code(rows: list[str]) -> Iterator[tuple[str, bool]]:
    """Each row, and whether it is in a code block. An unclosed block without indent is closed."""
    at = 0
    while at < len(rows):
        indent, fence = _fence(rows[at])
        end = _end_of(rows, at, indent, fence) if fence else None
        if not fence or (end is None and indent):
            yield rows[at], False
            at += 1
            continue
        last = len(rows) if end is None else end + 1
        yield from ((row, True) for row in rows[at:last])
        if end is None:
            yield fence, True
        at = last


def _fence(row: str) -> tuple[str, str]:
    match = _FENCE.fullmatch(row)
    return (match[1] or "", match[2] or match[4]) if match else ("", "")


def _end_of(rows: list[str], start: int, indent: str, fence: str) -> int | None:
    """The row that ends a code block.

    An indented block may be part of a list and ends with it, so all its rows must be indented.
    """
    closing = re.compile(rf"{indent or ' {0,3}'}{fence}{fence[0]}*[ \t]*")
    for number, row in enumerate(rows[start + 1 :], start + 1):
        if closing.fullmatch(row):
            return number
        if indent and (_fence(row)[1] or (row.strip() and not row.startswith(indent))):
            return None
    return None


def _without_tags(row: str, careful: bool) -> str:
    if careful:
        return _TAG.sub("&lt;", row)
    shown, at = [], 0
    for span in _SPAN.finditer(row):
        shown += [_TAG.sub("&lt;", row[at : span.start()]), span[0]]
        at = span.end()
    return "".join([*shown, _TAG.sub("&lt;", row[at:])])


def _plain(text: str) -> str:
    """The text in one line, with Markdown escaped."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
