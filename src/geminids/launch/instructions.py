"""The instructions file: Markdown that is put before the prompt, as text that acts on nothing."""

from __future__ import annotations

from geminids.launch.given import given_problem, read_given
from geminids.launch.prompt import MAX_PROMPT_BYTES, literal_prompt

__all__ = ["instructions_text", "read_instructions"]


def read_instructions(path: str) -> str:
    """What a prompt begins with that has these instructions; a `PromptProblem` where they cannot be read."""
    return instructions_text(read_given("instructions", path, MAX_PROMPT_BYTES), path)


def instructions_text(data: bytes, where: str) -> str:
    """The text in a file of instructions. Its `@path` and a leading `/` are words, and nothing else.

    >>> instructions_text(b"Ask @ops first.\\n", "AGENT.md")
    'Ask \\\\@ops first.'
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"is not UTF-8: line {line}, byte {error.start + 1} of the file"
        raise given_problem("instructions", where, what) from None
    if "\0" in text:
        raise given_problem("instructions", where, "holds a NUL character")
    if not text.strip():
        raise given_problem("instructions", where, "is empty")
    return literal_prompt(text.rstrip())
