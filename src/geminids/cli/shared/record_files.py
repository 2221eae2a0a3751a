"""The files of a run record, and the exit code of a record with missing fields."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminids.errors import GeminidsError
from geminids.events.model import Event, decode_event, encode_event

if TYPE_CHECKING:
    from geminids.dialects.record import Record

__all__ = ["RecordFiles", "complain"]


class RecordFiles:
    """A dialect that speaks records, and keeps each run's events and trajectory in files beside.

    `gemini-<date>-<time>-<ns>.log` and `….trajectory.log`, as cakit names them; nobody else can read them.
    """

    def __init__(self, folder: str) -> None:
        from geminids.dialects.record import Encoder

        self._folder = Path(os.path.abspath(folder))
        self._encoder = Encoder()
        self._log: BufferedWriter | None = None
        self._cannot = False
        hint = "Name another folder with --record-dir."
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise GeminidsError(f"{folder} cannot be made: {error.strerror}", hint=hint) from None
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise GeminidsError(f"{folder} cannot be written", hint=hint)

    def feed(self, events: Sequence[Event]) -> bytes:
        try:
            self._keep(events)
        except OSError as error:
            self._give_up(error)
        return self._encoder.feed(events)

    def finish(self) -> bytes:
        from geminids.dialects.record import encode

        return encode(self._with_trajectory(self._with_log(self._encoder.record())))

    def _keep(self, events: Sequence[Event]) -> None:
        if self._cannot or not events:
            return
        if self._log is None:
            self._log = self._new_log(events[0].at)
        self._log.writelines(encode_event(event) + b"\n" for event in events)

    def _new_log(self, at: int) -> BufferedWriter:
        """Named after its beginning; a run that began in the same moment has the next number."""
        number = at * 1_000_000
        while True:
            try:
                return _new_file(self._folder / f"gemini-{_day(at)}-{number}.log")
            except FileExistsError:
                number += 1

    def _with_log(self, record: Record) -> Record:
        from msgspec.structs import replace

        if self._cannot or self._log is None:
            return record
        try:
            self._log.close()
            log = _path(self._log)
            return replace(record, output_path=str(log), raw_output=log.read_text("utf-8"))
        except OSError as error:
            self._give_up(error)
            return record

    def _with_trajectory(self, record: Record) -> Record:
        from msgspec.structs import replace

        from geminids.dialects.record.trajectory import of_events

        if record.output_path is None or record.raw_output is None:
            return record
        readable = Path(record.output_path).with_suffix(".trajectory.log")
        told = of_events(map(decode_event, record.raw_output.split("\n")[:-1]))
        try:
            file = _new_file(readable)
        except OSError as error:
            self._tell("no trajectory of the record", error)
            return record
        try:
            with file:
                file.write(told.encode())
        except OSError as error:
            _remove(file)
            self._tell("no trajectory of the record", error)
            return record
        return replace(record, trajectory_path=str(readable))

    def _give_up(self, error: OSError) -> None:
        """Half a log is not left behind: the record would not name it."""
        self._cannot = True
        self._tell("no files of the record", error)
        if self._log is not None:
            _remove(self._log)

    def _tell(self, what: str, error: OSError) -> None:
        click.echo(f"geminids: {what} in {self._folder}: {error.strerror}", err=True)


def _day(at: int) -> str:
    try:
        return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    except (ValueError, OverflowError, OSError):
        return "00000000-000000"  # a time that no calendar has


def _new_file(path: Path) -> BufferedWriter:
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))


def _path(file: BufferedWriter) -> Path:
    return Path(os.fsdecode(file.name))


def _remove(file: BufferedWriter) -> None:
    with suppress(OSError):
        file.close()
    with suppress(OSError):
        _path(file).unlink()


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
