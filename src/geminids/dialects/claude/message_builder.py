"""One message of the model, as it grows: its blocks, its tokens, and what must be said behind it."""

from __future__ import annotations

from io import StringIO

from msgspec import Raw

from geminids.dialects.claude.line_writer import Voice
from geminids.dialects.claude.model import (
    Message,
    Said,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    Usage,
    encoded,
)
from geminids.dialects.claude.usage import usage_of
from geminids.events.model import TokensUsed

__all__ = ["Growing"]

_NO_INPUT = Raw(b"{}")
# Events of a message as JSON, since most lines of a run are such.
_MESSAGE_START = (
    b'{"type":"message_start","message":{"id":%b,"type":"message","role":"assistant","model":%b,"content":[],'
    b'"stop_reason":null,"stop_sequence":null,"usage":%b}}'
)
_NO_USAGE = encoded(usage_of([]))
_START = b'{"type":"content_block_start","index":%d,"content_block":%b}'
_DELTA = b'{"type":"content_block_delta","index":%d,"delta":%b}'
_STOP = b'{"type":"content_block_stop","index":%d}'
_MESSAGE_DELTA = b'{"type":"message_delta","delta":{"stop_reason":%b,"stop_sequence":null},"usage":%b}'


class Growing:
    """A message that is not whole yet.

    With `live`, each piece is a `stream_event` at once: blocks do not overlap, and stand in the whole message in the
    order in which they were begun. Without, thinking stands before all else, as in Claude's own messages.
    """

    def __init__(
        self, voice: Voice, turn: int, model: str, requests: list[TokensUsed], *, live: bool
    ) -> None:
        self.turn = turn
        self.requests = requests
        self.behind: list[bytes] = []
        self.calls = 0
        self._voice = voice
        self._id = voice.ids.message()
        self._model = model
        self._live = live
        self._blocks: list[Said] = []
        self.thoughts = 0
        self._text: StringIO | None = None
        self._delta = b""
        if live:
            usage = encoded(usage_of(requests)) if requests else _NO_USAGE
            self._voice.stream(_MESSAGE_START % (encoded(self._id), encoded(model), usage))

    def say(self, text: str) -> None:
        """A piece of text, which goes on where the last block is one."""
        if self._text is None:
            self._begin_text()
        self._text.write(text)  # type: ignore[union-attr]
        if self._live:
            self._voice.delta(self._delta, text)

    def think(self, subject: str | None, text: str) -> None:
        thought = f"{subject}: {text}" if subject else text
        block = ThinkingBlock(thought)
        self.thoughts += 1
        if not self._live:
            self._blocks.insert(self.thoughts - 1, block)
            return
        self._close()
        self._whole_block(
            b'{"type":"thinking","thinking":"","signature":""}',
            b'{"type":"thinking_delta","thinking":%b}' % encoded(thought),
        )
        self._blocks.append(block)

    def call(self, use: ToolUseBlock) -> None:
        self._close()
        if self._live:
            given = bytes(use.input).decode()
            self._whole_block(
                encoded(ToolUseBlock(use.id, use.name, _NO_INPUT)),
                b'{"type":"input_json_delta","partial_json":%b}' % encoded(given),
            )
        self._blocks.append(use)
        self.calls += 1

    def served_by(self, request: TokensUsed) -> None:
        self.requests.append(request)
        self._model = request.model or self._model

    def whole(self, *, over: bool, cut: str | None = None) -> Message:
        """The message, which is closed; `over`: the model has come to its end in it; `cut`: the API ended it early."""
        self._close()
        reason = "tool_use" if self.calls else cut or ("end_turn" if over else None)
        message = self._whole(self._blocks, reason)
        if self._live:
            ending = (encoded(reason), encoded(message.usage))
            self._voice.stream(_MESSAGE_DELTA % ending, b'{"type":"message_stop"}')
        return message

    def _whole(self, blocks: list[Said], reason: str | None) -> Message:
        usage: Usage = usage_of(self.requests)
        return Message(self._id, "message", "assistant", self._model, blocks, reason, None, usage)

    def _begin_text(self) -> None:
        self._text = StringIO(newline="")
        if self._live:
            at = len(self._blocks)
            self._voice.stream(_START % (at, b'{"type":"text","text":""}'))
            self._delta = self._voice.delta_head(at)

    def _close(self) -> None:
        if self._text is not None:
            if self._live:
                self._voice.stream(_STOP % len(self._blocks))
            self._blocks.append(TextBlock(self._text.getvalue()))
            self._text = None

    def _whole_block(self, block: bytes, delta: bytes) -> None:
        """A block that is whole when it is begun."""
        at = len(self._blocks)
        self._voice.stream(_START % (at, block), _DELTA % (at, delta), _STOP % at)
