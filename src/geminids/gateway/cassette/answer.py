"""An answer on its way into a cassette and out of it: pieces of HTTP to what can be read, and back. Pure."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from geminids.gateway.cassette.lines import RecordedAnswer, bytes_as
from geminids.gateway.script.encode import sse
from geminids.gateway.upstream import Body, Cut, Head, Part, Stall, UpstreamFault, Wait
from geminids.redact import Redactor, TextRedactor

__all__ = ["body_fields", "masked", "parts_of_answer"]

_EVENTS = "text/event-stream"


def body_fields(head: Head, data: bytes) -> dict[str, Any]:
    """The body of an answer as the field of `RecordedAnswer` that people can read best."""
    data = _unpacked(data, head.headers.get("content-encoding", ""))
    kind = head.headers.get("content-type", "")
    if kind.startswith(_EVENTS):
        fields = _events(data)
        if fields is not None:
            return fields
    try:
        return {"json": msgspec.json.decode(data)}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return dict(bytes_as(data))


def _unpacked(data: bytes, encoding: str) -> bytes:
    if encoding not in ("gzip", "deflate", "x-gzip"):
        return data
    try:
        return zlib.decompressobj(47).decompress(data)  # of an answer that was cut, what is there
    except zlib.error:
        return data


def _events(data: bytes) -> dict[str, Any] | None:
    """The values of the events, and what came of the last one; None where it is anything else."""
    *lines, rest = data.replace(b"\r\n", b"\n").split(b"\n")
    events: list[Any] = []
    try:
        for line in lines:
            if line.startswith(b"data:"):
                events.append(msgspec.json.decode(line[5:]))
            elif line:
                return None
        return {"events": events, "rest": rest.decode()} if rest else {"events": events}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def masked(fields: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """The same without secrets, those too that are spread over texts of several events."""
    if not redactor:
        return fields
    shown: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "base64":
            shown |= bytes_as(redactor.block(base64.b64decode(value)))
        elif name == "events":
            shown[name] = [redactor.value(event) for event in value]
            _mask_across(shown[name], redactor)
        else:
            shown[name] = redactor.value(value)
    if shown.get("rest"):
        _mask_rest(shown, redactor)
    return shown


def _mask_across(events: list[Any], redactor: Redactor) -> None:
    for thought in (True, False):
        parts = [
            part for event in events for part in _text_parts(event) if bool(part.get("thought")) is thought
        ]
        pieces = TextRedactor(redactor)
        for at, part in enumerate(parts, 1):
            part["text"] = pieces.feed(part["text"]) + (pieces.flush() if at == len(parts) else "")


def _text_parts(event: Any) -> Iterator[dict[str, Any]]:
    if isinstance(event, dict) and isinstance(event.get("response"), dict):
        event = event["response"]  # Code Assist
    candidates = event.get("candidates") if isinstance(event, dict) else None
    for candidate in candidates if isinstance(candidates, list) else ():
        content = candidate.get("content") if isinstance(candidate, dict) else None
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part


def _mask_rest(shown: dict[str, Any], redactor: Redactor) -> None:
    """What was cut can end in the first half of a secret: nobody will ever need that piece."""
    pieces = TextRedactor(redactor)
    shown["rest"] = pieces.feed(shown["rest"])


def parts_of_answer(answer: RecordedAnswer, *, pace: bool = False) -> Iterator[Part]:
    """What is sent for a recorded answer. Raises the fault that was met where it was met."""
    waits = _waits(answer) if pace else None
    if answer.status is not None:
        pieces = _pieces(answer)
        if waits:
            yield Wait(waits[0])
        yield Head(answer.status, _headers(answer, pieces), "replayed")
        for at, piece in enumerate(pieces):
            if at and waits:
                yield Wait(waits[1])
            yield Body(piece)
    if answer.end == "fault":
        raise UpstreamFault(answer.fault or "cut", answer.message or "the answer was cut")
    if answer.end == "stalled":
        yield Stall()
    elif answer.end != "whole":
        # A client that left then had no use for the rest, and there is none to give.
        yield Cut()


def _pieces(answer: RecordedAnswer) -> list[bytes]:
    rest = [answer.rest.encode()] if answer.rest else []
    if answer.events is not None:
        return [sse(event) for event in answer.events] + rest
    if answer.base64 is not None:
        return [base64.b64decode(answer.base64)]
    if answer.text is not None:
        return [answer.text.encode()] if answer.text else []
    return [] if answer.json is msgspec.UNSET else [msgspec.json.encode(answer.json)]


def _headers(answer: RecordedAnswer, pieces: list[bytes]) -> dict[str, str]:
    headers = {"content-type": answer.type} if answer.type else {}
    if answer.retry_after is not None:
        headers["retry-after"] = answer.retry_after
    if answer.end == "whole" and not answer.type.startswith(_EVENTS):
        headers["content-length"] = str(sum(map(len, pieces)))
    return headers


def _waits(answer: RecordedAnswer) -> tuple[float, float]:
    """How long it took to the first byte, and from piece to piece on average."""
    first = answer.first_ms or 0
    gaps = max(len(answer.events or ()) - 1, 1)
    return first / 1000, max((answer.ms or 0) - first, 0) / gaps / 1000
