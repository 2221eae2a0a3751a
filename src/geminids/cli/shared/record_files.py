"""The log and trajectory files of a run record, and the `--strict` check of its fields."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminids.dialects.record import Encoder
from geminids.errors import GeminidsError
from geminids.events.model import Event, decode_event, encode_event

if TYPE_CHECKING:
    from geminids.dialects.record import Record

__all__ = ["RecordFiles", "report_missing_fields"]


class RecordFiles:
    """The record dialect; also writes the events and the trajectory of each run to files.

    `gemini-<date>-<time>-<ns>.log` and `….trajectory.log`, as cakit names them, with mode 0600.
    """

    def __init__(self, folder: str) -> None:

        self._folder = Path(os.path.abspath(folder))
        self._encoder = Encoder()
        self._log: BufferedWriter | None = None
        self._failed = False
        hint = "Name another folder with --record-dir."
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise GeminidsError(f"cannot create {folder}: {error.strerror}", hint=hint) from None
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise GeminidsError(f"{folder} is not writable", hint=hint)

    def feed(self, events: Sequence[Event]) -> bytes:
        try:
            self._write_log(events)
        except OSError as error:
            self._drop_log(error)
        return self._encoder.feed(events)

    def finish(self) -> bytes:
        from geminids.dialects.record import encode

        return encode(self._with_trajectory(self._with_log(self._encoder.record())))

    def _write_log(self, events: Sequence[Event]) -> None:
        if self._failed or not events:
            return
        if self._log is None:
            self._log = self._new_log(events[0].at)
        self._log.writelines(encode_event(event) + b"\n" for event in events)

    def _new_log(self, at: int) -> BufferedWriter:
        """Create the log, named after the start time; if that file exists, use the next number."""
        number = at * 1_000_000
        while True:
            try:
                return _new_file(self._folder / f"gemini-{_day(at)}-{number}.log")
            except FileExistsError:
                number += 1

    def _with_log(self, record: Record) -> Record:
        from msgspec.structs import replace

        if self._failed or self._log is None:
            return record
        try:
            self._log.close()
            log = _path(self._log)
            return replace(record, output_path=str(log), raw_output=log.read_text("utf-8"))
        except OSError as error:
            self._drop_log(error)
            return record

    def _with_trajectory(self, record: Record) -> Record:
        from msgspec.structs import replace

        from geminids.dialects.record.trajectory import of_events

        if record.output_path is None or record.raw_output is None:
            return record
        path = Path(record.output_path).with_suffix(".trajectory.log")
        trajectory = of_events(map(decode_event, record.raw_output.split("\n")[:-1]))
        try:
            file = _new_file(path)
        except OSError as error:
            self._warn("the trajectory of the record", error)
            return record
        try:
            with file:
                file.write(trajectory.encode())
        except OSError as error:
            _remove(file)
            self._warn("the trajectory of the record", error)
            return record
        return replace(record, trajectory_path=str(path))

    def _drop_log(self, error: OSError) -> None:
        """Remove an incomplete log: the record does not name it."""
        self._failed = True
        self._warn("the files of the record", error)
        if self._log is not None:
            _remove(self._log)

    def _warn(self, files: str, error: OSError) -> None:
        click.echo(f"geminids: cannot write {files} to {self._folder}: {error.strerror}", err=True)


def _day(at: int) -> str:
    try:
        return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    except (ValueError, OverflowError, OSError):
        return "00000000-000000"  # the time is out of range


def _new_file(path: Path) -> BufferedWriter:
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))


def _path(file: BufferedWriter) -> Path:
    return Path(os.fsdecode(file.name))


def _remove(file: BufferedWriter) -> None:
    with suppress(OSError):
        file.close()
    with suppress(OSError):
        _path(file).unlink()


_STRICT_FAILED = 3


def report_missing_fields(encoded: bytes, *, trajectory: bool) -> int:
    """Print missing and invalid fields of a record to stderr; returns 3 if there are any, else 0.

    `trajectory`: the record must name a trajectory file.
    """
    from geminids.dialects import record

    problems = record.check(record.decode(encoded), trajectory=trajectory)
    for problem in problems:
        click.echo(f"geminids: --strict: {problem}", err=True)
    return _STRICT_FAILED if problems else 0
