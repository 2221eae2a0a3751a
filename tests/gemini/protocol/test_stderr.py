"""What is made of the lines that real releases wrote to stderr."""

from __future__ import annotations

import pytest

from geminids.gemini.protocol.stderr import Remark, StderrReader

MINUTE_AGAIN = "Attempt 1 failed: Resource exhausted\nSuggested retry after 1s.. Retrying after 5775ms...\n"
MINUTE_LAST = "Attempt 2 failed: Resource exhausted\nSuggested retry after 1s.. Max attempts reached\n"
ERROR = '{"error":{"code":500,"message":"boom","status":"INTERNAL"}}'
STATUS_AGAIN = f"Attempt 1 failed with status 500. Retrying with backoff... _ApiError: {ERROR}\n"
STATUS_LAST = f"Attempt 2 failed: {ERROR}. Max attempts reached\n"


def read(*texts: str) -> list[Remark]:
    reader = StderrReader()
    return [remark for text in texts for remark in reader.read(text)] + reader.finish()


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
def test_an_attempt_is_a_retry_only_where_it_is_tried_again(
    text: str, code: str, attempt: int, status: int | None
) -> None:
    """The end of the remark decides, and it can be on the next line."""
    (remark,) = read(text)
    assert (remark.code, remark.attempt, remark.http_status) == (code, attempt, status)


def test_a_remark_may_come_in_pieces() -> None:
    """Lines are handed over as they arrive."""
    first, second = MINUTE_AGAIN.splitlines(keepends=True)
    reader = StderrReader()
    assert reader.read(first) == []
    assert [remark.message for remark in reader.read(second)] == [
        "attempt 1 failed (HTTP 429); trying again in 5.8 s"
    ]
    assert reader.finish() == []


def test_a_remark_without_an_end_is_told_as_what_is_known() -> None:
    """Cut off in the middle, it is neither a retry nor a last word."""
    assert [remark.code for remark in read("Attempt 1 failed: Resource exhausted\n")] == ["attempt"]
    assert [remark.code for remark in read("Attempt 1 failed: a\n", STATUS_AGAIN)] == ["attempt", "retry"]
    many = "Attempt 1 failed: a\n" + "b\n" * 100
    assert [remark.code for remark in read(many)].count("stderr") == 81


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
    """What is worth a warning is one; a failed resume is no fresh session."""
    (remark,) = read(line)
    assert (remark.level, remark.code) == (level, code)
    assert "\x1b" not in remark.message


def test_the_tail_is_bounded_and_noise_is_counted() -> None:
    """A chatty run costs no memory and no flood of events."""
    reader = StderrReader()
    told = reader.read("line\n" * 100_000) + reader.finish()
    assert len(told) == 201
    assert told[-1].message.startswith("99800 more lines")
    assert len(reader.tail) <= 64 * 1024


def test_a_server_that_did_not_start_is_a_warning() -> None:
    """The CLI says no more than that there is something: it must not be lost among the noise."""
    [remark] = StderrReader().read("MCP issues detected. Run /mcp list for status.\n")
    assert (remark.level, remark.code) == ("warning", "mcp")
