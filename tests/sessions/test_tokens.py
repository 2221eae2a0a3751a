"""Resume lines in chat text."""

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
    """However a chat client has changed it."""
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
def test_what_is_no_resume_line_is_none(text: str | None) -> None:
    """Whole lines alone, and what can be an id."""
    assert extract_resume_token(text) is None


def test_the_last_one_wins() -> None:
    """Of several, and of several engines."""
    text = "`gemini --resume first`\n`gemini --resume second`\n`codex --resume third`"
    assert extract_resume_token(text) == ResumeToken("gemini", "second")


def test_latest_means_to_go_on() -> None:
    """`--resume latest` names no session; it is written so too."""
    assert extract_resume_token("gemini --resume latest") == ResumeToken("gemini", "latest", is_continue=True)
    assert format_resume_line(ResumeToken("gemini", "", is_continue=True)) == "`gemini --resume latest`"


@pytest.mark.parametrize(
    "token", [ResumeToken("claude", "abc"), ResumeToken("gemini", "a`\nb"), ResumeToken("gemini", "")]
)
def test_no_line_is_made_that_would_not_be_found(token: ResumeToken) -> None:
    """Another engine's token, and what is no id, are errors."""
    with pytest.raises(ValueError):
        format_resume_line(token)


@given(st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,40}", fullmatch=True), st.text(max_size=50))
def test_what_is_written_is_found(value: str, before: str) -> None:
    """Behind any text."""
    token = extract_resume_token(f"{before}\n{format_resume_line(ResumeToken('gemini', value))}")
    assert token is not None
    assert token.value == value


@given(st.text(alphabet="gemini-—–`= resum\nlatest\t", max_size=300))
def test_no_text_is_too_odd(text: str) -> None:
    """A token or None."""
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
def test_a_megabyte_takes_no_time(piece: str) -> None:
    """No text makes the search quadratic."""
    text = piece * (1_000_000 // len(piece))
    began = time.process_time()
    extract_resume_token(text)
    extract_resume_token(text + "x")
    assert time.process_time() - began < 2
