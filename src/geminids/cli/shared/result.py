"""Print why a run failed or could not start, and return the exit code of the command."""

from __future__ import annotations

import click

from geminids.launch.errors import Refused
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
    """Print to stderr why a run did not succeed, with a hint if there is one.

    If the run succeeded, print nothing.
    """
    if result.ok:
        return
    kind = f" ({result.failure.kind})" if result.failure else ""
    # If the result has no failure, print only its reason, for example "interrupted by SIGINT". If
    # the reason has a second line, it says what to do: indent it like a hint.
    reason = (result.reason or result.outcome).replace("\n", "\n  ")
    message = f"{result.outcome}{kind}: {result.reason}" if result.failure else reason
    click.echo(f"geminids: {message}", err=True)
    if result.failure and result.failure.hint:
        click.echo(f"  {result.failure.hint}", err=True)


def print_refusal(refused: Refused) -> int:
    """Print to stderr why a run cannot start, and return the exit code."""
    click.echo(f"geminids: {refused.failure.kind}: {refused.failure.message}", err=True)
    click.echo(f"  {refused.failure.hint}", err=True)
    return {"cli_missing": 127, "bad_option": 2, "bad_prompt": 2}.get(refused.failure.kind, 1)
