"""The upstream that answers from a script, with default answers for the requests that the CLI makes for itself."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from geminids.gateway.request import Request
from geminids.gateway.script.encode import parts_of, tokens_in
from geminids.gateway.script.script import Reply, Script, ScriptLike
from geminids.gateway.upstream import Part

__all__ = ["Scripted", "default_reply", "fill"]

_A_PICTURE = 258


class Scripted:
    """Picks the reply for each request, and counts how often each has served."""

    def __init__(self, script: ScriptLike = None) -> None:
        self._function = script if callable(script) else None
        if not isinstance(script, Script):
            script = Script(() if script is None or callable(script) else tuple(script))
        self.default = script.default
        self._left: list[tuple[Reply, int | None]] = [(reply, reply.times) for reply in script.replies]
        # Tests add replies from their own thread.
        self._lock = threading.Lock()

    def add(self, reply: Reply) -> None:
        with self._lock:
            self._left.append((reply, reply.times))

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        for part in parts_of(self.pick(request), request):
            yield part

    def pick(self, request: Request) -> Reply:
        """The reply for this request. Replies with `when` go first; the others serve in their order."""
        if request.method not in ("stream", "generate"):
            return _aside(request)
        reply = self._function(request) if self._function is not None else None
        if reply is None:
            reply = self._take(request)
        if reply is None and request.method == "generate":
            # The CLI's own side requests must not use up what the script says to the user.
            reply = default_reply(request)
        return self.default if reply is None else reply

    def _take(self, request: Request) -> Reply | None:
        text = request.last_user_text
        with self._lock:
            fitting = [
                at for at, (reply, _) in enumerate(self._left) if reply.method in (request.method, "any")
            ]
            for at in fitting:
                when = self._left[at][0].when
                if when is not None and re.search(when, text):
                    return self._use(at)
            for at in fitting:
                if self._left[at][0].when is None:
                    return self._use(at)
        return None

    def _use(self, at: int) -> Reply:
        reply, left = self._left[at]
        if left is not None:
            if left > 1:
                self._left[at] = (reply, left - 1)
            else:
                del self._left[at]
        return reply


def _aside(request: Request) -> Reply:
    if request.method == "count":
        return Reply(raw=[{"totalTokens": _counted(request)}])
    if request.method == "embed":
        return Reply(status=404, error=f"models/{request.model} is not found for embedContent")
    if request.api == "code_assist":
        return Reply(raw=[_account(request)])
    return Reply(status=404, error=f"There is nothing at {request.path}")


def _account(request: Request) -> dict[str, Any]:
    """What Code Assist answers to an account that is set up; the CLI needs the tier and the project (setup.ts)."""
    asked = request.body.get("cloudaicompanionProject") if isinstance(request.body, dict) else None
    project = asked if isinstance(asked, str) else "scripted"
    if request.path.endswith(":loadCodeAssist"):
        tier = {"id": "standard-tier", "name": "scripted"}
        return {"currentTier": tier, "cloudaicompanionProject": project}
    if request.path.endswith(":onboardUser"):
        return {"done": True, "response": {"cloudaicompanionProject": {"id": project}}}
    return {}


def _counted(request: Request) -> int:
    """A picture costs the same whatever its size: counted as text, its base64 would fill every model."""
    parts = [part for content in request.contents for part in content.get("parts") or ()]
    texts = [part for part in parts if not (isinstance(part, dict) and "inlineData" in part)]
    return tokens_in(msgspec.json.encode(texts).decode()) + _A_PICTURE * (len(parts) - len(texts))


# The router picks a model, the next-speaker check ends the turn: the choices that let a scripted run go on.
_PREFERRED = ("flash", "user")


def default_reply(request: Request) -> Reply | None:
    """A reply for a request that wants JSON; None for one that does not."""
    config = request.config
    schema = config.get("responseJsonSchema") or config.get("responseSchema")
    if schema is None and config.get("responseMimeType") != "application/json":
        return None
    return Reply(text=json.dumps(fill(schema or {"type": "object"})), times=None)


def fill(schema: Any) -> Any:
    """The plainest value that a JSON schema takes.

    >>> fill({"type": "OBJECT", "properties": {"model_choice": {"type": "STRING", "enum": ["pro", "flash"]}}})
    {'model_choice': 'flash'}
    """
    if not isinstance(schema, dict):
        return None
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list) and choices:
        return next((wish for wish in _PREFERRED if wish in choices), choices[0])
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list) and schema[union]:
            return fill(schema[union][0])
    return _fill_type(schema)


def _fill_type(schema: dict[str, Any]) -> Any:
    kind = schema.get("type", "object")
    kind = str(kind[0] if isinstance(kind, list) and kind else kind).lower()
    if kind == "object":
        properties = schema.get("properties")
        return {name: fill(of) for name, of in properties.items()} if isinstance(properties, dict) else {}
    if kind == "array":
        return [fill(schema.get("items"))] * int(schema.get("minItems") or 0)
    if kind in ("integer", "number"):
        # The router's score is "from 1-100" in words alone; a 0 is refused, and the dearest model taken.
        return schema.get("minimum", 1 if kind == "integer" else 0)
    return {"string": "scripted", "boolean": False}.get(kind)
