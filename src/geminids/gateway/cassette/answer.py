"""Convert an answer from the parts of an HTTP response to the readable form in a cassette (a file
with recorded answers), and back. This module does no I/O.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from geminids.gateway.cassette.lines import RecordedAnswer, bytes_field
from geminids.gateway.script.encode import sse
from geminids.gateway.upstream import Body, Cut, Hang, Head, Part, UpstreamFault, Wait
from geminids.redact import Redactor, TextRedactor

__all__ = ["body_fields", "mask", "parts_of_answer"]

_EVENTS = "text/event-stream"


def body_fields(head: Head, data: bytes) -> dict[str, Any]:
    """Convert the body of an answer to fields of `RecordedAnswer`.

    The first form that fits the body is used: server-sent events, JSON, text, base64.
    """
    data = _decompress(data, head.headers.get("content-encoding", ""))
    kind = head.headers.get("content-type", "")
    if kind.startswith(_EVENTS):
        fields = _events(data)
        if fields is not None:
            return fields
    try:
        return {"json": msgspec.json.decode(data)}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return dict(bytes_field(data))


def _decompress(data: bytes, encoding: str) -> bytes:
    if encoding not in ("gzip", "deflate", "x-gzip"):
        return data
    try:
        return zlib.decompressobj(47).decompress(data)  # also works for an incomplete answer
    except zlib.error:
        return data


def _events(data: bytes) -> dict[str, Any] | None:
    """Decode a body that is a stream of server-sent events. Return a dict with the field `events`;
    if the last event is incomplete, its text is in the field `rest`. Return None if the body is not
    such a stream.
    """
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


def mask(fields: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Return the fields of an answer with all secrets replaced with `***`. This includes a secret
    that is split across several events.
    """
    if not redactor:
        return fields
    clean: dict[str, Any] = {}
    for name, value in fields.items():
        if name == "base64":
            clean |= bytes_field(redactor.block(base64.b64decode(value)))
        elif name == "events":
            clean[name] = [redactor.value(event) for event in value]
            _mask_across(clean[name], redactor)
        else:
            clean[name] = redactor.value(value)
    if clean.get("rest"):
        _mask_rest(clean, redactor)
    return clean


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


def _mask_rest(clean: dict[str, Any], redactor: Redactor) -> None:
    """Mask secrets in the field `rest` of an answer (the text of an incomplete last event). If the
    last characters could be the beginning of a secret, remove them.
    """
    pieces = TextRedactor(redactor)
    clean["rest"] = pieces.feed(clean["rest"])


def parts_of_answer(answer: RecordedAnswer, *, pace: bool = False) -> Iterator[Part]:
    """Yield the parts of a recorded answer, to send them to the CLI.

    If `answer.end` is `fault`, `UpstreamFault` is raised after the last part. If `pace` is true,
    there are pauses between the parts, so that the answer takes as long as it took during the
    recording.
    """
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
        raise UpstreamFault(answer.fault or "cut", answer.message or "the answer was cut off")
    if answer.end == "stalled":
        yield Hang()
    elif answer.end != "whole":
        # "cut", or "left" (the client disconnected): the rest of the answer was not recorded.
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
    """Return two durations of a recorded answer, in seconds: the time until its first byte, and the
    average time between two of its events.
    """
    first = answer.first_ms or 0
    gaps = max(len(answer.events or ()) - 1, 1)
    return first / 1000, max((answer.ms or 0) - first, 0) / gaps / 1000
