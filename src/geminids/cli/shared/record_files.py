"""Create the files of a run record for a command, and check the record for `--strict`.

A run record is a JSON summary of a run, in the format of cakit, a program that runs coding agents
for benchmarks.
"""

from __future__ import annotations

import click

from geminids.adapters.cakit.files import RecordFiles
from geminids.dialects import record as record_dialect

__all__ = ["new_record_files", "report_missing_fields"]

_STRICT_FAILED = 3


def new_record_files(parent: str | None) -> RecordFiles:
    """Create the folder of a record below `parent`; if `parent` is None, in geminids' data folder.

    A file that cannot be written is reported on stderr.
    """
    return RecordFiles(parent, warn=lambda message: click.echo(f"geminids: {message}", err=True))


def report_missing_fields(encoded: bytes, *, trajectory: bool = True) -> int:
    """Print to stderr each critical field of a record that is missing or invalid. Return the exit
    code: 3 if there is such a field, otherwise 0.

    `encoded` is the record as JSON. With `trajectory=False`, the field `trajectory_path` may be
    missing.
    """
    problems = record_dialect.check(record_dialect.decode(encoded), trajectory=trajectory)
    for problem in problems:
        click.echo(f"geminids: --strict: {problem}", err=True)
    return _STRICT_FAILED if problems else 0
