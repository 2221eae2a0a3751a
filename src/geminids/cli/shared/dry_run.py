"""`geminids run --dry-run`: print how the run would start the CLI, without starting it."""

from __future__ import annotations

import os

import click
import msgspec

from geminids.cli.shared.result import print_refusal
from geminids.launch.build import build_headless
from geminids.launch.errors import Refused
from geminids.launch.gateway_env import PLACEHOLDER
from geminids.launch.prepare import prepare
from geminids.options import Options
from geminids.run.retry import Retries
from geminids.run.schema.answer_schema import answer_schema_of
from geminids.run.starter import with_one_try_per_request
from geminids.views.plan import build_view, plan_text

__all__ = ["show"]


def show(prompt: str, options: Options, *, as_json: bool = False) -> int:
    """Print how a run would start the CLI, with secrets masked, and return the exit code."""
    prompt, options = _first_attempt(prompt, options)
    try:
        context = prepare(options, transport="headless", prompt=prompt, run_id="run-dry")
    except Refused as refused:
        return print_refusal(refused)
    view = build_view(build_headless(context, PLACEHOLDER), os.environ)
    if as_json:
        click.echo(msgspec.json.encode(view))
    else:
        click.echo(plan_text(view))
        click.echo("\nnothing was started", err=True)
    return 0


def _first_attempt(prompt: str, options: Options) -> tuple[str, Options]:
    """Return the prompt and the options that the first attempt of a run would use."""
    schema = answer_schema_of(options.schema) if options.schema is not None else None
    return Retries(prompt, options, schema).prompt, with_one_try_per_request(options)
