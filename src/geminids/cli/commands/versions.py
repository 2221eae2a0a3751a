"""`geminids versions`: list the installed releases and mark the one that a run would use."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import click

if TYPE_CHECKING:
    from geminids.config.paths import Places
    from geminids.gemini import Gemini

__all__ = ["Row", "row_of", "versions"]


class Row(TypedDict):
    """A release, as `--json` prints it."""

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
@click.option("--available", is_flag=True, help="List the releases in the npm registry, newest first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def versions(available: bool, as_json: bool) -> None:
    """List installed releases. `*` marks the one that a run would use.

    geminids cannot run a release that is marked "too old".
    """
    import json

    from geminids.config.paths import Places

    places = Places.of()
    if available:
        from geminids.gemini.install.cli import available_versions

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


def row_of(gemini: Gemini, places: Places, *, used: bool | None) -> Row:
    """The row of a release."""
    from geminids.gemini.locate.find import record_of

    record = record_of(gemini.version, places) if gemini.origin == "managed" and gemini.version else None
    return Row(
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


def _rows(places: Places) -> list[Row]:
    from geminids.errors import ToolchainError
    from geminids.gemini import find, installed

    try:
        current = find(places=places)
    except ToolchainError as error:
        current = None
        click.echo(str(error), err=True)
    is_usable = current is not None and current.release.is_supported
    rows = [row_of(gemini, places, used=is_usable and gemini == current) for gemini in installed(places)]
    if current is not None and current.origin != "managed":
        rows.insert(0, row_of(current, places, used=is_usable))
    if current is not None and not is_usable:
        click.echo(f"{current.release.why_refused}.", err=True)
    return rows


def _line(row: Row) -> str:
    size = f"{row['bytes'] / 1e6:.0f} MB" if row["bytes"] else ""
    support = "too old" if not row["supported"] else "" if row["tested"] else "not tested"
    facts = ", ".join(fact for fact in (row["origin"], row["tag"] or "", size, support) if fact)
    return f"{'*' if row['used'] else ' '} {row['version'] or 'unknown':<12} {facts:<32} {row['path']}"
