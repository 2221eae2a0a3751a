"""Write a stored session as one HTML file, without scripts and without external resources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape

from geminids.sessions.transcript import (
    Media,
    PromptEntry,
    RemarkEntry,
    TextEntry,
    ThoughtEntry,
    ToolEntry,
    TranscriptEntry,
    TurnEnd,
)
from geminids.views.sanitize import clean, one_line
from geminids.views.tools import tool_mark, tool_state
from geminids.views.transcript.html_answer import answer_html
from geminids.views.transcript.html_page import escaped, page_head
from geminids.views.transcript.transcript import tool_facts, turn_summary

__all__ = ["html"]

_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_MAX_IMAGE_LENGTH = 10_000_000
_BREAKS = "\r\n"
_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1d2127;--dim:#667080;--line:#dfe3e8;--box:#f5f6f8;--you:#e8f0fe;
--good:#1a7f37;--bad:#c4231c;--warn:#946200;--add:#e3f6e8;--del:#fdeaea}
@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e2e6eb;--dim:#939dab;--line:#2d333b;--box:#1c2127;
--you:#1b2a44;--good:#57c17a;--bad:#ff7b72;--warn:#d9a53a;--add:#12301d;--del:#3a1a1c}}
*{box-sizing:border-box}
body{margin:0 auto;padding:1.2rem 1rem 4rem;max-width:52rem;background:var(--bg);color:var(--fg);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.35rem;line-height:1.3;margin:.3rem 0}
header{border-bottom:1px solid var(--line);padding-bottom:.8rem;margin-bottom:1rem}
.dim,footer,.turn{color:var(--dim);font-size:.82rem}
.turn{margin:.5rem 0 1.6rem}
.you{background:var(--you);border-radius:.7rem;padding:.6rem .9rem;margin:1rem 0;white-space:pre-wrap}
.you img{display:block;max-width:100%;max-height:24rem;margin-top:.5rem;border-radius:.4rem}
.answer{margin:.8rem 0}
.answer h1{font-size:1.25rem}.answer h2{font-size:1.15rem}.answer h3,.answer h4,.answer h5,.answer h6{font-size:1rem}
.answer blockquote{margin:.6rem 0;padding-left:.9rem;border-left:3px solid var(--line);color:var(--dim)}
.answer hr{border:0;border-top:1px solid var(--line)}
.answer table{display:block;overflow-x:auto;border-collapse:collapse;margin:.6rem 0}
.answer th,.answer td{border:1px solid var(--line);padding:.25rem .6rem;vertical-align:top}
.answer th{background:var(--box)}
a{color:inherit}
.thought{color:var(--dim);font-style:italic;font-size:.9rem;margin:.4rem 0;white-space:pre-wrap}
.agent{border-left:3px solid var(--line);margin:.3rem 0 .3rem .4rem;padding-left:.9rem}
.tool{margin:.3rem 0;border:1px solid var(--line);border-radius:.5rem;background:var(--box);font-size:.9rem}
.tool>summary,div.tool{padding:.35rem .7rem}
summary{cursor:pointer}
.ok b{color:var(--good)}.failed b{color:var(--bad)}.denied b{color:var(--warn)}
.cancelled b,.unfinished b{color:var(--dim)}
.tool span{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.85rem}
.tool i{color:var(--dim);font-style:normal;font-size:.82rem;margin-left:.4rem}
pre{margin:0;padding:.6rem .7rem;border-top:1px solid var(--line);overflow-x:auto;max-height:32rem;
font:.8rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;overflow-wrap:normal}
.answer pre{border:1px solid var(--line);border-radius:.5rem;background:var(--box);margin:.4rem 0}
code{font:.88em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--box);padding:.1em .3em;
border-radius:.25rem}
ins,del{text-decoration:none;display:block}ins{background:var(--add)}del{background:var(--del)}
.remark{margin:.6rem 0;color:var(--dim)}.remark.error{color:var(--bad)}.remark.warning{color:var(--warn)}
@media print{pre{max-height:none;white-space:pre-wrap}}
"""


def html(title: str, facts: str, entries: Iterable[TranscriptEntry]) -> Iterator[str]:
    """Yield the parts of the HTML document for a session. `facts` is the line below the title."""
    yield page_head(one_line(title), one_line(facts, 2000), _STYLE, images=True)
    depth = 0
    for entry in entries:
        new_depth = min(entry.depth, 5)
        yield '<div class="agent">\n' * max(0, new_depth - depth) + "</div>\n" * max(0, depth - new_depth)
        depth = new_depth
        yield from _entry_html(entry)
    yield "</div>\n" * depth + "</main>\n<footer>Made by geminids.</footer></body></html>\n"


def _entry_html(entry: TranscriptEntry) -> Iterator[str]:
    if isinstance(entry, PromptEntry):
        images = "".join(map(_image, entry.media))
        yield f'<div class="you">{escaped(entry.text.strip(_BREAKS))}{images}</div>\n'
    elif isinstance(entry, TextEntry):
        yield f'<div class="answer">{answer_html(entry.text)}</div>\n'
    elif isinstance(entry, ThoughtEntry):
        joint = ": " if entry.subject and entry.text else ""
        yield f'<div class="thought">{escaped(f"{entry.subject}{joint}{entry.text}".strip())}</div>\n'
    elif isinstance(entry, ToolEntry):
        yield _tool(entry)
    elif isinstance(entry, RemarkEntry):
        level = entry.level if entry.level in ("error", "warning") else "info"
        yield f'<div class="remark {level}">{escaped(entry.text)}</div>\n'
    elif isinstance(entry, TurnEnd) and (summary := turn_summary(entry)):
        yield f'<div class="turn">{escaped(summary)}</div>\n'


def _tool(entry: ToolEntry) -> str:
    facts = tool_facts(entry)
    head = f"<b>{tool_mark(entry)[0]}</b> <span>{escaped(one_line(entry.title))}</span>"
    head += f"<i>{escaped(facts)}</i>" if facts else ""
    diffs = [change.diff for change in entry.changes if change.diff]
    inner = [_diff(diff) for diff in diffs]
    inner += [escaped(text) for text in (entry.error, None if diffs else entry.output) if text]
    if not inner:
        return f'<div class="tool {tool_state(entry)}">{head}</div>\n'
    body = "".join(f"<pre>{text}</pre>" for text in inner)
    return f'<details class="tool {tool_state(entry)}"><summary>{head}</summary>{body}</details>\n'


def _diff(diff: str) -> str:
    rows = []
    for row in clean(diff).strip("\n").split("\n"):
        if row.startswith(("Index: ", "=====", "--- ", "+++ ")):
            continue
        tag = {"+": "ins", "-": "del"}.get(row[:1])
        rows.append(f"<{tag}>{escape(row)}</{tag}>" if tag else f"{escape(row)}\n")
    return "".join(rows)


def _image(media: Media) -> str:
    """Return the HTML for an image in a prompt.

    An image is shown if its type cannot contain scripts and the image is not too large. Otherwise,
    only the type of the file is shown.
    """
    fits = media.media_type in _IMAGES and len(media.data) <= _MAX_IMAGE_LENGTH
    if fits and _BASE64.fullmatch(media.data):
        return f'<img alt="{media.media_type}" src="data:{media.media_type};base64,{media.data}">'
    return f'<div class="dim">{escaped(one_line(media.media_type, 100))}</div>'
