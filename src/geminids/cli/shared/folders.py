"""Validate the folders given with `--cwd` and `--home`."""

from __future__ import annotations

import os

import click

__all__ = ["check_cwd", "check_home"]


def check_cwd(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Callback of `--cwd`: raise if the folder does not exist."""
    if value is not None and not os.path.isdir(value):
        raise click.UsageError(f"--cwd: {value} is not a folder")
    return value


def check_home(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Callback of `--home`: raise unless it is `user`, `isolated` or an existing folder."""
    if value is not None and value not in ("user", "isolated") and not os.path.isdir(value):
        raise click.UsageError(f"--home: {value} is not a folder; use user, isolated or a folder")
    return value
