"""Start a chat: check its options, start the CLI, and import the user interface while the CLI
loads."""

from __future__ import annotations

import errno
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import click
import msgspec

from geminids.cli.chat.session import ChatSession
from geminids.cli.shared.result import print_refusal
from geminids.cli.shared.signals import collect_signals, receive_signals
from geminids.ids import new_run_id
from geminids.launch.build import build_warm
from geminids.launch.errors import Refused
from geminids.launch.gateway_env import PLACEHOLDER
from geminids.launch.prepare import prepare
from geminids.launch.settings.run_settings import configured_model
from geminids.launch.write import write
from geminids.options import Options
from geminids.options.flag_names import with_flags
from geminids.process.hardening import protect_command
from geminids.run.session_claim import Claim
from geminids.views.sanitize import one_line

if TYPE_CHECKING:
    from geminids.cli.chat.pipe import PipeChat
    from geminids.cli.chat.terminal import TerminalChat

__all__ = ["CheckedChat", "check_options", "start_chat"]

_T = TypeVar("_T")


class CheckedChat(msgspec.Struct, frozen=True):
    """A chat that can start.

    `options` have the full id of the session to resume. `why_new` is the reason why the requested
    session cannot be resumed: the chat then starts a new session. `model` is the model that the
    user configured; None if Gemini CLI chooses it.
    """

    options: Options
    why_new: str | None
    model: str | None


def start_chat(prompt: str | None, options: Options, fields: dict[str, Any], *, as_json: bool) -> int:
    """Run a chat until it ends, and return the exit code.

    `prompt` is the first prompt, if any. `fields` are the options that apply only to the first
    prompt. With `as_json`, each turn is printed as a JSON object.
    """
    asks = not as_json and _is_terminal(sys.stdin) and _is_terminal(sys.stdout)
    try:
        checked = check_options(options, asks)
    except Refused as refused:
        return print_refusal(refused)
    if checked.why_new is not None:
        click.echo(f"geminids: starting a new session: {checked.why_new}", err=True)
    if checked.options.gateway != "off":
        protect_command()
    session = ChatSession(checked.options, asks=asks, default_model=checked.model)
    try:
        with collect_signals():
            code, chat = _run(partial(_converse, session, prompt, fields, as_json=as_json))
        _print_notices(session)
        chat.print_resume_command()
        return code
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        # The reader of stdout has ended. Do not raise BrokenPipeError: click would exit with code
        # 1.
        raise click.exceptions.Exit(141) from None


def check_options(options: Options, asks: bool) -> CheckedChat:
    """Check that a chat with these options can start. Raises `Refused` if it cannot start.

    `asks` is True if the user answers permission requests.
    """
    claim = Claim(new_run_id())
    options = claim.look_up(options)
    # Prepare the start of the CLI now, to report invalid options before the user types a prompt.
    context = prepare(options, transport="warm", asks=asks)
    write(build_warm(context, PLACEHOLDER))
    model = configured_model(options, context.env, context.home.settings)
    return CheckedChat(options, claim.fresh, model)


def _run(converse: Callable[[], Awaitable[_T]]) -> _T:
    """Run a coroutine. Raise its error itself, not the group in which a task group has put it."""
    try:
        return anyio.run(converse)
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from None


async def _converse(
    session: ChatSession, prompt: str | None, fields: dict[str, Any], *, as_json: bool
) -> tuple[int, TerminalChat | PipeChat]:
    """Run the chat. Return the exit code, and the user interface."""
    async with anyio.create_task_group() as tasks:
        async with session.opened():
            # Importing the user interface takes a long time. So import it while the CLI starts.
            module = "terminal" if session.asks else "pipe"
            await anyio.to_thread.run_sync(import_module, f"geminids.cli.chat.{module}")
            chat = _user_interface(session, as_json)
            tasks.start_soon(receive_signals, chat.on_signal)
            code = await chat.converse(prompt, fields)
        tasks.cancel_scope.cancel()
    return code, chat


def _user_interface(session: ChatSession, as_json: bool) -> TerminalChat | PipeChat:
    if session.asks:
        from geminids.cli.chat.terminal import TerminalChat

        return TerminalChat(session)
    from geminids.cli.chat.pipe import PipeChat

    return PipeChat(session, as_json=as_json)


def _print_notices(session: ChatSession) -> None:
    for notice in session.notices:
        click.echo(f"geminids: {one_line(with_flags(notice.message))}", err=True)


def _is_terminal(stream: Any) -> bool:
    return stream is not None and bool(stream.isatty())
