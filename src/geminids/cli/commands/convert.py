"""`geminids convert`: convert a recorded run or a session file to another format."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path

import click

from geminids.adapters.cakit.files import RecordWriter, write_report_files
from geminids.cli.commands.run import check_format_flags
from geminids.cli.sessions.export import export_session
from geminids.cli.sessions.lookup import open_session
from geminids.cli.shared.output_file import check_output_path, write_output
from geminids.cli.shared.record_files import new_record_files, report_missing_fields
from geminids.dialects import record
from geminids.dialects.convert import EventsEncoder, converted
from geminids.dialects.dialect import DIALECTS, Dialect, dialect
from geminids.errors import GeminidsError
from geminids.run.recordings.load import Readable, RecordedRun, open_recording

__all__ = ["convert"]

_RUN_FORMATS = ("events", *sorted(DIALECTS))
_SESSION_FORMATS = ("atif", "claude", "claude-jsonl", "html", "json", "markdown")
_FORMATS = tuple(sorted({*_RUN_FORMATS, *_SESSION_FORMATS}))
_REPORT_FORMATS = ("record",)
_KINDS = {
    "events": (_RUN_FORMATS, "a recorded run (events)"),
    "stream-json": (_RUN_FORMATS, "a recorded run (stream-json)"),
    "report": (_REPORT_FORMATS, "a json report"),
    "session": (_SESSION_FORMATS, "a session file"),
}
_MAX_LINES_SHOWN = 5
# Hints for files that are compressed or have another encoding, by their first two bytes.
_ENCODING_HINTS = {
    b"\x1f\x8b": "The file is compressed. Try: gzip -dc FILE | geminids convert - --to FORMAT",
    b"\xff\xfe": "The file is UTF-16, as PowerShell writes it. Convert it: iconv -f UTF-16 -t UTF-8 FILE",
}


@click.command(context_settings={"max_content_width": 110})
@click.argument("file", metavar="FILE|-")
@click.option("--to", "form", type=click.Choice(_FORMATS), required=True, help="The format; see above.")
@click.option(
    "--partial", is_flag=True, help="With --to claude: also write partial messages, as a live run does."
)
@click.option("--strict", is_flag=True, help="With --to record: exit with 3 if a critical field is missing.")
@click.option(
    "--record-dir",
    metavar="DIR",
    help="With --to record: write the trajectory below DIR and, for json of Gemini CLI, the output too.",
)
@click.option("--out", metavar="FILE", help="Write to FILE, readable only by you.  [default: stdout]")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def convert(
    file: str, form: str, partial: bool, strict: bool, record_dir: str | None, out: str | None, force: bool
) -> int:
    """Convert a recorded run or a session file to another format. FILE can be - for stdin.

    \b
    FILE                                   formats
    events (run -o events, --save-events)  events, adapter, agent-events, atif, claude, record, untether
    stream-json of Gemini CLI              the same, but only with the data that the CLI prints
    json of Gemini CLI (gemini -o json)    record
    a session file of Gemini CLI           atif, claude, claude-jsonl, html, json, markdown

    The first line of FILE shows which of these kinds FILE is. Converting events gives exactly the bytes that
    the run prints with -o FORMAT.
    Exit codes: 0 done, 1 not readable, 2 bad usage, 3 --strict failed.
    """
    check_format_flags(form, partial=partial, strict=strict, record_dir=record_dir, flag="--to")
    target = check_output_path(out, force=force) if out not in (None, "-") else None
    conversion = _Conversion(file, form, partial, record_dir, strict)
    with _open_source(file) as source:
        pieces = conversion.pieces(source)
        if target is not None:
            write_output(pieces, target, force=force)
        else:
            for piece in pieces:  # write each piece at once: the input may come from a run that has not ended
                write_output((piece,), None)
    if target is not None:
        click.echo(f"wrote {out}", err=True)
    return conversion.code


class _Conversion:
    """Converts one file to one format.

    `code` is the exit code of the command. It is valid only after all output was produced.
    """

    def __init__(self, file: str, form: str, partial: bool, record_dir: str | None, strict: bool) -> None:
        self._file = file
        self._form = form
        self._partial = partial
        self._record_dir = record_dir
        self._strict = strict
        self.code = 0

    def pieces(self, source: Readable) -> Iterator[bytes]:
        recording = open_recording(source)
        if recording.kind is None:
            raise _unknown_format(self._file, next(iter(recording.blocks), b""))
        formats, kind = _KINDS[recording.kind]
        if self._form not in formats:
            raise click.UsageError(
                f"{_display_name(self._file)} is {kind}; it can be converted to {', '.join(formats)}."
            )
        if recording.kind == "session":
            return _convert_session(self._file, self._form, recording)
        return self._convert_report(recording) if recording.kind == "report" else self._convert_run(recording)

    def _convert_report(self, recording: RecordedRun) -> Iterator[bytes]:
        """Convert the report that `gemini --output-format json` printed.

        The report does not contain the exit code of the CLI. So the exit code in the record is
        None.
        """
        printed = b"".join(recording.blocks).decode("utf-8", "replace")
        converted_report = record.from_report(printed, exit_code=None)
        if self._record_dir is not None:
            converted_report = write_report_files(converted_report, new_record_files(self._record_dir))
        encoded = record.encode(converted_report)
        yield encoded
        self._check_fields(encoded)

    def _convert_run(self, recording: RecordedRun) -> Iterator[bytes]:
        for encoded in converted(self._encoder, recording.batches()):
            yield encoded
            self._check_fields(encoded)
        if recording.left_out:
            lines = ", ".join(map(str, recording.left_out[:_MAX_LINES_SHOWN]))
            more = ", ..." if len(recording.left_out) > _MAX_LINES_SHOWN else ""
            click.echo(
                f"geminids: {_display_name(self._file)}: skipped lines that are not events: {lines}{more}",
                err=True,
            )

    def _check_fields(self, encoded: bytes) -> None:
        if self._strict and encoded:
            self.code = max(
                self.code, report_missing_fields(encoded, trajectory=self._record_dir is not None)
            )

    def _encoder(self) -> Dialect:
        if self._form == "events":
            return EventsEncoder()
        if self._record_dir is not None:
            return RecordWriter(new_record_files(self._record_dir))
        return dialect(self._form, partial=self._partial)


class _InputFile:
    """The input of the command: a file or stdin.

    If reading fails, a `GeminidsError` is raised.
    """

    def __init__(self, file: str, source: BufferedReader) -> None:
        self._file = file
        self._source = source

    def read1(self, size: int, /) -> bytes:
        try:
            return self._source.read1(size)
        except OSError as error:
            raise GeminidsError(
                f"cannot read {_display_name(self._file)}: {error.strerror}",
                hint="Check the path and the permissions of the file.",
            ) from None


def _unknown_format(file: str, head: bytes) -> GeminidsError:
    hint = "To record a run, use geminids run --save-events FILE, or gemini -o stream-json > FILE."
    return GeminidsError(
        f"{_display_name(file)} is neither a recorded run (events, stream-json or json) nor a session file",
        hint=_ENCODING_HINTS.get(head[:2], hint),
    )


def _convert_session(file: str, form: str, recording: RecordedRun) -> Iterator[bytes]:
    if file != "-":
        yield from export_session(open_session(os.path.abspath(file), None, "user"), form)
        return
    # Copy stdin to a file, because a session is read twice, and a pipe can be read only once.
    with tempfile.NamedTemporaryFile(prefix="session-", suffix=".jsonl") as copy:
        copy.writelines(recording.blocks)
        copy.flush()
        yield from export_session(open_session(copy.name, None, "user"), form)


@contextmanager
def _open_source(file: str) -> Iterator[Readable]:
    if file == "-":
        if sys.stdin is None:
            raise click.UsageError("stdin is closed: use a file instead of -.")
        with open(sys.stdin.fileno(), "rb", closefd=False) as source:
            yield _InputFile(file, source)
        return
    with ExitStack() as stack:
        try:
            source = stack.enter_context(Path(file).open("rb"))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            hint = "To convert a stored session by its id: geminids sessions export ID --format FORMAT"
            raise GeminidsError(f"cannot read {file}: {why}", hint=hint) from None
        yield _InputFile(file, source)


def _display_name(file: str) -> str:
    return "stdin" if file == "-" else file
