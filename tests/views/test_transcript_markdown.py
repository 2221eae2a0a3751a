"""A stored session as Markdown: the text of one message cannot change the rest of the document."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import hostile_session
from geminids.gemini.protocol.journal.stream import open_journal
from geminids.sessions.transcript import (
    PromptEntry,
    RemarkEntry,
    TextEntry,
    ThoughtEntry,
    ToolEntry,
    TranscriptEntry,
    entries,
)
from geminids.views.transcript.markdown import markdown, sanitised
from recordings import recorded

_OUR_TAGS = {"details", "summary", "sub"}
_MARKDOWN_TAGS = {
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "em", "strong", "code", "pre", "ul", "ol", "li"),
    *("blockquote", "hr", "br", "a", "img"),
}


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]


def _rendered_tags(text: str) -> list[str]:
    """Render Markdown, with HTML allowed, and return the tags of the result."""
    return _Tags(MarkdownIt("commonmark", {"html": True}).render(text)).tags


def _to_markdown(session_entries: list[TranscriptEntry], title: str = "t") -> str:
    return "".join(markdown(title, title, session_entries))


def test_a_session_for_a_pull_request() -> None:
    """The prompt is quoted, the answer is unchanged, and tools are folded."""
    file, _ = recorded("0.61.0", "What is x?")
    text = _to_markdown(list(entries(open_journal(file).messages)), "What is x?")
    assert text.startswith("# What is x?\n")
    assert "**You:**\n\n> What is x?\n" in text
    assert "<details><summary>✓ Read /recorded/repo/a.py</summary>\n\n```\nx = 1\n```\n\n</details>\n" in text
    assert "(exit code 3)</summary>" in text
    assert "\nx is 1 — that's it.\n" in text


def test_a_hostile_session_adds_no_html() -> None:
    """Even if the renderer allows HTML, the document of a hostile session has only our own tags and
    Markdown's.
    """
    text = _to_markdown(list(entries(hostile_session.messages())), hostile_session.HOSTILE_TEXT)
    tags = _rendered_tags(text)
    assert set(tags) <= _OUR_TAGS | _MARKDOWN_TAGS
    assert tags.count("details") == 4
    assert "\x1b" not in text


_HOSTILE_TEXT = st.lists(
    st.sampled_from(
        ["```", "~~~", "`", "``", "````", "<b>", "</details>", "<!--", "<b", ">", "\\", "x", "a b"]
    )
    | st.sampled_from(
        ["\n", "\n", "\n\n", " ", "  ", "   ", "    ", "\t", "- ", "1. ", "> ", "* ", "# ", "\r"]
    ),
    max_size=16,
).map("".join)


@settings(max_examples=300)
@given(_HOSTILE_TEXT, _HOSTILE_TEXT, st.integers(0, 2))
@example("- ```\n<b>x", "<b>", 0)
@example("` \n`<b>`", "", 0)
@example("~~~ `\n<b>\n~~~\n<b>", "", 0)
@example("   ```\n<b>\n   ```", "", 1)
@example("   ```", "```\n<b>\n```", 0)
@example("```\n   ```\n<b>", "", 0)
@example("```\n    ```\n<b>", "", 0)
@example("\\`<b>`", "", 0)
@example("x\n ~~~\n <b>\n ~~~", "", 0)
@example("- x\n\n  ```\n  a\n<b>\n  ```", "", 0)
def test_no_text_adds_html(text: str, other: str, depth: int) -> None:
    """No text adds an HTML tag to the document or changes the structure of the next entry."""
    session_entries: list[TranscriptEntry] = [
        PromptEntry(text=text, depth=depth),
        TextEntry(text=other, depth=depth),
        TextEntry(text=text, depth=depth),
        ThoughtEntry(subject=text, text=other, depth=depth),
        RemarkEntry(level="info", text=text),
        ToolEntry(id="t", name="x", title=text, status="ok", output=other, depth=depth),
        TextEntry(text="end"),
    ]
    document = _to_markdown(session_entries)
    tags = _rendered_tags(document)
    assert "b" not in tags
    assert set(tags) <= _OUR_TAGS | _MARKDOWN_TAGS
    assert tags.count("details") == len(re.findall(r"(?m)^(?:> )*<details><summary>", document))


@pytest.mark.parametrize(
    "text",
    [
        "`<T>` is a type",
        "```html\n<b>x</b>\n```",
        "1. x\n\n   ```html\n   <b>\n\n     x\n   ```\n2. y",
        "a < b and c > d",
    ],
)
def test_plain_markdown_is_unchanged(text: str) -> None:
    """Plain Markdown is not changed, also if its code contains tags."""
    assert sanitised(text) == text
