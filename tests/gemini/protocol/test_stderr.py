"""Notices from the stderr lines of real releases."""

from __future__ import annotations

import pytest

from geminids.gemini.protocol.stderr import StderrNotice, StderrReader

MINUTE_AGAIN = "Attempt 1 failed: Resource exhausted\nSuggested retry after 1s.. Retrying after 5775ms...\n"
MINUTE_LAST = "Attempt 2 failed: Resource exhausted\nSuggested retry after 1s.. Max attempts reached\n"
ERROR = '{"error":{"code":500,"message":"boom","status":"INTERNAL"}}'
STATUS_AGAIN = f"Attempt 1 failed with status 500. Retrying with backoff... _ApiError: {ERROR}\n"
STATUS_LAST = f"Attempt 2 failed: {ERROR}. Max attempts reached\n"


def read(*texts: str) -> list[StderrNotice]:
    reader = StderrReader()
    return [notice for text in texts for notice in reader.read(text)] + reader.finish()


@pytest.mark.parametrize(
    ("text", "code", "attempt", "status"),
    [
        (MINUTE_AGAIN, "retry", 1, 429),
        (MINUTE_LAST, "gave_up", 2, 429),
        (STATUS_AGAIN, "retry", 1, 500),
        (STATUS_LAST, "gave_up", 2, 500),
        ("Attempt 1 failed: overloaded. Max attempts reached", "gave_up", 1, 503),
        ("Attempt 3 failed. Retrying with backoff... TypeError: fetch failed", "retry", 3, None),
        (
            "Attempt 1 failed with 429 error (no Retry-After header). Retrying with backoff...",
            "retry",
            1,
            429,
        ),
        ("Attempt 1 failed with 5xx error. Retrying with backoff...", "retry", 1, None),
        ("Attempt 2 failed. Max attempts reached", "gave_up", 2, None),
    ],
)
def test_retry_or_last_attempt(text: str, code: str, attempt: int, status: int | None) -> None:
    """A failed attempt is `retry` or `gave_up`.

    The end of the message decides, which may be on the next line.
    """
    (notice,) = read(text)
    assert (notice.code, notice.attempt, notice.http_status) == (code, attempt, status)


def test_a_message_of_two_lines() -> None:
    """A message of two lines becomes one notice when its second line arrives."""
    first, second = MINUTE_AGAIN.splitlines(keepends=True)
    reader = StderrReader()
    assert reader.read(first) == []
    assert [notice.message for notice in reader.read(second)] == [
        "attempt 1 failed (HTTP 429); trying again in 5.8 s"
    ]
    assert reader.finish() == []


def test_an_unfinished_message_is_reported() -> None:
    """A message whose end is missing is reported as `attempt`, neither as a retry nor as the last
    attempt.
    """
    assert [notice.code for notice in read("Attempt 1 failed: Resource exhausted\n")] == ["attempt"]
    assert [notice.code for notice in read("Attempt 1 failed: a\n", STATUS_AGAIN)] == ["attempt", "retry"]
    many = "Attempt 1 failed: a\n" + "b\n" * 100
    assert [notice.code for notice in read(many)].count("stderr") == 81


@pytest.mark.parametrize(
    ("line", "level", "code"),
    [
        ("No previous sessions found for this project.", "warning", "fresh_session"),
        ("Error resuming session: No previous sessions found for this project.", "error", "resume_failed"),
        ("Ripgrep is not available. Falling back to GrepTool.", "debug", "ripgrep"),
        ("YOLO mode is enabled. All tool calls will be automatically approved.", "debug", "yolo"),
        ("Error executing tool read_file: File not found.", "info", "tool_error"),
        ("Warning: stdin input truncated to 8388608 bytes.", "warning", "truncated"),
        ("    at async Turn.run (file:///x.js:1:2) {", "debug", "stderr"),
        ("\x1b[31mGemini CLI is not running in a trusted directory.\x1b[0m", "debug", "stderr"),
    ],
)
def test_known_lines_have_a_code(line: str, level: str, code: str) -> None:
    """Known lines have their own level and code, without colour codes.

    A failed resume is not a fresh session.
    """
    (notice,) = read(line)
    assert (notice.level, notice.code) == (level, code)
    assert "\x1b" not in notice.message


def test_many_lines_are_counted() -> None:
    """Of many lines, only the first become notices, the rest is counted, and the stored tail is
    limited.
    """
    reader = StderrReader()
    notices = reader.read("line\n" * 100_000) + reader.finish()
    assert len(notices) == 201
    assert notices[-1].message.startswith("99800 more lines")
    assert len(reader.tail) <= 64 * 1024


def test_a_server_that_did_not_start_is_a_warning() -> None:
    """The CLI's line about MCP issues is a warning, because it is the only sign of a server that
    did not start.
    """
    [notice] = StderrReader().read("MCP issues detected. Run /mcp list for status.\n")
    assert (notice.level, notice.code) == ("warning", "mcp")
