"""Write a stored session as Markdown, for example for a pull request.

The details of tool calls and thoughts are collapsed (`<details>`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from geminids.sessions.transcript import (
    PromptEntry,
    RemarkEntry,
    TextEntry,
    ThoughtEntry,
    ToolEntry,
    TranscriptEntry,
    TurnEnd,
)
from geminids.views.sanitize import clean, one_line
from geminids.views.tools import tool_mark
from geminids.views.transcript.transcript import tool_facts, turn_summary

__all__ = ["markdown"]

# A fence: the line that starts or ends a code block. A line of tildes is a fence only if it is not
# indented. An indented line may be part of a paragraph, where tildes have no meaning.
_FENCE = re.compile(r"( *)(`{3,})[^`]*|()(~{3,}).*")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_SPAN = re.compile(r"`[^`]*`")
_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~])")


def markdown(title: str, facts: str, entries: Iterable[TranscriptEntry]) -> Iterator[str]:
    """Yield the parts of the Markdown document for a session. `facts` is the line below the title.

    The text of the session is made safe: it cannot end our code blocks or collapsed parts, and
    cannot add HTML.
    """
    yield f"# {_plain(title)}\n\n{_plain(facts)}\n"
    for entry in entries:
        quote = "> " * min(entry.depth, 5)
        text = "\n".join(_rows(entry)).strip("\n")
        if text:
            yield "\n" + "".join(f"{quote}{row}".rstrip() + "\n" for row in text.split("\n"))


def _rows(entry: TranscriptEntry) -> Iterator[str]:
    if isinstance(entry, PromptEntry):
        yield "**You:**" if not entry.depth else "**To the agent:**"
        yield ""
        yield from (f"> {row}".rstrip() for row in sanitised(entry.text).split("\n"))
        yield from (f"> *{_plain(media.media_type)}*" for media in entry.media)
    elif isinstance(entry, TextEntry):
        yield sanitised(entry.text)
    elif isinstance(entry, ThoughtEntry):
        yield from _fold(f"Thought: {entry.subject}" if entry.subject else "Thought", [entry.text])
    elif isinstance(entry, ToolEntry):
        facts = tool_facts(entry)
        title = f"{tool_mark(entry)[0]} {entry.title}" + (f" ({facts})" if facts else "")
        diffs = [change.diff for change in entry.changes if change.diff]
        blocks = [("diff", diff) for diff in diffs]
        blocks += [("", text) for text in (entry.error, None if diffs else entry.output) if text]
        yield from _fold(title, [_fenced(kind, text) for kind, text in blocks], code=True)
    elif isinstance(entry, RemarkEntry):
        yield f"*{_plain(entry.level)}: {_plain(entry.text)}*"
    elif isinstance(entry, TurnEnd) and (summary := turn_summary(entry)):
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
    """Return `text` as a code block of the language `kind`.

    The fences (the lines of backticks around the block) are longer than all groups of backticks in
    the text, so no line of the text ends the block.
    """
    body = clean(text).strip("\n")
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{kind}\n{body}\n{fence}"


def sanitised(text: str) -> str:
    """Escape the HTML tags in a Markdown text, except in code.

    If it is not clear which lines are code blocks, the whole text becomes one code block.

    >>> sanitised("a <b>x</b> and `<T>`")
    'a &lt;b>x&lt;/b> and `<T>`'
    """
    text = clean(text).strip("\n")
    rows = list(_mark_code(text.split("\n")))
    outside = [row for row, inside in rows if not inside]
    if any("```" in row or "~~~" in row for row in outside):
        # A Markdown renderer might start a code block here although we do not. It would then treat
        # later text as code, and code as text. So make the whole text one code block.
        return _fenced("", text)
    # If a renderer might find inline code at other places than we do, treat nothing as inline code.
    careful = any(row.count("`") % 2 or "``" in row or "\\`" in row for row in outside)
    shown = [row if inside and not careful else _without_tags(row, careful) for row, inside in rows]
    return "\n".join(shown)


def _mark_code(rows: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield each line of a Markdown text, and whether the line is in a code block.

    A code block starts with an opening fence and ends with a closing fence. A fence is a line of
    backticks or tildes. What happens if the closing fence is missing depends on the opening fence:

    - Not indented: the block ends with the text, and a closing fence is added.
    - Indented: the opening fence is treated as normal text, and no block starts.
    """
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
    """Return the index of the closing fence of the code block whose opening fence is at the index
    `start`; None if there is no closing fence.

    `indent` contains the spaces before the opening fence, and `fence` its backticks or tildes. An
    indented block may be part of a list item, which ends at the first line with a smaller indent.
    So the search for its closing fence stops at that line. It also stops at another opening fence.
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
    """Return the text on one line, with the special characters of Markdown escaped."""
    return _SPECIAL.sub(r"\\\1", one_line(text))
