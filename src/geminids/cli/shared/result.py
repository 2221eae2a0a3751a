"""The exit code of a result, and why a run failed, on stderr."""

from __future__ import annotations

import click

from geminids.outcome import EXIT_CODES
from geminids.run.result import Result

__all__ = ["exit_code", "say_why"]


def exit_code(result: Result) -> int:
    """The exit code of a result, as `geminids run --help` tells it."""
    kind = result.failure.kind if result.failure is not None else None
    if kind == "cli_missing":
        return 127
    if kind in ("bad_option", "bad_prompt"):
        return 2
    return EXIT_CODES[result.outcome]


def say_why(result: Result) -> None:
    """In a pipe, stdout has the answer alone; why there is none goes to stderr."""
    if result.ok:
        return
    kind = f" ({result.failure.kind})" if result.failure else ""
    # "interrupted by SIGINT" says it all: no need to say "interrupted" before it.
    # A second line is the next step: it stands as a hint does.
    plain = (result.reason or result.outcome).replace("\n", "\n  ")
    what = f"{result.outcome}{kind}: {result.reason}" if result.failure else plain
    click.echo(f"geminids: {what}", err=True)
    if result.failure and result.failure.hint:
        click.echo(f"  {result.failure.hint}", err=True)
