"""Turn a reply into the parts of an HTTP answer, as the Gemini API writes them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from geminids.gateway.request import Request
from geminids.gateway.script.script import Reply, Usage
from geminids.gateway.upstream import Body, Cut, Head, Part, Stall, Wait

__all__ = ["error_body", "kind_of", "parts_of", "responses_of", "sse", "tokens_in"]

_CODES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_JSON = "application/json; charset=UTF-8"
_EVENTS = "text/event-stream"


def parts_of(reply: Reply, request: Request) -> Iterator[Part]:
    """Everything that is sent for this reply, in order."""
    chunks, kind = _chunks(reply, request)
    headers = {"content-type": kind}
    if not (reply.stall or reply.cut) and kind == _JSON:
        headers["content-length"] = str(sum(map(len, chunks)))
    headers.update({name.lower(): value for name, value in reply.headers.items()})
    if reply.delay:
        yield Wait(reply.delay)
    yield Head(reply.status, headers, kind_of(reply))
    for at, chunk in enumerate(chunks):
        if at and reply.pause:
            yield Wait(reply.pause)
        yield Body(chunk)
    if reply.stall:
        yield Stall()
    if reply.cut:
        yield Cut()


def kind_of(reply: Reply) -> str:
    """In a word or two what kind of reply this is.

    >>> kind_of(Reply(status=429)), kind_of(Reply(text="hi", stall=True))
    ('error 429', 'text, stall')
    """
    said = [
        name for name in ("thought", "text", "raw", "garbage", "empty", "blocked") if getattr(reply, name)
    ]
    said += [f"call {call.name}" for call in reply.calls]
    said += [name for name in ("stall", "cut") if getattr(reply, name)]
    if reply.status >= 400:
        said = [f"error {reply.status}", *said]
    return ", ".join(said) or "empty"


def _chunks(reply: Reply, request: Request) -> tuple[list[bytes], str]:
    if reply.status >= 400:
        error = error_body(reply.status, reply.error, reply.error_status, reply.details)
        return ([raw.encode() for raw in _listed(reply.garbage)] or [error]), _JSON
    garbage = [piece.encode("utf-8", "surrogateescape") for piece in _listed(reply.garbage)]
    responses = responses_of(reply, request)
    if request.method == "stream":
        return [sse(_wrapped(response, request)) for response in responses] + garbage, _EVENTS
    whole = [msgspec.json.encode(_wrapped(_merged(responses), request))] if responses else []
    return whole + garbage, _JSON


def _wrapped(response: dict[str, Any], request: Request) -> dict[str, Any]:
    """The response in the form of the API that was asked: Code Assist wraps what a model answers."""
    is_wrapped = request.api == "code_assist" and request.method in ("stream", "generate")
    return {"response": response} if is_wrapped else response


def sse(response: Any) -> bytes:
    """One server-sent event.

    >>> sse({"a": 1})
    b'data: {"a":1}\\r\\n\\r\\n'
    """
    data = msgspec.json.encode(response)
    # The CLI takes these two for the end of a line, and loses the answer.
    for raw, escaped in ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029")):
        data = data.replace(raw, escaped)
    return b"data: " + data + b"\r\n\r\n"


def error_body(
    status: int, message: str | None = None, code: str | None = None, details: list[Any] | None = None
) -> bytes:
    """A Google-style error."""
    code = code or _CODES.get(status, "UNKNOWN")
    error: dict[str, Any] = {"code": status, "message": message or f"scripted error {status}", "status": code}
    if details:
        error["details"] = details
    return msgspec.json.encode({"error": error})


def responses_of(reply: Reply, request: Request) -> list[dict[str, Any]]:
    """The `GenerateContentResponse` objects of a reply, one for each chunk."""
    version = reply.model_version or request.model
    if reply.blocked:
        feedback = {"promptFeedback": {"blockReason": reply.blocked}}
        return [_closed(feedback, reply, request, version), *reply.raw]
    said = [[{"text": piece, "thought": True}] for piece in _listed(reply.thought)]
    said += [[{"text": piece}] for piece in _listed(reply.text)]
    if reply.calls:
        said.append([{"functionCall": _call(call)} for call in reply.calls])
    built = [_open(parts, version) for parts in said]
    unfinished = reply.stall or reply.cut or bool(reply.raw) or reply.garbage is not None
    if not unfinished:
        if not built:
            built = [{"candidates": [{"content": {"role": "model"}, "index": 0}]}]
        last = built[-1]
        if reply.finish is not None:
            last["candidates"][0]["finishReason"] = reply.finish
        _closed(last, reply, request, version)
    return built + reply.raw


def _call(call: Any) -> dict[str, Any]:
    found = {"name": call.name, "args": call.args}
    return found if call.id is None else {"id": call.id, **found}


def _open(parts: list[dict[str, Any]], version: str | None) -> dict[str, Any]:
    candidate = {"content": {"parts": parts, "role": "model"}, "index": 0}
    response: dict[str, Any] = {"candidates": [candidate]}
    return response if version is None else {**response, "modelVersion": version}


def _closed(response: dict[str, Any], reply: Reply, request: Request, version: str | None) -> dict[str, Any]:
    response["usageMetadata"] = _usage(reply, request)
    if version is not None:
        response["modelVersion"] = version
    return response


def _usage(reply: Reply, request: Request) -> dict[str, int]:
    given = reply.usage or Usage()
    said = "".join(_listed(reply.text)) + "".join(call.name + str(call.args) for call in reply.calls)
    thought = "".join(_listed(reply.thought))
    taken = request.size // 4 if given.input is None else given.input
    output = tokens_in(said) if given.output is None else given.output
    thinking = tokens_in(thought) if given.thinking is None and thought else given.thinking
    total = taken + output + (thinking or 0) + (given.tool or 0) if given.total is None else given.total
    found = {
        "promptTokenCount": taken,
        "candidatesTokenCount": output,
        "totalTokenCount": total,
        "cachedContentTokenCount": given.cached,
        "thoughtsTokenCount": thinking,
        "toolUsePromptTokenCount": given.tool,
    }
    return {name: count for name, count in found.items() if count is not None}


def tokens_in(text: str) -> int:
    """About how many tokens a text is: a token is some four characters.

    >>> tokens_in("hello, world")
    3
    """
    return (len(text) + 3) // 4


def _merged(responses: list[dict[str, Any]]) -> dict[str, Any]:
    """All chunks as the one response that `generateContent` gives."""
    if len(responses) == 1:
        return responses[0]
    merged = dict(responses[-1])
    parts: list[Any] = []
    for response in responses:
        for candidate in response.get("candidates") or ():
            parts += candidate.get("content", {}).get("parts") or ()
    last = (merged.get("candidates") or [{}])[0]
    merged["candidates"] = [{**last, "content": {"parts": parts, "role": "model"}}]
    return merged


def _listed(said: str | list[str] | None) -> list[str]:
    if said is None:
        return []
    return [said] if isinstance(said, str) else said
