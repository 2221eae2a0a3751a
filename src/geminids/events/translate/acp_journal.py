"""Translate the journal of an ACP session: tokens, the results of tools, and the ends of turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from geminids.events.model import Event, TokensUsed
from geminids.events.numbering import EventNumbers
from geminids.events.translate.acp import AcpTranslator
from geminids.events.translate.journal import Truth, at_of, redacted_truth, truth_of
from geminids.gemini.protocol.journal.records import Message
from geminids.redact import Redactor

__all__ = ["WarmJournalTranslator"]


class WarmJournalTranslator:
    """Translates the journal of an ACP session: tokens, and the results of tools.

    In it, each answer of the model is a message. One more message has all tool calls of the session;
    the CLI writes it again after each call. Thoughts are skipped: the updates report them.
    """

    def __init__(
        self, numbers: EventNumbers, redactor: Redactor, updates: AcpTranslator, known: set[str]
    ) -> None:
        self._numbers = numbers
        self._redactor = redactor
        self._updates = updates
        self._known = known
        self._answers: dict[str, int] = {}
        self._counted: set[str] = set()
        self.groups: set[int] = set()
        """The process groups of shell tools that have ended."""
        self.answered = False
        """Whether the journal has the model's answer to the last prompt or tool results."""

    def translate(self, message: Message) -> tuple[list[Event], dict[str, Truth]]:
        """Return the new events, and the `Truth` of each tool call that ended."""
        if message.type == "user":
            self.answered = False
            if message.is_tool_results:
                self._updates.given(list(_responses(message)))
            return [], {}
        if message.type != "gemini":
            return [], {}
        if message.tool_calls:
            return [], dict(self._truths(message))
        if message.id not in self._answers:
            self._answers[message.id] = len(self._answers) + 1
            self._updates.answered(message.text, len(message.thoughts))
        self.answered = True
        return list(self._tokens(message, self._answers[message.id])), {}

    def _truths(self, message: Message) -> Iterator[tuple[str, Truth]]:
        for call in message.tool_calls:
            if call.id not in self._known and (truth := truth_of(call)) is not None:
                self._known.add(call.id)
                if truth.group is not None:
                    self.groups.add(truth.group)
                yield call.id, redacted_truth(truth, self._redactor)

    def _tokens(self, message: Message, turn: int) -> Iterator[Event]:
        tokens = message.tokens
        if tokens is None or message.id in self._counted or self._numbers.has_gateway:
            return
        self._counted.add(message.id)
        yield TokensUsed(
            at=at_of(message.timestamp),
            seq=self._numbers.next(),
            attempt=self._numbers.attempt,
            turn=turn,
            model=message.model,
            role="main",
            input=tokens.input,
            cached=tokens.cached,
            output=tokens.output,
            thinking=tokens.thoughts,
            tool=tokens.tool,
        )


def _responses(message: Message) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for part in message.parts:
        entry = part.get("functionResponse") if isinstance(part, dict) else None
        if isinstance(entry, dict):
            call_id, name, response = entry.get("id"), entry.get("name"), entry.get("response")
            if isinstance(call_id, str) and isinstance(name, str) and isinstance(response, dict):
                yield call_id, name, response
