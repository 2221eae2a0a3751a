"""Convert a reply of a script to the parts of an HTTP answer, in the form in which the Gemini API
sends them. This module does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from geminids.gateway.request import Request
from geminids.gateway.script.replies import Reply, ReplyUsage
from geminids.gateway.upstream import Body, Cut, Hang, Head, Part, Wait

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
    """Yield the parts of the HTTP answer that contains this reply, in the order in which they are
    sent.
    """
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
        yield Hang()
    if reply.cut:
        yield Cut()


def kind_of(reply: Reply) -> str:
    """Return a short description of a reply for people, for example for a log.

    >>> kind_of(Reply(status=429)), kind_of(Reply(text="hi", stall=True))
    ('error 429', 'text, stall')
    """
    words = [
        name for name in ("thought", "text", "raw", "garbage", "empty", "blocked") if getattr(reply, name)
    ]
    words += [f"call {call.name}" for call in reply.calls]
    words += [name for name in ("stall", "cut") if getattr(reply, name)]
    if reply.status >= 400:
        words = [f"error {reply.status}", *words]
    return ", ".join(words) or "empty"


def _chunks(reply: Reply, request: Request) -> tuple[list[bytes], str]:
    if reply.status >= 400:
        error = error_body(reply.status, reply.error, reply.error_status, reply.details)
        return ([raw.encode() for raw in _as_list(reply.garbage)] or [error]), _JSON
    garbage = [piece.encode("utf-8", "surrogateescape") for piece in _as_list(reply.garbage)]
    responses = responses_of(reply, request)
    if request.method == "stream":
        return [sse(_wrap(response, request)) for response in responses] + garbage, _EVENTS
    whole = [msgspec.json.encode(_wrap(_merge(responses), request))] if responses else []
    return whole + garbage, _JSON


def _wrap(response: dict[str, Any], request: Request) -> dict[str, Any]:
    """Return the response in the form of the API that the request is for. For Code Assist, the
    response is put into an object with the field `response`.
    """
    is_wrapped = request.api == "code_assist" and request.method in ("stream", "generate")
    return {"response": response} if is_wrapped else response


def sse(response: Any) -> bytes:
    """Encode a response as one server-sent event, the format of a streamed answer.

    >>> sse({"a": 1})
    b'data: {"a":1}\\r\\n\\r\\n'
    """
    data = msgspec.json.encode(response)
    # Escape U+2028 and U+2029: the CLI treats them as line ends and would lose the answer.
    for raw, escaped in ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029")):
        data = data.replace(raw, escaped)
    return b"data: " + data + b"\r\n\r\n"


def error_body(
    status: int, message: str | None = None, code: str | None = None, details: list[Any] | None = None
) -> bytes:
    """Encode the body of an HTTP error in the form of Google's APIs. `code` is Google's name for
    the error, such as `NOT_FOUND`. If it is None, the name that belongs to `status` is used.
    """
    code = code or _CODES.get(status, "UNKNOWN")
    error: dict[str, Any] = {"code": status, "message": message or f"scripted error {status}", "status": code}
    if details:
        error["details"] = details
    return msgspec.json.encode({"error": error})


def responses_of(reply: Reply, request: Request) -> list[dict[str, Any]]:
    """Return the content of a reply as `GenerateContentResponse` objects of the API, one for each
    chunk of the stream.
    """
    model_version = reply.model_version or request.model
    if reply.blocked:
        feedback = {"promptFeedback": {"blockReason": reply.blocked}}
        return [_with_usage(feedback, reply, request, model_version), *reply.raw]
    chunks = [[{"text": piece, "thought": True}] for piece in _as_list(reply.thought)]
    chunks += [[{"text": piece}] for piece in _as_list(reply.text)]
    if reply.calls:
        chunks.append([{"functionCall": _call(call)} for call in reply.calls])
    responses = [_chunk(parts, model_version) for parts in chunks]
    unfinished = reply.stall or reply.cut or bool(reply.raw) or reply.garbage is not None
    if not unfinished:
        if not responses:
            responses = [{"candidates": [{"content": {"role": "model"}, "index": 0}]}]
        last = responses[-1]
        if reply.finish is not None:
            last["candidates"][0]["finishReason"] = reply.finish
        _with_usage(last, reply, request, model_version)
    return responses + reply.raw


def _call(call: Any) -> dict[str, Any]:
    fields = {"name": call.name, "args": call.args}
    return fields if call.id is None else {"id": call.id, **fields}


def _chunk(parts: list[dict[str, Any]], model_version: str | None) -> dict[str, Any]:
    candidate = {"content": {"parts": parts, "role": "model"}, "index": 0}
    response: dict[str, Any] = {"candidates": [candidate]}
    return response if model_version is None else {**response, "modelVersion": model_version}


def _with_usage(
    response: dict[str, Any], reply: Reply, request: Request, model_version: str | None
) -> dict[str, Any]:
    response["usageMetadata"] = _usage(reply, request)
    if model_version is not None:
        response["modelVersion"] = model_version
    return response


def _usage(reply: Reply, request: Request) -> dict[str, int]:
    usage = reply.usage or ReplyUsage()
    text = "".join(_as_list(reply.text)) + "".join(call.name + str(call.args) for call in reply.calls)
    thought = "".join(_as_list(reply.thought))
    input_tokens = request.size // 4 if usage.input is None else usage.input
    output = tokens_in(text) if usage.output is None else usage.output
    thinking = tokens_in(thought) if usage.thinking is None and thought else usage.thinking
    total = (
        input_tokens + output + (thinking or 0) + (usage.tool or 0) if usage.total is None else usage.total
    )
    fields = {
        "promptTokenCount": input_tokens,
        "candidatesTokenCount": output,
        "totalTokenCount": total,
        "cachedContentTokenCount": usage.cached,
        "thoughtsTokenCount": thinking,
        "toolUsePromptTokenCount": usage.tool,
    }
    return {name: count for name, count in fields.items() if count is not None}


def tokens_in(text: str) -> int:
    """Estimate the number of tokens in a text: about four characters per token.

    >>> tokens_in("hello, world")
    3
    """
    return (len(text) + 3) // 4


def _merge(responses: list[dict[str, Any]]) -> dict[str, Any]:
    """Merge the chunks of a streamed answer into one response, in the form in which the method
    `generateContent` returns it.
    """
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


def _as_list(text: str | list[str] | None) -> list[str]:
    if text is None:
        return []
    return [text] if isinstance(text, str) else text
