"""`geminids install`: install a release of Gemini CLI next to the others."""

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
    help="managed: download Node too (140 MB, starts faster). path: use the Node on PATH.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the installed release as JSON.")
def install(version: str, node: Literal["managed", "path"], as_json: bool) -> None:
    """Install VERSION, a version or tag of Gemini CLI (default: latest).

    Releases are installed in a folder of geminids, never in your global npm packages. Any version can
    be installed, but geminids runs only 0.54 and newer.
    """
    from geminids.cli.commands.versions import row_of
    from geminids.config.paths import Places
    from geminids.gemini.features import OLDEST_SUPPORTED
    from geminids.gemini.install.cli import install as install_release

    began = time.monotonic()

    def report(step: str) -> None:
        click.echo(f"[{time.monotonic() - began:5.1f} s] {step}", err=True)

    places = Places.of()
    gemini = install_release(version, places=places, progress=report, node=node)
    if gemini.release.is_supported:
        report(f"Gemini CLI {gemini.version} is ready")
    else:
        report(f"Gemini CLI {gemini.version} is installed, but geminids needs {OLDEST_SUPPORTED} or newer")
    if as_json:
        import json

        click.echo(json.dumps(row_of(gemini, places, used=None)))
    else:
        click.echo(str(gemini.entry))
