"""A request as it is compared with a recorded one: without what differs from run to run. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from geminids.gateway.request import Method
from geminids.gateway.volatile import Day, Days, plain_result, same_cli, same_context, same_result
from geminids.gateway.whereabouts import Mover, is_context, places_in
from geminids.redact import Redactor

__all__ = ["Normal", "Normaliser", "user_texts"]

# What releases up to 0.32 have the model say to the introduction.
_THANKS = "Got it. Thanks for the context!"


class Normal(msgspec.Struct, frozen=True, kw_only=True):
    """A request in words. `conversation` has what was said, asked of tools and given by them, one entry each."""

    method: Method
    model: str | None
    conversation: tuple[str, ...]
    context: str = ""
    system: str = ""
    tools: str = ""
    config: str = ""

    def differs(self, other: Normal) -> list[str]:
        """What is not the same beside the conversation, in words."""
        names = {"model": "model", "context": "instructions", "system": "system instruction"}
        names |= {"tools": "tool declarations", "config": "generation settings"}
        return [word for name, word in names.items() if getattr(self, name) != getattr(other, name)]


class Normaliser:
    """Knows the folders, the days and the secrets of one run, and takes them out of its requests."""

    def __init__(
        self,
        places: Mapping[str, str] | None = None,
        days: Iterable[Day] = (),
        redactor: Redactor | None = None,
    ) -> None:
        self.places = dict(places or {})
        self._which = frozenset(days)
        self._days = Days(self._which)
        self._redactor = redactor or Redactor()
        self._mover = Mover(self.places)
        # Each request repeats all that was said before, and a system instruction takes 10 ms.
        self._done: dict[tuple[str, str], str] = {}

    def learn(self, body: Any) -> None:
        """Take in the folders that a request tells of."""
        new = {path: name for path, name in places_in(user_texts(body)).items() if path not in self.places}
        if new:
            self.places |= new
            self._mover = Mover(self.places)
            self._done.clear()

    def also_on(self, days: frozenset[Day]) -> None:
        """The run goes on after midnight."""
        if not days <= self._which:
            self._which |= days
            self._days = Days(self._which)
            self._done.clear()

    def text(self, text: str) -> str:
        """Words of a person or a model: only what is sure to be of this run goes."""
        done = self._done.get(("", text))
        if done is None:
            done = self._days.text(same_cli(self._mover.text(self._redactor.text(text))))
            self._done["", text] = done
        return done

    def result(self, tool: str, text: str) -> str:
        """Words of a tool: times and numbers go too."""
        done = self._done.get((tool, text))
        if done is None:
            plain = same_cli(self._mover.text(self._redactor.text(plain_result(tool, text))))
            done = same_result(self._days.result(plain))
            self._done[tool, text] = done
        return done

    def request(self, method: Method, model: str | None, body: Any) -> Normal:
        """The whole request."""
        if not isinstance(body, dict):
            return Normal(method=method, model=model, conversation=(self.text(_json(body)),))
        rest = dict(body)
        contents, system, tools = (
            rest.pop(name, None) for name in ("contents", "systemInstruction", "tools")
        )
        entries, context = self._conversation(contents)
        return Normal(
            method=method,
            model=model,
            conversation=tuple(entries),
            context=context,
            system="" if system is None else self.text("\n".join(_texts(system)) or _json(system)),
            tools="" if tools is None else self.text(_json(tools)),
            config=self.text(_json(rest)) if rest else "",
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
                if role == "model" and context and not entries and text.startswith(_THANKS):
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
                return f"call {call.get('name')} {self.text(_json(call.get('args') or {}))}"
            if isinstance(result, dict):
                return self._result(result)
            if isinstance(media, dict):
                digest = hashlib.sha256(str(media.get("data")).encode("utf-8", "surrogatepass")).hexdigest()[
                    :12
                ]
                return f"{role}: <{media.get('mimeType')} {digest}>"
            part = {name: value for name, value in part.items() if name != "thoughtSignature"}
        return f"{role}: {self.text(_json(part))}"

    def _result(self, result: dict[str, Any]) -> str:
        name, response = str(result.get("name")), result.get("response")
        if isinstance(response, dict) and len(response) == 1:
            ((kind, said),) = response.items()
            if isinstance(said, str):
                word = "result" if kind == "output" else kind
                return f"{word} of {name}: {self.result(name, said)}"
        inner = {key: value for key, value in result.items() if key not in ("id", "name")}
        return f"result of {name}: {self.result(name, _json(inner))}"


def user_texts(body: Any) -> Iterator[str]:
    """Every text of the user's side of a request."""
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
            yield str(content.get("role", "user")), part


def _texts(system: Any) -> Iterator[str]:
    parts = system.get("parts") if isinstance(system, dict) else None
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
