"""`geminids convert`: a recorded run, or a session file, in another format."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminids.cli.commands.run import check_manner
from geminids.dialects.dialect import DIALECTS, Dialect, dialect
from geminids.errors import GeminidsError

if TYPE_CHECKING:
    from geminids.run.recordings.load import Readable, Recording

__all__ = ["convert"]

_OF_RUNS = ("events", *sorted(DIALECTS))
_OF_SESSIONS = ("atif", "claude", "claude-jsonl", "html", "json", "markdown")
_ALL = tuple(sorted({*_OF_RUNS, *_OF_SESSIONS}))
_OF_REPORTS = ("record",)
_KINDS = {
    "events": (_OF_RUNS, "a recorded run (events)"),
    "stream-json": (_OF_RUNS, "a recorded run (stream-json)"),
    "report": (_OF_REPORTS, "a json report"),
    "session": (_OF_SESSIONS, "a session file"),
}
_SHOWN = 5
# How a file begins that is one of ours in other clothes, and how it is undressed.
_CLOTHED = {
    b"\x1f\x8b": "It is compressed: gzip -dc FILE | geminids convert - --to FORMAT",
    b"\xff\xfe": "It is UTF-16, as PowerShell writes it. Save it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE",
}


@click.command(context_settings={"max_content_width": 110})
@click.argument("file", metavar="FILE|-")
@click.option("--to", "form", type=click.Choice(_ALL), required=True, help="The format; see above.")
@click.option("--partial", is_flag=True, help="With --to claude: pieces of messages too, as in a live run.")
@click.option("--strict", is_flag=True, help="With --to record: exit with 3 where a field is not known.")
@click.option("--record-dir", metavar="DIR", help="With --to record: keep its log and its trajectory there.")
@click.option("--out", metavar="FILE", help="Write a file that only you can read.  [default: stdout]")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def convert(
    file: str, form: str, partial: bool, strict: bool, record_dir: str | None, out: str | None, force: bool
) -> int:
    """Write a recorded run, or a session file, in another format. FILE may be - for stdin.

    \b
    what FILE is                                     what it can become
    events (run -o events, --save-events)            events, adapter, agent-events, atif, claude, record, untether
    stream-json of Gemini CLI                        the same, as far as the CLI has told it there
    json of Gemini CLI (gemini -o json)              record
    a session file of Gemini CLI                     atif, claude, claude-jsonl, html, json, markdown

    What it is, its first line says. Events give the same bytes as the run gave with -o FORMAT.
    Exit codes: 0 done, 1 not readable, 2 bad usage, 3 --strict failed.
    """
    from geminids.cli.shared.output_file import may_write, write_out

    check_manner(form, partial=partial, strict=strict, record_dir=record_dir, flag="--to")
    target = may_write(out, force=force) if out not in (None, "-") else None
    job = _Job(file, form, partial, record_dir, strict)
    with _opened(file) as source:
        pieces = job.pieces(source)
        if target is not None:
            write_out(pieces, target, force=force)
        else:
            for piece in pieces:  # one by one: whoever reads us may follow a run that goes on
                write_out((piece,), None)
    if target is not None:
        click.echo(f"wrote {out}", err=True)
    return job.code


class _Job:
    """One file, one format; `code` is the exit code when all pieces are out."""

    def __init__(self, file: str, form: str, partial: bool, record_dir: str | None, strict: bool) -> None:
        self._file = file
        self._form = form
        self._partial = partial
        self._record_dir = record_dir
        self._strict = strict
        self.code = 0

    def pieces(self, source: Readable) -> Iterator[bytes]:
        from geminids.run.recordings.load import open_recording

        recording = open_recording(source)
        if recording.kind is None:
            raise _none_of_ours(self._file, next(iter(recording.blocks), b""))
        can, what = _KINDS[recording.kind]
        if self._form not in can:
            raise click.UsageError(f"{_name(self._file)} is {what}: it can become {', '.join(can)}.")
        if recording.kind == "session":
            return _of_session(self._file, self._form, recording)
        return self._of_report(recording) if recording.kind == "report" else self._of_run(recording)

    def _of_report(self, recording: Recording) -> Iterator[bytes]:
        """What the CLI printed at its end; its exit code is not in it."""
        from geminids.dialects import record

        if self._record_dir is not None:
            raise click.UsageError(
                f"{_name(self._file)} is a json report: --record-dir goes with recorded runs."
            )
        printed = b"".join(recording.blocks).decode("utf-8", "replace")
        said = record.encode(record.from_report(printed, exit_code=None))
        yield said
        self._look_at(said)

    def _of_run(self, recording: Recording) -> Iterator[bytes]:
        from geminids.dialects.convert import converted

        for said in converted(self._encoder, recording.batches()):
            yield said
            self._look_at(said)
        if recording.left_out:
            lines = ", ".join(map(str, recording.left_out[:_SHOWN]))
            more = ", ..." if len(recording.left_out) > _SHOWN else ""
            click.echo(f"geminids: {_name(self._file)}: no event, left out: line {lines}{more}", err=True)

    def _look_at(self, said: bytes) -> None:
        if self._strict and said:
            from geminids.cli.shared.record_files import complain

            self.code = max(self.code, complain(said, trajectory=self._record_dir is not None))

    def _encoder(self) -> Dialect:
        if self._form == "events":
            from geminids.dialects.convert import EventsEncoder

            return EventsEncoder()
        if self._record_dir is not None:
            from geminids.cli.shared.record_files import RecordFiles

            return RecordFiles(self._record_dir)
        return dialect(self._form, partial=self._partial)


class _Source:
    """A file or a pipe that says whose fault it is when it cannot be read on."""

    def __init__(self, file: str, source: BufferedReader) -> None:
        self._file = file
        self._source = source

    def read1(self, size: int, /) -> bytes:
        try:
            return self._source.read1(size)
        except OSError as error:
            raise GeminidsError(f"{_name(self._file)} cannot be read: {error.strerror}") from None


def _none_of_ours(file: str, head: bytes) -> GeminidsError:
    usual = "Events are written by geminids run --save-events FILE, stream-json by gemini -o stream-json."
    return GeminidsError(
        f"{_name(file)} is neither events of geminids, nor stream-json or json of Gemini CLI, nor a session file",
        hint=_CLOTHED.get(head[:2], usual),
    )


def _of_session(file: str, form: str, recording: Recording) -> Iterator[bytes]:
    from geminids.cli.sessions.export import exported
    from geminids.cli.sessions.lookup import open_session

    if file != "-":
        yield from exported(open_session(os.path.abspath(file), None, "user"), form)
        return
    # A session is read in two passes, and a pipe can be read once.
    with tempfile.NamedTemporaryFile(prefix="session-", suffix=".jsonl") as copy:
        copy.writelines(recording.blocks)
        copy.flush()
        yield from exported(open_session(copy.name, None, "user"), form)


@contextmanager
def _opened(file: str) -> Iterator[Readable]:
    if file == "-":
        if sys.stdin is None:
            raise click.UsageError("stdin is closed: there is nothing to read.")
        with open(sys.stdin.fileno(), "rb", closefd=False) as source:
            yield _Source(file, source)
        return
    with ExitStack() as stack:
        try:
            source = stack.enter_context(Path(file).open("rb"))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            hint = "A stored session by its id: geminids sessions export ID --format FORMAT"
            raise GeminidsError(f"{file} cannot be read: {why}", hint=hint) from None
        yield _Source(file, source)


def _name(file: str) -> str:
    return "stdin" if file == "-" else file
