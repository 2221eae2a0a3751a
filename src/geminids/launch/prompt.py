"""The prompt as bytes for the CLI's stdin, checked before anything is started."""

from __future__ import annotations

import re

__all__ = ["MAX_PROMPT_BYTES", "MAX_PROMPT_UNITS", "PromptProblem", "check_prompt", "literal_prompt"]

# The CLI cuts stdin at 8 MB, with a warning on stderr alone (cli/src/utils/readStdin.ts).
MAX_PROMPT_BYTES = 8 * 1024 * 1024

# What the CLI takes for more than 1,048,576 tokens, at four UTF-16 units each and with its own context added, it
# does not send: it says success, with no answer (core/client.ts, ContextWindowWillOverflow).
MAX_PROMPT_UNITS = 4_000_000

# What follows a lone @ is no path (atCommandProcessor.ts).
_AT = re.compile(r"(?<!\\)@(?=\S)")
_LONG = "Put long material into a file of the folder and name the file in the prompt."


class PromptProblem(Exception):
    """A prompt that cannot be sent; `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def check_prompt(prompt: str, *, literal: bool = False) -> bytes:
    """The bytes to write, or a `PromptProblem`.

    >>> check_prompt("hello")
    b'hello'
    """
    if not isinstance(prompt, str):
        raise PromptProblem(f"the prompt is a {type(prompt).__name__}, not text", "Give the prompt as a str.")
    if not prompt.strip():
        raise PromptProblem("the prompt is empty", "Say what the agent shall do.")
    if "\0" in prompt:
        raise PromptProblem("the prompt holds a NUL character", "Take NUL characters out of the prompt.")
    text = literal_prompt(prompt) if literal else prompt
    # A lone surrogate (a file name that is no UTF-8) must not fail the run.
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_PROMPT_BYTES:
        raise PromptProblem(
            f"the prompt has {len(data):,} bytes; the CLI reads no more than {MAX_PROMPT_BYTES:,}",
            _LONG,
        )
    if (
        len(data) > MAX_PROMPT_UNITS
        and (units := len(text.encode("utf-16-le", "replace")) // 2) > MAX_PROMPT_UNITS
    ):
        raise PromptProblem(
            f"the prompt has {units:,} characters, and no more than {MAX_PROMPT_UNITS:,} fit into a model",
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
