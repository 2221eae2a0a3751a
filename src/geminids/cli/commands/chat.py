"""`geminids chat`: a conversation in the terminal, or prompts from a pipe, one per line."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from geminids.cli.shared.flags import GroupedCommand, field_flags, own_flag, parse_flags
from geminids.config.loader import load_options
from geminids.options import Options

if TYPE_CHECKING:
    from rich.text import Text

    from geminids.cli.chat.thread import ChatThread
    from geminids.cli.shared.signals import Interrupts

__all__ = ["chat"]

# Options that apply to the first prompt only.
_FIRST_PROMPT_ONLY = ("files", "images", "instructions", "template", "variables", "videos")
# Options of `geminids run` that a chat ignores: they belong to one process or one prompt.
_RUN_ONLY = ("schema", "schema_tries", "session_id", "telemetry")


@click.command(cls=GroupedCommand, context_settings={"max_content_width": 110})
@click.argument("prompt", required=False)
@field_flags
@own_flag("--json", "as_json", is_flag=True, help="Print one JSON object per turn.")
def chat(prompt: str | None, as_json: bool, no_config: bool, continue_latest: bool, **params: Any) -> int:
    """Chat with the agent, turn by turn. PROMPT is the first prompt.

    The agent asks before it does what the approval mode does not allow: y once, a always, n no.
    Ctrl-C ends the turn; at the prompt it leaves the chat. /help lists the commands. Files, images,
    instructions and a template go with the first prompt.

    Without a terminal, each line of stdin is a prompt, permissions are denied instead of asked for,
    and the exit code is that of the last turn, as in geminids run. A chat in a terminal exits with 0.
    """
    flags = parse_flags(params, continue_latest=continue_latest)
    loaded = load_options(flags=flags, config=not no_config)
    for warning in loaded.warnings:
        click.echo(f"geminids: {warning}", err=True)
    return _chat(prompt, loaded.options, as_json)


chat.params = [param for param in chat.params if param.name not in _RUN_ONLY]


def _chat(prompt: str | None, options: Options, as_json: bool) -> int:
    from geminids.cli.chat.thread import ChatThread
    from geminids.cli.shared.signals import Interrupts
    from geminids.launch.errors import Refused

    fields = {name: getattr(options, name) for name in _FIRST_PROMPT_ONLY}
    asks = not as_json and _is_terminal(sys.stdin) and _is_terminal(sys.stdout)
    try:
        options, fresh = _check_options(options, asks)
    except Refused as refused:
        from geminids.cli.shared.dry_run import print_refusal

        return print_refusal(refused)
    if fresh is not None:
        click.echo(f"geminids: starting a new session: {fresh}", err=True)
    if options.gateway != "off":
        from geminids.process.hardening import protect_command

        protect_command()
    interrupts = Interrupts()
    thread = ChatThread(options, asks=asks)
    try:
        # Read the first line while the CLI loads.
        with interrupts.handled():
            return (_terminal if asks else _pipe)(thread, interrupts, prompt, fields, as_json)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        # The reader of stdout is gone. Not BrokenPipeError: click turns it into exit code 1.
        raise click.exceptions.Exit(141) from None


def _check_options(options: Options, asks: bool) -> tuple[Options, str | None]:
    """The options with the full session id, and why the session is new; raises `Refused`."""
    from geminids.ids import new_run_id
    from geminids.launch.build import build_warm
    from geminids.launch.gateway_env import PLACEHOLDER
    from geminids.launch.prepare import prepare
    from geminids.launch.write import write
    from geminids.run.session_claim import Claim

    default = Options()
    defaults = {name: getattr(default, name) for name in (*_FIRST_PROMPT_ONLY, *_RUN_ONLY)}
    claim = Claim(new_run_id())
    options = claim.look_up(msgspec.structs.replace(options, **defaults))
    # Report invalid options before the user types anything.
    write(build_warm(prepare(options, transport="warm", asks=asks), PLACEHOLDER))
    return options, claim.fresh


def _terminal(
    thread: ChatThread, interrupts: Interrupts, prompt: str | None, fields: dict[str, Any], as_json: bool
) -> int:
    with thread:
        from geminids.cli.chat.lines import History, PromptReader
        from geminids.cli.chat.slash_commands import Commands
        from geminids.cli.chat.terminal import TerminalChat, show
        from geminids.config.paths import Places

        terminal = TerminalChat(thread, interrupts)
        commands = Commands(
            thread,
            lambda: terminal.thoughts,
            lambda: _resume_command(thread) if terminal.has_answers else None,
        )
        reader = PromptReader(History(Places.of().root / "chat-history"))
        show([*_intro(thread.options)])
        code = terminal.converse(reader, commands, first=prompt, fields=fields)
    _print_notices(thread)
    if terminal.has_answers:
        click.echo(f"session {thread.session_id}\nresume: {_resume_command(thread)}")
    return code


def _pipe(
    thread: ChatThread, interrupts: Interrupts, prompt: str | None, fields: dict[str, Any], as_json: bool
) -> int:
    with thread:
        from geminids.cli.chat.pipe import converse
        from geminids.cli.chat.slash_commands import Commands

        commands = Commands(thread, list, lambda: _resume_command(thread) if thread.usage else None)
        code = converse(thread, commands, interrupts, first=prompt, fields=fields, as_json=as_json)
    _print_notices(thread)
    if thread.usage and not as_json:
        click.echo(f"geminids: session {thread.session_id}; {_resume_command(thread)}", err=True)
    return code


def _intro(options: Options) -> Iterator[Text]:
    """The first lines: the mode, and the last exchange of a resumed session."""
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
    yield Text(f"continuing session {options.resume} in a new session with the same conversation", "dim")


def _resume_command(thread: ChatThread) -> str | None:
    from geminids.views.terminal.footer import resume_words

    options = thread.options
    if thread.session_id is None:
        return None
    cwd, home = str(Path(options.cwd).absolute()), str(options.home)
    return resume_words("chat", thread.session_id, offline=options.offline, home=home, cwd=cwd)


def _print_notices(thread: ChatThread) -> None:
    from geminids.views.sanitize import one_line

    while not thread.notices.empty():
        click.echo(f"geminids: {one_line(thread.notices.get().message)}", err=True)


def _is_terminal(stream: Any) -> bool:
    return stream is not None and bool(stream.isatty())
