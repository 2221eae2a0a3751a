"""Read the token counts, the model, the finish reason and the error from an answer of the API while
it is forwarded to the CLI. This module does no I/O.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from geminids.spending.tokens import Counts

__all__ = ["Observer"]

# At most about this many bytes of an error answer are read.
_MAX_ERROR = 1024 * 1024
# An answer or event with more bytes than this is forwarded but not decoded.
_MAX_EVENT = 64 * 1024 * 1024
_SECONDS = re.compile(r"([\d.]+)s")


class _Usage(msgspec.Struct, frozen=True, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Candidate(msgspec.Struct, frozen=True, rename="camel"):
    finish_reason: str | None = None
    content: msgspec.Raw = msgspec.Raw()


class _Feedback(msgspec.Struct, frozen=True, rename="camel"):
    block_reason: str | None = None


class _Error(msgspec.Struct, frozen=True):
    message: str | None = None


class _ApiResponse(msgspec.Struct, frozen=True, rename="camel"):
    usage_metadata: _Usage | None = None
    candidates: tuple[_Candidate, ...] | None = None
    model_version: str | None = None
    prompt_feedback: _Feedback | None = None
    error: _Error | None = None


class _WrappedResponse(_ApiResponse, frozen=True):
    """A response of the API. Code Assist puts the response into the field `response`; for the other
    APIs, this field is None.
    """

    response: _ApiResponse | None = None


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: msgspec.Raw = msgspec.Raw()


class _ResponseContent(msgspec.Struct, frozen=True):
    parts: tuple[_Part, ...] | None = None


_decoder = msgspec.json.Decoder(_WrappedResponse)
# Without `alt=sse`, `streamGenerateContent` answers with an array. The CLI does not ask for that,
# but its tools may.
_array_decoder = msgspec.json.Decoder(tuple[_WrappedResponse, ...])
_content_decoder = msgspec.json.Decoder(_ResponseContent)


class Observer:
    """Reads the token counts, the finish reason and other facts from one answer of the API. Call
    `feed` with each piece of the answer's body, and `finish` after the last piece.

    Each chunk of a streamed answer contains the token counts so far. The counts are the total only
    in the chunk with the finish reason and in later chunks. `final` is true when the total has
    arrived.
    """

    def __init__(self, status: int, content_type: str) -> None:
        self._status = status
        self._streams = content_type.startswith("text/event-stream") and status < 400
        self._buffer = bytearray()
        self._usage: _Usage | None = None
        self.final = False
        self.served: str | None = None
        self.finish_reason: str | None = None
        self.block_reason: str | None = None
        """Why the API refused the prompt (`promptFeedback`); None if it did not. A refused prompt
        has no finish reason."""
        self.calls = 0
        """The number of tool calls of the model."""
        self.thoughts = 0
        self.error: str | None = None
        self.retry_after: float | None = None
        self.is_daily_quota = False
        """Whether a daily quota is used up. If so, a retry does not help."""

    @property
    def counts(self) -> Counts | None:
        """The token counts of the request, as the API reported them. None until the total has
        arrived.
        """
        usage = self._usage
        if usage is None or not self.final:
            return None
        return Counts(
            input=usage.prompt_token_count or 0,
            cached=usage.cached_content_token_count or 0,
            output=usage.candidates_token_count or 0,
            thinking=usage.thoughts_token_count or 0,
            tool=usage.tool_use_prompt_token_count or 0,
        )

    def feed(self, data: bytes) -> None:
        """Read a piece of the answer's body. A piece may end anywhere, even in the middle of an
        event.
        """
        if not self._streams:
            if len(self._buffer) < (_MAX_EVENT if self._status < 400 else _MAX_ERROR):
                self._buffer += data
            return
        buffer = self._buffer
        if not buffer and data.endswith((b"\n\n", b"\n\r\n")):
            block = data
        else:
            searched = max(0, len(buffer) - 3)
            buffer += data
            end = _end_of_events(buffer, searched)
            block = bytes(buffer[:end])
            del buffer[:end]
            if len(buffer) > _MAX_EVENT:
                buffer.clear()
        if self._is_relevant(block):
            self._read_events(block)

    def finish(self) -> None:
        """Read the bytes of the answer's body that `feed` has stored but not decoded. Call this at
        the end of the body, even if the body is incomplete.
        """
        block = bytes(self._buffer)
        self._buffer.clear()
        if self._streams:
            self._read_events(block)
        elif self._status >= 400:
            self._read_error(block)
        elif block.lstrip()[:1] == b"[":
            self._read_array(block)
        else:
            self._read(block)
            # An answer that is not a stream can be decoded only if it is complete. So its token
            # counts are the total.
            self.final = self.final or self._usage is not None

    def _is_relevant(self, data: bytes) -> bool:
        """Return whether this data of the answer must be decoded. Most chunks of a long answer need
        no decoding, because they contain only text, the model and the token counts so far.
        """
        return (
            b'"finishReason"' in data
            or b'"promptFeedback"' in data
            or b'"error"' in data
            or (self.served is None and b'"modelVersion"' in data)
            or (self._has_ended and b'"usageMetadata"' in data)
            or self._has_new_parts(data)
        )

    def _has_new_parts(self, data: bytes) -> bool:
        return b'"functionCall"' in data or b'"thought"' in data

    @property
    def _has_ended(self) -> bool:
        return self.finish_reason is not None or self.block_reason is not None

    def _read_events(self, block: bytes) -> None:
        lines: list[bytes] = []
        for line in block.splitlines():
            if line.startswith(b"data:"):
                lines.append(line[5:])
            elif not line and lines:
                self._read_event(b"\n".join(lines))
                lines.clear()
        if lines:
            self._read_event(b"\n".join(lines))

    def _read_event(self, data: bytes) -> None:
        if self._is_relevant(data):
            self._read(data)

    def _read(self, data: bytes) -> None:
        try:
            wrapped = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return  # ignore it: the CLI receives the same bytes and reports the error
        self._take(wrapped, self._has_new_parts(data))

    def _read_array(self, data: bytes) -> None:
        try:
            events = _array_decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        for wrapped in events:
            self._take(wrapped, True)

    def _take(self, wrapped: _WrappedResponse, has_new_parts: bool) -> None:
        response: _ApiResponse = wrapped if wrapped.response is None else wrapped.response
        self.served = response.model_version or self.served
        for candidate in response.candidates or ():
            self.finish_reason = candidate.finish_reason or self.finish_reason
            if has_new_parts:
                self._read_parts(candidate.content)
        if response.prompt_feedback is not None:
            self.block_reason = response.prompt_feedback.block_reason or self.block_reason
        if wrapped.error is not None and wrapped.error.message:
            self.error = wrapped.error.message[:500]
        if response.usage_metadata is not None:
            self._usage = response.usage_metadata
            self.final = self._has_ended

    def _read_parts(self, content: msgspec.Raw) -> None:
        try:
            parts = _content_decoder.decode(content).parts
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        for part in parts or ():
            self.calls += len(part.function_call) > 0
            self.thoughts += bool(part.thought and part.text)

    def _read_error(self, data: bytes) -> None:
        try:
            answer: Any = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        answer = answer[0] if isinstance(answer, list) and answer else answer
        error = answer.get("error") if isinstance(answer, dict) else None
        if not isinstance(error, dict):
            return
        message = error.get("message")
        self.error = message[:500] if isinstance(message, str) else None
        for detail in error.get("details") or ():
            delay = detail.get("retryDelay") if isinstance(detail, dict) else None
            if isinstance(delay, str) and (seconds := _SECONDS.fullmatch(delay)):
                self.retry_after = float(seconds[1])
            self.is_daily_quota = self.is_daily_quota or _is_daily(detail)


def _end_of_events(data: bytearray, start: int) -> int:
    """Return the position after the last complete server-sent event in `data`; 0 if there is none.
    The search begins at `start`.

    An event ends with an empty line. It may have several lines. For Code Assist, the CLI joins
    these lines (server.ts of Gemini CLI).
    """
    plain, windows = data.rfind(b"\n\n", start), data.rfind(b"\n\r\n", start)
    return max(plain + 2 if plain >= 0 else 0, windows + 3 if windows >= 0 else 0)


def _is_daily(detail: Any) -> bool:
    """Return whether `detail`, an entry in the details of an API error, shows that a daily quota is
    used up. The check is the same as in the CLI (googleQuotaErrors.ts).
    """
    violations = detail.get("violations") if isinstance(detail, dict) else None
    ids = [str(violation.get("quotaId")) for violation in violations or () if isinstance(violation, dict)]
    return any("PerDay" in quota_id or "Daily" in quota_id for quota_id in ids)
