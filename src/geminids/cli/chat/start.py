"""Start a chat: check its options, start the CLI, and import the user interface while the CLI
loads."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING, Any

import click

from geminids.cli.chat.thread import ChatThread
from geminids.cli.shared.result import print_refusal
from geminids.cli.shared.signals import Interrupts
from geminids.ids import new_run_id
from geminids.launch.build import build_warm
from geminids.launch.errors import Refused
from geminids.launch.gateway_env import PLACEHOLDER
from geminids.launch.prepare import prepare
from geminids.launch.write import write
from geminids.options import Options
from geminids.options.flag_names import with_flags
from geminids.process.hardening import protect_command
from geminids.run.session_claim import Claim
from geminids.views.sanitize import one_line

if TYPE_CHECKING:
    from geminids.cli.chat.pipe import PipeChat
    from geminids.cli.chat.terminal import TerminalChat

__all__ = ["check_options", "start_chat"]


def start_chat(prompt: str | None, options: Options, fields: dict[str, Any], *, as_json: bool) -> int:
    """Run a chat until it ends, and return the exit code.

    `prompt` is the first prompt, if any. `fields` are the options that apply only to the first
    prompt. With `as_json`, each turn is printed as a JSON object.
    """
    asks = not as_json and _is_terminal(sys.stdin) and _is_terminal(sys.stdout)
    try:
        options, why_new = check_options(options, asks)
    except Refused as refused:
        return print_refusal(refused)
    if why_new is not None:
        click.echo(f"geminids: starting a new session: {why_new}", err=True)
    if options.gateway != "off":
        protect_command()
    interrupts = Interrupts()
    thread = ChatThread(options, asks=asks)
    try:
        with interrupts.handled():
            with thread:
                chat = _import_chat(thread, interrupts, as_json)
                code = chat.converse(prompt, fields)
            _print_notices(thread)
            chat.print_resume_command()
            return code
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        # The reader of stdout has ended. Do not raise BrokenPipeError: click would exit with code
        # 1.
        raise click.exceptions.Exit(141) from None


def check_options(options: Options, asks: bool) -> tuple[Options, str | None]:
    """Check that a chat with these options can start. Raises `Refused` if it cannot start.

    Return two values. The first is the options, with the full id of the session to resume. The
    second is None if this session can be resumed, or if no session was requested. Otherwise, it is
    the reason why the session cannot be resumed; the chat then starts a new session.

    `asks` is True if the user answers permission requests.
    """
    claim = Claim(new_run_id())
    options = claim.look_up(options)
    # Prepare the start of the CLI now, to report invalid options before the user types a prompt.
    write(build_warm(prepare(options, transport="warm", asks=asks), PLACEHOLDER))
    return options, claim.fresh


def _import_chat(thread: ChatThread, interrupts: Interrupts, as_json: bool) -> TerminalChat | PipeChat:
    """Create the user interface of the chat: for a terminal, or for a pipe.

    Importing the module of the user interface takes a long time. So the module is imported here,
    while `thread` starts the CLI.
    """
    if thread.asks:
        from geminids.cli.chat.terminal import TerminalChat

        return TerminalChat(thread, interrupts)
    from geminids.cli.chat.pipe import PipeChat

    return PipeChat(thread, interrupts, as_json=as_json)


def _print_notices(thread: ChatThread) -> None:
    while not thread.notices.empty():
        click.echo(f"geminids: {one_line(with_flags(thread.notices.get().message))}", err=True)


def _is_terminal(stream: Any) -> bool:
    return stream is not None and bool(stream.isatty())
