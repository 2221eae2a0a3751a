"""Normalize requests for a replay: replace values that differ from run to run, so that a request
can be compared with a recorded one. This module does no I/O.
"""

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
    shorten,
    sorted_skills,
    tool_output,
    user_instructions,
    without_cassette,
    without_run_ids,
    without_times,
)
from geminids.gateway.request import Method, read_route, unwrap
from geminids.redact import Redactor

__all__ = ["NormalizedRequest", "Normalizer", "is_account_call", "user_texts"]


class NormalizedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request in a form that can be compared with recorded requests: all values that differ from
    run to run are replaced.

    `conversation` has one entry for each text, tool call and tool result. The CLI adds a context
    text to each conversation; `context` contains only the user's instructions from this text.
    """

    method: Method
    model: str | None
    conversation: tuple[str, ...]
    context: str = ""
    system: str = ""
    tools: str = ""
    config: str = ""
    answer_fields: tuple[str, ...] = ()
    """The names of the fields in the JSON answer that the request asks for. Utility requests about
    the same conversation differ only in these names."""
    call: str = ""
    """The URL path, if the request has no conversation; otherwise empty."""

    @property
    def is_account_call(self) -> bool:
        return is_account_call(self.call)

    def matches(self, other: NormalizedRequest) -> bool:
        """Return whether the recorded answer to `other` can be used for this request. This is the
        case if both requests have the same conversation, API method, URL path and fields of the
        requested JSON answer. Other parts, such as the model, may differ.
        """
        return (self.method, self.call, self.answer_fields, self.conversation) == (
            other.method,
            other.call,
            other.answer_fields,
            other.conversation,
        )

    def differs(self, other: NormalizedRequest) -> list[str]:
        """Return the names of the parts that differ between the two requests, for example the
        model. The conversation is not compared.
        """
        names = {"model": "model", "context": "instructions", "system": "system instruction"}
        names |= {"tools": "tool declarations", "config": "generation settings"}
        return [word for name, word in names.items() if getattr(self, name) != getattr(other, name)]


class Normalizer:
    """Replaces values that differ from run to run (folders, dates, secrets and ids) in the requests
    of one run.

    `folders` maps the paths of folders to placeholders. `days` are the dates to replace. `cassette`
    is the name of the cassette file (the file with recorded answers). A tool may list this file, so
    lines with its name are removed from the outputs of tools.
    """

    def __init__(
        self,
        folders: Mapping[str, str] | None = None,
        days: Iterable[Day] = (),
        redactor: Redactor | None = None,
        cassette: str = "",
    ) -> None:
        self._cassette = cassette
        self.folders = dict(folders or {})
        self.days = frozenset(days)
        self._redactor = redactor or Redactor()
        self._other_folders: dict[str, str] = {}
        # Cache the normalized texts, because each request repeats the whole conversation, and it
        # takes 10 ms to normalize a system instruction.
        self._cache: dict[tuple[str, str], str] = {}
        self._prepare()

    def redact_with(self, redactor: Redactor) -> None:
        """Use this redactor to mask secrets from now on."""
        self._redactor = redactor
        self._cache.clear()

    def learn(self, body: Any) -> None:
        """Find the folders that the CLI mentions in `body` (the decoded body of a request), and
        replace them too from now on.
        """
        new = {path: name for path, name in folders_in(user_texts(body)).items() if path not in self.folders}
        if new:
            self.folders |= new
            self._prepare()

    def add_known(self, days: frozenset[Day], folders: Mapping[str, str] | None = None) -> None:
        """From now on, also replace the dates and folders of the run with which this run is
        compared. A replay compares the current run with the recorded run.

        This is needed because a text of one run may mention dates and folders of the other run, and
        the normalized text must be equal for both runs. If `folders` is None, the folders from the
        previous call stay in use.
        """
        other_folders = self._other_folders if folders is None else dict(folders)
        if not days <= self.days or other_folders != self._other_folders:
            self.days |= days
            self._other_folders = other_folders
            self._prepare()

    def _prepare(self) -> None:
        # Skip a folder of the other run if it is inside a folder of this run, or contains such a
        # folder: the folder of this run has its own placeholder.
        unrelated = {
            path: name
            for path, name in self._other_folders.items()
            if not any(_within(path, own) or _within(own, path) for own in self.folders)
        }
        self._paths = PathReplacer({**unrelated, **self.folders})
        self._days = Days(self.days)
        self._cache.clear()

    def text(self, text: str) -> str:
        """Normalize a text of the user or the model. Only values that certainly belong to this run,
        such as its folders, are replaced.
        """
        return self._repeat("", text, self._text)

    def _cli_text(self, text: str) -> str:
        """Normalize a text that the CLI itself adds to each request, such as the system
        instruction. This also sorts the lists of skills in the text.
        """
        return sorted_skills(self.text(text))

    def result(self, tool: str, text: str) -> str:
        """Normalize the output of the tool named `tool`. This replaces the same values as `text`
        does, and also times, process ids and similar values.
        """
        return self._repeat(tool, text, lambda part: self._result_text(tool, part))

    def _repeat(self, tool: str, text: str, once: Callable[[str], str]) -> str:
        """Apply the function `once` to the text until the text no longer changes, and return the
        result. One call is not always enough: after a replacement, another path or time may match.

        The result is cached. `tool` is part of the key in the cache.
        """
        done = self._cache.get((tool, text))
        if done is None:
            before, done = text, once(text)
            while done != before:
                before, done = done, once(done)
            self._cache[tool, text] = done
        return done

    def _text(self, text: str) -> str:
        return self._days.text(without_run_ids(self._paths.text(self._redactor.text(text))))

    def _result_text(self, tool: str, text: str) -> str:
        plain = without_run_ids(self._paths.text(self._redactor.text(self._plain(tool, text))))
        return shorten(tool, without_times(self._days.result(plain)))

    def _plain(self, tool: str, text: str) -> str:
        return without_cassette(self._cassette, tool_output(tool, text))

    def request(self, method: Method, model: str | None, body: Any, path: str = "") -> NormalizedRequest:
        """Normalize a whole request. `body` is its decoded body, and `path` its URL path. If the
        request has no conversation, the path is compared in place of the conversation.
        """
        call = path.partition("?")[0] if method == "other" else ""
        if is_account_call(path):
            # The body describes the client; the answer does not depend on it.
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
            answer_fields=_answer_fields(rest),
            call=call,
        )

    def _conversation(self, contents: Any) -> tuple[list[str], str]:
        entries: list[str] = []
        context: list[str] = []
        is_model_text = False
        for role, part in _flat(contents):
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str) and len(part.keys() - {"thought", "thoughtSignature"}) == 1:
                if part.get("thought") is True or (not text and role == "model"):
                    continue
                if role == "user" and is_context(text):
                    context.append(user_instructions(self.text(text)))
                    continue
                if role == "model" and is_model_text:
                    entries[-1] += self.text(text)  # CLI releases split streamed text differently
                    continue
                entries.append(f"{role}: {self.text(text)}")
                is_model_text = role == "model"
                continue
            is_model_text = False
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
            ((kind, text),) = response.items()
            if isinstance(text, str):
                word = "result" if kind == "output" else kind
                return f"{word} of {name}: {self.result(name, text)}"
        inner = {key: value for key, value in result.items() if key not in ("id", "name")}
        return f"result of {name}: {self.result(name, _json(inner))}"


def is_account_call(path: str) -> bool:
    """Return whether a request with this URL path is about the user's Code Assist account: for
    example `loadCodeAssist`, `onboardUser` or a request for the quota.

    >>> is_account_call("/v1internal:loadCodeAssist"), is_account_call("/v1internal:generateContent")
    (True, False)
    """
    route = read_route(path)
    return route.api == "code_assist" and route.method == "other"


def _within(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def user_texts(body: Any) -> Iterator[str]:
    """Yield every text with the role `user` in `body`, the decoded body of a request."""
    body = unwrap(body)
    contents = body.get("contents") if isinstance(body, dict) else None
    for role, part in _flat(contents):
        if role == "user" and isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def _flat(contents: Any) -> Iterator[tuple[str, Any]]:
    """Yield every part of every message, with the role of the message. The grouping of parts into
    messages is lost on purpose: it differs between releases of the CLI.
    """
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


def _answer_fields(body: dict[str, Any]) -> tuple[str, ...]:
    config = body.get("generationConfig")
    schemas = (
        [config.get(name) for name in ("responseJsonSchema", "responseSchema")]
        if isinstance(config, dict)
        else []
    )
    properties = [schema.get("properties") for schema in schemas if isinstance(schema, dict)]
    return tuple(sorted(name for names in properties if isinstance(names, dict) for name in names))


def _with_sorted_choices(value: Any) -> Any:
    """Return a tool declaration with each of its `enum` lists sorted. The order in such a list has
    no meaning. Without sorting, two runs would differ, because the CLI lists the skills in a
    different order in each run.
    """
    if isinstance(value, list):
        return [_with_sorted_choices(item) for item in value]
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
