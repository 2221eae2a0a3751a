"""`geminids uninstall`: remove a release that `geminids install` installed."""

from __future__ import annotations

import click

__all__ = ["uninstall"]


@click.command()
@click.argument("version")
def uninstall(version: str) -> None:
    """Remove a VERSION that `geminids install` installed."""
    from geminids.gemini.install.cli import uninstall as remove

    remove(version)
    click.echo(f"Gemini CLI {version.removeprefix('v')} was removed", err=True)
