"""`.env` files, as the CLI reads them (the npm package dotenv), and as `--env-file` takes them."""

from __future__ import annotations

import re

__all__ = ["names_in", "read_dotenv"]

# One assignment: a name, `=` (or `: `), and a value in quotes (over many lines, if need be) or up to a comment.
_LINE = re.compile(
    r"""^[^\S\n]*(?:export[^\S\n]+)?([\w.-]+)(?:[^\S\n]*=[^\S\n]*|:[^\S\n]+)
        ('(?:\\'|[^'])*' | "(?:\\"|[^"])*" | `(?:\\`|[^`])*` | [^\#\n]*)""",
    re.MULTILINE | re.VERBOSE,
)
_NAME = re.compile(r"^[^\S\n]*(?:export[^\S\n]+)?([\w.-]+)[^\S\n]*[=:]", re.MULTILINE)


def read_dotenv(text: str) -> dict[str, str]:
    """The variables in a `.env` file; what is no assignment is passed over, as the CLI does.

    >>> read_dotenv('A=1 # one\\nexport B="x\\\\ny"\\nnot a line')
    {'A': '1', 'B': 'x\\ny'}
    """
    found: dict[str, str] = {}
    for match in _LINE.finditer(_unix(text)):
        name, value = match[1], (match[2] or "").strip()
        quote = value[:1]
        if quote in ("'", '"', "`") and len(value) > 1 and value.endswith(quote):
            value = value[1:-1]
            if quote == '"':
                value = value.replace("\\n", "\n").replace("\\r", "\r")
        found[name] = value
    return found


def names_in(text: str) -> tuple[str, ...]:
    """Every name that could be set by a `.env` file, however oddly it is written: rather one too many.

    >>> names_in('A = "\\nB=2\\n"')
    ('A', 'B')
    """
    return tuple(dict.fromkeys(match[1] for match in _NAME.finditer(_unix(text))))


def _unix(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
