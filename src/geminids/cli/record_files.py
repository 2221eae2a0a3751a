"""The files of a run record: what was heard, and the trajectory that people read."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminids.errors import GeminidsError
from geminids.events.model import Event, decode_event, encode_event

if TYPE_CHECKING:
    from geminids.dialects.record import Record

__all__ = ["RecordFiles"]


class RecordFiles:
    """A dialect that speaks records, and keeps each run's events and trajectory in files beside.

    `gemini-<date>-<time>-<ns>.log` and `….trajectory.log`, as cakit names them; nobody else can read them.
    """

    def __init__(self, folder: str) -> None:
        from geminids.dialects.record import Speaker

        self._folder = Path(os.path.abspath(folder))
        self._speaker = Speaker()
        self._log: BufferedWriter | None = None
        self._cannot = False
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise GeminidsError(f"{folder} cannot be made: {error.strerror}") from None

    def hear(self, events: Sequence[Event]) -> bytes:
        try:
            self._keep(events)
        except OSError as error:
            self._give_up(error)
        return self._speaker.hear(events)

    def end(self) -> bytes:
        from geminids.dialects.record import encode

        record = self._speaker.record()
        try:
            record = self._with_files(record)
        except OSError as error:
            self._give_up(error)
        return encode(record)

    def _keep(self, events: Sequence[Event]) -> None:
        if self._cannot or not events:
            return
        if self._log is None:
            self._log = self._new_log(events[0].at)
        self._log.writelines(encode_event(event) + b"\n" for event in events)

    def _new_log(self, at: int) -> BufferedWriter:
        """Named after its beginning; a run that began in the same moment has the next number."""
        day = datetime.fromtimestamp(at / 1000, UTC).strftime("%Y%m%d-%H%M%S")
        number = at * 1_000_000
        while True:
            try:
                return _new_file(self._folder / f"gemini-{day}-{number}.log")
            except FileExistsError:
                number += 1

    def _with_files(self, record: Record) -> Record:
        from msgspec.structs import replace

        from geminids.dialects.record.trajectory import of_events

        if self._cannot or self._log is None:
            return record
        self._log.close()
        log = Path(os.fsdecode(self._log.name))
        said = log.read_bytes()
        readable = log.with_suffix(".trajectory.log")
        with _new_file(readable) as file:
            file.write(of_events(_events_in(said)).encode())
        return replace(record, output_path=str(log), trajectory_path=str(readable), raw_output=said.decode())

    def _give_up(self, error: OSError) -> None:
        if not self._cannot:
            click.echo(f"geminids: no files of the record in {self._folder}: {error.strerror}", err=True)
        self._cannot = True


def _events_in(said: bytes) -> Iterator[Event]:
    return map(decode_event, said.splitlines())


def _new_file(path: Path) -> BufferedWriter:
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))
