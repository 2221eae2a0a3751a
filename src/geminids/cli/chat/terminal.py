"""A chat in a terminal: prompts are typed, turns are watched, questions are answered with a key."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from queue import Empty
from typing import Any

from rich.text import Text

from geminids.cli.chat.lines import Typed
from geminids.cli.chat.slash_commands import Commands, Leave, prompt_of
from geminids.cli.chat.thread import ChatThread, Over, Question
from geminids.cli.shared import keys as chat_keys
from geminids.cli.shared.keys import answered_by_key
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
    """Show what is told between turns."""
    screen = Screen(sys.stdout)
    for line in lines:
        screen.paragraph(line, indent=2)
    screen.gap()
    screen.close()


class TerminalChat:
    """The conversation of one person; `thoughts` and `spoken` are of its turns so far."""

    def __init__(self, chat: ChatThread, interrupts: Interrupts) -> None:
        self.thoughts: list[Thought] = []
        self.spoken = False
        """Whether anything was answered: only then there is a session to come back to."""
        self._chat = chat
        self._interrupts = interrupts
        self._fd = sys.stdin.fileno()
        self._stopping = False
        self._leaving = False

    def converse(self, typed: Typed, commands: Commands, *, first: str | None, fields: dict[str, Any]) -> int:
        """Go on until the person leaves; returns the exit code."""
        line = first
        if first is not None:
            print(f"> {clean(first)}")
        try:
            while not self._leaving:
                if line is None:
                    line = self._read(typed)
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

    def _read(self, typed: Typed) -> str | None:
        """What was typed; None where it was thrown away. Raises EOFError or KeyboardInterrupt to leave."""
        try:
            with self._interrupts.prompting():
                return typed.read()
        except EOFError:
            print()  # the prompt's own line ends here
            raise
        except KeyboardInterrupt:
            print()
            if self._interrupts.typed or typed.begun:
                return None
            raise

    def _turn(self, prompt: str, fields: dict[str, Any]) -> None:
        options = self._chat.options
        self._stopping = False
        view = ChatView(offline=options.offline and not self.spoken, home=str(options.home))
        print()
        try:
            with chat_keys.unechoed(self._fd):
                self._chat.send(prompt, fields)
                result = self._watch(view)
        finally:
            view.close()
        if view.asked:
            # A "yes" that was typed in full is not the next prompt.
            chat_keys.forget_typed(self._fd)
        self.thoughts = view.thoughts or self.thoughts
        if result is None:
            print("■ turn cancelled before it began")
        else:
            self.spoken = self.spoken or bool(result.session_id and (result.ok or result.text))
        print()

    def _watch(self, view: ChatView) -> Result | None:
        """Show the turn to its end."""
        questions: dict[str, Question] = {}
        view.tick()
        while True:
            self._heed(view)
            try:
                heard = self._chat.heard.get(timeout=_TICK)
            except Empty:
                view.tick()
                continue
            if isinstance(heard, Over):
                return heard.result
            if isinstance(heard, Question):
                questions[heard.asked.id] = heard
            else:
                view.show(*heard)
            # A question is asked when all that came before it is seen.
            for known in questions.keys() & view.asked:
                self._ask(view, questions.pop(known))

    def _heed(self, view: ChatView) -> None:
        """A first Ctrl-C ends the turn, a second one leaves."""
        came = self._interrupts.take()
        if came is None:
            return
        self._leaving = self._leaving or self._stopping or came != signal.SIGINT
        self._stopping = True
        self._chat.stop(f"interrupted by {signal.Signals(came).name}")
        view.stopping()

    def _ask(self, view: ChatView, question: Question) -> None:
        def waits() -> bool:
            return not question.withdrawn and not self._interrupts.waiting

        if waits():
            said = answered_by_key(view, question.asked, self._fd, waits, self._reason)
            if said is not None:
                question.answer(said)

    def _reason(self) -> str | None:
        try:
            with chat_keys.editing(self._fd), self._interrupts.prompting():
                return input("  because: ").strip() or None
        except (EOFError, KeyboardInterrupt, HungUp):
            print()
            return None
