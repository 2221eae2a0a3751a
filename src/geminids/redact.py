"""Replace known secrets with `***`. All packages use this module for that.

When a line of the CLI's output is converted to events, each value in the line is redacted. So no
event and no log contains a secret. The raw bytes of the line are not redacted, because that could
mask the names of fields. For example, if the environment contains SORT_KEY=timestamp, the text
`timestamp` is treated as a secret. The field `timestamp` of the line would then be masked.

`TextRedactor` redacts a text that arrives in pieces.
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
# Values with fewer characters are not masked, because they would mask ordinary words ("true", "1").
_SHORTEST = 8
_SHORTEST_ALWAYS = 4
_SHORTEST_LINE = 12
_PATH_NAME = re.compile(r"(SOCK|FILE|PATH|DIR|HOME|CREDENTIALS)$", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether the value of an environment variable with this name is treated as a secret.

    >>> is_secret_name("GEMINI_API_KEY"), is_secret_name("HOME")
    (True, False)
    """
    return name in _ALWAYS or _SECRET_NAME.search(name) is not None


def secrets_of(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the values of the environment variables whose names indicate a secret (see
    `is_secret_name`). If a value has several lines, like a PEM key, each line is also returned as a
    secret of its own.

    Values and lines that are too short are left out. A value that is a path is left out too, except
    if its variable is in `_ALWAYS`: such a variable always contains a secret.

    In the example, the name of the second variable indicates a secret, but the value is a path.

    >>> sorted(secrets_of({"GEMINI_API_KEY": "AIzaSyExample", "SSH_AUTH_SOCK": "/tmp/agent.sock"}))
    ['AIzaSyExample']
    """
    secrets = set()
    for name, value in environ.items():
        if name in _ALWAYS:
            if len(value) >= _SHORTEST_ALWAYS:
                secrets.add(value)
        elif len(value) >= _SHORTEST and is_secret_name(name) and not _is_path(name, value):
            secrets.add(value)
    # Programs print a PEM key line by line, so each line is a secret too.
    lines = {line.strip() for value in secrets if "\n" in value for line in value.splitlines()}
    return frozenset(secrets | {line for line in lines if len(line) >= _SHORTEST_LINE})


def _is_path(name: str, value: str) -> bool:
    """Return whether the environment variable `name` contains a path. A path is not treated as a
    secret.
    """
    return value.startswith(("/", "~", "./")) and (
        _PATH_NAME.search(name) is not None or os.path.exists(value)
    )


_FLAG = re.compile(r"--?([\w-]+)=(.+)", re.DOTALL)
_IN_URL = re.compile(r"://[^/@\s:]*:([^/@\s]+)@|[?&]([\w-]+)=([^&#\s]+)")


def secrets_in_words(words: Iterable[str]) -> frozenset[str]:
    """Return the secrets among `words`, the arguments of a program: the values of options such as
    `--token`, and the passwords and keys in URLs. Values shorter than 8 characters are left out.

    >>> sorted(secrets_in_words(["--token", "hunter2hunter2", "http://u:urlpass99@host/?key=abcdefgh1"]))
    ['abcdefgh1', 'hunter2hunter2', 'urlpass99']
    """
    secrets: set[str] = set()
    previous = ""
    for word in words:
        if previous.startswith("-") and "=" not in previous and is_secret_name(previous.replace("-", "_")):
            secrets.add(word)
        if (flag := _FLAG.fullmatch(word)) and is_secret_name(flag[1].replace("-", "_")):
            secrets.add(flag[2])
        for password, name, value in _IN_URL.findall(word):
            secrets |= {password} if password else {value} if is_secret_name(name) else set()
        previous = word
    return frozenset(secret for secret in secrets if len(secret) >= _SHORTEST)


class Redactor:
    """Masks each of the given secrets in text, in decoded JSON values and in bytes.

    >>> Redactor(["hunter2hunter2"]).text("password: hunter2hunter2")
    'password: ***'
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = tuple(sorted({secret for secret in secrets if secret}))
        # Each secret has several forms: as plain text, and as it is written in a JSON string.
        forms = {
            form
            for secret in self.secrets
            for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
        }
        # Longest first: if a secret begins with a shorter secret, the longer one must be masked.
        self.forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))
        self.pattern = re.compile("|".join(map(re.escape, self.forms)) or "(?!)")
        self._written = tuple(form.encode("utf-8", "surrogateescape") for form in self.forms)

    def __bool__(self) -> bool:
        return bool(self.secrets)

    def found_in(self, text: str) -> bool:
        """Return whether `text` contains a secret.

        The method searches for each secret separately. This is many times faster than a search with
        one regular expression that matches all secrets.
        """
        return any(form in text for form in self.forms)

    def text(self, text: str) -> str:
        return self.pattern.sub(MASK, text) if self.found_in(text) else text

    def value(self, value: Any) -> Any:
        """Return a decoded JSON value with all secrets masked. Keys and numbers are masked too. If
        the value has too many levels of nested lists or objects, return only the mask `***`.
        """
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
    """Masks secrets in a text that arrives in pieces, even if a secret is split across pieces.

    `feed(piece)` returns the text that can be emitted now. If the text ends with the possible
    start of a secret, this end is held back until the next call of `feed` or `flush`. The joined
    output equals the output of `Redactor.text` for the whole text.

    >>> pieces = TextRedactor(Redactor(["hunter2hunter2"]))
    >>> pieces.feed("it is hunter2h"), pieces.feed("unter2!"), pieces.flush()
    ('it is ', '***!', '')
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        # All beginnings of secrets, by their last character. Most pieces end with none of them.
        self._prefixes: dict[str, list[str]] = {}
        for form in redactor.forms:
            for size in range(1, len(form)):
                self._prefixes.setdefault(form[size - 1], []).append(form[:size])
        for prefixes in self._prefixes.values():
            prefixes.sort(key=len, reverse=True)

    def is_clear(self, text: str) -> bool:
        """Return whether `feed(text)` would mask nothing and hold back nothing. The text that
        earlier calls of `feed` held back is checked together with `text`. The method changes
        nothing.
        """
        text = self._held + text
        return not self._redactor.found_in(text) and self._safe_end(text, 0) == len(text)

    def feed(self, piece: str) -> str:
        text = self._held + piece
        out: list[str] = []
        at, safe_end = 0, self._safe_end(text, 0)
        # Hold back a secret that begins at `safe_end`: it may be the start of a longer secret.
        while (match := self._redactor.pattern.search(text, at)) and match.start() < safe_end:
            out += (text[at : match.start()], MASK)
            at = match.end()
            if at > safe_end:
                safe_end = self._safe_end(text, at)
        self._held = text[safe_end:]
        out.append(text[at:safe_end])
        return "".join(out)

    def flush(self) -> str:
        held, self._held = self._held, ""
        return self._redactor.text(held)

    def _safe_end(self, text: str, start: int) -> int:
        """Return the position in `text` up to which the text can be emitted now. The characters
        after this position may be the start of a secret. The characters before `start` were already
        emitted or masked.
        """
        size = len(text)
        for prefix in self._prefixes.get(text[-1:], ()):
            if text.endswith(prefix, start):
                return size - len(prefix)
        return size
