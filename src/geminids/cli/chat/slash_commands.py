"""Run the slash commands of a chat: `/model`, `/mode`, `/cost`, `/save` and others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import get_terminal_size

import msgspec
from rich.text import Text

from geminids.cli.chat.session import ChatSession
from geminids.cli.sessions.export import session_facts, session_title
from geminids.cli.sessions.lookup import open_session
from geminids.cli.shared.output_file import check_output_path, write_output
from geminids.errors import GeminidsError
from geminids.events.model import Thought
from geminids.options.flag_names import with_flags
from geminids.sessions.transcript import ToolEntry, TranscriptEntry, entries
from geminids.views.sanitize import one_line
from geminids.views.terminal import chat_history
from geminids.views.terminal.chat_start import two_columns
from geminids.views.terminal.footer import resume_command_line
from geminids.views.transcript.markdown import markdown

__all__ = ["ARGUMENTS", "COMMANDS", "Commands", "LeaveChat", "prompt_of", "resume_command"]

_MODES = ("default", "auto_edit", "yolo", "plan")
ARGUMENTS = {"/model": ("auto", "pro", "flash", "flash-lite"), "/mode": _MODES}
COMMANDS = {
    "/model [NAME]": "show or set the model for the next prompts: auto, pro, flash, flash-lite or an id",
    "/mode [MODE]": "show or set the approval mode: " + ", ".join(_MODES),
    "/cost": "show the tokens and the cost of this chat",
    "/thoughts": "show the model's last thoughts in full",
    "/save [FILE.md]": "save the conversation as Markdown",
    "/session": "show the session id and how to resume it",
    "/help": "show this help",
    "/exit": "leave the chat; same as Ctrl-D",
}
_ALSO = (
    "Alt-Enter, or \\ at the end of a line, begins a new line. Tab completes commands and @paths. "
    "//word sends /word to the agent. Ctrl-C ends the turn; in an empty prompt it leaves the chat."
)


class LeaveChat(Exception):
    """Raised when the user wants to leave the chat (`/exit`)."""


def prompt_of(line: str) -> str | None:
    """Return the prompt that the user typed in `line`; None if the line is a slash command.

    If the line starts with `//`, return it with a single `/` at the start. A line that starts with
    a path, such as `/etc/hosts`, is a prompt too.

    >>> prompt_of("hello"), prompt_of("/help"), prompt_of("//help"), prompt_of("/etc/hosts is what?")
    ('hello', None, '/help', '/etc/hosts is what?')
    """
    words = line.strip()
    if words.startswith("//"):
        return words[1:]
    first = words.split(maxsplit=1)[0] if words else ""
    return None if first.startswith("/") and "/" not in first[1:] and len(first) > 1 else line


def resume_command(chat: ChatSession) -> str | None:
    """Return the shell command that resumes the chat's session; None if the chat has no session
    yet."""
    if chat.session_id is None:
        return None
    cwd, home = str(Path(chat.options.cwd).absolute()), str(chat.options.home)
    return resume_command_line("chat", chat.session_id, offline=chat.options.is_scripted, home=home, cwd=cwd)


class Commands:
    """Runs the slash commands of a chat. Each command returns the lines to show.

    `thoughts` is a function that returns the model's last thoughts. `resume` is a function that
    returns the shell command that resumes the chat.
    """

    def __init__(
        self, chat: ChatSession, thoughts: Callable[[], list[Thought]], resume: Callable[[], str | None]
    ) -> None:
        self._chat = chat
        self._thoughts = thoughts
        self._resume = resume

    async def run(self, line: str) -> list[Text]:
        """Run the slash command in `line`, and return the lines to show.

        If the command fails, return its error message as a line. `/exit` raises `LeaveChat`.
        """
        word, _, rest = line.strip().partition(" ")
        name, rest = word[1:], rest.strip()
        if name in ("exit", "quit"):
            raise LeaveChat
        method = getattr(self, f"_do_{name}", None) if name.isalpha() else None
        if method is None:
            shown = one_line(word, 60)
            return [
                Text(f"unknown command {shown}; see /help, or type /{shown} to send {shown} to the agent")
            ]
        try:
            if rest and name == "model":
                await self._chat.set_model(rest)
            elif rest and name == "mode":
                await self._set_mode(rest)
            return list(method(rest))
        except GeminidsError as error:
            message = f"{error.message}. {error.hint}" if error.hint else error.message
            return [Text(one_line(with_flags(message), 1000), "yellow")]

    def _do_help(self, rest: str) -> Iterator[Text]:
        left, width = max(map(len, COMMANDS)) + 2, get_terminal_size().columns - 4
        for usage, description in COMMANDS.items():
            yield from two_columns(Text(usage, "bold"), description, left=left, width=width)
        yield Text(_ALSO, "dim")

    def _do_model(self, rest: str) -> Iterator[Text]:
        yield Text(f"model: {one_line(self._chat.model or 'chosen by Gemini CLI')}")

    def _do_mode(self, rest: str) -> Iterator[Text]:
        yield Text(f"mode: {self._chat.mode}")

    async def _set_mode(self, mode: str) -> None:
        if mode not in _MODES:
            raise GeminidsError(f"unknown mode {one_line(mode, 60)}", hint=f"Use one of {', '.join(_MODES)}.")
        await self._chat.set_mode(mode)

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
        chat = self._chat
        if chat.session_id is None or self._resume() is None:
            raise GeminidsError("there is nothing to save yet", hint="Send a prompt first.")
        name = name or f"chat-{time.strftime('%Y-%m-%d')}-{chat.session_id[:8]}.md"
        opened = open_session(chat.session_id, chat.options.cwd, str(chat.options.home))
        transcript = map(self._with_denial, entries(opened.messages, opened.agents))
        pieces = markdown(session_title(opened), session_facts(opened), transcript)
        try:
            target = check_output_path(os.path.expanduser(name), force=False)
            write_output((piece.encode("utf-8", "replace") for piece in pieces), target)
        except GeminidsError as error:
            raise GeminidsError(error.message, hint="Use another file: /save FILE.md") from None
        return target

    def _with_denial(self, entry: TranscriptEntry) -> TranscriptEntry:
        """Add the command and the reason to a denied call, because the session file has neither."""
        if not isinstance(entry, ToolEntry) or (call := self._chat.denied.get(entry.id)) is None:
            return entry
        command = call.command if call.command != call.title else None
        return msgspec.structs.replace(
            entry, title=call.title, status="denied", output=command, error=call.reason or entry.error
        )
