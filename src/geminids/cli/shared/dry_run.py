"""`geminids run --dry-run`: print the plan of a run without starting it."""

from __future__ import annotations

import os

import click

from geminids.launch.build import build_headless
from geminids.launch.errors import Refused
from geminids.launch.gateway_env import PLACEHOLDER
from geminids.launch.prepare import prepare
from geminids.options import Options
from geminids.run.starter import with_one_try_per_request

__all__ = ["print_refusal", "show"]


def show(prompt: str, options: Options, *, as_json: bool = False) -> int:
    """Print the plan with secrets masked; returns the exit code."""
    from geminids.views.plan import plan_text, view_of

    prompt, options = _first_attempt(prompt, options)
    try:
        context = prepare(options, transport="headless", prompt=prompt, run_id="run-dry")
    except Refused as refused:
        return print_refusal(refused)
    view = view_of(build_headless(context, PLACEHOLDER), os.environ)
    if as_json:
        import msgspec

        click.echo(msgspec.json.encode(view))
    else:
        click.echo(plan_text(view))
        click.echo("\nnothing was started", err=True)
    return 0


def print_refusal(refused: Refused) -> int:
    """Print why the run cannot start; returns the exit code."""
    click.echo(f"geminids: {refused.failure.kind}: {refused.failure.message}", err=True)
    click.echo(f"  {refused.failure.hint}", err=True)
    return {"cli_missing": 127, "bad_option": 2, "bad_prompt": 2}.get(refused.failure.kind, 1)


def _first_attempt(prompt: str, options: Options) -> tuple[str, Options]:
    """The prompt and the options of the first attempt."""
    from geminids.run.retry import Retries
    from geminids.run.schema.answer_schema import answer_schema_of

    schema = answer_schema_of(options.schema) if options.schema is not None else None
    return Retries(prompt, options, schema).prompt, with_one_try_per_request(options)
