"""Read the prompts that the user types in a chat: editing, history and completion."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec
from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session, get_app_or_none
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, has_focus
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.utils import is_dumb_terminal

from geminids.cli.chat.completion import ChatCompleter
from geminids.config.paths import private_dir

__all__ = ["PromptHistory", "PromptReader"]

_MAX_ENTRIES = 1000
_MAX_LENGTH = 100_000
_STYLE = "bold ansicyan"


class PromptHistory(History):
    """The earlier prompts of the user, stored in a file that only the user can read.

    Each line of the file is a prompt as a JSON string. A prompt is appended immediately. So no
    prompt is lost if several chats run at the same time, or if a chat is killed.
    """

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        """Return the newest 1,000 prompts, the newest first. Return an empty list if the file
        cannot be read.

        If the file has more than 2,000 prompts, remove all but the newest 1,000 from it.
        """
        try:
            rows = self._file.read_bytes().splitlines()
        except OSError:
            return []
        if len(rows) > 2 * _MAX_ENTRIES:
            rows = rows[-_MAX_ENTRIES:]
            self._rewrite(rows)
        return [text for row in reversed(rows[-_MAX_ENTRIES:]) if (text := _text(row))]

    def store_string(self, string: str) -> None:
        """Append a prompt to the file.

        A prompt with more than 100,000 characters is not stored. If the file cannot be written, the
        prompt is not stored either, and no error is raised.
        """
        if string.strip() and len(string) <= _MAX_LENGTH:
            row = msgspec.json.encode(string.encode(errors="replace").decode())
            self._write(self._file, os.O_APPEND, row + b"\n")

    def _rewrite(self, rows: list[bytes]) -> None:
        draft = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        if self._write(draft, os.O_TRUNC, b"\n".join(rows) + b"\n"):
            os.replace(draft, self._file)

    @staticmethod
    def _write(file: Path, flags: int, data: bytes) -> bool:
        try:
            private_dir(file.parent)
            fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
            with os.fdopen(fd, "wb") as out:
                out.write(data)
            return True
        except OSError:
            return False


def _text(row: bytes) -> str | None:
    try:
        return msgspec.json.decode(row, type=str)
    except msgspec.DecodeError:
        return None


class PromptReader:
    """Reads prompts from the terminal.

    Enter sends the prompt. Alt-Enter, or a backslash before Enter, begins a new line. A pasted text
    can have several lines. Tab completes, and the arrow keys show earlier prompts.
    """

    def __init__(self, history: History, completer: ChatCompleter) -> None:
        with _plain_output() if is_dumb_terminal() else nullcontext():
            self._session: PromptSession[str] = PromptSession(
                [(_STYLE, "> ")],
                prompt_continuation=_continuation,
                multiline=True,
                history=history,
                completer=completer,
                complete_while_typing=Condition(lambda: completer.applies_to(self._text_before_cursor())),
                # A folder on a slow disk must not stop the keyboard.
                complete_in_thread=True,
                input_processors=[TabsProcessor(char1=" ", char2=" ")],
                key_bindings=_key_bindings(),
                enable_suspend=True,
            )

    async def read(self) -> str:
        """Read one prompt, and add it to the history. Return "" if the user discards it with Ctrl-C.

        Ctrl-D in an empty prompt raises EOFError, and Ctrl-C in an empty prompt KeyboardInterrupt.
        """
        try:
            # The chat handles signals itself. Without `set_exception_handler=False`, a background
            # task that fails would wait for Enter.
            return await self._session.prompt_async(handle_sigint=False, set_exception_handler=False)
        except KeyboardInterrupt:
            if self._session.default_buffer.text:
                return ""
            raise

    def end(self, error: type[BaseException]) -> None:
        """Let `read` raise this error. Do nothing if no prompt is being read."""
        app = get_app_or_none()  # for a dumb terminal, it is not the session's own
        if app is not None and app.is_running and app.future is not None and not app.future.done():
            app.exit(exception=error)

    def _text_before_cursor(self) -> str:
        return self._session.default_buffer.document.text_before_cursor


def _plain_output() -> AbstractContextManager[object]:
    """Return a context in which a new `PromptSession` writes no escape codes."""
    return create_app_session(output=PlainTextOutput(sys.stdout))


def _continuation(width: int, line_number: int, wrap_count: int) -> AnyFormattedText:
    return [(_STYLE, "  " if wrap_count else ". ")]


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()
    typing = has_focus(DEFAULT_BUFFER)
    add: Callable[..., Callable[[Callable[[KeyPressEvent], None]], object]] = bindings.add

    @add("enter", filter=typing)
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # Enter takes the selected completion
        elif buffer.document.is_cursor_at_the_end_of_line and buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @add("escape", "enter", filter=typing)
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return bindings
