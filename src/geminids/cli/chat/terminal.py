"""A chat in a terminal: read prompts, show turns, and ask for permissions with a key."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from queue import Empty
from typing import Any

from rich.text import Text

from geminids.cli.chat.lines import PromptReader
from geminids.cli.chat.slash_commands import Commands, Leave, prompt_of
from geminids.cli.chat.thread import ChatThread, Question, TurnEnded
from geminids.cli.shared import keys as chat_keys
from geminids.cli.shared.keys import ask_for_key
from geminids.cli.shared.signals import HungUp, Interrupts
from geminids.events.model import Thought
from geminids.outcome import EXIT_CODES
from geminids.run.result import Result
from geminids.views.sanitize import clean
from geminids.views.terminal.chat import ChatView
from geminids.views.terminal.screen import Screen

__all__ = ["TerminalChat", "show"]

_TICK = 0.1


def show(lines: Sequence[Text]) -> None:
    """Print lines between turns."""
    screen = Screen(sys.stdout)
    for line in lines:
        screen.paragraph(line, indent=2)
    screen.gap()
    screen.close()


class TerminalChat:
    """A conversation with the user. `thoughts` are those of the last turn that had any."""

    def __init__(self, chat: ChatThread, interrupts: Interrupts) -> None:
        self.thoughts: list[Thought] = []
        self.has_answers = False
        """Whether a turn was answered: only then is there a session to resume."""
        self._chat = chat
        self._interrupts = interrupts
        self._fd = sys.stdin.fileno()
        self._stopping = False
        self._leaving = False

    def converse(
        self, reader: PromptReader, commands: Commands, *, first: str | None, fields: dict[str, Any]
    ) -> int:
        """Run turns until the user leaves; returns the exit code."""
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
                        show(commands.run(line))
                    else:
                        self._turn(prompt, fields)
                        fields = {}
                line = None
        except (EOFError, Leave, KeyboardInterrupt):
            return 0
        except HungUp:
            pass
        return EXIT_CODES["interrupted"]

    def _read(self, reader: PromptReader) -> str | None:
        """Read a prompt; None if the user discarded it.

        Raises EOFError or KeyboardInterrupt to leave the chat.
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
        view = ChatView(offline=options.offline and not self.has_answers, home=str(options.home))
        print()
        try:
            with chat_keys.no_echo(self._fd):
                self._chat.send(prompt, fields)
                result = self._watch(view)
        finally:
            view.close()
        if view.asked:
            # Someone may type "yes" in full: the rest of the word is not the next prompt.
            chat_keys.discard_input(self._fd)
        self.thoughts = view.thoughts or self.thoughts
        if result is None:
            print("■ turn cancelled before it started")
        else:
            self.has_answers = self.has_answers or bool(result.session_id and (result.ok or result.text))
        print()

    def _watch(self, view: ChatView) -> Result | None:
        """Show the turn until it ends."""
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
            # Ask only after all earlier events were shown.
            for question_id in questions.keys() & view.asked:
                self._ask(view, questions.pop(question_id))

    def _handle_signal(self, view: ChatView) -> None:
        """The first Ctrl-C stops the turn, the second leaves the chat."""
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
