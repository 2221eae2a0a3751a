"""A stored session as Markdown: what was said stays in its place."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import hostile_session
from geminids.gemini.protocol.journal.stream import open_journal
from geminids.sessions.transcript import AgentText, Entry, Prompt, Remark, Thought, Tool, entries
from geminids.views.transcript.markdown import markdown, sanitised
from recordings import recorded

_OURS = {"details", "summary", "sub"}
_OF_MARKDOWN = {
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "em", "strong", "code", "pre", "ul", "ol", "li"),
    *("blockquote", "hr", "br", "a", "img"),
}


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)
        assert not [name for name, _ in attrs if name.startswith("on")]


def _rendered(text: str) -> list[str]:
    """The tags that a renderer which lets HTML through makes of it."""
    return _Tags(MarkdownIt("commonmark", {"html": True}).render(text)).found


def _written(talk: list[Entry], title: str = "t") -> str:
    return "".join(markdown(title, title, talk))


def test_a_session_for_a_pull_request() -> None:
    """The prompt is quoted, the answer as it is, tools and thoughts are folded."""
    file, _ = recorded("0.61.0", "What is x?")
    text = _written(list(entries(open_journal(file).messages)), "What is x?")
    assert text.startswith("# What is x?\n")
    assert "**You:**\n\n> What is x?\n" in text
    assert "<details><summary>✓ Read /recorded/repo/a.py</summary>\n\n```\nx = 1\n```\n\n</details>\n" in text
    assert "(exit code 3)</summary>" in text
    assert "\nx is 1 — that's it.\n" in text


def test_a_hostile_session_brings_no_html_in() -> None:
    """Even where HTML is let through, there are only our own tags; a fold ends where we end it."""
    text = _written(list(entries(hostile_session.messages())), hostile_session.BAD)
    found = _rendered(text)
    assert set(found) <= _OURS | _OF_MARKDOWN
    assert found.count("details") == 4
    assert "\x1b" not in text


_ODD = st.lists(
    st.sampled_from(
        ["```", "~~~", "`", "``", "````", "<b>", "</details>", "<!--", "<b", ">", "\\", "x", "a b"]
    )
    | st.sampled_from(
        ["\n", "\n", "\n\n", " ", "  ", "   ", "    ", "\t", "- ", "1. ", "> ", "* ", "# ", "\r"]
    ),
    max_size=16,
).map("".join)


@settings(max_examples=300)
@given(_ODD, _ODD, st.integers(0, 2))
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
def test_no_text_brings_html_in(text: str, other: str, depth: int) -> None:
    """Code is not touched where it certainly is code; else a tag is shown as text, and no text changes the next."""
    talk: list[Entry] = [
        Prompt(text=text, depth=depth),
        AgentText(text=other, depth=depth),
        AgentText(text=text, depth=depth),
        Thought(subject=text, text=other, depth=depth),
        Remark(level="info", text=text),
        Tool(id="t", name="x", title=text, status="ok", output=other, depth=depth),
        AgentText(text="end"),
    ]
    document = _written(talk)
    found = _rendered(document)
    assert "b" not in found
    assert set(found) <= _OURS | _OF_MARKDOWN
    assert found.count("details") == len(re.findall(r"(?m)^(?:> )*<details><summary>", document))


@pytest.mark.parametrize(
    "text",
    [
        "`<T>` is a type",
        "```html\n<b>x</b>\n```",
        "1. x\n\n   ```html\n   <b>\n\n     x\n   ```\n2. y",
        "a < b and c > d",
    ],
)
def test_plain_markdown_is_left_as_it_is(text: str) -> None:
    """Code with tags in it too."""
    assert sanitised(text) == text
