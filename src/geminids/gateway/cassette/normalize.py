"""A request as it is compared with a recorded one: without what differs from run to run. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from geminids.gateway.cassette.paths import PathReplacer, folders_in, is_context
from geminids.gateway.cassette.volatile_values import (
    Day,
    Days,
    both_ends,
    plain_result,
    same_cli,
    same_context,
    same_result,
    sorted_skills,
    without_cassette,
)
from geminids.gateway.request import Method, read_route, unwrap
from geminids.redact import Redactor

__all__ = ["NormalizedRequest", "Normalizer", "is_account_call", "user_texts"]


class NormalizedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request in words. `conversation` has what was said, asked of tools and given by them, one entry each."""

    method: Method
    model: str | None
    conversation: tuple[str, ...]
    context: str = ""
    system: str = ""
    tools: str = ""
    config: str = ""
    wants: tuple[str, ...] = ()
    """The names in the JSON that the answer has to be: errands of one conversation differ in nothing else."""
    call: str = ""
    """The path of a request that is not a conversation."""

    @property
    def is_account_call(self) -> bool:
        return is_account_call(self.call)

    def is_like(self, other: NormalizedRequest) -> bool:
        """Whether the answer to one is an answer to the other."""
        return (self.method, self.call, self.wants, self.conversation) == (
            other.method,
            other.call,
            other.wants,
            other.conversation,
        )

    def differs(self, other: NormalizedRequest) -> list[str]:
        """What is not the same beside the conversation, in words."""
        names = {"model": "model", "context": "instructions", "system": "system instruction"}
        names |= {"tools": "tool declarations", "config": "generation settings"}
        return [word for name, word in names.items() if getattr(self, name) != getattr(other, name)]


class Normalizer:
    """Knows the folders, the days and the secrets of one run, and takes them out of its requests.

    `cassette` is the name of the file, which may lie in the folder that the agent looks at.
    """

    def __init__(
        self,
        places: Mapping[str, str] | None = None,
        days: Iterable[Day] = (),
        redactor: Redactor | None = None,
        cassette: str = "",
    ) -> None:
        self._cassette = cassette
        self.places = dict(places or {})
        self.days = frozenset(days)
        self._redactor = redactor or Redactor()
        self._others: dict[str, str] = {}
        # Each request repeats all that was said before, and a system instruction takes 10 ms.
        self._done: dict[tuple[str, str], str] = {}
        self._prepare()

    def redact_with(self, redactor: Redactor) -> None:
        """Hide the secrets that this redactor knows."""
        self._redactor = redactor
        self._done.clear()

    def learn(self, body: Any) -> None:
        """Take in the folders that a request tells of."""
        new = {path: name for path, name in folders_in(user_texts(body)).items() if path not in self.places}
        if new:
            self.places |= new
            self._prepare()

    def also(self, days: frozenset[Day], places: Mapping[str, str] | None = None) -> None:
        """Know these days and folders of another run too: what a fixed prompt or the model says of them stays the
        same when the folder or the day is another one."""
        others = self._others if places is None else dict(places)
        if not days <= self.days or others != self._others:
            self.days |= days
            self._others = others
            self._prepare()

    def _prepare(self) -> None:
        # A folder in one of ours is a part of this run, whatever it was in the other one.
        apart = {
            path: name
            for path, name in self._others.items()
            if not any(_within(path, own) or _within(own, path) for own in self.places)
        }
        self._mover = PathReplacer({**apart, **self.places})
        self._days = Days(self.days)
        self._done.clear()

    def text(self, text: str) -> str:
        """Words of a person or a model: only what is sure to be of this run goes."""
        return self._settled("", text, self._text)

    def _cli_text(self, text: str) -> str:
        """What the CLI itself writes into each request."""
        return sorted_skills(self.text(text))

    def result(self, tool: str, text: str) -> str:
        """Words of a tool: times and numbers go too."""
        return self._settled(tool, text, lambda one: self._result_text(tool, one))

    def _settled(self, tool: str, text: str, once: Callable[[str], str]) -> str:
        """Until nothing changes any more: what stood against a path or a time may have hidden it."""
        done = self._done.get((tool, text))
        if done is None:
            before, done = text, once(text)
            while done != before:
                before, done = done, once(done)
            self._done[tool, text] = done
        return done

    def _text(self, text: str) -> str:
        return self._days.text(same_cli(self._mover.text(self._redactor.text(text))))

    def _result_text(self, tool: str, text: str) -> str:
        plain = same_cli(self._mover.text(self._redactor.text(self._plain(tool, text))))
        return both_ends(tool, same_result(self._days.result(plain)))

    def _plain(self, tool: str, text: str) -> str:
        return without_cassette(self._cassette, plain_result(tool, text))

    def request(self, method: Method, model: str | None, body: Any, path: str = "") -> NormalizedRequest:
        """The whole request. `path` tells requests apart that are not a conversation."""
        call = path.partition("?")[0] if method == "other" else ""
        if is_account_call(path):
            # The body says which client asks, and from where; the answer is the same for all of them.
            return NormalizedRequest(method=method, model=None, conversation=(), call=call)
        body = unwrap(body)
        if not isinstance(body, dict):
            return NormalizedRequest(
                method=method, model=model, conversation=(self.text(_json(body)),), call=call
            )
        rest = {name: value for name, value in body.items() if name != "session_id"}
        contents, system, tools = (
            rest.pop(name, None) for name in ("contents", "systemInstruction", "tools")
        )
        entries, context = self._conversation(contents)
        return NormalizedRequest(
            method=method,
            model=model,
            conversation=tuple(entries),
            context=context,
            system="" if system is None else self._cli_text("\n".join(_texts(system)) or _json(system)),
            tools="" if tools is None else self._cli_text(_json(_with_sorted_choices(tools))),
            config=self.text(_json(rest)) if rest else "",
            wants=_wanted(rest),
            call=call,
        )

    def _conversation(self, contents: Any) -> tuple[list[str], str]:
        entries: list[str] = []
        context: list[str] = []
        model_spoke = False
        for role, part in _flat(contents):
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str) and len(part.keys() - {"thought", "thoughtSignature"}) == 1:
                if part.get("thought") is True or (not text and role == "model"):
                    continue
                if role == "user" and is_context(text):
                    context.append(same_context(self.text(text)))
                    continue
                if role == "model" and model_spoke:
                    entries[-1] += self.text(text)  # releases differ in how they keep what was streamed
                    continue
                entries.append(f"{role}: {self.text(text)}")
                model_spoke = role == "model"
                continue
            model_spoke = False
            entries.append(self._other(role, part))
        return entries, "\n".join(filter(None, context))

    def _other(self, role: str, part: Any) -> str:
        if isinstance(part, dict):
            call, result, media = (
                part.get(name) for name in ("functionCall", "functionResponse", "inlineData")
            )
            if isinstance(call, dict):
                return f"call {_json(call.get('name'))} {self.text(_json(call.get('args') or {}))}"
            if isinstance(result, dict):
                return self._result(result)
            if isinstance(media, dict):
                data = _json(media.get("data")).encode("utf-8", "surrogatepass")
                return f"{role}: <{_json(media.get('mimeType'))} {hashlib.sha256(data).hexdigest()[:12]}>"
            part = {name: value for name, value in part.items() if name != "thoughtSignature"}
        return f"{role}: {self.text(_json(part))}"

    def _result(self, result: dict[str, Any]) -> str:
        name, response = _json(result.get("name")), result.get("response")
        if isinstance(response, dict) and len(response) == 1:
            ((kind, said),) = response.items()
            if isinstance(said, str):
                word = "result" if kind == "output" else kind
                return f"{word} of {name}: {self.result(name, said)}"
        inner = {key: value for key, value in result.items() if key not in ("id", "name")}
        return f"result of {name}: {self.result(name, _json(inner))}"


def is_account_call(path: str) -> bool:
    """Whether a request asks Code Assist about the account: `loadCodeAssist`, `onboardUser`, the quota, …

    >>> is_account_call("/v1internal:loadCodeAssist"), is_account_call("/v1internal:generateContent")
    (True, False)
    """
    route = read_route(path)
    return route.api == "code_assist" and route.method == "other"


def _within(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def user_texts(body: Any) -> Iterator[str]:
    """Every text of the user's side of a request."""
    body = unwrap(body)
    contents = body.get("contents") if isinstance(body, dict) else None
    for role, part in _flat(contents):
        if role == "user" and isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def _flat(contents: Any) -> Iterator[tuple[str, Any]]:
    """Part by part: releases differ in how they put them into contents."""
    for content in contents if isinstance(contents, list) else [] if contents is None else [contents]:
        if not isinstance(content, dict):
            yield "user", content
            continue
        parts = content.get("parts")
        for part in parts if isinstance(parts, list) else [parts]:
            yield _json(content.get("role", "user")), part


def _texts(system: Any) -> Iterator[str]:
    parts = system.get("parts") if isinstance(system, dict) else None
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def _wanted(body: dict[str, Any]) -> tuple[str, ...]:
    config = body.get("generationConfig")
    schemas = (
        [config.get(name) for name in ("responseJsonSchema", "responseSchema")]
        if isinstance(config, dict)
        else []
    )
    found = [schema.get("properties") for schema in schemas if isinstance(schema, dict)]
    return tuple(sorted(name for names in found if isinstance(names, dict) for name in names))


def _with_sorted_choices(value: Any) -> Any:
    """A declaration with each `enum` sorted: its order has no meaning, and that of skills differs from run to run."""
    if isinstance(value, list):
        return [_with_sorted_choices(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name: sorted(inner, key=str)
        if name == "enum" and isinstance(inner, list)
        else _with_sorted_choices(inner)
        for name, inner in value.items()
    }


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
