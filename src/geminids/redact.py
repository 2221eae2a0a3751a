"""Known secret values become `***`: the one place where that is done.

Lines are redacted when they become events, value by value, so that no event, record or log can hold a secret.
Not the raw bytes: a variable such as SORT_KEY=timestamp would take the names out of every line. Text that the
model streams in pieces is redacted across the pieces (`TextRedactor`).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["MASK", "Redactor", "TextRedactor", "is_secret_name", "secrets_in_words", "secrets_of"]

MASK = "***"
_MASK_BYTES = MASK.encode()

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW(OR)?D|CREDENTIAL|(^|_)AUTH(_|$)|_PAT$", re.IGNORECASE)
_ALWAYS = {"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_ACCESS_TOKEN"}
# Shorter values would mask ordinary words ("true", "1").
_SHORTEST = 8
_SHORTEST_ALWAYS = 4
_SHORTEST_LINE = 12
_PLACE_NAME = re.compile(r"(SOCK|FILE|PATH|DIR|HOME|CREDENTIALS)$", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Say whether a variable of this name is taken for a secret.

    >>> is_secret_name("GEMINI_API_KEY"), is_secret_name("HOME")
    (True, False)
    """
    return name in _ALWAYS or _SECRET_NAME.search(name) is not None


def secrets_of(environ: Mapping[str, str]) -> frozenset[str]:
    """The values in an environment that must not be shown.

    >>> sorted(secrets_of({"GEMINI_API_KEY": "AIzaSyExample", "SSH_AUTH_SOCK": "/tmp/agent.sock"}))
    ['AIzaSyExample']
    """
    found = set()
    for name, value in environ.items():
        if name in _ALWAYS:
            if len(value) >= _SHORTEST_ALWAYS:
                found.add(value)
        elif len(value) >= _SHORTEST and is_secret_name(name) and not _is_place(name, value):
            found.add(value)
    # A key in PEM form is told line by line.
    lines = {line.strip() for value in found if "\n" in value for line in value.splitlines()}
    return frozenset(found | {line for line in lines if len(line) >= _SHORTEST_LINE})


def _is_place(name: str, value: str) -> bool:
    """Whether a value only says where a secret is."""
    return value.startswith(("/", "~", "./")) and (
        _PLACE_NAME.search(name) is not None or os.path.exists(value)
    )


_NAMED = re.compile(r"--?([\w-]+)=(.+)", re.DOTALL)
_IN_URL = re.compile(r"://[^/@\s:]*:([^/@\s]+)@|[?&]([\w-]+)=([^&#\s]+)")


def secrets_in_words(words: Iterable[str]) -> frozenset[str]:
    """The secrets among a program's arguments: behind a flag whose name says so, and in URLs.

    >>> sorted(secrets_in_words(["--token", "hunter2hunter2", "http://u:urlpass99@host/?key=abcdefgh1"]))
    ['abcdefgh1', 'hunter2hunter2', 'urlpass99']
    """
    found: set[str] = set()
    before = ""
    for word in words:
        if before.startswith("-") and "=" not in before and is_secret_name(before.replace("-", "_")):
            found.add(word)
        if (named := _NAMED.fullmatch(word)) and is_secret_name(named[1].replace("-", "_")):
            found.add(named[2])
        for password, name, value in _IN_URL.findall(word):
            found |= {password} if password else {value} if is_secret_name(name) else set()
        before = word
    return frozenset(secret for secret in found if len(secret) >= _SHORTEST)


class Redactor:
    """Replaces every known secret in text, in decoded values and in blocks of bytes.

    >>> Redactor(["hunter2hunter2"]).text("password: hunter2hunter2")
    'password: ***'
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = tuple(sorted({secret for secret in secrets if secret}))
        # As it stands in plain text, and as JSON writers put it into a string.
        forms = {
            form
            for secret in self.secrets
            for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
        }
        # Longest first: a secret that begins with another one must go as a whole.
        self.forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))
        self.pattern = re.compile("|".join(map(re.escape, self.forms)) or "(?!)")
        self._written = tuple(form.encode("utf-8", "surrogateescape") for form in self.forms)

    def __bool__(self) -> bool:
        return bool(self.secrets)

    def found_in(self, text: str) -> bool:
        """Whether any secret is in `text`; one search a secret, each many times faster than the pattern."""
        return any(form in text for form in self.forms)

    def text(self, text: str) -> str:
        return self.pattern.sub(MASK, text) if self.found_in(text) else text

    def value(self, value: Any) -> Any:
        """A decoded JSON value without secrets, keys and numbers included."""
        try:
            return self._value(value)
        except RecursionError:
            return MASK

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self._value(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._value(inner) for inner in value]
        if isinstance(value, (int, float)) and str(value) in self.forms:
            return MASK
        return value

    def block(self, block: bytes) -> bytes:
        for form in self._written:
            if form in block:
                block = block.replace(form, _MASK_BYTES)
        return block


class TextRedactor:
    """Redacts a text that arrives in pieces: a secret that is split across some of them is found too.

    What could be the beginning of a secret is held back until the next piece (or `flush`) decides. However the
    text is cut into pieces, all that comes out is what `Redactor.text` makes of the whole.

    >>> pieces = TextRedactor(Redactor(["hunter2hunter2"]))
    >>> pieces.feed("it is hunter2h"), pieces.feed("unter2!"), pieces.flush()
    ('it is ', '***!', '')
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        # All beginnings of secrets by their last character: most texts end in none of them.
        self._begun: dict[str, list[str]] = {}
        for form in redactor.forms:
            for size in range(1, len(form)):
                self._begun.setdefault(form[size - 1], []).append(form[:size])
        for beginnings in self._begun.values():
            beginnings.sort(key=len, reverse=True)

    def is_clear(self, text: str) -> bool:
        """Whether what is held and `text` can pass as they are, in whatever pieces: nothing in them or begun."""
        text = self._held + text
        return not self._redactor.found_in(text) and self._unsure(text, 0) == len(text)

    def feed(self, piece: str) -> str:
        text = self._held + piece
        out: list[str] = []
        at, unsure = 0, self._unsure(text, 0)
        # A match that begins where a longer secret may have begun too is not decided yet.
        while (match := self._redactor.pattern.search(text, at)) and match.start() < unsure:
            out += (text[at : match.start()], MASK)
            at = match.end()
            if at > unsure:
                unsure = self._unsure(text, at)
        self._held = text[unsure:]
        out.append(text[at:unsure])
        return "".join(out)

    def flush(self) -> str:
        held, self._held = self._held, ""
        return self._redactor.text(held)

    def _unsure(self, text: str, start: int) -> int:
        """Where, from `start` on, what could be the beginning of a secret begins; the end where nothing does."""
        size = len(text)
        for beginning in self._begun.get(text[-1:], ()):
            if text.endswith(beginning, start):
                return size - len(beginning)
        return size
