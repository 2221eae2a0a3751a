"""A chat in a terminal: read prompts, show the turns, and ask the user for permissions."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from shutil import get_terminal_size
from typing import Any

import anyio
import click
from rich.text import Text

from geminids.cli.chat.completion import ChatCompleter
from geminids.cli.chat.prompt import PromptHistory, PromptReader
from geminids.cli.chat.session import ChatSession
from geminids.cli.chat.slash_commands import (
    ARGUMENTS,
    COMMANDS,
    Commands,
    LeaveChat,
    prompt_of,
    resume_command,
)
from geminids.cli.sessions.lookup import open_session
from geminids.cli.shared import keys as chat_keys
from geminids.cli.shared.ask_permission import Asker
from geminids.config.paths import Places
from geminids.errors import SessionError
from geminids.events.model import Event, Thought
from geminids.options import Options
from geminids.options.flag_names import with_flags
from geminids.outcome import EXIT_CODES
from geminids.sessions.transcript import entries
from geminids.views.sanitize import clean
from geminids.views.terminal.chat import ChatView
from geminids.views.terminal.chat_history import last_exchange
from geminids.views.terminal.chat_start import first_screen
from geminids.views.terminal.screen import Screen

__all__ = ["TerminalChat"]

_TICK = 0.1
_INDENT = 2


class TerminalChat:
    """Runs a chat in a terminal. `thoughts` contains the model's thoughts in the newest turn that
    has any."""

    def __init__(self, session: ChatSession) -> None:
        self.thoughts: list[Thought] = []
        self.has_answers = False
        """Whether the model has answered at least one prompt. Only then is there a session to
        resume."""
        self._session = session
        self._reader = PromptReader(
            PromptHistory(Places.of().root / "chat-history"),
            ChatCompleter(COMMANDS, ARGUMENTS, session.options.cwd),
        )
        self._turn: _ShownTurn | None = None
        self._leaving = False

    def on_signal(self, number: int) -> None:
        """Stop the current turn, or end the prompt.

        A second Ctrl-C in a turn, or any other signal such as SIGTERM, also leaves the chat.
        """
        self._leaving = self._leaving or number != signal.SIGINT
        if self._turn is None:
            self._reader.end(EOFError if self._leaving else KeyboardInterrupt)
            return
        self._leaving = self._leaving or self._turn.stopped.is_set()
        self._session.stop(f"interrupted by {signal.Signals(number).name}")
        self._turn.stop()

    async def converse(self, first: str | None, fields: dict[str, Any]) -> int:
        """Run turns until the user leaves the chat, and return the exit code.

        `first` is the prompt from the command line, if any. `fields` are the options that apply
        only to the first prompt.
        """
        commands = Commands(self._session, lambda: self.thoughts, self._resume_command)
        options = self._session.options
        width = get_terminal_size().columns - 2 * _INDENT
        _show([*first_screen(options, self._session.model, width), *_resumed(options)])
        line = first
        if first is not None:
            print(f"> {clean(first)}")
        with chat_keys.no_echo(sys.stdin.fileno()):
            while not self._leaving:
                try:
                    line = await self._reader.read() if line is None else line
                    prompt = prompt_of(line)
                    if prompt is None:
                        _show(await commands.run(line))
                    elif line.strip():
                        await self._run_turn(prompt, fields)
                        fields = {}
                    line = None
                except (EOFError, LeaveChat, KeyboardInterrupt):
                    break
        return EXIT_CODES["interrupted"] if self._leaving else 0

    def print_resume_command(self) -> None:
        """Print the command that resumes the session, if there is a session to resume."""
        if resume := self._resume_command():
            click.echo(f"session {self._session.session_id}\nresume: {resume}")

    def _resume_command(self) -> str | None:
        return resume_command(self._session) if self.has_answers else None

    async def _run_turn(self, prompt: str, fields: dict[str, Any]) -> None:
        options = self._session.options
        view = ChatView(offline=options.is_scripted and not self.has_answers, home=str(options.home))
        print()
        turn = self._turn = _ShownTurn(view)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(turn.keep_current)
                result = await self._session.run_turn(prompt, fields, turn.show, turn.asker)
                tasks.cancel_scope.cancel()
        finally:
            self._turn = None
            view.close()
        if view.asked:
            # If the user typed "yes" to answer with the key "y", "es" must not be in the next
            # prompt.
            chat_keys.discard_input(sys.stdin.fileno())
        self.thoughts = view.thoughts or self.thoughts
        if result is None:
            print("■ turn cancelled before it started")
        else:
            self.has_answers = self.has_answers or bool(result.session_id and (result.ok or result.text))
        print()


class _ShownTurn:
    """A turn while it is shown.

    Everything is printed in threads. So the timeouts of the turn still work if the user has paused
    the terminal (Ctrl-S).
    """

    def __init__(self, view: ChatView) -> None:
        self.asker = Asker()
        self.stopped = anyio.Event()
        self._view = view
        self._write_lock = anyio.CapacityLimiter(1)
        self.asker.view, self.asker.writing = view, self._write_lock

    async def show(self, events: Sequence[Event]) -> None:
        await anyio.to_thread.run_sync(partial(self._view.show, *events), limiter=self._write_lock)
        self.asker.shown(events)

    async def keep_current(self) -> None:
        """Update the status line regularly, and show when the user has stopped the turn."""
        was_shown = False
        while True:
            if self.stopped.is_set() and not was_shown:
                was_shown = True
                await anyio.to_thread.run_sync(self._view.stopping, limiter=self._write_lock)
            await anyio.to_thread.run_sync(self._view.tick, limiter=self._write_lock)
            await anyio.sleep(_TICK)

    def stop(self) -> None:
        """Show that the turn is being stopped, and withdraw the open question."""
        self.stopped.set()
        self.asker.stopped()


def _resumed(options: Options) -> Iterator[Text]:
    """Yield the last prompt and its answer, if the chat resumes a session."""
    if options.resume is None:
        return
    try:
        session = open_session(options.resume, options.cwd, str(options.home))
        yield from last_exchange(entries(session.messages))
    except SessionError as error:
        yield Text(with_flags(error.message), "yellow")
    yield Text(f"continuing session {options.resume} in a new session with the same conversation", "dim")


def _show(lines: Sequence[Text]) -> None:
    """Print these lines, indented, with an empty line after them."""
    screen = Screen(sys.stdout)
    for line in lines:
        screen.paragraph(line, indent=_INDENT)
    screen.gap()
    screen.close()
