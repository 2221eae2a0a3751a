"""A stored session as Markdown, for a pull request: the talk in the open, tools and thoughts folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from geminids.sessions.transcript import Entry, Prompt, Remark, Said, Thought, Tool, TurnEnd
from geminids.views.safe import clean, one_line
from geminids.views.transcript import MARKS, facts_of, taken_by

__all__ = ["markdown"]

_FENCE = re.compile(r"(`{3,}|~{3,})([^`]*)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_SPAN = re.compile(r"`[^`]*`")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~])")


def markdown(title: str, facts: str, entries: Iterable[Entry]) -> Iterator[str]:
    """The document, piece by piece. Nothing in it can end a fold or a fence that is not its own, or bring HTML in."""
    yield f"# {_plain(title)}\n\n{_plain(facts)}\n"
    for entry in entries:
        quote = "> " * min(entry.depth, 5)
        text = "\n".join(_of(entry)).strip("\n")
        if text:
            yield "\n" + "".join(f"{quote}{row}".rstrip() + "\n" for row in text.split("\n"))


def _of(entry: Entry) -> Iterator[str]:
    if isinstance(entry, Prompt):
        yield "**You:**" if not entry.depth else "**To the agent:**"
        yield ""
        yield from (f"> {row}".rstrip() for row in sanitised(entry.text).split("\n"))
        yield from (f"> *{_plain(media.media_type)}*" for media in entry.media)
    elif isinstance(entry, Said):
        yield sanitised(entry.text)
    elif isinstance(entry, Thought):
        yield from _fold(f"Thought: {entry.subject}" if entry.subject else "Thought", [entry.text])
    elif isinstance(entry, Tool):
        facts = facts_of(entry)
        title = f"{MARKS[entry.status]} {entry.title}" + (f" ({facts})" if facts else "")
        diffs = [change.diff for change in entry.changes if change.diff]
        told = [("diff", diff) for diff in diffs]
        told += [("", text) for text in (entry.error, None if diffs else entry.output) if text]
        yield from _fold(title, [_fenced(kind, text) for kind, text in told], code=True)
    elif isinstance(entry, Remark):
        yield f"*{_plain(entry.level)}: {_plain(entry.text)}*"
    elif isinstance(entry, TurnEnd) and (told_of := taken_by(entry)):
        yield f"<sub>{escape(told_of)}</sub>"


def _fold(summary: str, inner: Iterable[str], *, code: bool = False) -> Iterator[str]:
    parts = [part if code else sanitised(part) for part in inner if part.strip()]
    if not parts:
        yield _plain(summary)
        return
    yield f"<details><summary>{escape(one_line(summary))}</summary>\n"
    yield "\n\n".join(parts)
    yield "\n</details>"


def _fenced(kind: str, text: str) -> str:
    """A fence that is longer than any in the text."""
    body = clean(text).strip("\n")
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{body}\n{fence}"


def sanitised(text: str) -> str:
    """Markdown as it is, but for HTML: a tag is shown as text, and a fence that was left open is closed.

    >>> sanitised("a <b>x</b> and `<T>`")
    'a &lt;b>x&lt;/b> and `<T>`'
    """
    rows = list(_in_or_out(clean(text).strip("\n").split("\n")))
    # Where a renderer might see code at other places than we do, no place counts as code.
    careful = any(not inside and _is_doubtful(row) for row, inside in rows)
    shown = [row if inside and not careful else _without_tags(row, careful) for row, inside in rows]
    return "\n".join(shown)


def _in_or_out(rows: list[str]) -> Iterator[tuple[str, bool]]:
    """Each row, and whether it is of a block of code. One that is indented may end with its list: it is not told."""
    fence = ""
    for row in rows:
        found = _FENCE.fullmatch(row)
        yield row, bool(fence or found)
        if not found:
            continue
        if not fence:
            fence = found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    if fence:
        yield fence, True


def _is_doubtful(row: str) -> bool:
    return bool(row.count("`") % 2) or "``" in row or "\\`" in row or "~~~" in row


def _without_tags(row: str, careful: bool) -> str:
    if careful:
        return _TAG.sub("&lt;", row)
    shown, at = [], 0
    for span in _SPAN.finditer(row):
        shown += [_TAG.sub("&lt;", row[at : span.start()]), span[0]]
        at = span.end()
    return "".join([*shown, _TAG.sub("&lt;", row[at:])])


def _plain(text: str) -> str:
    """A text on one line in which nothing is Markdown."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
