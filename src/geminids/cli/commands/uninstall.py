"""`geminids uninstall`: remove one release that geminids installed."""

from __future__ import annotations

import click

__all__ = ["uninstall"]


@click.command()
@click.argument("version")
def uninstall(version: str) -> None:
    """Remove VERSION, which `geminids install` has put there."""
    from geminids.gemini.install.cli import uninstall as remove

    remove(version)
    click.echo(f"Gemini CLI {version.removeprefix('v')} is removed", err=True)
