"""`geminids chat`: a conversation in the terminal, or a prompt a line from a pipe."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from geminids.cli.shared.flags import GroupedCommand, field_flags, given_by_flags, own_flag
from geminids.config.loader import load_options
from geminids.options import Options

if TYPE_CHECKING:
    from rich.text import Text

    from geminids.cli.chat.thread import ChatThread
    from geminids.cli.shared.signals import Interrupts

__all__ = ["chat"]

# Of the first prompt, not of all.
_OF_THE_FIRST = ("files", "images", "instructions", "template", "variables", "videos")
# Of a process of its own, or of one prompt. In a configuration they are for `geminids run`.
_NOT_HERE = ("schema", "schema_tries", "session_id", "telemetry")


@click.command(cls=GroupedCommand, context_settings={"max_content_width": 110})
@click.argument("prompt", required=False)
@field_flags
@own_flag("--json", "as_json", is_flag=True, help="Print one JSON object a turn.")
def chat(prompt: str | None, as_json: bool, no_config: bool, go_on: bool, **params: Any) -> int:
    """Talk with the agent, turn by turn; PROMPT is what is said first.

    What the agent may not do by itself is asked: y once, a always, n no. Ctrl-C ends a turn, and leaves at the
    prompt; /help lists the commands. Files, pictures, instructions and a template go with the first prompt.

    Without a terminal each line of stdin is a prompt, and what would be asked is denied. Exit codes then are those of
    the last turn, as geminids run has them; a chat in a terminal ends with 0.
    """
    flags = given_by_flags(params, go_on=go_on)
    loaded = load_options(flags=flags, config=not no_config)
    for warning in loaded.warnings:
        click.echo(f"geminids: {warning}", err=True)
    return _talk(prompt, loaded.options, as_json)


chat.params = [param for param in chat.params if param.name not in _NOT_HERE]


def _talk(prompt: str | None, options: Options, as_json: bool) -> int:
    from geminids.cli.chat.thread import ChatThread
    from geminids.cli.shared.signals import Interrupts
    from geminids.launch.errors import Refused

    fields = {name: getattr(options, name) for name in _OF_THE_FIRST}
    asks = not as_json and _is_terminal(sys.stdin) and _is_terminal(sys.stdout)
    try:
        options, fresh = _checked(options, asks)
    except Refused as refused:
        from geminids.cli.shared.dry_run import say_refused

        return say_refused(refused)
    if fresh is not None:
        click.echo(f"geminids: a new session: {fresh}", err=True)
    if options.gateway != "off":
        from geminids.process.hardening import protect_command

        protect_command()
    interrupts = Interrupts()
    thread = ChatThread(options, asks=asks)
    try:
        # The first line is read while the CLI loads.
        with interrupts.heeded():
            return (_terminal if asks else _pipe)(thread, interrupts, prompt, fields, as_json)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        # Nobody reads us any more. Not BrokenPipeError: click makes exit code 1 of that one.
        raise click.exceptions.Exit(141) from None


def _checked(options: Options, asks: bool) -> tuple[Options, str | None]:
    """Options for a chat, with the session's full id, and why it is a new one; raises `Refused`."""
    from geminids.ids import new_run_id
    from geminids.launch.build import build_warm
    from geminids.launch.gateway_env import PLACEHOLDER
    from geminids.launch.prepare import prepare
    from geminids.launch.write import write
    from geminids.run.session_claim import Claim

    whole = Options()
    plain = {name: getattr(whole, name) for name in (*_OF_THE_FIRST, *_NOT_HERE)}
    claim = Claim(new_run_id())
    options = claim.look_up(msgspec.structs.replace(options, **plain))
    # What cannot work is told before anybody has typed a word.
    write(build_warm(prepare(options, transport="warm", asks=asks), PLACEHOLDER))
    return options, claim.fresh


def _terminal(
    thread: ChatThread, interrupts: Interrupts, prompt: str | None, fields: dict[str, Any], as_json: bool
) -> int:
    with thread:
        from geminids.cli.chat.lines import History, Typed
        from geminids.cli.chat.slash_commands import Commands
        from geminids.cli.chat.terminal import TerminalChat, show
        from geminids.config.paths import Places

        talk = TerminalChat(thread, interrupts)
        commands = Commands(thread, lambda: talk.thoughts, lambda: _resume(thread) if talk.spoken else None)
        typed = Typed(History(Places.of().root / "chat-history"))
        show([*_before(thread.options)])
        code = talk.converse(typed, commands, first=prompt, fields=fields)
    _say_notices(thread)
    if talk.spoken:
        click.echo(f"session {thread.session_id}\nresume: {_resume(thread)}")
    return code


def _pipe(
    thread: ChatThread, interrupts: Interrupts, prompt: str | None, fields: dict[str, Any], as_json: bool
) -> int:
    with thread:
        from geminids.cli.chat.pipe import converse
        from geminids.cli.chat.slash_commands import Commands

        commands = Commands(thread, list, lambda: _resume(thread) if thread.usage else None)
        code = converse(thread, commands, interrupts, first=prompt, fields=fields, as_json=as_json)
    _say_notices(thread)
    if thread.usage and not as_json:
        click.echo(f"geminids: session {thread.session_id}; {_resume(thread)}", err=True)
    return code


def _before(options: Options) -> Iterator[Text]:
    """What a person should know first; where a resumed conversation was left, and how it goes on."""
    from rich.text import Text

    yield Text(f"mode {options.approval} · /help lists the commands · Ctrl-D leaves", "dim")
    if options.resume is None:
        return
    from geminids.cli.sessions.lookup import open_session
    from geminids.errors import SessionError
    from geminids.sessions.transcript import entries
    from geminids.views.terminal.chat_history import last_exchange

    try:
        opened = open_session(options.resume, options.cwd, str(options.home))
        yield from last_exchange(entries(opened.messages))
    except SessionError as error:
        yield Text(error.message, "yellow")
    yield Text(f"going on with session {options.resume}: a new session is told what was said before", "dim")


def _resume(thread: ChatThread) -> str | None:
    from geminids.views.terminal.footer import resume_words

    options = thread.options
    if thread.session_id is None:
        return None
    cwd, home = str(Path(options.cwd).absolute()), str(options.home)
    return resume_words("chat", thread.session_id, offline=options.offline, home=home, cwd=cwd)


def _say_notices(thread: ChatThread) -> None:
    from geminids.views.sanitize import one_line

    while not thread.notices.empty():
        click.echo(f"geminids: {one_line(thread.notices.get().message)}", err=True)


def _is_terminal(stream: Any) -> bool:
    return stream is not None and bool(stream.isatty())
