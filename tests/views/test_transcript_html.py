"""A stored session as an HTML page: the page contains no active content of the session."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import hostile_session
from geminids.gemini.protocol.journal.stream import open_journal
from geminids.sessions.transcript import (
    Agents,
    PromptEntry,
    RemarkEntry,
    TextEntry,
    ThoughtEntry,
    ToolEntry,
    TranscriptEntry,
    entries,
)
from geminids.views.transcript.html import html
from recordings import recorded

_OUR_TAGS = {
    *("html", "head", "meta", "title", "style", "body", "header", "h1", "div", "main", "footer", "details"),
    *("summary", "b", "i", "span", "pre", "code", "ins", "del", "img"),
}
_EMPTY = {"meta", "img"}


class _Page(HTMLParser):
    """A parsed page: its tags, attributes and text. It fails if a tag is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def assert_only_our_tags(self) -> None:
        assert self.open == []
        assert set(self.tags) <= _OUR_TAGS
        for tag, name, value in self.attributes:
            assert name in {"lang", "charset", "http-equiv", "content", "name", "class", "alt", "src"}, name
            if name == "src":
                assert tag == "img"
                assert (value or "").startswith("data:image/png;base64,iVBOR")
            if name == "class":
                assert (value or "").replace(" ", "").isalpha()


def test_a_hostile_session_adds_no_tags() -> None:
    """The page of a hostile session has only our own tags and a content security policy without
    scripts.
    """
    text = "".join(
        html(hostile_session.HOSTILE_TEXT, hostile_session.HOSTILE_TEXT, entries(hostile_session.messages()))
    )
    page = _Page(text)
    page.assert_only_our_tags()
    assert page.tags.count("img") == 1
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in text
    policies = [value or "" for _, name, value in page.attributes if name == "content"]
    assert policies[0].startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert "script-src" not in policies[0]


@given(st.text(alphabet="<>&\"'`*#/\n -=abo\\~!", max_size=60))
def test_no_text_adds_a_tag(text: str) -> None:
    """No text of an entry adds a tag to the page, also where Markdown is rendered."""
    session_entries: list[TranscriptEntry] = [
        PromptEntry(text=text),
        ThoughtEntry(subject=text, text=text, depth=1),
        TextEntry(text=text),
        RemarkEntry(level=text, text=text),
        ToolEntry(id=text, name=text, title=text, status="ok", output=text, error=text),
    ]
    _Page("".join(html(text, text, session_entries))).assert_only_our_tags()


def test_code_and_bold_are_rendered() -> None:
    """Code blocks, inline code, bold text and headings are rendered. Other Markdown stays text."""
    answer = TextEntry(text="# Plan\nuse `a<b` **now**\n```py\nx < 1\n```\n[l](https://x.y)")
    text = "".join(html("t", "f", [answer]))
    assert (
        "<b>Plan</b>\nuse <code>a&lt;b</code> <b>now</b><pre>x &lt; 1\n</pre>[l](https://x.y)</div>" in text
    )


def test_a_real_session() -> None:
    """In the page of a real session, tools are folded and the subagent has its own block."""
    file, _ = recorded("0.61.0", "Ask an agent.")
    journal = open_journal(file)
    assert journal.header is not None
    agents = Agents(Path(file), journal.header.session_id)
    page = _Page("".join(html("Ask", "now", entries(journal.messages, agents))))
    page.assert_only_our_tags()
    assert page.tags.count("details") == 3
    assert ("div", "class", "agent") in page.attributes
    assert "The agent says 1." in page.text
