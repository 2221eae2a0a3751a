"""The slash commands of a chat: `/model`, `/mode`, `/cost`, `/save` and others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from geminids.cli.chat.thread import ChatThread
from geminids.errors import GeminidsError
from geminids.events.model import Thought
from geminids.views.sanitize import one_line
from geminids.views.terminal import chat_history

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Commands", "Leave", "prompt_of"]

_MODES = ("default", "auto_edit", "yolo", "plan")
_HELP = {
    "/model [NAME]": "show or set the model of the next prompts: auto, pro, flash, flash-lite or an id",
    "/mode [MODE]": "show or set the approval mode: " + ", ".join(_MODES),
    "/cost": "show the tokens and the cost of this chat",
    "/thoughts": "show the model's last thoughts in full",
    "/save [FILE.md]": "save the conversation as Markdown",
    "/session": "show the session id and how to resume it",
    "/help": "show this help",
    "/exit": "leave the chat; same as Ctrl-D",
}
_ALSO = "A \\ at the end of a line continues it. //word sends /word. Ctrl-C ends the turn; at the prompt it leaves."


class Leave(Exception):
    """The user wants to leave the chat."""


def prompt_of(line: str) -> str | None:
    """The prompt in a line; None if the line is a slash command.

    >>> prompt_of("hello"), prompt_of("/help"), prompt_of("//help"), prompt_of("/etc/hosts is what?")
    ('hello', None, '/help', '/etc/hosts is what?')
    """
    words = line.strip()
    if words.startswith("//"):
        return words[1:]
    first = words.split(maxsplit=1)[0] if words else ""
    return None if first.startswith("/") and "/" not in first[1:] and len(first) > 1 else line


class Commands:
    """Runs slash commands; each returns the lines to show."""

    def __init__(
        self, chat: ChatThread, thoughts: Callable[[], list[Thought]], resume: Callable[[], str | None]
    ) -> None:
        self._chat = chat
        self._thoughts = thoughts
        self._resume = resume

    def run(self, line: str) -> list[Text]:
        """Run a command and return its lines, or the error message as a line. Raises `Leave`."""
        word, _, rest = line.strip().partition(" ")
        name, rest = word[1:], rest.strip()
        if name in ("exit", "quit"):
            raise Leave
        do = getattr(self, f"_do_{name}", None) if name.isalpha() else None
        if do is None:
            return [
                Text(
                    f"unknown command {one_line(word, 60)}; see /help, or send it with /{one_line(word, 60)}"
                )
            ]
        try:
            return list(do(rest))
        except GeminidsError as error:
            message = f"{error.message}. {error.hint}" if error.hint else error.message
            return [Text(one_line(message, 1000), "yellow")]

    def _do_help(self, rest: str) -> Iterator[Text]:
        width = max(map(len, _HELP)) + 2
        for usage, description in _HELP.items():
            yield Text.assemble((usage.ljust(width), "bold"), description)
        yield Text(_ALSO, "dim")

    def _do_model(self, rest: str) -> Iterator[Text]:
        if rest:
            self._chat.set_model(rest)
        yield Text(f"model: {one_line(self._chat.model or 'chosen by the CLI')}")

    def _do_mode(self, rest: str) -> Iterator[Text]:
        if rest and rest not in _MODES:
            raise GeminidsError(f"unknown mode {one_line(rest, 60)}", hint=f"Use one of {', '.join(_MODES)}.")
        if rest:
            self._chat.set_mode(rest)
        yield Text(f"mode: {self._chat.mode}")

    def _do_cost(self, rest: str) -> Iterator[Text]:
        return chat_history.cost(self._chat.usage, self._chat.costs, self._chat.discarded)

    def _do_thoughts(self, rest: str) -> Iterator[Text]:
        return chat_history.thoughts(self._thoughts())

    def _do_session(self, rest: str) -> Iterator[Text]:
        resume = self._resume()
        if resume is None:
            yield Text("no session yet: send a prompt first")
            return
        yield Text(f"session {self._chat.session_id}")
        yield Text(resume, "dim", no_wrap=True)

    def _do_save(self, rest: str) -> Iterator[Text]:
        target = self._save(rest)
        yield Text(f"saved: {one_line(str(target))}", no_wrap=True)

    def _save(self, name: str) -> Path:
        from geminids.cli.sessions.export import export_session
        from geminids.cli.sessions.lookup import open_session
        from geminids.cli.shared.output_file import check_output_path, write_output

        chat = self._chat
        if chat.session_id is None or self._resume() is None:
            raise GeminidsError("there is nothing to save yet", hint="Send a prompt first.")
        name = name or f"chat-{time.strftime('%Y-%m-%d')}-{chat.session_id[:8]}.md"
        opened = open_session(chat.session_id, chat.options.cwd, str(chat.options.home))
        try:
            target = check_output_path(os.path.expanduser(name), force=False)
            write_output(export_session(opened, "markdown"), target)
        except GeminidsError as error:
            raise GeminidsError(error.message, hint="Name another file: /save FILE.md") from None
        return target
