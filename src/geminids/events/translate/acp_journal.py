"""Read from the journal of an ACP session (the session file of the CLI) what the ACP updates do not
contain: token counts, tool results and the ends of turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from geminids.events.model import Event, TokensUsed
from geminids.events.numbering import EventNumbers
from geminids.events.translate.acp import AcpTranslator
from geminids.events.translate.journal import ToolRecord, at_of, redact_tool_record, tool_record_of
from geminids.gemini.protocol.journal.records import StoredMessage
from geminids.redact import Redactor

__all__ = ["WarmJournalTranslator"]


class WarmJournalTranslator:
    """Reads the messages of the journal of an ACP session (the session file of the CLI). Returns
    the token counts as events, and the results of the tool calls.

    In this journal, each answer of the model is one message. One other message contains all tool
    calls of the session; the CLI writes this message again after each call. Thoughts are skipped,
    because the ACP updates report them.

    `updates` gets the answers and the tool results, to find the end of each turn. `known` contains
    the ids of the tool calls whose results were already returned. When this class returns a result,
    it adds the id of the call to `known`.
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
        """The process groups of the shell tools that have ended."""
        self.answered = False
        """Whether the journal contains the model's answer to the last prompt or to the last tool
        results."""

    def translate(self, message: StoredMessage) -> tuple[list[Event], dict[str, ToolRecord]]:
        """Translate one message of the journal. Return two values: the new events, and the results
        of the tool calls that have ended, as a map from call id to `ToolRecord`.
        """
        if message.type == "user":
            self.answered = False
            if message.is_tool_results:
                self._updates.add_results(list(_responses(message)))
            return [], {}
        if message.type != "gemini":
            return [], {}
        if message.tool_calls:
            return [], dict(self._records(message))
        if message.id not in self._answers:
            self._answers[message.id] = len(self._answers) + 1
            self._updates.add_answer(message.text, len(message.thoughts))
        self.answered = True
        return list(self._tokens(message, self._answers[message.id])), {}

    def _records(self, message: StoredMessage) -> Iterator[tuple[str, ToolRecord]]:
        for call in message.tool_calls:
            if call.id not in self._known and (record := tool_record_of(call)) is not None:
                self._known.add(call.id)
                if record.group is not None:
                    self.groups.add(record.group)
                yield call.id, redact_tool_record(record, self._redactor)

    def _tokens(self, message: StoredMessage, turn: int) -> Iterator[Event]:
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


def _responses(message: StoredMessage) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for part in message.parts:
        entry = part.get("functionResponse") if isinstance(part, dict) else None
        if isinstance(entry, dict):
            call_id, name, response = entry.get("id"), entry.get("name"), entry.get("response")
            if isinstance(call_id, str) and isinstance(name, str) and isinstance(response, dict):
                yield call_id, name, response
