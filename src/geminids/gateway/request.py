"""One request of the CLI to the Gemini API, Vertex AI or Code Assist, as a plain value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Literal

import msgspec

from geminids.redact import MASK

__all__ = [
    "METRICS",
    "NESTED_HEADER",
    "TOKEN_PREFIX",
    "Api",
    "Method",
    "Request",
    "Route",
    "key_of",
    "read_route",
    "unwrap",
]

Api = Literal["gemini", "vertex", "code_assist"]
"""The form of the API: Gemini, Vertex AI (a publisher before the model), or Code Assist (account
logins: the model is in the body, and the request and the response are wrapped)."""
Method = Literal["stream", "generate", "count", "embed", "other"]

METRICS = ":recordCodeAssistMetrics"
"""Code Assist's telemetry. Cassettes leave it out, because the CLI sends it at random times."""

# Readable, so that people who see it in an environment know what it is; the CLI accepts a key of
# any form.
TOKEN_PREFIX = "geminids-run-"
NESTED_HEADER = "x-geminids-nested"
"""A gateway adds this header when it forwards to another geminids gateway: the request belongs to a
nested run."""

_METHODS: dict[str, Method] = {
    "streamGenerateContent": "stream",
    "generateContent": "generate",
    "countTokens": "count",
    "embedContent": "embed",
    "batchEmbedContents": "embed",
}
_GEMINI = re.compile(r"/v1[a-z0-9]*/(?:models|tunedModels)/(?P<model>[^/:?]+):(?P<call>\w+)")
_VERTEX = re.compile(
    r"/v1[a-z0-9]*/(?:projects/[^/]+/locations/[^/]+/)?publishers/[^/]+/models/(?P<model>[^/:?]+):(?P<call>\w+)"
)
# The version is CODE_ASSIST_API_VERSION, `v1internal` by default (server.ts). A run's token may
# come before it.
_CODE_ASSIST = re.compile(
    r"(?:/(?P<token>[^/?]+))?(?P<path>/v\d\w*(?::(?P<call>\w+)|/(?:\w[\w.-]*/)*operations/\w[\w.-]*))"
)
_TOKEN = re.compile(re.escape(TOKEN_PREFIX) + r"[0-9a-f]+")
_KEY_IN_QUERY = re.compile(r"(?<=[?&]key=)[^&]*")
_SHORTEST_LOGIN = 8
_KEY_HEADERS = ("x-goog-api-key", "authorization")


class Route(msgspec.Struct, frozen=True):
    """The API, method and model that a path names."""

    method: Method = "other"
    model: str | None = None
    api: Api = "gemini"


def read_route(path: str) -> Route:
    """Read the API, the method and the model from a path, for any version of the API. Code Assist
    names the model in the body instead.

    >>> read_route("/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse")
    Route(method='stream', model='gemini-3.8-flash', api='gemini')
    """
    path = path.partition("?")[0]
    if match := _GEMINI.fullmatch(path):
        return Route(_METHODS.get(match["call"], "other"), match["model"])
    if match := _VERTEX.fullmatch(path):
        return Route(_METHODS.get(match["call"], "other"), match["model"], "vertex")
    if match := _CODE_ASSIST.fullmatch(path):
        return Route(_METHODS.get(match["call"], "other"), None, "code_assist")
    return Route()


class Request(msgspec.Struct, frozen=True, dict=True):
    """One request. Only `key` holds the key that came with it: headers and path show `***`
    instead."""

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
    """An `Authorization` that is not the key: the user's own header for a proxy server, or the
    login of the CLI (Code Assist). It is forwarded and never shown."""
    api: Api = "gemini"

    @classmethod
    def read(cls, n: int, at: float, verb: str, target: str, headers: dict[str, str], body: bytes) -> Request:
        """Read a request. Code Assist's token, the first segment of the path, is moved from `path`
        to `key`."""
        route = read_route(target)
        shown, key = _take_key(headers)
        own = headers.get("authorization")
        model = route.model
        if route.api == "code_assist":
            key, target = _take_token(target)
            model = _model_in(body) if route.method != "other" else None
        elif own is not None and own.removeprefix("Bearer ") == key:
            own = None
        in_query = _KEY_IN_QUERY.search(target)
        if in_query is not None:
            key = key or (None if route.api == "code_assist" else in_query[0])
            target = _KEY_IN_QUERY.sub(MASK, target)
        if TOKEN_PREFIX in target:
            target = _TOKEN.sub(MASK, target)
        return cls(n, at, verb, target, route.method, model, shown, body, key, own, route.api)

    def __repr__(self) -> str:
        return f"Request(n={self.n}, method={self.method!r}, model={self.model!r}, path={self.path!r})"

    @cached_property
    def body(self) -> Any:
        """The decoded body, decoded at first use; None if it is not JSON."""
        return _decoded(self.raw)

    def drop_body(self) -> None:
        """Free the memory of the body after it was forwarded: an answer can take an hour."""
        msgspec.structs.force_setattr(self, "raw", b"")

    @property
    def size(self) -> int:
        return len(self.raw)

    @property
    def is_paid(self) -> bool:
        """Whether the API charges for it. Files, counting tokens, and Code Assist's other methods
        (sign-in, quota, metrics) are free."""
        if self.api == "code_assist":
            return self.method in ("stream", "generate", "embed")
        return (
            self.verb == "POST"
            and self.method != "count"
            and "files" not in self.path.partition("?")[0].split("/")
        )

    @property
    def is_nested(self) -> bool:
        """Whether another geminids gateway forwarded it: it belongs to a run inside this run."""
        return NESTED_HEADER in self.headers

    @property
    def login(self) -> str | None:
        """The access token of the CLI's own login, if it is long enough to be one. It has to be
        masked, because a tool may print the file that holds it."""
        token = (self.authorization or "").removeprefix("Bearer ")
        return token if len(token) >= _SHORTEST_LOGIN else None

    @property
    def payload(self) -> Any:
        """The body without Code Assist's wrapper."""
        return unwrap(self.body)

    @property
    def contents(self) -> list[dict[str, Any]]:
        """The conversation that was sent, oldest first."""
        contents = self._field("contents")
        if isinstance(contents, dict):
            contents = [contents]
        if not isinstance(contents, list):
            return []
        return [content for content in contents if isinstance(content, dict)]

    @property
    def last_user_text(self) -> str:
        """The user's last prompt, without the context and the files that the CLI adds to it."""
        at = self._last_prompt
        return "" if at is None else _prompt_text(self.contents[at])

    @property
    def user_texts(self) -> list[str]:
        """Every text with the role `user`, oldest first, including the CLI's own context."""
        return [text for content in self.contents if _is_user(content) for text in _texts(content)]

    @property
    def turn_results(self) -> list[dict[str, Any]]:
        """Every `functionResponse` since the user's last prompt, oldest first."""
        at = self._last_prompt
        since = self.contents if at is None else self.contents[at:]
        return [result for content in since for result in _results(content)]

    @property
    def _last_prompt(self) -> int | None:
        contents = self.contents
        for at in range(len(contents) - 1, -1, -1):
            # A content with tool results comes from the CLI, even if it also contains text.
            if _is_user(contents[at]) and any(_texts(contents[at])) and not any(_results(contents[at])):
                return at
        return None

    @property
    def tool_results(self) -> list[dict[str, Any]]:
        """The `functionResponse` parts of the last content: `{name, response, id?}` each."""
        return list(_results(self.contents[-1])) if self.contents else []

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The declarations of the tools that the model may call, by name."""
        groups = self._field("tools")
        declared = {}
        for group in groups if isinstance(groups, list) else ():
            for tool in group.get("functionDeclarations") or () if isinstance(group, dict) else ():
                if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                    declared[tool["name"]] = tool
        return declared

    @property
    def config(self) -> dict[str, Any]:
        """The `generationConfig`, empty if there is none."""
        config = self._field("generationConfig")
        return config if isinstance(config, dict) else {}

    def _field(self, name: str) -> Any:
        payload = self.payload
        return payload.get(name) if isinstance(payload, dict) else None


def key_of(target: str, headers: dict[str, str]) -> str | None:
    """The key or token of a request: from a header, or for Code Assist from the path."""
    if read_route(target).api == "code_assist":
        return _take_token(target)[0]
    return _take_key(headers)[1]


def unwrap(body: Any) -> Any:
    """A decoded body without Code Assist's wrapper (converter.ts); other bodies unchanged.

    >>> unwrap({"model": "m", "project": "p", "request": {"contents": []}})
    {'contents': []}
    """
    inner = body.get("request") if isinstance(body, dict) and "contents" not in body else None
    return inner if isinstance(inner, dict) else body


class _CountedModel(msgspec.Struct, frozen=True):
    model: str | None = None


class _WrappedModel(msgspec.Struct, frozen=True):
    model: str | None = None
    request: _CountedModel | None = None


_model_decoder = msgspec.json.Decoder(_WrappedModel)


def _model_in(body: bytes) -> str | None:
    """The model of a Code Assist request. Skips everything else in the body without decoding it."""
    try:
        wrapped = _model_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        decoded = _decoded(body)
        model = decoded.get("model") if isinstance(decoded, dict) else None
        return model if isinstance(model, str) else None
    # `countTokens` names it in the inner request, as `models/NAME` (converter.ts).
    counted = wrapped.request.model if wrapped.request is not None else None
    return wrapped.model or (counted.removeprefix("models/") if counted else None)


def _take_token(target: str) -> tuple[str | None, str]:
    """The token in the path of a Code Assist request, and the target without it."""
    path, question, query = target.partition("?")
    match = _CODE_ASSIST.fullmatch(path)
    return (None, target) if match is None else (match["token"], match["path"] + question + query)


def _take_key(headers: dict[str, str]) -> tuple[dict[str, str], str | None]:
    shown, key = dict(headers), None
    for name in _KEY_HEADERS:
        if name in shown:
            key = key or shown[name].removeprefix("Bearer ")
            shown[name] = MASK
    return shown, key


def _parts(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    parts: Any = content.get("parts")
    listed: Iterable[Any] = parts if isinstance(parts, list) else [parts]
    return (part for part in listed if isinstance(part, dict))


def _texts(content: dict[str, Any]) -> Iterator[str]:
    return (part["text"] for part in _parts(content) if isinstance(part.get("text"), str))


def _results(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    results = (part.get("functionResponse") for part in _parts(content))
    return (result for result in results if isinstance(result, dict))


def _is_user(content: dict[str, Any]) -> bool:
    return bool(content.get("role", "user") == "user")


def _prompt_text(content: dict[str, Any]) -> str:
    texts = list(_texts(content))
    for at, text in enumerate(texts):
        # From here on, the texts are those of `@path` files (atCommandProcessor.ts).
        if at and text.lstrip().startswith("--- Content from referenced files ---"):
            return texts[at - 1]
    return texts[-1] if texts else ""


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        # The CLI sends half of a surrogate pair unchanged (`\\ud83d`), which msgspec rejects.
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
