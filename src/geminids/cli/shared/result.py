"""Print why a run failed or could not start, and return the exit code of the command."""

from __future__ import annotations

import click

from geminids.launch.errors import Refused
from geminids.options.flag_names import with_flags
from geminids.outcome import EXIT_CODES
from geminids.run.result import Result

__all__ = ["exit_code", "print_failure", "print_refusal"]


def exit_code(result: Result) -> int:
    """Return the exit code for the result of a run. `geminids run --help` lists the codes."""
    kind = result.failure.kind if result.failure is not None else None
    if kind == "cli_missing":
        return 127
    if kind in ("bad_option", "bad_prompt"):
        return 2
    return EXIT_CODES[result.outcome]


def print_failure(result: Result) -> None:
    """Print to stderr why a run did not succeed, with a hint.

    If the run succeeded, print nothing.
    """
    failure = result.failure
    if failure is None:
        return
    reason = result.reason or failure.message
    # If a limit or the user ended the run, the reason says it: for example "interrupted by SIGINT".
    message = f"failed ({failure.kind}): {reason}" if result.outcome == "failed" else reason
    click.echo(f"geminids: {with_flags(message)}", err=True)
    # A user who stopped the run needs no hint.
    if failure.hint and result.outcome != "interrupted":
        click.echo(f"  {with_flags(failure.hint)}", err=True)


def print_refusal(refused: Refused) -> int:
    """Print to stderr why a run cannot start, and return the exit code."""
    click.echo(f"geminids: {refused.failure.kind}: {with_flags(refused.failure.message)}", err=True)
    click.echo(f"  {with_flags(refused.failure.hint or '')}", err=True)
    return {"cli_missing": 127, "bad_option": 2, "bad_prompt": 2}.get(refused.failure.kind, 1)
