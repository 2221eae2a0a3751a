"""Read text that is piped into a command."""

from __future__ import annotations

import codecs
import os
import select
import sys
import time

import click
import msgspec

from geminids.launch.prompt.compose import MAX_PROMPT_BYTES, literal_prompt

__all__ = ["Reading", "check_encoding", "decode_line", "read_prompt", "with_piped_input"]

# Gemini CLI waits as long for the first byte (cli/src/utils/readStdin.ts).
_FIRST_BYTE = 0.5
# After this many seconds without a byte, report what the command waits for.
_REPORT_AFTER = 5.0
_CHUNK = 1024 * 1024
_TICK = 0.2
_TOO_LONG = (
    f"stdin has more than {MAX_PROMPT_BYTES // 1024**2} MB; Gemini CLI reads at most that. "
    "Write the input to a file in the folder, and name the file in the prompt."
)


class _TimedOut(click.ClickException):
    exit_code = 124


class Reading(msgspec.Struct, frozen=True):
    """How to read stdin: its encoding, and how many seconds to wait for all of it and for the next
    piece of it (None: without a limit)."""

    encoding: str = "utf-8"
    timeout: float | None = None
    idle_timeout: float | None = None


def with_piped_input(prompt: str, reading: Reading, *, literal: bool) -> str:
    """Return the prompt with the text that is piped in on stdin in front of it.

    `@path` and a leading `/` in the text are escaped, so that Gemini CLI treats them as plain text;
    with `literal`, the caller does that later. The prompt is returned unchanged if stdin is closed,
    a terminal or empty. If no byte arrives in half a second, stdin is ignored, and a message on
    stderr says so.
    """
    fd = _input_fd()
    if fd is None:
        return prompt
    try:
        if not _has_input(fd, _FIRST_BYTE):
            _report(
                "ignored stdin: no input arrived within half a second. Use --no-stdin if there is no input."
            )
            return prompt
        data = _read(fd, reading)
    except OSError as error:
        _report(f"ignored stdin: it cannot be read: {error.strerror}")
        return prompt
    text = _decode(data, reading.encoding)
    if not text.strip():
        return prompt
    text = text if literal else literal_prompt(text)
    return f"{text}\n\n{prompt}" if prompt else text


def read_prompt(reading: Reading) -> str:
    """Return the prompt that is piped in on stdin. Wait until it arrives."""
    if sys.stdin is None:
        raise click.UsageError("stdin is closed: pass the prompt as an argument.")
    try:
        return _decode(_read(sys.stdin.fileno(), reading), reading.encoding)
    except OSError as error:
        raise click.UsageError(f"stdin cannot be read: {error.strerror}") from None


def check_encoding(encoding: str) -> None:
    """Raise `click.UsageError` if there is no text encoding with this name."""
    try:
        "".encode(encoding)
    except (LookupError, ValueError):
        raise click.UsageError(
            f"--input-encoding: {encoding!r} is not a known text encoding; examples: utf-8, latin-1, utf-16."
        ) from None


def _input_fd() -> int | None:
    """Return the descriptor of stdin; None if stdin is closed or a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    return sys.stdin.fileno()


def _has_input(fd: int, seconds: float) -> bool:
    """Wait until there is input or stdin has ended. Return False if `seconds` pass before that."""
    poll = select.poll()  # not `select.select`: it fails for descriptors above 1023
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0, int(seconds * 1000))))


def _read(fd: int, reading: Reading) -> bytes:
    """Read stdin to its end."""
    data = bytearray()
    began = last = time.monotonic()
    is_terminal = is_reported = os.isatty(fd)
    while True:
        now = time.monotonic()
        if reading.timeout is not None and now - began >= reading.timeout:
            raise _TimedOut(f"timed out after {reading.timeout:g} s: stdin has not ended")
        if reading.idle_timeout is not None and now - last >= reading.idle_timeout and not is_terminal:
            raise _TimedOut(f"stdin has not ended, and nothing arrived for {reading.idle_timeout:g} s")
        if not is_reported and now - last >= _REPORT_AFTER:
            is_reported = True
            _report(f"waiting for the end of stdin ({len(data):,} bytes so far)")
        if not _has_input(fd, _TICK):
            continue
        chunk = os.read(fd, _CHUNK)
        if not chunk:
            return bytes(data)
        data += chunk
        last = time.monotonic()
        if len(data) > MAX_PROMPT_BYTES:
            raise click.UsageError(_TOO_LONG)


def decode_line(line: bytes, offset: int) -> str:
    """Decode a line of stdin. `offset` is the number of bytes before it."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        byte, at = line[error.start], offset + error.start
        raise click.UsageError(
            f"stdin is not UTF-8: byte 0x{byte:02x} at offset {at}. Convert it, for example with iconv."
        ) from None


def _decode(data: bytes, encoding: str) -> str:
    # `utf-8-sig` removes the mark that some programs write at the beginning of a file.
    is_utf8 = codecs.lookup(encoding).name == "utf-8"
    try:
        return data.decode("utf-8-sig" if is_utf8 else encoding)
    except UnicodeDecodeError as error:
        byte = data[error.start] if error.start < len(data) else 0
        hint = " Name its encoding with --input-encoding, for example latin-1." if is_utf8 else ""
        name = "UTF-8" if is_utf8 else encoding
        raise click.UsageError(
            f"stdin is not {name}: byte 0x{byte:02x} at offset {error.start}.{hint}"
        ) from None
    except UnicodeError as error:
        raise click.UsageError(f"stdin is not {encoding}: {error}") from None


def _report(text: str) -> None:
    click.echo(f"geminids: {text}", err=True)
