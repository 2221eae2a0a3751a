"""`geminids sessions`: list, show, export, fork and rescue the sessions that Gemini CLI stored."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click
import msgspec
from rich.text import Text

from geminids.cli.sessions import table
from geminids.cli.sessions.export import export_session, session_facts, session_title
from geminids.cli.sessions.lookup import fork_session, open_session, rescue_session, resume_line
from geminids.cli.shared.folders import check_cwd, check_home
from geminids.cli.shared.output_file import check_output_path, write_output
from geminids.sessions.finder import find
from geminids.sessions.repair.rescue import Rescue
from geminids.sessions.transcript import entries
from geminids.views.amounts import count
from geminids.views.sanitize import one_line
from geminids.views.terminal.screen import Screen
from geminids.views.transcript.transcript import TranscriptView

__all__ = ["sessions"]

_DEFAULT_LIMIT = 20

_cwd = click.option(
    "--cwd",
    metavar="DIR",
    callback=check_cwd,
    help="The folder of the session.  [default: this folder, then all folders]",
)
_home = click.option(
    "--home",
    default="user",
    metavar="HOME",
    callback=check_home,
    help="The home of the CLI: user, isolated, or a folder.  [default: user]",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_session = click.argument("session", metavar="ID|latest|FILE")


@click.group()
def sessions() -> None:
    """List, show, export, fork or rescue stored sessions.

    Name a session by its id, by at least the first six characters of the id, by `latest`, or by its
    file. A session belongs to the folder that the agent worked in.
    Exit codes: 0 done, 1 not found or damaged, 2 bad usage.
    """
    try:
        os.getcwd()
    except OSError:
        raise click.UsageError("the current folder no longer exists; change to another folder") from None


@sessions.command("list", short_help="List the sessions of a folder, newest first.")
@click.option("--cwd", metavar="DIR", callback=check_cwd, help="List the sessions of DIR.  [default: .]")
@click.option("--all", "everywhere", is_flag=True, help="List the sessions of every folder.")
@_home
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"List the N newest sessions; 0 lists all.  [default: {_DEFAULT_LIMIT}; with --json: all]",
)
@_json
def list_sessions(cwd: str | None, everywhere: bool, home: str, limit: int | None, as_json: bool) -> None:
    """List the sessions of a folder, the last changed first."""
    if everywhere and cwd is not None:
        raise click.UsageError("--cwd and --all cannot be used together")
    stored = find(None if everywhere else cwd or ".", home=home)
    limit = (0 if as_json else _DEFAULT_LIMIT) if limit is None else limit
    shown = stored[:limit] if limit else stored
    if as_json:
        _print_json(table.as_rows(stored, shown))
    elif stored:
        table.print_table(stored, shown, folders=everywhere)
    elif everywhere:
        click.echo("No sessions found.")
    else:
        folder = os.path.abspath(cwd or ".")
        click.echo(f"No sessions in {folder}. Use --all to list the sessions of every folder.")


@sessions.command(short_help="Show a session as a transcript.")
@_session
@_cwd
@_home
@click.option("--full", is_flag=True, help="Show thoughts, outputs and diffs in full.")
@click.option("--json", "as_json", is_flag=True, help="Print the entries as JSON lines.")
def show(session: str, cwd: str | None, home: str, full: bool, as_json: bool) -> None:
    """Show a session as a transcript: messages, thoughts, tools, and the tokens of each turn."""
    session_file = open_session(session, cwd, home)
    transcript = entries(session_file.messages, session_file.agents)
    if as_json:
        write_output((msgspec.json.encode(entry) + b"\n" for entry in transcript), None)
        return
    view = TranscriptView(full=full)
    view.head(
        session_title(session_file),
        session_facts(session_file),
        session_file.info.project or session_file.info.file,
    )
    view.show(transcript)
    line = resume_line(session_file.info.id, session_file.info.project, home)
    view.foot(*([f"resume: {line}"] if line and session_file.info.resumable is not False else []))


@sessions.command(short_help="Write a session in another format.")
@_session
@_cwd
@_home
@click.option(
    "--format",
    "form",
    type=click.Choice(("claude", "claude-jsonl", "markdown", "html", "atif", "json")),
    required=True,
    help="The format; see above.",
)
@click.option("--out", metavar="FILE", help="Write to FILE, readable only by you.  [default: stdout]")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def export(session: str, cwd: str | None, home: str, form: str, out: str | None, force: bool) -> None:
    """Write a session in another format.

    \b
    claude        messages of the Claude API, one per line
    claude-jsonl  a transcript file of Claude Code
    markdown      Markdown, for example for a pull request
    html          a page for a browser, without scripts or external resources
    atif          an ATIF 1.8 trajectory
    json          the final conversation, in Gemini CLI's own format
    """
    target = check_output_path(out, force=force) if out not in (None, "-") else None
    session_file = open_session(session, cwd, home)
    write_output(export_session(session_file, form), target, force=force)
    if target is not None:
        click.echo(f"wrote {out}", err=True)


@sessions.command(short_help="Copy a session under a new id.")
@_session
@click.option("--at", metavar="MESSAGE", help="The id of the last message to copy, or the start of that id.")
@_cwd
@_home
@_json
def fork(session: str, at: str | None, cwd: str | None, home: str, as_json: bool) -> None:
    """Copy a session under a new id, in full or up to a message. The original does not change.

    `show` prints the ids of the prompts, `show --json` those of all messages.
    """
    copy, source = fork_session(session, at, cwd, home)
    line = resume_line(copy.id, copy.project, home)
    if as_json:
        fields = {name: getattr(copy, name) for name in ("id", "file", "project", "messages")}
        _print_json({**fields, "of": source.id, "at": at, "resume": line})
        return
    _print(f"forked {source.id}", f"new session: {copy.id}", copy.file, line and f"resume: {line}")


@sessions.command(short_help="Recover a session that the CLI cannot load.")
@_session
@_cwd
@_home
@click.option("--rewound", is_flag=True, help="Include messages that were removed with /rewind.")
@_json
def rescue(session: str, cwd: str | None, home: str, rewound: bool, as_json: bool) -> None:
    """Recover the messages of a damaged session into a new session. The old files do not change.

    If FILE is outside the session folders of the CLI, the new session belongs to the folder that --cwd
    names (default: this folder).
    """
    rescued, project = rescue_session(session, cwd, home, rewound=rewound)
    line = resume_line(rescued.session_id, project, home)
    if as_json:
        _print_json({**msgspec.to_builtins(rescued), "resume": line})
        return
    _print(*_summary(rescued), line and f"resume: {line}")


def _summary(rescued: Rescue) -> list[str]:
    lines = [f"rescued {count(rescued.recovered, 'message')} from {count(len(rescued.sources), 'file')}"]
    if rescued.brought_back:
        lines.append(f"recovered: {count(rescued.brought_back, 'message')} that Gemini CLI no longer showed")
    if rescued.partial:
        ids = ", ".join(rescued.partial[:5])
        lines.append(f"incomplete: {count(len(rescued.partial), 'message')} ({ids})")
    if rescued.taken_back:
        lines.append(
            f"skipped: {count(rescued.taken_back, 'message')} removed with /rewind; --rewound includes them"
        )
    if rescued.lost:
        size = sum(piece.size for piece in rescued.lost)
        offsets = ", ".join(f"{piece.offset:,}" for piece in rescued.lost[:5])
        lines.append(f"lost: {size:,} bytes of incomplete records, at byte {offsets}")
    return [*lines, f"new session: {rescued.session_id}", rescued.file]


def _print(head: str, *lines: str | None) -> None:
    screen = Screen(sys.stdout)
    screen.paragraph(Text(one_line(head, 4000), no_wrap=True))
    for line in lines:
        if line:
            screen.paragraph(Text(one_line(line, 4000), no_wrap=True), indent=2)
    screen.flush()


def _print_json(value: Any) -> None:
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A path that is not valid UTF-8 cannot be encoded by msgspec; `json` escapes it.
        text = json.dumps(msgspec.to_builtins(value)).encode()
    write_output([text + b"\n"], None)
