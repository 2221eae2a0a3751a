"""Write the files of a run record: the CLI's output, the CLI's telemetry log, and the trajectory
(the run as YAML)."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from geminids.config.paths import Places, private_dir
from geminids.dialects import record as record_dialect
from geminids.dialects.record import Encoder, Record, check
from geminids.dialects.record.trajectory import STDERR_LINE, of_events, of_output
from geminids.errors import GeminidsError, OptionsError
from geminids.events.model import Event
from geminids.log import get_logger

if TYPE_CHECKING:
    from geminids.run.run import Run

__all__ = ["RecordFiles", "RecordWriter", "refused_record", "write_report_files"]

_log = get_logger("cakit")

Redact = Callable[[str], str]
Warn = Callable[[str], None]


def _log_warning(message: str) -> None:
    _log.warning("%s", message)


class RecordFiles:
    """A private folder with the files of one run, and the functions that write them.

    During the run, `add_stdout` and `add_stderr` write the CLI's stdout and stderr to separate
    files. At the end, `finish_output` combines these two files in `output.log`: stdout, and stderr
    below a separator line. The CLI itself writes `telemetry.log`. Folders have mode 0700, files
    0600.
    """

    def __init__(self, parent: str | Path | None = None, *, warn: Warn = _log_warning) -> None:
        """Create the folder below `parent`. If `parent` is None, create it below `records` in
        geminids' data folder.

        `warn` is called with a message for each file that cannot be written or masked.
        """
        self.folder = _new_folder(Places.of().records if parent is None else Path(os.path.abspath(parent)))
        self.output = self.folder / "output.log"
        self.telemetry = self.folder / "telemetry.log"
        self.trajectory = self.folder / "trajectory.log"
        self._stderr = self.folder / "stderr.log"
        self._warn = warn
        self._open: dict[Path, BufferedWriter] = {}
        self._is_incomplete = False

    def add_stdout(self, line: str, events: Sequence[Event]) -> None:
        """Write a line of the CLI's stdout to its file. Pass this method to the run as its callback
        `on_line`."""
        self._add(self.output, line + "\n")

    def add_stderr(self, text: str) -> None:
        """Write a piece of the CLI's stderr to its file. Pass this method to the run as its
        callback `on_stderr`."""
        self._add(self._stderr, text)

    def finish_output(self, redact: Redact) -> str | None:
        """Write the final `output.log` and return its text. Return None if some of the output could
        not be written.

        `redact` is the function that masks the secrets in a text. Secrets inside a single line are
        already masked. This method also masks secrets that begin in one piece of the model's text
        and end in a later piece.
        """
        for file in self._open.values():
            try:
                file.close()
            except OSError as error:
                self._output_failed(error)
        if not self._is_incomplete:
            try:
                stdout = _read(self.output)
                output = record_dialect.raw_output("".join(_masked(stdout, redact)), _read(self._stderr))
                if output != stdout or not output:
                    self.output.unlink(missing_ok=True)
                    _write_new(self.output, output)
            except OSError as error:
                self._output_failed(error)
        if self._is_incomplete:
            self.output.unlink(missing_ok=True)
        self._stderr.unlink(missing_ok=True)
        return None if self._is_incomplete else output

    def write_output(self, output: str) -> str | None:
        """Write `output` to `output.log` and return the path; return None if the file cannot be
        written."""
        return self._write(self.output, output, "the output of the CLI")

    def write_trajectory(self, trajectory: str) -> str | None:
        """Write `trajectory` to `trajectory.log` and return the path; return None if the file
        cannot be written."""
        return self._write(self.trajectory, trajectory, "the trajectory")

    def finish_telemetry(self, redact: Redact) -> str | None:
        """Mask secrets in `telemetry.log` and return its path.

        If the CLI wrote nothing to the file, remove the file and return None. This happens if a run
        fails, because the CLI then exits before it writes its telemetry. If the file cannot be read
        or rewritten, warn, remove the file and return None.
        """
        try:
            telemetry = _read(self.telemetry)
            if not telemetry:
                self.telemetry.unlink(missing_ok=True)
                return None
            if (masked := redact(telemetry)) != telemetry:
                self.telemetry.unlink()
                _write_new(self.telemetry, masked)
        except OSError as error:
            self._warn(f"cannot mask secrets in {self.telemetry}; removing this file: {error.strerror}")
            self.telemetry.unlink(missing_ok=True)
            return None
        return str(self.telemetry)

    def _add(self, path: Path, text: str) -> None:
        if self._is_incomplete:
            return
        try:
            if path not in self._open:
                self._open[path] = _new_file(path)
            self._open[path].write(text.encode("utf-8", "replace"))
            self._open[path].flush()
        except OSError as error:
            self._output_failed(error)

    def _output_failed(self, error: OSError) -> None:
        if not self._is_incomplete:
            self._is_incomplete = True
            self._warn_about("the output of the CLI", error)

    def _write(self, path: Path, text: str, contents: str) -> str | None:
        try:
            _write_new(path, text)
        except OSError as error:
            self._warn_about(contents, error)
            return None
        return str(path)

    def _warn_about(self, contents: str, error: OSError) -> None:
        self._warn(f"cannot write {contents} to {self.folder}: {error.strerror}")


class RecordWriter:
    """Collects the events of a run. At the end, it writes the files of the run record and builds
    the record.

    This class implements the interface `Dialect`: `finish` returns the record as JSON.
    """

    def __init__(self, files: RecordFiles, run: Run | None = None) -> None:
        """Create a writer for the record of one run. `run` is the run that writes the CLI's output
        to `files`.

        If the events come from a recording, `run` is None, because a recording does not contain the
        output.
        """
        self._files = files
        self._run = run
        self._encoder = Encoder()
        self._events: list[Event] = []

    def feed(self, events: Sequence[Event]) -> bytes:
        self._events += events
        return self._encoder.feed(events)

    def finish(self) -> bytes:
        return record_dialect.encode(self.record())

    def record(self) -> Record:
        """Write the files and return the record. Call this method once, after the last event."""
        record = self._encoder.record()
        if self._run is not None:
            record = self._with_output(record, self._run)
        return _with_trajectory(record, self._files, of_events(self._events))

    def _with_output(self, record: Record, run: Run) -> Record:
        files, named = self._files, run.options.telemetry
        output = files.finish_output(run.redact)
        telemetry = None if named is None else os.path.abspath(named)
        if telemetry == str(files.telemetry):
            telemetry = files.finish_telemetry(run.redact)
        return replace(
            record,
            output_path=None if output is None else str(files.output),
            raw_output=output,
            telemetry_log=telemetry,
        )


def write_report_files(record: Record, files: RecordFiles) -> Record:
    """Write the output and the trajectory of a record that `from_report` built, and return the
    record with the paths of these files."""
    output = record.raw_output or ""
    record = replace(record, output_path=files.write_output(output))
    stdout, _, stderr = output.partition(f"\n\n{STDERR_LINE}\n")
    return _with_trajectory(record, files, of_output(stdout, stderr))


def refused_record(files: RecordFiles, error: OptionsError) -> Record:
    """Write the files of a run that was not started because an option is invalid, and return the
    record of this run."""
    output = files.write_output("")
    record = Record(exit_code=2, error=f"bad_option: {error}", output_path=output, raw_output="")
    return _with_trajectory(record, files, of_events(()))


def _with_trajectory(record: Record, files: RecordFiles, trajectory: str) -> Record:
    record = replace(record, trajectory_path=files.write_trajectory(trajectory))
    return replace(record, exit_code=1) if record.exit_code == 0 and check(record) else record


def _new_folder(parent: Path) -> Path:
    """Create a folder for one run, named like cakit's files: `gemini-<date>-<time>-<nanoseconds>`.

    If a folder with this name exists, the nanoseconds are increased until the name is free.
    """
    number = time.time_ns()
    try:
        private_dir(parent)
        while True:
            day = datetime.fromtimestamp(number // 1_000_000_000, UTC).strftime("%Y%m%d-%H%M%S")
            folder = parent / f"gemini-{day}-{number}"
            try:
                folder.mkdir(mode=0o700)
                return folder
            except FileExistsError:
                number += 1
    except OSError as error:
        hint = "Choose another folder for records: --record-dir, or `record_dir` in Python."
        raise GeminidsError(f"cannot create a folder in {parent}: {error.strerror}", hint=hint) from None


def _masked(stdout: str, redact: Redact) -> Iterator[str]:
    """Yield the lines of stdout, and mask the secrets that span several lines.

    The CLI prints the model's text in pieces, one message per line. If the joined text of
    consecutive messages contains a secret, these messages are replaced by one message with the
    masked text.
    """
    lines: list[str] = []
    pieces: list[str] = []
    first: dict[str, Any] = {}
    for line in io.StringIO(stdout, newline="\n"):
        message = _text_message(line)
        if message is None:
            yield from _joined(lines, pieces, first, redact)
            lines, pieces = [], []
            yield line
        else:
            first = message if not lines else first
            lines.append(line)
            pieces.append(message["content"])
    yield from _joined(lines, pieces, first, redact)


def _joined(lines: list[str], pieces: list[str], first: dict[str, Any], redact: Redact) -> list[str]:
    """Mask a secret that is split over several messages.

    `lines` are consecutive messages as JSON, `pieces` are the texts of these messages, and `first`
    is the first message, decoded. If the joined text of the messages contains a secret, return a
    single line: one message with the masked text. Otherwise return `lines` unchanged.
    """
    text = "".join(pieces)
    if (masked := redact(text)) == text:
        return lines
    return [json.dumps({**first, "content": masked}, ensure_ascii=False) + "\n"]


def _text_message(line: str) -> dict[str, Any] | None:
    """Return the decoded line if it is a message with a piece of the model's text, otherwise None."""
    if '"message"' not in line:
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    return message if isinstance(message.get("content"), str) else None


def _read(path: Path) -> str:
    """Return the text of a file, or an empty text if the file does not exist."""
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _new_file(path: Path) -> BufferedWriter:
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))


def _write_new(path: Path, text: str) -> None:
    """Create a file with the contents `text`. Raises `OSError` if the file already exists or cannot
    be written. An incomplete file is removed."""
    with _new_file(path) as file:
        try:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
        except OSError:
            path.unlink(missing_ok=True)
            raise
