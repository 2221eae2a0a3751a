"""`geminids install`, `versions`, `uninstall`: install, list and remove releases of Gemini CLI."""

from __future__ import annotations

import json
import time
from typing import Literal, TypedDict

import click

from geminids.config.paths import Places
from geminids.errors import ToolchainError
from geminids.gemini import Gemini, find, installed
from geminids.gemini.features import OLDEST_SUPPORTED
from geminids.gemini.install.cli import available_versions
from geminids.gemini.install.cli import install as install_release
from geminids.gemini.install.cli import uninstall as uninstall_release
from geminids.gemini.locate.find import record_of

__all__ = ["install", "uninstall", "versions"]


class _ReleaseRow(TypedDict):
    """The JSON object that `--json` prints for a release.

    `used` says whether a run would use this release; None if this was not checked.
    """

    version: str | None
    origin: str
    path: str
    node: str | None
    tag: str | None
    bytes: int | None
    supported: bool
    tested: bool
    used: bool | None


@click.command()
@click.argument("version", default="latest")
@click.option(
    "--node",
    type=click.Choice(["managed", "path"]),
    default="managed",
    show_default=True,
    help="managed: also download Node (140 MB; the CLI then starts faster). path: use the Node on PATH.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the installed release as JSON.")
def install(version: str, node: Literal["managed", "path"], as_json: bool) -> None:
    """Install VERSION, a version or tag of Gemini CLI (default: latest).

    Releases are installed in a folder of geminids, never in your global npm packages. Any version can
    be installed, but geminids runs only 0.54 and newer.
    """
    started = time.monotonic()

    def report(step: str) -> None:
        click.echo(f"[{time.monotonic() - started:5.1f} s] {step}", err=True)

    places = Places.of()
    gemini = install_release(version, places=places, progress=report, node=node)
    if gemini.release.is_supported:
        report(f"Gemini CLI {gemini.version} is ready")
    else:
        report(f"Gemini CLI {gemini.version} is installed, but geminids needs {OLDEST_SUPPORTED} or newer")
    click.echo(json.dumps(_row(gemini, places, used=None)) if as_json else str(gemini.entry))


@click.command()
@click.option("--available", is_flag=True, help="List the releases in the npm registry, newest first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def versions(available: bool, as_json: bool) -> None:
    """List the installed releases. `*` marks the release that a run would use.

    geminids cannot run a release that is marked "too old".
    """
    places = Places.of()
    if available:
        available_releases = available_versions(places=places)
        click.echo(json.dumps(available_releases) if as_json else "\n".join(available_releases))
        return
    rows = _rows(places)
    if as_json:
        click.echo(json.dumps(rows))
    elif rows:
        for row in rows:
            click.echo(_line(row))
    else:
        click.echo("No Gemini CLI found. Run: geminids install", err=True)


@click.command()
@click.argument("version")
def uninstall(version: str) -> None:
    """Remove a VERSION that `geminids install` installed."""
    uninstall_release(version)
    click.echo(f"Gemini CLI {version.removeprefix('v')} was removed", err=True)


def _row(gemini: Gemini, places: Places, *, used: bool | None) -> _ReleaseRow:
    record = record_of(gemini.version, places) if gemini.origin == "managed" and gemini.version else None
    return _ReleaseRow(
        version=gemini.version,
        origin=gemini.origin,
        path=str(gemini.entry),
        node=gemini.node.version if gemini.node else None,
        tag=record.tag if record else None,
        bytes=record.bytes if record else None,
        supported=gemini.release.is_supported,
        tested=gemini.release.is_tested,
        used=used,
    )


def _rows(places: Places) -> list[_ReleaseRow]:
    try:
        current = find(places=places)
    except ToolchainError as error:
        current = None
        click.echo(str(error), err=True)
    is_usable = current is not None and current.release.is_supported
    rows = [_row(gemini, places, used=is_usable and gemini == current) for gemini in installed(places)]
    if current is not None and current.origin != "managed":
        rows.insert(0, _row(current, places, used=is_usable))
    if current is not None and not is_usable:
        click.echo(f"{current.release.why_refused}.", err=True)
    return rows


def _line(row: _ReleaseRow) -> str:
    size = f"{row['bytes'] / 1e6:.0f} MB" if row["bytes"] else ""
    support = "too old" if not row["supported"] else "" if row["tested"] else "not tested"
    facts = ", ".join(fact for fact in (row["origin"], row["tag"] or "", size, support) if fact)
    return f"{'*' if row['used'] else ' '} {row['version'] or 'unknown':<12} {facts:<32} {row['path']}"
