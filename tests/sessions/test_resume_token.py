"""Resume lines (`gemini --resume <id>`) in chat text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.sessions import ResumeToken, extract_resume_token, format_resume_line

ID = "3e0923c9-7033-438d-a978-a361d8031f47"


@pytest.mark.parametrize(
    "line",
    [
        f"gemini --resume {ID}",
        f"`gemini --resume {ID}`",
        f"   `gemini --resume {ID}`  ",
        f"\tgemini --resume={ID}",
        f"gemini —resume {ID}",
        f"`gemini ––resume {ID}`",
        f"`gemini –resume={ID}`",
        f"GEMINI  --RESUME  {ID}",
        f"`` gemini --resume {ID} ``",
        f"done\n\n`gemini --resume {ID}`\r\nbye",
    ],
)
def test_a_resume_line_is_found(line: str) -> None:
    """A resume line is found although a chat client changed its dashes, quotes, case or spaces."""
    assert extract_resume_token(line) == ResumeToken("gemini", ID)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "gemini --resume",
        "gemini resume abc",
        "gemini -resume abc",
        "claude --resume abc",
        "mygemini --resume abc",
        "gemini --resume ../../etc/passwd",
        "gemini --resume a b",
        "gemini --resume -abc",
        "gemini --resume\nabc",
        "say gemini --resume abc please",
        f"gemini --resume {'x' * 129}",
        "gemini --resume a\0b",
    ],
)
def test_other_text_has_no_token(text: str | None) -> None:
    """Text that is not a whole resume line with a valid id gives None."""
    assert extract_resume_token(text) is None


def test_the_last_line_counts() -> None:
    """Of several resume lines, the last one for Gemini counts."""
    text = "`gemini --resume first`\n`gemini --resume second`\n`codex --resume third`"
    assert extract_resume_token(text) == ResumeToken("gemini", "second")


def test_latest_continues_the_last_session() -> None:
    """`--resume latest` is a token that continues the latest session, and it is written the same
    way.
    """
    assert extract_resume_token("gemini --resume latest") == ResumeToken("gemini", "latest", is_continue=True)
    assert format_resume_line(ResumeToken("gemini", "", is_continue=True)) == "`gemini --resume latest`"


@pytest.mark.parametrize(
    "token", [ResumeToken("claude", "abc"), ResumeToken("gemini", "a`\nb"), ResumeToken("gemini", "")]
)
def test_an_invalid_token_cannot_be_written(token: ResumeToken) -> None:
    """A token of another engine, or with an invalid id, cannot be written as a resume line."""
    with pytest.raises(ValueError):
        format_resume_line(token)


@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,40}", fullmatch=True), st.text(max_size=50))
def test_a_written_line_is_found(value: str, before: str) -> None:
    """A resume line that we write is found again, after any text."""
    token = extract_resume_token(f"{before}\n{format_resume_line(ResumeToken('gemini', value))}")
    assert token is not None
    assert token.value == value


@given(st.text(alphabet="gemini-—–`= resum\nlatest\t", max_size=300))
def test_any_text_gives_a_token_or_none(text: str) -> None:
    """For any text the result is a Gemini token or None."""
    token = extract_resume_token(text)
    assert token is None or token.engine == "gemini"


@pytest.mark.parametrize(
    "piece",
    [
        " ",
        "`",
        "gemini ",
        "\n",
        "gemini --resume ",
        "gemini --resume a\n",
        "gemini" + " " * 101,
        "-",
        "—",
        "\t`",
    ],
)
def test_search_takes_linear_time(piece: str) -> None:
    """A megabyte of any repeated text is searched in less than two seconds: the search is not
    quadratic.
    """
    text = piece * (1_000_000 // len(piece))
    start = time.process_time()
    extract_resume_token(text)
    extract_resume_token(text + "x")
    assert time.process_time() - start < 2
