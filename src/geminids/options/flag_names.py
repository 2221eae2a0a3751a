"""Replace the Python names of options by flags, in texts that the command line prints.

Messages and hints name an option in backticks: `schema_tries`, or with a value: `home='isolated'`.
In Python they stay as they are. The command line calls `with_flags` when it prints them, and
`error_text` for an error.
"""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from typing import Any

from geminids.errors import GeminidsError, OptionsError
from geminids.options.flags import Field, fields
from geminids.options.permissions import CAPABILITIES

__all__ = ["error_text", "flag_of", "with_flags"]

_OPTION = re.compile(r"`(permissions\.)?([a-z_]+)(?:=([^`]+))?`")


def with_flags(text: str) -> str:
    """Replace each option that `text` names in backticks by its flag.

    >>> with_flags("Use `home='isolated'`, or allow more with `schema_tries`; see `geminids doctor`.")
    'Use `--home isolated`, or allow more with --schema-tries; see `geminids doctor`.'
    """
    return _OPTION.sub(_replacement, text) if "`" in text else text


def flag_of(name: str) -> str:
    """Return the flag of an option. A name that is not an option, or has no flag, is returned
    unchanged.

    >>> flag_of("schema_tries"), flag_of("permissions.deny_tools"), flag_of("line_limit")
    ('--schema-tries', '--deny-tool', 'line_limit')
    """
    field = _by_name().get(name)
    return field.flag if field is not None and field.flag else name


def error_text(error: GeminidsError) -> str:
    """Return the text of an error, with flags in place of the Python names of options."""
    if isinstance(error, OptionsError):
        error = OptionsError([(flag_of(name), problem) for name, problem in error.problems])
    return with_flags(str(error))


@cache
def _by_name() -> dict[str, Field]:
    """The fields by the names that messages use: the prefix `permissions.` is optional if the name
    is not that of another option."""
    by_name = {field.name: field for field in fields()}
    short = {name.removeprefix("permissions."): field for name, field in by_name.items()}
    return short | by_name


def _replacement(match: re.Match[str]) -> str:
    prefix, name, written = match[1] or "", match[2], match[3]
    value = _value(written)
    if prefix and name in CAPABILITIES and isinstance(value, str):
        return f"`--{value} {name}`"
    field = _by_name().get(f"{prefix}{name}")
    if field is None or field.flag is None:
        return match[0]
    words = _words(field, value, written)
    return words[0] if len(words) == 1 else f"`{' '.join(words)}`"


def _value(written: str | None) -> Any:
    """The value of a Python literal; None if there is none, or if the text is not a literal."""
    try:
        return None if written is None else ast.literal_eval(written)
    except (ValueError, SyntaxError):
        return None


def _words(field: Field, value: Any, written: str | None) -> list[str]:
    flag = str(field.flag)
    if field.kind == "flag":
        return [f"--no-{flag[2:]}" if value is False else flag]
    if isinstance(value, dict):
        return [word for key, item in value.items() for word in (flag, _quoted(f"{key}={item}"))]
    if isinstance(value, (list, tuple)):
        return [word for item in value for word in (flag, _quoted(str(item)))]
    if value is None and written is not None:
        return [flag, "none" if written == "None" else written]
    return [flag] if value is None else [flag, _quoted(str(value))]


def _quoted(word: str) -> str:
    """Quote a word for a shell. `…` stands for a value that the reader fills in, and needs no quotes."""
    known = word.replace("…", "")
    return word if known and shlex.quote(known) == known else shlex.quote(word)
