"""`geminids sessions`: what Gemini CLI has stored: list, show, export, fork, rescue."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from geminids.cli.shared.folders import check_cwd, check_home

if TYPE_CHECKING:
    from geminids.sessions.finder import SessionInfo
    from geminids.sessions.repair.rescue import Rescue

__all__ = ["sessions"]

_SHOWN = 20


_cwd = click.option(
    "--cwd",
    metavar="DIR",
    callback=check_cwd,
    help="The folder that the session is of.  [default: this one, then any]",
)
_home = click.option(
    "--home",
    default="user",
    metavar="HOME",
    callback=check_home,
    help="user, isolated, or a folder.  [default: user]",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_session = click.argument("session", metavar="ID|latest|FILE")


@click.group()
def sessions() -> None:
    """Stored sessions: list, show, export, fork, rescue.

    A session is named by its id, by six or more characters that it begins with, by `latest`, or by its file. A session
    belongs to the folder that the agent worked in. Exit codes: 0 done, 1 not found or damaged, 2 bad usage.
    """
    try:
        os.getcwd()
    except OSError:
        raise click.UsageError("the folder that you are in is gone: go to another one") from None


@sessions.command("list", short_help="The sessions of a folder, newest first.")
@click.option("--cwd", metavar="DIR", callback=check_cwd, help="The sessions of this folder.  [default: .]")
@click.option("--all", "everywhere", is_flag=True, help="The sessions of every folder.")
@_home
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"The N newest; 0 for all.  [default: {_SHOWN}, with --json all]",
)
@_json
def list_sessions(cwd: str | None, everywhere: bool, home: str, limit: int | None, as_json: bool) -> None:
    """List the sessions of a folder, the one that was changed last first."""
    from geminids.sessions.finder import find

    if everywhere and cwd is not None:
        raise click.UsageError("--cwd and --all: one of them")
    found = find(None if everywhere else cwd or ".", home=home)
    most = (0 if as_json else _SHOWN) if limit is None else limit
    shown = found[:most] if most else found
    if as_json:
        from geminids.cli.sessions.table import as_rows

        _print_json(as_rows(found, shown))
    elif found:
        _print_table(found, shown, everywhere)
    else:
        of = "" if everywhere else f" of {os.path.abspath(cwd or '.')}"
        click.echo(
            f"There are no sessions{of}." + ("" if everywhere else " --all lists those of every folder.")
        )


@sessions.command(short_help="Read a session.")
@_session
@_cwd
@_home
@click.option("--full", is_flag=True, help="Unfold thoughts, outputs and diffs.")
@click.option("--json", "as_json", is_flag=True, help="Print the entries as JSON lines.")
def show(session: str, cwd: str | None, home: str, full: bool, as_json: bool) -> None:
    """Show a session as a transcript: what was said and thought, the tools, and what each turn took."""
    from geminids.cli.sessions.lookup import open_session, resume_line
    from geminids.sessions.transcript import entries

    opened = open_session(session, cwd, home)
    told = entries(opened.messages, opened.agents)
    if as_json:
        import msgspec

        from geminids.cli.shared.output_file import write_out

        write_out((msgspec.json.encode(entry) + b"\n" for entry in told), None)
        return
    from geminids.cli.sessions.export import facts_of, title_of
    from geminids.views.transcript.transcript import TranscriptView

    view = TranscriptView(full=full)
    view.head(title_of(opened), facts_of(opened), opened.info.project or opened.info.file)
    view.show(told)
    line = resume_line(opened.info.id, opened.info.project, home)
    view.foot(*([f"resume: {line}"] if line and opened.info.resumable is not False else []))


@sessions.command(short_help="A session in another format.")
@_session
@_cwd
@_home
@click.option(
    "--format",
    "form",
    type=click.Choice(("claude", "claude-jsonl", "markdown", "html", "atif", "json")),
    required=True,
    help="One of those above.",
)
@click.option("--out", metavar="FILE", help="Write a file that only you can read.  [default: stdout]")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def export(session: str, cwd: str | None, home: str, form: str, out: str | None, force: bool) -> None:
    """Write a session in another format.

    \b
    claude        messages as Claude has them, one a line
    claude-jsonl  the transcript file of Claude Code
    markdown      for a pull request
    html          one page for a browser: no scripts, nothing from elsewhere
    atif          an ATIF 1.8 trajectory
    json          the conversation as it stands at the end, in the CLI's own words
    """
    from geminids.cli.sessions.export import exported
    from geminids.cli.sessions.lookup import open_session
    from geminids.cli.shared.output_file import may_write, write_out

    target = may_write(out, force=force) if out not in (None, "-") else None
    opened = open_session(session, cwd, home)
    write_out(exported(opened, form), target, force=force)
    if target is not None:
        click.echo(f"wrote {out}", err=True)


@sessions.command(short_help="Copy a session under a new id.")
@_session
@click.option("--at", metavar="MESSAGE", help="The last message of the copy: its id, or how that begins.")
@_cwd
@_home
@_json
def fork(session: str, at: str | None, cwd: str | None, home: str, as_json: bool) -> None:
    """Copy a session, whole or up to a message, under a new id; the original stays as it is.

    `show` tells the ids of the prompts, `show --json` those of all messages.
    """
    from geminids.cli.sessions.lookup import fork_session, resume_line

    made, source = fork_session(session, at, cwd, home)
    line = resume_line(made.id, made.project, home)
    if as_json:
        fields = ("id", "file", "project", "messages")
        told = {name: getattr(made, name) for name in fields}
        _print_json({**told, "of": source.id, "at": at, "resume": line})
        return
    _say(f"forked {source.id}", f"new session: {made.id}", made.file, line and f"resume: {line}")


@sessions.command(short_help="Bring back a session that the CLI refuses.")
@_session
@_cwd
@_home
@click.option("--rewound", is_flag=True, help="Also the messages that were taken back (/rewind).")
@_json
def rescue(session: str, cwd: str | None, home: str, rewound: bool, as_json: bool) -> None:
    """Gather what is left of a session's files and write it as a new session; the old files stay as they are.

    A FILE that lies elsewhere is put among the sessions of --cwd (default: this folder).
    """
    from geminids.cli.sessions.lookup import rescue_session, resume_line

    made, project = rescue_session(session, cwd, home, rewound=rewound)
    line = resume_line(made.session_id, project, home)
    if as_json:
        import msgspec

        _print_json({**msgspec.to_builtins(made), "resume": line})
        return
    _say(*_rescued(made), line and f"resume: {line}")


def _rescued(made: Rescue) -> list[str]:
    from geminids.views.amounts import count

    told = [f"rescued {count(made.recovered, 'message')} from {count(len(made.sources), 'file')}"]
    if made.brought_back:
        told.append(f"{count(made.brought_back, 'message')} that Gemini CLI did not show any more")
    if made.partial:
        told.append(f"{count(len(made.partial), 'message')} without the end: {', '.join(made.partial[:5])}")
    if made.taken_back:
        told.append(f"left out: {count(made.taken_back, 'message')} that had been taken back (--rewound)")
    if made.lost:
        size = sum(piece.size for piece in made.lost)
        where = ", ".join(f"{piece.offset:,}" for piece in made.lost[:5])
        told.append(f"lost: {size:,} bytes that are no whole record, at {where}")
    return [*told, f"new session: {made.session_id}", made.file]


def _say(head: str, *lines: str | None) -> None:
    from rich.text import Text

    from geminids.views.sanitize import one_line
    from geminids.views.terminal.screen import Screen

    screen = Screen(sys.stdout)
    screen.paragraph(Text(one_line(head, 4000), no_wrap=True))
    for line in lines:
        if line:
            screen.paragraph(Text(one_line(line, 4000), no_wrap=True), indent=2)
    screen.flush()


def _print_table(found: Sequence[SessionInfo], shown: Sequence[SessionInfo], everywhere: bool) -> None:
    from geminids.cli.sessions.table import print_table
    from geminids.views.terminal.screen import Screen

    screen = Screen(sys.stdout)
    print_table(screen, found, shown, folders=everywhere)
    screen.flush()


def _print_json(value: Any) -> None:
    import msgspec

    from geminids.cli.shared.output_file import write_out

    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A path that is no UTF-8: escaped, it can still be told.
        import json

        text = json.dumps(msgspec.to_builtins(value)).encode()
    write_out([text + b"\n"], None)
