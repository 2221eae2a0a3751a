"""The keys of a chat's prompt, and the prompt in a dumb terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from geminids.cli.chat.completion import ChatCompleter
from geminids.cli.chat.prompt import PromptHistory, PromptReader

_UP, _ALT_ENTER = "\x1b[A", "\x1b\r"


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[PipeInput]:
    monkeypatch.setenv("TERM", "xterm")
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        yield keys


@pytest.fixture
def reader(keyboard: PipeInput, tmp_path: Path) -> PromptReader:
    history = PromptHistory(tmp_path / "chat-history")
    history.store_string("an earlier\nprompt")
    return PromptReader(history, ChatCompleter({"/mode [MODE]": "…"}, {}, str(tmp_path)))


@pytest.mark.parametrize(
    ("keys", "prompt"),
    [
        ("hello\r", "hello"),
        ("typed ahead\n", "typed ahead"),
        ("one \\\rtwo\r", "one \ntwo"),
        ("\\n is a \\ line\r", "\\n is a \\ line"),
        (f"one{_ALT_ENTER}two{_ALT_ENTER}three\r", "one\ntwo\nthree"),
        ("\x1b[200~one\r\n\ttwo \\\rthree\x1b[201~\r", "one\n\ttwo \\\nthree"),
        (f"{_UP}s\r", "an earlier\nprompts"),
        ("  \r", "  "),
        ("gone\x03", ""),
    ],
)
def test_keys(keyboard: PipeInput, reader: PromptReader, keys: str, prompt: str) -> None:
    """Enter sends the prompt. Alt-Enter, or a backslash before Enter, begins a new line.

    A paste and an earlier prompt keep their lines, and Ctrl-C discards the text.
    """
    keyboard.send_text(keys)
    assert anyio.run(reader.read) == prompt


@pytest.mark.parametrize(("key", "error"), [("\x03", KeyboardInterrupt), ("\x04", EOFError)])
def test_keys_that_leave(keyboard: PipeInput, reader: PromptReader, key: str, error: type) -> None:
    """In an empty prompt, Ctrl-C and Ctrl-D leave the chat."""
    keyboard.send_text(key)
    with pytest.raises(error):
        anyio.run(reader.read)


def test_a_sent_prompt_is_the_newest_of_the_history(
    keyboard: PipeInput, reader: PromptReader, tmp_path: Path
) -> None:
    """A prompt that was sent is in the history at once; a discarded or blank one is not."""
    for keys in ("sent\r", "gone\x03", " \r"):
        keyboard.send_text(keys)
        anyio.run(reader.read)
    stored = PromptHistory(tmp_path / "chat-history").load_history_strings()
    assert list(stored) == ["sent", "an earlier\nprompt"]


def test_the_prompt_can_be_ended(reader: PromptReader) -> None:
    """`end` ends the prompt with an error. Without a prompt, it has no effect."""

    async def read_until_ended() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end_when_running)
            with pytest.raises(EOFError):
                await reader.read()
            tasks.cancel_scope.cancel()

    async def end_when_running() -> None:
        while True:
            reader.end(EOFError)
            await anyio.sleep(0.01)

    reader.end(EOFError)
    anyio.run(read_until_ended)


_PROGRAM = """
import anyio
from pathlib import Path
from geminids.cli.chat.completion import ChatCompleter
from geminids.cli.chat.prompt import PromptHistory, PromptReader
print("read:", [anyio.run(PromptReader(PromptHistory(Path("none")), ChatCompleter({}, {}, ".")).read)])
"""


@pytest.mark.parametrize(("term", "has_codes"), [("xterm", True), ("dumb", False)])
def test_a_dumb_terminal_gets_no_escape_codes(tmp_path: Path, term: str, has_codes: bool) -> None:
    """A terminal is asked to mark pasted text. A dumb terminal gets no escape code."""
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": term, "PROMPT_TOOLKIT_NO_CPR": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=slave, stdout=slave, stderr=slave, cwd=tmp_path, env=environ
    ):
        os.close(slave)
        shown = _read_until(master, b"> ")
        os.write(master, b"one\r")
        shown += _read_until(master, b"]\r\n")
    os.close(master)
    assert b"read: ['one']" in shown
    assert (b"\x1b[?2004h" in shown) == has_codes
    assert (b"\x1b" in shown) == has_codes


def _read_until(fd: int, end: bytes) -> bytes:
    shown = b""
    while end not in shown:
        shown += os.read(fd, 1000)
    return shown
