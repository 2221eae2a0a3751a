"""`--strict`: a record of a run in which something is not known."""

from __future__ import annotations

import click

__all__ = ["complain"]

_FAILED = 3


def complain(said: bytes, *, trajectory: bool) -> int:
    """Name the fields of the record that are not as they should be, on stderr; 3 where there is one, else 0.

    `trajectory`: its file was asked for, and must be there.
    """
    from geminids.dialects import record

    problems = record.check(record.decode(said), trajectory=trajectory)
    for problem in problems:
        click.echo(f"geminids: --strict: {problem}", err=True)
    return _FAILED if problems else 0
