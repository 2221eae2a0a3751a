"""A chat in a terminal: read prompts, show the turns, and ask the user for permissions."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Sequence
from queue import Empty
from typing import Any

import click
from rich.text import Text

from geminids.cli.chat.lines import History, PromptReader
from geminids.cli.chat.slash_commands import Commands, LeaveChat, prompt_of, resume_command
from geminids.cli.chat.thread import ChatThread, Question, TurnEnded
from geminids.cli.sessions.lookup import open_session
from geminids.cli.shared import keys as chat_keys
from geminids.cli.shared.keys import ask_for_key
from geminids.cli.shared.signals import HungUp, Interrupts
from geminids.config.paths import Places
from geminids.errors import SessionError
from geminids.events.model import Thought
from geminids.options import Options
from geminids.options.flag_names import with_flags
from geminids.outcome import EXIT_CODES
from geminids.run.result import Result
from geminids.sessions.transcript import entries
from geminids.views.sanitize import clean
from geminids.views.terminal.chat import ChatView
from geminids.views.terminal.chat_history import last_exchange
from geminids.views.terminal.screen import Screen

__all__ = ["TerminalChat"]

_TICK = 0.1


class TerminalChat:
    """Runs a chat in a terminal. `thoughts` contains the model's thoughts in the newest turn that
    has any."""

    def __init__(self, chat: ChatThread, interrupts: Interrupts) -> None:
        self.thoughts: list[Thought] = []
        self.has_answers = False
        """Whether the model has answered at least one prompt. Only then is there a session to
        resume."""
        self._chat = chat
        self._interrupts = interrupts
        self._fd = sys.stdin.fileno()
        self._stopping = False
        self._leaving = False

    def converse(self, first: str | None, fields: dict[str, Any]) -> int:
        """Run turns until the user leaves the chat, and return the exit code.

        `first` is the prompt from the command line, if any. `fields` are the options that apply
        only to the first prompt.
        """
        commands = Commands(self._chat, lambda: self.thoughts, self._resume_command)
        reader = PromptReader(History(Places.of().root / "chat-history"))
        _show([*_intro(self._chat.options)])
        line = first
        if first is not None:
            print(f"> {clean(first)}")
        try:
            while not self._leaving:
                if line is None:
                    line = self._read(reader)
                if line is not None and line.strip():
                    prompt = prompt_of(line)
                    if prompt is None:
                        _show(commands.run(line))
                    else:
                        self._turn(prompt, fields)
                        fields = {}
                line = None
        except (EOFError, LeaveChat, KeyboardInterrupt):
            return 0
        except HungUp:
            pass
        return EXIT_CODES["interrupted"]

    def print_resume_command(self) -> None:
        """Print the command that resumes the session, if there is a session to resume."""
        if resume := self._resume_command():
            click.echo(f"session {self._chat.session_id}\nresume: {resume}")

    def _resume_command(self) -> str | None:
        return resume_command(self._chat) if self.has_answers else None

    def _read(self, reader: PromptReader) -> str | None:
        """Read a prompt. Return None if the user discards it with Ctrl-C.

        Two keys leave the chat: Ctrl-D raises EOFError, and Ctrl-C in an empty prompt raises
        KeyboardInterrupt.
        """
        try:
            with self._interrupts.prompting():
                return reader.read()
        except EOFError:
            print()  # end the line of the prompt
            raise
        except KeyboardInterrupt:
            print()
            if self._interrupts.typed or reader.begun:
                return None
            raise

    def _turn(self, prompt: str, fields: dict[str, Any]) -> None:
        options = self._chat.options
        self._stopping = False
        view = ChatView(offline=options.is_scripted and not self.has_answers, home=str(options.home))
        print()
        try:
            with chat_keys.no_echo(self._fd):
                self._chat.send(prompt, fields)
                result = self._watch(view)
        finally:
            view.close()
        if view.asked:
            # If the user typed "yes" to answer with the key "y", "es" must not be in the next
            # prompt.
            chat_keys.discard_input(self._fd)
        self.thoughts = view.thoughts or self.thoughts
        if result is None:
            print("■ turn cancelled before it started")
        else:
            self.has_answers = self.has_answers or bool(result.session_id and (result.ok or result.text))
        print()

    def _watch(self, view: ChatView) -> Result | None:
        """Show the turn until it ends, and return its result; None if the turn was stopped before
        it started."""
        questions: dict[str, Question] = {}
        view.tick()
        while True:
            self._handle_signal(view)
            try:
                update = self._chat.updates.get(timeout=_TICK)
            except Empty:
                view.tick()
                continue
            if isinstance(update, TurnEnded):
                return update.result
            if isinstance(update, Question):
                questions[update.asked.id] = update
            else:
                view.show(*update)
            # Show a question only after all earlier events.
            for question_id in questions.keys() & view.asked:
                self._ask(view, questions.pop(question_id))

    def _handle_signal(self, view: ChatView) -> None:
        """If a signal is pending, stop the turn. A second Ctrl-C, or any other signal such as
        SIGTERM, also leaves the chat."""
        number = self._interrupts.take()
        if number is None:
            return
        self._leaving = self._leaving or self._stopping or number != signal.SIGINT
        self._stopping = True
        self._chat.stop(f"interrupted by {signal.Signals(number).name}")
        view.stopping()

    def _ask(self, view: ChatView, question: Question) -> None:
        def is_open() -> bool:
            return not question.withdrawn and not self._interrupts.waiting

        if is_open():
            answer = ask_for_key(view, question.asked, self._fd, is_open, self._reason)
            if answer is not None:
                question.set_answer(answer)

    def _reason(self) -> str | None:
        try:
            with chat_keys.line_editing(self._fd), self._interrupts.prompting():
                return input("  because: ").strip() or None
        except (EOFError, KeyboardInterrupt, HungUp):
            print()
            return None


def _intro(options: Options) -> Iterator[Text]:
    """Yield the lines that the chat shows at its start: the mode and, for a resumed session, the
    last prompt and its answer."""
    yield Text(f"mode {options.approval} · /help lists the commands · Ctrl-D leaves", "dim")
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
        screen.paragraph(line, indent=2)
    screen.gap()
    screen.close()
