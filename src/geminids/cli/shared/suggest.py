"""Suggest what a user may have meant by an unknown command or flag."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

import click

from geminids.options.flags import fields
from geminids.options.values import most_similar
from geminids.views.sanitize import one_line

__all__ = ["unknown_command", "unknown_flag"]

_MAX_LENGTH = 60


def unknown_command(args: Sequence[str], known: Iterable[str], ctx: click.Context) -> click.UsageError:
    """Return the error for a first argument that is not a command.

    It suggests the most similar command. If there is none, or the argument is a sentence, the
    argument may be a prompt.
    """
    name = args[0]
    # More than two words are a sentence: the first one is no misspelled command.
    is_sentence = len(args) > 2 and not any(word.startswith("-") for word in args)
    nearest = None if is_sentence else most_similar(name, known)
    if nearest is not None:
        suggestion = f"Did you mean {nearest!r}?"
    else:
        words = [word for word in args if not word.startswith("-")]
        suggestion = f"To send a prompt to the agent: geminids run {_quoted(' '.join(words))}"
    return click.UsageError(f"No such command {one_line(name, _MAX_LENGTH)!r}. {suggestion}", ctx)


def unknown_flag(error: click.NoSuchOption, app: click.Command) -> click.UsageError:
    """Return the error for an unknown flag, with only the most similar flag as a suggestion.

    If the flag is one of `geminids run` and stands before the command, the message says so.
    """
    name = error.option_name
    if error.ctx is not None and error.ctx.command is app and _is_flag_of_run(name):
        return click.UsageError(f"{name} belongs after the command: geminids run {name} ...", error.ctx)
    if error.possibilities:
        del error.possibilities[1:]
    return error


def _is_flag_of_run(name: str) -> bool:
    return any(name in (field.flag, field.short) for field in fields())


def _quoted(prompt: str) -> str:
    prompt = one_line(prompt, _MAX_LENGTH)
    return shlex.quote(prompt) if set(prompt) & set('"$`\\!') else f'"{prompt}"'
