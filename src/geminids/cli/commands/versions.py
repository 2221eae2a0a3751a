"""`geminids versions`: the releases that are installed, and the one that a run would use."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import click

if TYPE_CHECKING:
    from geminids.config.paths import Places
    from geminids.gemini import Gemini

__all__ = ["Row", "row_of", "versions"]


class Row(TypedDict):
    """One release, as `--json` prints it."""

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
@click.option("--available", is_flag=True, help="List what npm's registry has, newest first.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def versions(available: bool, as_json: bool) -> None:
    """List installed releases; `*` marks the one that a run would use now.

    A release that is "too old" is installed, but geminids does not run it.
    """
    import json

    from geminids.config.paths import Places

    places = Places.of()
    if available:
        from geminids.gemini.install.cli import available_versions

        listed = available_versions(places=places)
        click.echo(json.dumps(listed) if as_json else "\n".join(listed))
        return
    rows = _rows(places)
    if as_json:
        click.echo(json.dumps(rows))
    elif rows:
        for row in rows:
            click.echo(_line(row))
    else:
        click.echo("No Gemini CLI was found. Run: geminids install", err=True)


def row_of(gemini: Gemini, places: Places, *, used: bool | None) -> Row:
    """What is known of one release."""
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
        now = find(places=places)
    except ToolchainError as error:
        now = None
        click.echo(str(error), err=True)
    runs = now is not None and now.release.is_supported
    rows = [row_of(gemini, places, used=runs and gemini == now) for gemini in installed(places)]
    if now is not None and now.origin != "managed":
        rows.insert(0, row_of(now, places, used=runs))
    if now is not None and not runs:
        click.echo(f"{now.release.why_refused}.", err=True)
    return rows


def _line(row: Row) -> str:
    size = f"{row['bytes'] / 1e6:.0f} MB" if row["bytes"] else ""
    fitness = "too old" if not row["supported"] else "" if row["tested"] else "not tested"
    facts = (row["origin"], row["tag"] or "", size, fitness)
    said = ", ".join(fact for fact in facts if fact)
    return f"{'*' if row['used'] else ' '} {row['version'] or 'unknown':<12} {said:<32} {row['path']}"
