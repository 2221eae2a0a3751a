"""Markdown in the terminal: what arrives in pieces ends in the same rows as the whole text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from geminids.views.terminal.markdown_rows import render
from geminids.views.terminal.markdown_stream import MarkdownStream

_PARTS = st.sampled_from(
    [
        *(
            "word ",
            "two words",
            "a",
            "**bold**",
            "*",
            "**",
            "_x_",
            "`code`",
            "`",
            "~~no~~",
            "日本語の文字",
            "👍",
        ),
        *("[link](https://x.y/z)", "[a]: /b", "[a]", "![image](https://x.y/i.png)", "<https://x.y>", "<b>"),
        *("\n", "\n", "\n", "\n\n", "\n\n", " ", "  ", "   ", "    ", "\t", "\r\n", "\r", "\\", "  \n"),
        *("# ", "## ", "=== ", "---", "***", "> ", "- ", "* ", "+ ", "1. ", "2. ", "7) ", "999999999. ", "-"),
        *("```", "```\n", "````", "~~~", "```py\n", "```diff\n", "+new\n", "-old\n", "   ```\n", "\n```\n"),
        *("|", "a | b\n", "| a | b |\n", "--|--\n", "|---|:-:|\n", "|--\n", "&#x202e;", "&#13;", "\x1b[31m"),
        *("- a\n", "1. a\n", "  - b\n", "   c\n", "\n- d\n", "    e\n", "> q\n", "\x1b", "<!--", "[ ] task"),
    ]
)
_TEXTS = st.lists(_PARTS, max_size=24).map("".join)


def _streamed(pieces: list[str], width: int | None) -> list[str]:
    stream = MarkdownStream(lambda: width)
    rows = [row for piece in pieces for row in stream.feed(piece)]
    return [row.markup for row in [*rows, *stream.end()]]


def _cut(text: str, sizes: list[int]) -> list[str]:
    """Cut a text into pieces of these sizes, in turn."""
    pieces: list[str] = []
    at = 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    return pieces


@settings(max_examples=600, deadline=None)
@given(_TEXTS, st.lists(st.integers(1, 40), min_size=1, max_size=6), st.sampled_from([None, 20, 60]))
@example("# a | b\n--|--\n", [1], 60)
@example("```a | b\n--|--\n", [1], 60)
@example("- x\n- a | b\n--|--\n", [4], 60)
@example("   - x\n  - y\n\n\n - z\n- w\n", [1], 60)
@example("9) a\n\n   b\n8) c\n\nd\n", [3], 60)
@example("```\n\na\n\n", [2], 60)
@example("  ```\n  a\nb\n\nc\n  ```\nd", [1], 60)
def test_every_way_to_cut_a_text_has_the_same_rows(text: str, sizes: list[int], width: int | None) -> None:
    """Markdown in pieces of any sizes ends in the same rows, with the same styles, as the whole text."""
    whole = [row.markup for row in render(text, width)]
    assert _streamed(_cut(text, sizes), width) == whole
    assert _streamed([text], width) == whole


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        ("", "word **b** "),
        ("", "a line of text\n"),
        ("", "a `b`\n\n"),
        ("", "- item\n"),
        ("", "1. item\n\n"),
        ("- a\n", "  - nested\n"),
        ("- a\n\n", "      code\n\n"),
        ("```\n", "code\n"),
        (" ```\n", "code\n\n"),
        ("|a|b|\n|-|-|\n", "|c|d|\n"),
        ("", "> quote\n"),
        ("text\n", "2. no list\n"),
        ("", "[" * 3),
    ],
)
def test_the_cost_is_linear(head: str, piece: str) -> None:
    """10,000 pieces take about four times as long as 2,500, not sixteen times."""

    def seconds(count: int) -> float:
        stream = MarkdownStream(lambda: 80)
        start = time.process_time()
        stream.feed(head)
        for _ in range(count):
            stream.feed(piece)
            _ = stream.tail
        stream.end()
        return time.process_time() - start

    def ratio() -> float:
        return seconds(10_000) / (seconds(2_500) + 0.01)

    seconds(100)
    # The best of some rounds, because other processes use the caches and the cores too.
    assert any(ratio() < 8 for _ in range(4))


@settings(deadline=None)
@given(_TEXTS | st.text())
def test_no_markdown_steers_the_terminal(text: str) -> None:
    """No rendered row has a control character or a character that changes the writing direction,
    also if the text has it as an entity.
    """
    shown = "\n".join(row.plain for row in render(text, 40))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)


def test_every_block_has_its_form() -> None:
    """Headings, lists, code, quotations, tables and links are rendered, and wrapped at words."""
    text = (
        "## Plan\nFix **all** of the `tests` in the folder.\n\n"
        "2) First [the docs](https://x.y/z), then <https://a.b>.\n3) Next\n   - nested item with many words\n\n"
        "> Quoted words that are wrapped too.\n\n"
        "```sh\nls   -la  # a line of code is never wrapped\n```\n"
        "|Name|Value|\n|-|-:|\n|`a`|1|\n|b|22|\n"
    )
    assert [row.plain for row in render(text, 30)] == [
        "Plan",
        "Fix all of the tests in the",
        "folder.",
        "",
        "2) First the docs",
        "   (https://x.y/z), then",
        "   https://a.b.",
        "3) Next",
        "   • nested item with many",
        "     words",
        "",
        "│ Quoted words that are",
        "│ wrapped too.",
        "",
        "ls   -la  # a line of code is never wrapped",
        "",
        "Name │ Value",
        "─────┼──────",
        "a    │     1",
        "b    │    22",
    ]


def test_a_wide_table_wraps_its_cells() -> None:
    """A table that is too wide wraps its cells at words, with a rule between its rows."""
    text = "|Option|Meaning|\n|-|-|\n|--timeout|How long a run may take|\n|--model|x|\n"
    assert [row.plain for row in render(text, 26)] == [
        "Option    │ Meaning",
        "──────────┼───────────────",
        "--timeout │ How long a run",
        "          │ may take",
        "──────────┼───────────────",
        "--model   │ x",
    ]


def test_a_table_that_does_not_fit_is_a_list() -> None:
    """If not even the words of a table fit, each cell is a line with its heading."""
    text = "|Option|Environment|Default|\n|-|-|-|\n|--timeout|GEMINIDS_TIMEOUT|300|\n|--model|GEMINIDS_MODEL|-|\n"
    assert [row.plain for row in render(text, 31)] == [
        "Option: --timeout",
        "Environment: GEMINIDS_TIMEOUT",
        "Default: 300",
        "",
        "Option: --model",
        "Environment: GEMINIDS_MODEL",
        "Default: -",
    ]


def test_a_long_word_stays_whole() -> None:
    """A word that is wider than a row, such as a URL, is not broken, so that it can be copied. Text
    in a script without spaces is wrapped between its letters.
    """
    url = "https://example.com/" + "x" * 40
    assert [row.plain for row in render(f"see {url} now", 20)] == ["see", url, "now"]
    assert [row.plain for row in render("日本語" * 4, 10)] == ["日本語日本", "語日本語日", "本語"]


def test_a_link_shows_its_address() -> None:
    """The address of a link is shown even if its text is another address. `javascript:` is no link."""
    shown = [row.plain for row in render("[https://a.b](https://evil.c) [x](javascript:y)", 80)]
    assert shown == ["https://a.b (https://evil.c) [x](javascript:y)"]


def test_blocks_are_shown_when_they_are_complete() -> None:
    """A block is shown as soon as it is complete: a line of code at once, a list item by item, and a
    paragraph at its end.
    """
    stream = MarkdownStream(lambda: 80)

    def shown(text: str) -> list[str]:
        return [row.plain for row in stream.feed(text)]

    assert shown("One **tw") == []
    assert shown("o**\nthree\n") == []
    assert stream.tail == "three"
    assert shown("\n") == ["One two", "three"]
    assert shown("- a\n- b\n") == ["", "• a"]
    assert shown("- c\n") == ["• b"]
    assert shown("```\nx = 1\n") == ["• c", "", "x = 1"]
    assert shown("y = 2\n") == ["y = 2"]
    assert shown("```\n# Head\n") == ["", "Head"]
    assert [row.plain for row in stream.end()] == []
