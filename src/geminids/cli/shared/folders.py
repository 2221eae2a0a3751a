"""Checks of the folders that flags name."""

from __future__ import annotations

import os

import click

__all__ = ["check_cwd", "check_home"]


def check_cwd(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A callback of `--cwd`: the folder exists."""
    if value is not None and not os.path.isdir(value):
        raise click.UsageError(f"--cwd: {value} is not a folder")
    return value


def check_home(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A callback of `--home`: a name that geminids knows, or a folder that exists."""
    if value is not None and value not in ("user", "isolated") and not os.path.isdir(value):
        raise click.UsageError(f"--home: {value} is not a folder; user and isolated are names")
    return value
