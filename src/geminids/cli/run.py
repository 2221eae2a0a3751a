"""`geminids run`: one run, shown in the chosen format."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import click

from geminids.cli.signals import signals_noted
from geminids.options import Approval, Leftovers
from geminids.outcome import EXIT_CODES
from geminids.run.result import Result
from geminids.run.run import open_run

__all__ = ["run"]

_OUTPUTS = ("pretty", "text", "events")


@click.command()
@click.argument("prompt", required=False)
@click.option("--cwd", default=".", show_default=True, help="The folder that the agent works in.")
@click.option("--model", "-m", help="auto, pro, flash, flash-lite, or a model's id.")
@click.option("--approval", type=click.Choice(get_args(Approval)), default="default", show_default=True)
@click.option("--resume", help="A session id of this folder, or latest.")
@click.option("--session-id", help="The id for a new session.")
@click.option("--max-turns", type=int, help="How many model turns the run may take.")
@click.option("--max-attempts", type=int, help="How often the CLI tries a failing request (1 to 10).")
@click.option("--timeout", type=float, help="End the run after this many seconds.")
@click.option("--idle-timeout", type=float, help="End it after this many seconds of silence.  [default: 600]")
@click.option("--start-timeout", type=float, help="End it where it says nothing at first.  [default: 120]")
@click.option("--grace", type=float, help="Seconds between asking to end and the kill.  [default: 5]")
@click.option("--leftovers", type=click.Choice(get_args(Leftovers)), default="end", show_default=True)
@click.option("--home", default="user", show_default=True, help="user, isolated, or a folder.")
@click.option("--gemini", help="A managed release (0.61.0) or the path of a CLI.")
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="A variable for the CLI; repeatable.")
@click.option("--env-file", help="A file of NAME=value lines.")
@click.option("--offline", is_flag=True, help="The built-in scripted model: no key, no network.")
@click.option("--literal", is_flag=True, help="Take a leading / and @path in the prompt as plain text.")
@click.option(
    "--output", "-o", type=click.Choice(_OUTPUTS), help="[default: pretty on a terminal, text in a pipe]"
)
@click.option("--save-events", metavar="FILE", help="Write all events to FILE, one JSON object a line.")
def run(
    prompt: str | None, output: str | None, save_events: str | None, env: tuple[str, ...], **fields: Any
) -> int:
    """Run the agent once. PROMPT is text, or - to read it from stdin.

    Exit codes: 0 success, 1 failed, 2 bad usage, 4 max turns, 124 timed out, 127 no CLI, 130 interrupted.
    """
    text = _prompt(prompt)
    given = {name: value for name, value in fields.items() if value is not None}
    agent = open_run(text, env=_variables(env), **given)
    if output is None:
        output = "pretty" if sys.stdout and sys.stdout.isatty() else "text"
    with _saving(save_events) as sink, signals_noted():
        # The CLI takes most of a second to load: it starts before we import what the rest needs.
        agent.launch()
        from geminids.cli.follow import follow

        result = follow(agent, output, sink)
    if output == "text":
        _say_why(result)
    return exit_code(result)


def exit_code(result: Result) -> int:
    """The exit code of a result, as `geminids run --help` tells it."""
    if result.failure is not None and result.failure.kind == "cli_missing":
        return 127
    return EXIT_CODES[result.outcome]


def _prompt(prompt: str | None) -> str:
    if prompt is None and (sys.stdin is None or sys.stdin.isatty()):
        raise click.UsageError('No prompt. Try: geminids run "What does this folder hold?"')
    if prompt is None or prompt == "-":
        if sys.stdin is None:
            raise click.UsageError("stdin is closed: there is no prompt to read.")
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return prompt


def _variables(pairs: tuple[str, ...]) -> Mapping[str, str]:
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            # The text is not shown: it may be a secret.
            raise click.UsageError("--env takes NAME=VALUE")
        found[name] = value
    return found


def _saving(path: str | None) -> Any:
    from contextlib import nullcontext

    if path is None:
        return nullcontext(None)
    import os

    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", buffering=0)
    except OSError as error:
        raise click.UsageError(f"--save-events: {Path(path)} cannot be written: {error.strerror}") from None


def _say_why(result: Result) -> None:
    """In a pipe, stdout has the answer alone; why there is none goes to stderr."""
    if result.ok:
        return
    kind = f" ({result.failure.kind})" if result.failure else ""
    # "interrupted by SIGINT" says it all: no need to say "interrupted" before it.
    what = f"{result.outcome}{kind}: {result.reason}" if result.failure else result.reason
    click.echo(f"geminids: {what}", err=True)
    if result.failure:
        click.echo(f"  {result.failure.hint}", err=True)
