"""Known secret values become `***`: the one place where that is done.

The lane redacts whole blocks of lines before they are decoded, so that no event, record or log can hold a
secret; text that the model streams in pieces is redacted across the pieces (`TextRedactor`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

__all__ = ["MASK", "Redactor", "TextRedactor", "is_secret_name", "secrets_of"]

MASK = "***"
_MASK_BYTES = MASK.encode()

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW(OR)?D|CREDENTIAL|(^|_)AUTH(_|$)|_PAT$", re.IGNORECASE)
_ALWAYS = {"GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_ACCESS_TOKEN"}
# Shorter values would mask ordinary words ("true", "1").
_SHORTEST = 8
_SHORTEST_ALWAYS = 4


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
        elif len(value) >= _SHORTEST and not value.startswith(("/", "~")) and is_secret_name(name):
            found.add(value)
    return frozenset(found)


class Redactor:
    """Replaces every known secret in text and in blocks of bytes.

    >>> Redactor(["hunter2hunter2"]).text("password: hunter2hunter2")
    'password: ***'
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Longest first: a secret that contains another one must go as a whole.
        self.secrets = tuple(sorted({s for s in secrets if s}, key=lambda s: (-len(s), s)))
        written: dict[bytes, None] = {}
        for secret in self.secrets:
            # As it stands in plain text, and as JSON writers put it into a string.
            for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
                written[form.encode("utf-8", "surrogateescape")] = None
        self._written = tuple(written)

    def __bool__(self) -> bool:
        return bool(self.secrets)

    def text(self, text: str) -> str:
        for secret in self.secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        return text

    def block(self, block: bytes) -> bytes:
        for form in self._written:
            if form in block:
                block = block.replace(form, _MASK_BYTES)
        return block


class TextRedactor:
    """Redacts a text that arrives in pieces: a secret that is split across two of them is found too.

    What could be the beginning of a secret is held back until the next piece (or `flush`) decides.

    >>> pieces = TextRedactor(Redactor(["hunter2hunter2"]))
    >>> pieces.feed("it is hunter2h"), pieces.feed("unter2!"), pieces.flush()
    ('it is ', '***!', '')
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._first = tuple({secret[0] for secret in redactor.secrets})
        self._held = ""

    def feed(self, piece: str) -> str:
        if not self._held:
            for first in self._first:
                if first in piece:
                    break
            else:
                return piece
        text = self._redactor.text(self._held + piece)
        keep = self._unsure(text)
        self._held = text[len(text) - keep :] if keep else ""
        return text[: len(text) - keep] if keep else text

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held

    def _unsure(self, text: str) -> int:
        """How many characters at the end could begin a secret."""
        longest = 0
        for secret in self._redactor.secrets:
            for size in range(min(len(secret) - 1, len(text)), longest, -1):
                if text.endswith(secret[:size]):
                    longest = size
                    break
        return longest
