"""`geminids run --dry-run`: print how the run would start the CLI, without starting it."""

from __future__ import annotations

import os

import click
import msgspec

from geminids.cli.shared.result import print_refusal
from geminids.launch.errors import Refused
from geminids.options import Options
from geminids.run.dry_run import plan_run
from geminids.views.plan import build_view, plan_text

__all__ = ["show"]


def show(prompt: str, options: Options, *, as_json: bool = False) -> int:
    """Print how a run would start the CLI, with secrets masked, and return the exit code."""
    try:
        plan = plan_run(prompt, options)
    except Refused as refused:
        return print_refusal(refused)
    view = build_view(plan, os.environ)
    if as_json:
        click.echo(msgspec.json.encode(view))
    else:
        click.echo(plan_text(view))
        click.echo("\nnothing was started", err=True)
    return 0
