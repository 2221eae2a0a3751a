"""`.env` files as the CLI reads them (the npm package dotenv). `--env-file` is stricter: `launch/environment`."""

from __future__ import annotations

import re

__all__ = ["names_in", "read_dotenv"]

# Blanks and ends of lines as JavaScript knows them.
_S = r"[\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
_BLANK = "\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(
    map(chr, range(0x2000, 0x200B))
)
_BEGIN, _END = r"(?:\A|(?<=[\n\r\u2028\u2029]))", r"(?=[\n\r\u2028\u2029]|\Z)"
# dotenv's own expression (lib/main.js, LINE): a name, `=` (or `: `), a value in quotes or up to a comment.
# A text, not compiled yet: most folders have no such file.
_LINE = (
    rf"""{_BEGIN}{_S}*(?:export{_S}+)?([\w.-]+)(?:{_S}*={_S}*?|:{_S}+?)"""
    rf"""({_S}*'(?:\\'|[^'])*'|{_S}*"(?:\\"|[^"])*"|{_S}*`(?:\\`|[^`])*`|[^#\r\n]+)?"""
    rf"""{_S}*(?:\#[^\n\r\u2028\u2029]*)?{_END}"""
)
_QUOTED = rf"""{_BEGIN}(['"`])([\s\S]*)\1{_END}"""
# Where a line begins, and what stands there; a name and its `=` can be on two lines.
_NAME = r"^(?=\s?(?:export\s)?([\w.-]+)\s?[=:])"
_LINE_ENDS = frozenset("\n\r\u2028\u2029")


def read_dotenv(text: str) -> dict[str, str]:
    """The variables in a `.env` file; what is no assignment is passed over, as the CLI does.

    >>> read_dotenv('A=1 # one\\nexport B="x\\\\ny"\\nnot a line')
    {'A': '1', 'B': 'x\\ny'}
    """
    found: dict[str, str] = {}
    for match in re.finditer(_LINE, text.replace("\r\n", "\n").replace("\r", "\n"), re.ASCII):
        value = (match[2] or "").strip(_BLANK)
        quote, value = value[:1], re.sub(_QUOTED, r"\2", value)
        if quote == '"':
            value = value.replace("\\n", "\n").replace("\\r", "\r")
        found[match[1]] = value
    return found


def names_in(text: str) -> tuple[str, ...]:
    """Every name that could be set by a `.env` file, however oddly it is written: rather one too many.

    >>> names_in('A = "\\nB=2\\n"')
    ('A', 'B')
    """
    # Blanks as JavaScript knows them, each run of them one: the search then takes time by length, not by its square.
    text = re.sub(r"[\s\ufeff]+", lambda run: " " if _LINE_ENDS.isdisjoint(run[0]) else "\n", text)
    return tuple(dict.fromkeys(match[1] for match in re.finditer(_NAME, text, re.MULTILINE)))
