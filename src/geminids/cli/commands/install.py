"""`geminids install`: a release of Gemini CLI beside the others."""

from __future__ import annotations

import time
from typing import Literal

import click

__all__ = ["install"]


@click.command()
@click.argument("version", default="latest")
@click.option(
    "--node",
    type=click.Choice(["managed", "path"]),
    default="managed",
    show_default=True,
    help="Bring a Node of our own (140 MB, faster starts), or use the one on PATH.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was installed as JSON.")
def install(version: str, node: Literal["managed", "path"], as_json: bool) -> None:
    """Install a VERSION or tag of Gemini CLI (default: latest).

    It goes into geminids' own folder, never into your global npm packages. Any version can be installed; geminids
    runs 0.54 and newer.
    """
    from geminids.cli.commands.versions import row_of
    from geminids.config.paths import Places
    from geminids.gemini.features import OLDEST_SUPPORTED
    from geminids.gemini.install.cli import install as put

    began = time.monotonic()

    def say(step: str) -> None:
        click.echo(f"[{time.monotonic() - began:5.1f} s] {step}", err=True)

    places = Places.of()
    gemini = put(version, places=places, progress=say, node=node)
    if gemini.release.is_supported:
        say(f"Gemini CLI {gemini.version} is ready")
    else:
        say(f"Gemini CLI {gemini.version} is installed, but geminids runs {OLDEST_SUPPORTED} and newer")
    if as_json:
        import json

        click.echo(json.dumps(row_of(gemini, places, used=None)))
    else:
        click.echo(str(gemini.entry))
