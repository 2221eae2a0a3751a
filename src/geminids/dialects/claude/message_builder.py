"""Collect the content blocks and the token counts of one message of the model, and the output lines
that follow the message."""

from __future__ import annotations

from io import StringIO

from msgspec import Raw

from geminids.dialects.claude.line_writer import LineWriter
from geminids.dialects.claude.model import (
    ContentBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    Usage,
    encoded,
)
from geminids.dialects.claude.usage import usage_of
from geminids.events.model import TokensUsed

__all__ = ["MessageBuilder"]

_NO_INPUT = Raw(b"{}")
# Templates for the JSON in `stream_event` lines. Most lines of a run are of this kind, and filling in
# a template is faster than encoding an object.
_MESSAGE_START = (
    b'{"type":"message_start","message":{"id":%b,"type":"message","role":"assistant","model":%b,"content":[],'
    b'"stop_reason":null,"stop_sequence":null,"usage":%b}}'
)
_NO_USAGE = encoded(usage_of([]))
_START = b'{"type":"content_block_start","index":%d,"content_block":%b}'
_DELTA = b'{"type":"content_block_delta","index":%d,"delta":%b}'
_STOP = b'{"type":"content_block_stop","index":%d}'
_MESSAGE_DELTA = b'{"type":"message_delta","delta":{"stop_reason":%b,"stop_sequence":null},"usage":%b}'


class MessageBuilder:
    """A message that is not complete yet.

    With `live=True`, each piece of the message is also written immediately as a `stream_event`
    line. The blocks of the message are then in the order in which they began, and each block ends
    before the next one begins. Without `live`, thinking blocks come first, as in messages of
    Claude.
    """

    def __init__(
        self, writer: LineWriter, turn: int, model: str, requests: list[TokensUsed], *, live: bool
    ) -> None:
        self.turn = turn
        self.requests = requests
        self.following: list[bytes] = []
        self.calls = 0
        self._writer = writer
        self._id = writer.ids.message()
        self._model = model
        self._live = live
        self._blocks: list[ContentBlock] = []
        self.thoughts = 0
        self._text: StringIO | None = None
        self._delta = b""
        if live:
            usage = encoded(usage_of(requests)) if requests else _NO_USAGE
            self._writer.stream(_MESSAGE_START % (encoded(self._id), encoded(model), usage))

    def add_text(self, text: str) -> None:
        """Append `text` to the open text block. If no text block is open, begin a new one first."""
        if self._text is None:
            self._begin_text()
        self._text.write(text)  # type: ignore[union-attr]
        if self._live:
            self._writer.delta(self._delta, text)

    def add_thought(self, subject: str | None, text: str) -> None:
        thought = f"{subject}: {text}" if subject else text
        block = ThinkingBlock(thought)
        self.thoughts += 1
        if not self._live:
            self._blocks.insert(self.thoughts - 1, block)
            return
        self._close_text()
        self._stream_block(
            b'{"type":"thinking","thinking":"","signature":""}',
            b'{"type":"thinking_delta","thinking":%b}' % encoded(thought),
        )
        self._blocks.append(block)

    def add_call(self, use: ToolUseBlock) -> None:
        self._close_text()
        if self._live:
            tool_input = bytes(use.input).decode()
            self._stream_block(
                encoded(ToolUseBlock(use.id, use.name, _NO_INPUT)),
                b'{"type":"input_json_delta","partial_json":%b}' % encoded(tool_input),
            )
        self._blocks.append(use)
        self.calls += 1

    def add_request(self, request: TokensUsed) -> None:
        self.requests.append(request)
        self._model = request.model or self._model

    def finish(self, *, over: bool, cut: str | None = None) -> Message:
        """Close the message and return it.

        `over` is True if the model ended its turn with this message. If the API ended the answer
        early, `cut` is the reason, as a `stop_reason` of Claude; otherwise it is None.
        """
        self._close_text()
        reason = "tool_use" if self.calls else cut or ("end_turn" if over else None)
        message = self._message(self._blocks, reason)
        if self._live:
            reason_and_usage = (encoded(reason), encoded(message.usage))
            self._writer.stream(_MESSAGE_DELTA % reason_and_usage, b'{"type":"message_stop"}')
        return message

    def _message(self, blocks: list[ContentBlock], reason: str | None) -> Message:
        usage: Usage = usage_of(self.requests)
        return Message(self._id, "message", "assistant", self._model, blocks, reason, None, usage)

    def _begin_text(self) -> None:
        self._text = StringIO(newline="")
        if self._live:
            index = len(self._blocks)
            self._writer.stream(_START % (index, b'{"type":"text","text":""}'))
            self._delta = self._writer.delta_head(index)

    def _close_text(self) -> None:
        if self._text is not None:
            if self._live:
                self._writer.stream(_STOP % len(self._blocks))
            self._blocks.append(TextBlock(self._text.getvalue()))
            self._text = None

    def _stream_block(self, block: bytes, delta: bytes) -> None:
        """Write the `stream_event` lines of a block that is already complete. `block` is the JSON
        of the block without its content, and `delta` is the JSON of the content."""
        index = len(self._blocks)
        self._writer.stream(_START % (index, block), _DELTA % (index, delta), _STOP % index)
