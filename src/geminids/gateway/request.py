"""One request of the CLI to the Gemini API, Vertex AI or Code Assist, as a plain value. This module
does no I/O.
"""

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
    "RequestRoute",
    "key_of",
    "read_route",
    "unwrap",
]

Api = Literal["gemini", "vertex", "code_assist"]
"""The API that a request is for: `gemini`; `vertex` (Vertex AI: the path names a publisher before
the model); or `code_assist` (Code Assist, for account logins: the body names the model and contains
the request).
"""
Method = Literal["stream", "generate", "count", "embed", "other"]

METRICS = ":recordCodeAssistMetrics"
"""The end of the path of Code Assist's telemetry. Cassettes leave telemetry out, because the CLI
sends it at random times."""

# The beginning of the token that each run gets for the gateway. It is readable, so that people who
# see a token in an environment know what it is. The CLI accepts a key of any form.
TOKEN_PREFIX = "geminids-run-"
NESTED_HEADER = "x-geminids-nested"
"""A gateway adds this header to a request that it forwards to another geminids gateway. It shows
that the request belongs to a nested run (a run that a tool of another run started)."""

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
# The API version is CODE_ASSIST_API_VERSION, `v1internal` by default (server.ts of Gemini CLI).
# The token of a run may come before it.
_CODE_ASSIST = re.compile(
    r"(?:/(?P<token>[^/?]+))?(?P<path>/v\d\w*(?::(?P<call>\w+)|/(?:\w[\w.-]*/)*operations/\w[\w.-]*))"
)
_TOKEN = re.compile(re.escape(TOKEN_PREFIX) + r"[0-9a-f]+")
_KEY_IN_QUERY = re.compile(r"(?<=[?&]key=)[^&]*")
_SHORTEST_LOGIN = 8
_KEY_HEADERS = ("x-goog-api-key", "authorization")


class RequestRoute(msgspec.Struct, frozen=True):
    """What the URL path of a request says: the API, the method, and the model (None if the path
    contains no model).
    """

    method: Method = "other"
    model: str | None = None
    api: Api = "gemini"


def read_route(path: str) -> RequestRoute:
    """Read the API, the method and the model from a URL path, for any version of the API. For Code
    Assist, the model is None, because the path does not contain it.

    >>> read_route("/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse")
    RequestRoute(method='stream', model='gemini-3.8-flash', api='gemini')
    """
    path = path.partition("?")[0]
    if match := _GEMINI.fullmatch(path):
        return RequestRoute(_METHODS.get(match["call"], "other"), match["model"])
    if match := _VERTEX.fullmatch(path):
        return RequestRoute(_METHODS.get(match["call"], "other"), match["model"], "vertex")
    if match := _CODE_ASSIST.fullmatch(path):
        return RequestRoute(_METHODS.get(match["call"], "other"), None, "code_assist")
    return RequestRoute()


class Request(msgspec.Struct, frozen=True, dict=True):
    """One request of the CLI to the gateway.

    `n` is the number of the request. `at` is its time in Unix seconds. `key` is the key or token
    that was in the request; in `headers` and `path`, it is replaced with `***`.
    """

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
    """The value of an `Authorization` header that does not contain the key. It is the user's own
    header for a proxy server, or the CLI's login (Code Assist). It is forwarded but never shown."""
    api: Api = "gemini"

    @classmethod
    def read(cls, n: int, at: float, verb: str, target: str, headers: dict[str, str], body: bytes) -> Request:
        """Build a request from the parts of an HTTP request. `target` is the URL path with the
        query.

        The key or token is moved to the field `key`. A Code Assist request has its token in the
        first segment of the path. A request to the Gemini API or Vertex AI has its key or token in
        a header or in the query.
        """
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
        """The body as decoded JSON; None if it is not JSON. The body is decoded when this property
        is read for the first time.
        """
        return _decoded(self.raw)

    def drop_body(self) -> None:
        """Remove the body from this object, to free its memory. This is done after the request was
        forwarded, because the answer can take an hour.
        """
        msgspec.structs.force_setattr(self, "raw", b"")

    @property
    def size(self) -> int:
        return len(self.raw)

    @property
    def is_paid(self) -> bool:
        """Whether the API charges for the request. It does not charge for requests about files, for
        token counting, and for Code Assist's requests about sign-in, quota and metrics.
        """
        if self.api == "code_assist":
            return self.method in ("stream", "generate", "embed")
        return (
            self.verb == "POST"
            and self.method != "count"
            and "files" not in self.path.partition("?")[0].split("/")
        )

    @property
    def is_nested(self) -> bool:
        """Whether the request comes from a nested run (a run that a tool of this run started). The
        gateway of the nested run has forwarded the request to this gateway.
        """
        return NESTED_HEADER in self.headers

    @property
    def login(self) -> str | None:
        """The access token of the CLI's own account login; None if there is none, or if it is too
        short to be a token.

        The token must be masked in logs and recordings, because a tool of the run may print the
        file that contains the token.
        """
        token = (self.authorization or "").removeprefix("Bearer ")
        return token if len(token) >= _SHORTEST_LOGIN else None

    @property
    def payload(self) -> Any:
        """The request in the form of the Gemini API, as decoded JSON. This is the whole body, or
        for Code Assist an object inside the body.
        """
        return unwrap(self.body)

    @property
    def contents(self) -> list[dict[str, Any]]:
        """The messages of the conversation in the request, oldest first."""
        contents = self._field("contents")
        if isinstance(contents, dict):
            contents = [contents]
        if not isinstance(contents, list):
            return []
        return [content for content in contents if isinstance(content, dict)]

    @property
    def last_user_text(self) -> str:
        """The user's last prompt in the conversation; empty if there is none. The context and the
        contents of files that the CLI adds to the prompt are not included.
        """
        at = self._last_prompt
        return "" if at is None else _prompt_text(self.contents[at])

    @property
    def user_texts(self) -> list[str]:
        """All texts with the role `user` in the conversation, the oldest one first. The context
        texts that the CLI adds are included.
        """
        return [text for content in self.contents if _is_user(content) for text in _texts(content)]

    @property
    def turn_results(self) -> list[dict[str, Any]]:
        """All tool results (`functionResponse`) since the user's last prompt, the oldest
        one first.
        """
        at = self._last_prompt
        since = self.contents if at is None else self.contents[at:]
        return [result for content in since for result in _results(content)]

    @property
    def _last_prompt(self) -> int | None:
        contents = self.contents
        for at in range(len(contents) - 1, -1, -1):
            # A message with tool results comes from the CLI, even if it also contains text.
            if _is_user(contents[at]) and any(_texts(contents[at])) and not any(_results(contents[at])):
                return at
        return None

    @property
    def tool_results(self) -> list[dict[str, Any]]:
        """The tool results (`functionResponse`) in the last message of the conversation. Each is a
        dict `{name, response, id?}`.
        """
        return list(_results(self.contents[-1])) if self.contents else []

    @property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The tools that the model may call: a dictionary from the name of each tool to its
        declaration.
        """
        groups = self._field("tools")
        declared = {}
        for group in groups if isinstance(groups, list) else ():
            for tool in group.get("functionDeclarations") or () if isinstance(group, dict) else ():
                if isinstance(tool, dict) and isinstance(tool.get("name"), str):
                    declared[tool["name"]] = tool
        return declared

    @property
    def config(self) -> dict[str, Any]:
        """The `generationConfig` of the request; empty if there is none."""
        config = self._field("generationConfig")
        return config if isinstance(config, dict) else {}

    def _field(self, name: str) -> Any:
        payload = self.payload
        return payload.get(name) if isinstance(payload, dict) else None


def key_of(target: str, headers: dict[str, str]) -> str | None:
    """Return the key or token of a request; None if there is none. For Code Assist, the key or
    token is in the path of `target`; otherwise it is in a header. Unlike `Request.read`, this
    function ignores a key in the query.
    """
    if read_route(target).api == "code_assist":
        return _take_token(target)[0]
    return _take_key(headers)[1]


def unwrap(body: Any) -> Any:
    """Return the request inside the decoded body of a Code Assist request (converter.ts of Gemini
    CLI). Other bodies are returned unchanged.

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
    """Return the name of the model in the body of a Code Assist request; None if the body names no
    model. For speed, the rest of the body is not decoded.
    """
    try:
        wrapped = _model_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        decoded = _decoded(body)
        model = decoded.get("model") if isinstance(decoded, dict) else None
        return model if isinstance(model, str) else None
    # A `countTokens` request names the model inside `request`, as `models/NAME`
    # (converter.ts of Gemini CLI).
    counted = wrapped.request.model if wrapped.request is not None else None
    return wrapped.model or (counted.removeprefix("models/") if counted else None)


def _take_token(target: str) -> tuple[str | None, str]:
    """Split off the token at the beginning of `target`, the path and query of a Code Assist
    request. Return the token (None if there is none), and the path and query without the token.
    """
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
        # The texts after this heading are the contents of `@path` files (atCommandProcessor.ts of
        # Gemini CLI).
        if at and text.lstrip().startswith("--- Content from referenced files ---"):
            return texts[at - 1]
    return texts[-1] if texts else ""


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        # The CLI may send half of a surrogate pair (`\\ud83d`), which msgspec rejects.
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
