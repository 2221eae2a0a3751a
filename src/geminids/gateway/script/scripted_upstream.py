"""Answer requests from a script (prepared replies in place of a model). Utility requests of the
CLI, for example of the model router, get default replies.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from geminids.gateway.request import Request
from geminids.gateway.script.encode import parts_of, tokens_in
from geminids.gateway.script.replies import Reply, Script, ScriptLike
from geminids.gateway.upstream import Part

__all__ = ["Scripted", "default_reply", "fill"]

_PICTURE_TOKENS = 258


class Scripted:
    """Answers each request with a reply of the script. Each reply is used at most `Reply.times`
    times.
    """

    is_free = True
    """True, because no model answers: the requests cost nothing."""

    def __init__(self, script: ScriptLike = None) -> None:
        self._function = script if callable(script) else None
        if not isinstance(script, Script):
            script = Script(() if script is None or callable(script) else tuple(script))
        self.default = script.default
        self._remaining: list[tuple[Reply, int | None]] = [(reply, reply.times) for reply in script.replies]
        # Tests add replies from their own thread.
        self._lock = threading.Lock()

    def add(self, reply: Reply) -> None:
        with self._lock:
            self._remaining.append((reply, reply.times))

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        for part in parts_of(self.pick(request), request):
            yield part

    def pick(self, request: Request) -> Reply:
        """Return the reply to this request. The script is used only if the request asks for content
        (methods `stream` and `generate`); other requests get fixed replies.

        If the script is a function, its result is the reply. If the function returns None, or if
        there is no function, the script's replies for this API method are searched. First choice:
        the first reply whose `when` (a regular expression) matches the last user text. Second
        choice: the first reply without `when`. If there is neither, the request gets a default
        reply.
        """
        if request.method not in ("stream", "generate"):
            return _reply_to_other(request)
        reply = self._function(request) if self._function is not None else None
        if reply is None:
            reply = self._take(request)
        if reply is None and request.method == "generate":
            # A utility request must not use up a reply that is meant for the conversation.
            reply = default_reply(request)
        return self.default if reply is None else reply

    def _take(self, request: Request) -> Reply | None:
        text = request.last_user_text
        with self._lock:
            candidates = [
                at for at, (reply, _) in enumerate(self._remaining) if reply.method in (request.method, "any")
            ]
            for at in candidates:
                when = self._remaining[at][0].when
                if when is not None and re.search(when, text):
                    return self._use(at)
            for at in candidates:
                if self._remaining[at][0].when is None:
                    return self._use(at)
        return None

    def _use(self, at: int) -> Reply:
        reply, left = self._remaining[at]
        if left is not None:
            if left > 1:
                self._remaining[at] = (reply, left - 1)
            else:
                del self._remaining[at]
        return reply


def _reply_to_other(request: Request) -> Reply:
    if request.method == "count":
        return Reply(raw=[{"totalTokens": _count_tokens(request)}])
    if request.method == "embed":
        return Reply(status=404, error=f"models/{request.model} is not found for embedContent")
    if request.api == "code_assist":
        return Reply(raw=[_account_answer(request)])
    return Reply(status=404, error=f"{request.path} was not found")


def _account_answer(request: Request) -> dict[str, Any]:
    """Return Code Assist's answer about an account that is ready to use. The CLI needs two values
    in it: the tier (the kind of subscription) and the project (setup.ts of
    Gemini CLI).
    """
    requested = request.body.get("cloudaicompanionProject") if isinstance(request.body, dict) else None
    project = requested if isinstance(requested, str) else "scripted"
    if request.path.endswith(":loadCodeAssist"):
        tier = {"id": "standard-tier", "name": "scripted"}
        return {"currentTier": tier, "cloudaicompanionProject": project}
    if request.path.endswith(":onboardUser"):
        return {"done": True, "response": {"cloudaicompanionProject": {"id": project}}}
    return {}


def _count_tokens(request: Request) -> int:
    """Estimate the number of tokens in a request. Each picture counts as 258 tokens. If its base64
    data were counted as text, it would exceed the context window of every model.
    """
    parts = [part for content in request.contents for part in content.get("parts") or ()]
    texts = [part for part in parts if not (isinstance(part, dict) and "inlineData" in part)]
    return tokens_in(msgspec.json.encode(texts).decode()) + _PICTURE_TOKENS * (len(parts) - len(texts))


# Values to choose if a schema allows several: "flash" for the model router, and "user" for the
# question who speaks next, because it ends the turn.
_PREFERRED = ("flash", "user")


def default_reply(request: Request) -> Reply | None:
    """Return a reply that contains valid JSON if the request asks for JSON. Return None for other
    requests.
    """
    config = request.config
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    if schema is None and config.get("responseMimeType") != "application/json":
        return None
    return Reply(text=json.dumps(fill(schema or {"type": "object"})), times=None)


def fill(schema: Any) -> Any:
    """Return a small value that matches this JSON schema.

    >>> fill({"type": "OBJECT", "properties": {"model_choice": {"type": "STRING", "enum": ["pro", "flash"]}}})
    {'model_choice': 'flash'}
    """
    if not isinstance(schema, dict):
        return None
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and choices:
        return next((choice for choice in _PREFERRED if choice in choices), choices[0])
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list) and schema[union]:
            return fill(schema[union][0])
    return _fill_type(schema)


def _fill_type(schema: dict[str, Any]) -> Any:
    kind = schema.get("type", "object")
    kind = str(kind[0] if isinstance(kind, list) and kind else kind).lower()
    if kind == "object":
        properties = schema.get("properties")
        return (
            {name: fill(inner) for name, inner in properties.items()} if isinstance(properties, dict) else {}
        )
    if kind == "array":
        return [fill(schema.get("items"))] * int(schema.get("minItems") or 0)
    if kind in ("integer", "number"):
        # The router asks for a score from 1 to 100, but only the description of the field says so.
        # With 0, the CLI would use the most expensive model.
        return schema.get("minimum", 1 if kind == "integer" else 0)
    return {"string": "scripted", "boolean": False}.get(kind)
