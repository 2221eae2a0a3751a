"""A stored session as an HTML page: the page contains no active content of the session."""

from __future__ import annotations

import re
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
    # Markdown in answers:
    *("p", "h2", "h3", "h4", "h5", "h6", "em", "strong", "s", "ul", "ol", "li", "blockquote", "hr", "br"),
    *("a", "table", "thead", "tbody", "tr", "th", "td"),
}
_ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "alt", "src"),
    *("href", "rel", "title", "start", "style"),
}
_EMPTY = {"meta", "img", "br", "hr"}


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
            assert name in _ATTRIBUTES, name
            if name == "href":
                assert tag == "a"
                assert (value or "").startswith(("https://", "http://", "mailto:"))
            if name == "style":
                assert value in {"text-align:left", "text-align:center", "text-align:right"}
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


_PARTS = st.sampled_from(
    [
        *("<b>", "</div>", "<img src=x onerror=y>", "<!--", "<script>", "&lt;", "&#60;", "&#x202e;", "&#27;"),
        *(
            "[a](https://x.y)",
            '[a](https://x.y/"on=x "t")',
            "[a](javascript:x)",
            "![a](https://x.y)",
            "[",
            "]",
        ),
        *(
            "<https://x.y>",
            "<javascript:x>",
            "![a](data:image/png;base64,x)",
            "(",
            ")",
            "\x1b]0;x\x07",
            "\u202e",
        ),
        *(
            "```",
            "```<b>\n",
            "~~~\n",
            "`",
            "**",
            "_",
            "|",
            "|a|b|\n|-|:-:|\n",
            "# ",
            "> ",
            "- ",
            "1. ",
            "\n",
            "    ",
        ),
    ]
)


@given(st.text(alphabet="<>&\"'`*#/\n -=abo\\~!", max_size=60) | st.lists(_PARTS, max_size=16).map("".join))
def test_no_text_adds_a_tag(text: str) -> None:
    """No text of an entry adds a tag of its own to the page, also where Markdown is rendered.

    No control character and no character that changes the writing direction is left, and links
    have only the schemes of the web and of mail.
    """
    session_entries: list[TranscriptEntry] = [
        PromptEntry(text=text),
        ThoughtEntry(subject=text, text=text, depth=1),
        TextEntry(text=text),
        RemarkEntry(level=text, text=text),
        ToolEntry(id=text, name=text, title=text, status="ok", output=text, error=text),
    ]
    page = "".join(html(text, text, session_entries))
    _Page(page).assert_only_our_tags()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


def test_answers_are_rendered() -> None:
    """The Markdown of an answer is rendered: headings, emphasis, code, lists, tables and links."""
    answer = "# Plan\nuse `a<b` **now**\n\n3. one\n   - two\n\n```py\nx < 1\n```\n|a|b|\n|-|-:|\n|1|[l](https://x.y)|\n"
    text = "".join(html("t", "f", [TextEntry(text=answer)])).replace("\n", "")
    assert "<h1>Plan</h1><p>use <code>a&lt;b</code> <strong>now</strong></p>" in text
    assert '<ol start="3"><li>one<ul><li>two</li></ul></li></ol>' in text
    assert '<pre title="py">x &lt; 1</pre>' in text
    assert '<td>1</td><td style="text-align:right"><a href="https://x.y" rel=' in text


def test_a_prompt_is_shown_as_it_was_typed() -> None:
    """The Markdown of a prompt is not rendered: `*` and `#` can be parts of a pattern or of code."""
    text = "".join(html("t", "f", [PromptEntry(text="# fix src/*.py\n  and tests/*.py")]))
    assert '<div class="you"># fix src/*.py\n  and tests/*.py</div>' in text


def test_an_image_is_not_loaded() -> None:
    """An image in an answer becomes a link, so that the page loads nothing from the network."""
    page = _Page("".join(html("t", "f", [TextEntry(text="![chart](https://x.y/c.png)")])))
    assert "img" not in page.tags
    assert ("a", "href", "https://x.y/c.png") in page.attributes


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
