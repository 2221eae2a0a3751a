"""The prompt as bytes for the CLI's stdin, checked before anything is started."""

from __future__ import annotations

import re
from typing import Literal

__all__ = [
    "MAX_PROMPT_BYTES",
    "MAX_PROMPT_UNITS",
    "PromptProblem",
    "check_prompt",
    "check_words",
    "literal_prompt",
    "without_at",
]

# The CLI cuts stdin at 8 MB, with a warning on stderr alone (cli/src/utils/readStdin.ts).
MAX_PROMPT_BYTES = 8 * 1024 * 1024

# What the CLI takes for more than 1,048,576 tokens, at four UTF-16 units each and with its own context added, it
# does not send: it says success, with no answer (core/client.ts, ContextWindowWillOverflow).
MAX_PROMPT_UNITS = 4_000_000

# What follows a lone @ is no path (atCommandProcessor.ts).
_AT = re.compile(r"(?<!\\)@(?=\S)")
_ANY_AT = re.compile(r"(?<!\\)@")
_LONG = "Put long material into a file of the folder and name the file in the prompt."


class PromptProblem(Exception):
    """A prompt that cannot be sent, or what an option would put into it; `hint` says what to do."""

    def __init__(
        self, message: str, hint: str, kind: Literal["bad_prompt", "bad_option"] = "bad_prompt"
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.kind = kind


def check_words(prompt: str, *, may_be_empty: bool = False) -> None:
    """Raise a `PromptProblem` for what is no prompt at all."""
    if not isinstance(prompt, str):
        raise PromptProblem(f"the prompt is a {type(prompt).__name__}, not text", "Give the prompt as a str.")
    if not prompt.strip() and not may_be_empty:
        raise PromptProblem("the prompt is empty", "Say what the agent shall do.")
    if "\0" in prompt:
        raise PromptProblem("the prompt holds a NUL character", "Take NUL characters out of the prompt.")


def check_prompt(prompt: str, *, literal: bool = False, attached: int = 0) -> bytes:
    """The bytes to write, or a `PromptProblem`. `attached` are the characters that files add to it.

    >>> check_prompt("hello")
    b'hello'
    """
    check_words(prompt)
    text = literal_prompt(prompt) if literal else prompt
    # A lone surrogate (a file name that is no UTF-8) must not fail the run.
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_PROMPT_BYTES:
        raise PromptProblem(
            f"the prompt has {len(data):,} bytes; the CLI reads no more than {MAX_PROMPT_BYTES:,}",
            _LONG,
        )
    if (
        len(data) + attached > MAX_PROMPT_UNITS
        and (units := len(text.encode("utf-16-le", "replace")) // 2 + attached) > MAX_PROMPT_UNITS
    ):
        what = "the prompt with its files" if attached else "the prompt"
        raise PromptProblem(
            f"{what} has {units:,} characters, and no more than {MAX_PROMPT_UNITS:,} fit into a model",
            _LONG,
        )
    return data


def literal_prompt(prompt: str) -> str:
    """Escape what the CLI would act on: a leading `/` (a command) and `@path` (a file put in).

    >>> literal_prompt("/help me with a@b.example")
    ' /help me with a\\\\@b.example'
    """
    text = _AT.sub(r"\\@", prompt)
    return " " + text if text.lstrip().startswith("/") else text


def without_at(text: str) -> str:
    """Escape every `@`, a last one too: what comes after `text` must not become a path.

    >>> without_at("@/etc/passwd")
    '\\\\@/etc/passwd'
    """
    return _ANY_AT.sub(r"\\@", text)
