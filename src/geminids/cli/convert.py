"""`geminids convert`: a recorded run, or a session file, in another format."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING

import click

from geminids.cli.run import check_manner
from geminids.dialects.tongue import TONGUES, Tongue, tongue
from geminids.errors import GeminidsError

if TYPE_CHECKING:
    from geminids.run.recorded import Recording

__all__ = ["convert"]

_OF_RUNS = ("events", *sorted(TONGUES))
_OF_SESSIONS = ("atif", "claude", "claude-jsonl", "html", "json", "markdown")
_ALL = tuple(sorted({*_OF_RUNS, *_OF_SESSIONS}))
_SHOWN = 5


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
    a session file of Gemini CLI                     atif, claude, claude-jsonl, html, json, markdown

    What it is, its first line says. Events give the same bytes as the run gave with -o FORMAT.
    Exit codes: 0 done, 1 not readable, 2 bad usage, 3 --strict failed.
    """
    from geminids.cli.sessions_export import may_write, write_out

    check_manner(form, partial=partial, strict=strict, record_dir=record_dir, flag="--to")
    target = may_write(out, force=force) if out not in (None, "-") else None
    checked: list[int] = []
    with _opened(file) as source:
        speaker = functools.partial(_speaker, form, partial, record_dir)
        pieces = _pieces(source, file, form, speaker, checked if strict else None)
        if target is not None:
            write_out(pieces, target, force=force)
        else:
            for piece in pieces:  # one by one: whoever reads us may follow a run that goes on
                write_out((piece,), None)
    if target is not None:
        click.echo(f"wrote {out}", err=True)
    return max(checked, default=0)


def _pieces(
    source: BufferedReader, file: str, form: str, speaker: Callable[[], Tongue], checked: list[int] | None
) -> Iterator[bytes]:
    from geminids.run.recorded import open_recording

    recording = open_recording(source)
    if recording.kind is None:
        raise GeminidsError(
            f"{_name(file)} is neither events of geminids, nor stream-json of Gemini CLI, nor a session file",
            hint="Events are written by geminids run --save-events FILE, stream-json by gemini -o stream-json.",
        )
    is_session = recording.kind == "session"
    if form not in (_OF_SESSIONS if is_session else _OF_RUNS):
        what = "a session file" if is_session else f"a recorded run ({recording.kind})"
        can = ", ".join(_OF_SESSIONS if is_session else _OF_RUNS)
        raise click.UsageError(f"{_name(file)} is {what}: it can become {can}.")
    if is_session:
        return _of_session(file, form, recording)
    return _of_run(recording, file, speaker, checked)


def _of_run(
    recording: Recording, file: str, speaker: Callable[[], Tongue], checked: list[int] | None
) -> Iterator[bytes]:
    from geminids.dialects.conversion import converted

    for said in converted(speaker, recording.batches()):
        yield said
        if checked is not None and said:
            from geminids.cli.strict import complain

            checked.append(complain(said))
    if recording.left_out:
        lines = ", ".join(map(str, recording.left_out[:_SHOWN]))
        more = ", ..." if len(recording.left_out) > _SHOWN else ""
        click.echo(f"geminids: {_name(file)}: no event, left out: line {lines}{more}", err=True)


def _speaker(form: str, partial: bool, record_dir: str | None) -> Tongue:
    if form == "events":
        from geminids.dialects.conversion import Own

        return Own()
    if record_dir is not None:
        from geminids.cli.record_files import RecordFiles

        return RecordFiles(record_dir)
    return tongue(form, partial=partial)


def _of_session(file: str, form: str, recording: Recording) -> Iterator[bytes]:
    from geminids.cli.sessions_export import exported
    from geminids.cli.sessions_lookup import open_session

    if file != "-":
        yield from exported(open_session(os.path.abspath(file), None, "user"), form)
        return
    # A session is read in two passes, and a pipe can be read once.
    with tempfile.NamedTemporaryFile(prefix="session-", suffix=".jsonl") as copy:
        copy.writelines(recording.blocks)
        copy.flush()
        yield from exported(open_session(copy.name, None, "user"), form)


@contextmanager
def _opened(file: str) -> Iterator[BufferedReader]:
    if file == "-":
        if sys.stdin is None:
            raise click.UsageError("stdin is closed: there is nothing to read.")
        with open(sys.stdin.fileno(), "rb", closefd=False) as source:
            yield source
        return
    with ExitStack() as stack:
        try:
            source = stack.enter_context(Path(file).open("rb"))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            hint = "A stored session by its id: geminids sessions export ID --format FORMAT"
            raise GeminidsError(f"{file} cannot be read: {why}", hint=hint) from None
        yield source


def _name(file: str) -> str:
    return "stdin" if file == "-" else file
