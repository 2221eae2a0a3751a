"""Validate the folders in `--cwd` and `--home`."""

from __future__ import annotations

import os

import click

__all__ = ["check_cwd", "check_home"]


def check_cwd(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the value of `--cwd`. Raise `click.UsageError` if it is not an existing folder."""
    if value is not None and not os.path.isdir(value):
        raise click.UsageError(f"--cwd: {value} is not a folder")
    return value


def check_home(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the value of `--home`.

    Raise `click.UsageError` if it is neither `user` nor `isolated` nor an existing folder.
    """
    if value is not None and value not in ("user", "isolated") and not os.path.isdir(value):
        raise click.UsageError(
            f"--home: {value} is not a folder; use 'user', 'isolated' or the path of a folder"
        )
    return value
