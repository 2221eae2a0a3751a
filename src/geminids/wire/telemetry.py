"""The CLI's telemetry file: JSON objects printed over many lines, one after the other; no list, no JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

__all__ = ["ApiResponse", "responses_in"]

_RESPONSE = b'"gemini_cli.api_response"'
# One object can hold whole conversations; one that is longer is passed over.
_BIGGEST = 64 * 1024 * 1024


class ApiResponse(msgspec.Struct, frozen=True, kw_only=True, rename={"at": "event.timestamp"}):
    """One request that the API has answered. `role` is absent before about 0.30."""

    at: str = ""
    model: str | None = None
    role: str | None = None
    input_token_count: int | None = None
    cached_content_token_count: int | None = None
    output_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_token_count: int | None = None


class _Record(msgspec.Struct, frozen=True):
    attributes: Any = None


_RECORD = msgspec.json.Decoder(_Record)


def responses_in(file: Path) -> Iterator[ApiResponse]:
    """The answered requests, in order; what cannot be read is passed over, a file that is not there is empty."""
    try:
        with file.open("rb") as lines:
            for block in _objects(lines):
                if _RESPONSE in block and (response := _response(block)) is not None:
                    yield response
    except OSError:
        return


def _objects(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Each object from its `{` to its `}`, both of which stand alone at the beginning of a line."""
    block: list[bytes] = []
    size = 0
    for line in lines:
        if line.rstrip() == b"{":
            block, size = [line], len(line)
        elif block:
            size += len(line)
            block.append(line)
            if size > _BIGGEST:
                block = []
            elif line.startswith(b"}"):
                yield b"".join(block)
                block = []


def _response(block: bytes) -> ApiResponse | None:
    try:
        attributes = _RECORD.decode(block).attributes
        if not isinstance(attributes, dict) or attributes.get("event.name") != "gemini_cli.api_response":
            return None
        return msgspec.convert(attributes, ApiResponse)
    except msgspec.MsgspecError:
        return None
