"""The exit code of a result, and the failure message on stderr."""

from __future__ import annotations

import click

from geminids.outcome import EXIT_CODES
from geminids.run.result import Result

__all__ = ["exit_code", "print_failure"]


def exit_code(result: Result) -> int:
    """The exit code of a result, as documented in `geminids run --help`."""
    kind = result.failure.kind if result.failure is not None else None
    if kind == "cli_missing":
        return 127
    if kind in ("bad_option", "bad_prompt"):
        return 2
    return EXIT_CODES[result.outcome]


def print_failure(result: Result) -> None:
    """Print why a run failed to stderr: in a pipe, stdout holds only the answer."""
    if result.ok:
        return
    kind = f" ({result.failure.kind})" if result.failure else ""
    # Without a failure, print only the reason ("interrupted by SIGINT"), not the outcome before it.
    # Its second line is the next step: indent it as a hint.
    reason = (result.reason or result.outcome).replace("\n", "\n  ")
    message = f"{result.outcome}{kind}: {result.reason}" if result.failure else reason
    click.echo(f"geminids: {message}", err=True)
    if result.failure and result.failure.hint:
        click.echo(f"  {result.failure.hint}", err=True)
