"""What an answer tells while it passes: tokens, the model that served, how it finished, how an error reads. Pure."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from geminids.gateway.told import Counts, RequestRole

__all__ = ["Observer", "role_of"]

# Only an answer that tells something is decoded: most chunks of a long one tell text alone.
_TELLING = (b'"usageMetadata"', b'"finishReason"', b'"modelVersion"', b'"error"')
# Whole answers and errors are kept up to here.
_MOST_KEPT = 1024 * 1024
_SUBAGENT = "complete_task"
_SUBAGENT_WORD = b'"complete_task"'
_SECONDS = re.compile(r"([\d.]+)s")


class _Usage(msgspec.Struct, frozen=True, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Candidate(msgspec.Struct, frozen=True, rename="camel"):
    finish_reason: str | None = None


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    usage_metadata: _Usage | None = None
    candidates: tuple[_Candidate, ...] | None = None
    model_version: str | None = None


class _Function(msgspec.Struct, frozen=True):
    name: str | None = None


class _Group(msgspec.Struct, frozen=True, rename="camel"):
    function_declarations: tuple[_Function, ...] = ()


class _Asked(msgspec.Struct, frozen=True):
    tools: tuple[_Group, ...] = ()


_decoder = msgspec.json.Decoder(_Response)
_asked = msgspec.json.Decoder(_Asked)


def role_of(method: str, body: bytes) -> RequestRole:
    """Whose request this is. The main conversation streams; a subagent has a tool to say that it is done (0.24 and
    newer); the rest (router, loop detector, compression, web tools) asks for one whole answer.

    >>> role_of("stream", b'{"contents": []}'), role_of("generate", b"{}")
    ('main', 'utility')
    """
    if _SUBAGENT_WORD in body and _is_subagent(body):
        return "subagent"
    return "main" if method == "stream" else "utility"


def _is_subagent(body: bytes) -> bool:
    """Whether the tool is there to be called: a conversation that only talks of it has the word too."""
    try:
        groups = _asked.decode(body).tools
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return True
    return any(one.name == _SUBAGENT for group in groups for one in group.function_declarations)


class Observer:
    """Told each piece of an answer's body, it knows what the answer has said so far."""

    def __init__(self, status: int, content_type: str) -> None:
        self._status = status
        self._streams = content_type.startswith("text/event-stream") and status < 400
        self._kept = bytearray()
        self.counts: Counts | None = None
        self.served: str | None = None
        self.finish: str | None = None
        self.error: str | None = None
        self.retry_after: float | None = None
        self.daily = False
        """Whether the quota of a day is used up: waiting is of no use."""

    def heard(self, data: bytes) -> None:
        """A piece of the body, cut wherever the network has cut it."""
        if not self._streams:
            if len(self._kept) < _MOST_KEPT:
                self._kept += data
            return
        kept = self._kept
        if kept:
            kept += data
            end = kept.rfind(b"\n")
            if end < 0:
                return
            block = bytes(kept[: end + 1])
            del kept[: end + 1]
        else:
            end = data.rfind(b"\n")
            block = data[: end + 1]
            if end + 1 < len(data):
                kept += data[end + 1 :]
        if any(word in block for word in _TELLING):
            self._read_lines(block)

    def over(self) -> None:
        """The body has come to its end."""
        block = bytes(self._kept)
        self._kept.clear()
        if self._streams:
            self._read_lines(block)
        elif self._status >= 400:
            self._read_error(block)
        else:
            self._read(block)

    def _read_lines(self, block: bytes) -> None:
        for line in block.split(b"\n"):
            if line.startswith(b"data:") and any(word in line for word in _TELLING):
                self._read(line[5:])

    def _read(self, data: bytes) -> None:
        try:
            response = _decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return  # not ours to mend: the CLI gets it as it is
        if response.usage_metadata is not None:
            usage = response.usage_metadata
            self.counts = Counts(
                input=usage.prompt_token_count or 0,
                cached=usage.cached_content_token_count or 0,
                output=usage.candidates_token_count or 0,
                thinking=usage.thoughts_token_count or 0,
                tool=usage.tool_use_prompt_token_count or 0,
            )
        self.served = response.model_version or self.served
        for candidate in response.candidates or ():
            self.finish = candidate.finish_reason or self.finish

    def _read_error(self, data: bytes) -> None:
        try:
            told: Any = msgspec.json.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return
        told = told[0] if isinstance(told, list) and told else told
        error = told.get("error") if isinstance(told, dict) else None
        if not isinstance(error, dict):
            return
        message = error.get("message")
        self.error = message[:500] if isinstance(message, str) else None
        for detail in error.get("details") or ():
            delay = detail.get("retryDelay") if isinstance(detail, dict) else None
            if isinstance(delay, str) and (seconds := _SECONDS.fullmatch(delay)):
                self.retry_after = float(seconds[1])
            self.daily = self.daily or _is_daily(detail)


def _is_daily(detail: Any) -> bool:
    """Whether a detail of an error names a quota of a day, as the CLI looks for it (googleQuotaErrors.ts)."""
    found = detail.get("violations") if isinstance(detail, dict) else None
    ids = [str(one.get("quotaId")) for one in found or () if isinstance(one, dict)]
    return any("PerDay" in one or "Daily" in one for one in ids)
