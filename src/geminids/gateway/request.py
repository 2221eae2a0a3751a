"""One request of the CLI to the Gemini API, as a plain value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Literal

import msgspec

from geminids.redact import MASK

__all__ = ["Method", "Request", "Route", "key_in", "read_route"]

Method = Literal["stream", "generate", "count", "embed", "other"]

_METHODS: dict[str, Method] = {
    "streamGenerateContent": "stream",
    "generateContent": "generate",
    "countTokens": "count",
    "embedContent": "embed",
    "batchEmbedContents": "embed",
}
_ROUTE = re.compile(r"/(?P<version>v1[a-z0-9]*)/(?:models|tunedModels)/(?P<model>[^/:?]+):(?P<call>\w+)")
_KEY_IN_QUERY = re.compile(r"(?<=[?&]key=)[^&]*")
_KEY_HEADERS = ("x-goog-api-key", "authorization")


class Route(msgspec.Struct, frozen=True):
    """What a path asks for."""

    method: Method = "other"
    model: str | None = None


def read_route(path: str) -> Route:
    """Read the method and the model in a path; any version of the API will do.

    >>> read_route("/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse")
    Route(method='stream', model='gemini-3.8-flash')
    """
    found = _ROUTE.fullmatch(path.partition("?")[0])
    if found is None:
        return Route()
    return Route(_METHODS.get(found["call"], "other"), found["model"])


class Request(msgspec.Struct, frozen=True, dict=True):
    """One request. The key that came with it is in `key` alone: headers and path hold `***` in its place."""

    n: int
    at: float
    verb: str
    path: str
    method: Method
    model: str | None
    headers: dict[str, str]
    raw: bytes
    key: str | None = None
    authorization: str | None = None
    """An `Authorization` that is not the key but a header of the user's own, for a server in between: it is passed
    on, and shown nowhere."""

    @classmethod
    def read(cls, n: int, at: float, verb: str, target: str, headers: dict[str, str], body: bytes) -> Request:
        """Take a request apart."""
        route = read_route(target)
        shown, key = _take_key(headers)
        in_query = _KEY_IN_QUERY.search(target)
        if in_query is not None:
            key = key or in_query[0]
            target = _KEY_IN_QUERY.sub(MASK, target)
        given = headers.get("authorization")
        own = None if given is None or given.removeprefix("Bearer ") == key else given
        return cls(n, at, verb, target, route.method, route.model, shown, body, key, own)

    def __repr__(self) -> str:
        return f"Request(n={self.n}, method={self.method!r}, model={self.model!r}, path={self.path!r})"

    @cached_property
    def body(self) -> Any:
        """What was asked, decoded when somebody looks; None where it is not JSON."""
        return _decoded(self.raw)

    def let_go(self) -> None:
        """Drop the body: it has been passed on, and an answer can take an hour."""
        msgspec.structs.force_setattr(self, "raw", b"")

    @property
    def size(self) -> int:
        return len(self.raw)

    @property
    def has_key(self) -> bool:
        return self.key is not None

    @property
    def contents(self) -> list[dict[str, Any]]:
        """The conversation that was sent, oldest first."""
        found = self.body.get("contents") if isinstance(self.body, dict) else None
        if isinstance(found, dict):
            found = [found]
        return [content for content in found if isinstance(content, dict)] if isinstance(found, list) else []

    @property
    def last_user_text(self) -> str:
        """What the user said last, without the context and the files that the CLI puts around it."""
        at = self._last_prompt
        return "" if at is None else _said(self.contents[at])

    @property
    def user_texts(self) -> list[str]:
        """Every text of the user's side, oldest first, the CLI's own context included."""
        return [text for content in self.contents if _is_user(content) for text in _texts(content)]

    @property
    def turn_results(self) -> list[dict[str, Any]]:
        """Every `functionResponse` since the user spoke last, oldest first."""
        at = self._last_prompt
        since = self.contents if at is None else self.contents[at:]
        return [result for content in since for result in _results(content)]

    @property
    def _last_prompt(self) -> int | None:
        contents = self.contents
        for at in range(len(contents) - 1, -1, -1):
            # A content that brings tool results is the CLI's, whatever text it adds to them.
            if _is_user(contents[at]) and any(_texts(contents[at])) and not any(_results(contents[at])):
                return at
        return None

    @property
    def tool_results(self) -> list[dict[str, Any]]:
        """The `functionResponse` parts that the last content brings: `{name, response, id?}` each."""
        return list(_results(self.contents[-1])) if self.contents else []

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The tools that are declared to the model: name to declaration."""
        groups = self.body.get("tools") if isinstance(self.body, dict) else None
        declared = {}
        for group in groups if isinstance(groups, list) else ():
            for tool in group.get("functionDeclarations") or () if isinstance(group, dict) else ():
                if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                    declared[tool["name"]] = tool
        return declared

    @property
    def config(self) -> dict[str, Any]:
        """The `generationConfig`, empty if there is none."""
        found = self.body.get("generationConfig") if isinstance(self.body, dict) else None
        return found if isinstance(found, dict) else {}


def key_in(headers: dict[str, str]) -> str | None:
    """The key that comes with these headers."""
    return _take_key(headers)[1]


def _take_key(headers: dict[str, str]) -> tuple[dict[str, str], str | None]:
    shown, key = dict(headers), None
    for name in _KEY_HEADERS:
        if name in shown:
            key = key or shown[name].removeprefix("Bearer ")
            shown[name] = MASK
    return shown, key


def _parts(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    parts: Any = content.get("parts")
    found: Iterable[Any] = parts if isinstance(parts, list) else [parts]
    return (part for part in found if isinstance(part, dict))


def _texts(content: dict[str, Any]) -> Iterator[str]:
    return (part["text"] for part in _parts(content) if isinstance(part.get("text"), str))


def _results(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    found = (part.get("functionResponse") for part in _parts(content))
    return (result for result in found if isinstance(result, dict))


def _is_user(content: dict[str, Any]) -> bool:
    return bool(content.get("role", "user") == "user")


def _said(content: dict[str, Any]) -> str:
    texts = list(_texts(content))
    for at, text in enumerate(texts):
        # What follows is the text of `@path` files (atCommandProcessor.ts).
        if at and text.lstrip().startswith("--- Content from referenced files ---"):
            return texts[at - 1]
    return texts[-1] if texts else ""


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        # Half a character (`\\ud83d`) is sent by the CLI as it is, and msgspec will have none of it.
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
