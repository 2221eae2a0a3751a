"""A chat without a terminal: each line of stdin is a prompt, and the answers go to stdout."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import anyio
import click
import msgspec

from geminids.cli.chat.session import ChatSession
from geminids.cli.chat.slash_commands import Commands, LeaveChat, prompt_of, resume_command
from geminids.cli.shared.result import exit_code, print_failure
from geminids.cli.shared.stdin import decode_line
from geminids.events.cost import Cost
from geminids.events.encoding import encode_json
from geminids.events.model import Event, Finished, Notice, Usage
from geminids.options.flag_names import with_flags
from geminids.outcome import EXIT_CODES, Failure, Outcome
from geminids.run.result import Result
from geminids.views.sanitize import one_line

__all__ = ["PipeChat", "TurnReport"]

_INTERRUPTED = EXIT_CODES["interrupted"]
_READ_SIZE = 65536


class TurnReport(msgspec.Struct, frozen=True):
    """The JSON object that `--json` prints for each turn of a chat."""

    answer: str
    outcome: Outcome
    reason: str | None
    failure: Failure | None
    session_id: str | None
    usage: Usage | None
    cost: Cost | None = None
    finish_reason: str | None = None
    discarded: tuple[int, ...] = ()


class PipeChat:
    """Runs a chat without a terminal: reads prompts from stdin and prints the answers."""

    def __init__(self, session: ChatSession, *, as_json: bool) -> None:
        self._session = session
        self._as_json = as_json
        self._stdin = _Stdin()
        self._reading: anyio.CancelScope | None = None
        self._is_interrupted = False

    def on_signal(self, number: int) -> None:
        """Stop the current turn. A second signal ends it immediately. No further prompt is read."""
        self._is_interrupted = True
        self._session.stop(f"interrupted by {signal.Signals(number).name}")
        if self._reading is not None:
            self._reading.cancel()

    async def converse(self, first: str | None, fields: dict[str, Any]) -> int:
        """Run a turn for each prompt. Return the exit code of the last turn; if the chat was
        interrupted, return 130.

        `first` is the prompt from the command line, if any. `fields` are the options that apply
        only to the first prompt.
        """
        commands = Commands(self._session, list, self._resume_command)
        line = first if first is not None else await self._read()
        code = 0
        while line is not None:
            prompt = prompt_of(line)
            if prompt is None:
                try:
                    replies = await commands.run(line)
                except LeaveChat:
                    return code
                for reply in replies:
                    click.echo(f"geminids: {reply.plain}", err=True)
            else:
                result = await self._session.run_turn(prompt, fields, _warn)
                fields = {}
                if result is None:
                    return _INTERRUPTED
                _print(result, self._as_json)
                code = exit_code(result)
                if self._is_interrupted or result.outcome == "interrupted":
                    return code
            line = await self._read()
        return _INTERRUPTED if self._is_interrupted else code

    def print_resume_command(self) -> None:
        """Print to stderr a command that resumes the session. Print nothing with `--json`, or if
        there is no session to resume."""
        if not self._as_json and (resume := self._resume_command()):
            click.echo(f"geminids: session {self._session.session_id}; {resume}", err=True)

    def _resume_command(self) -> str | None:
        return resume_command(self._session) if self._session.usage else None

    async def _read(self) -> str | None:
        """Read the next prompt that is not blank; None at the end of stdin, or after a signal."""
        with anyio.CancelScope() as self._reading:
            if self._is_interrupted:
                return None
            while (prompt := await self._stdin.read_prompt()) is not None:
                if prompt.strip():
                    return prompt
        return None


class _Stdin:
    """Reads prompts from stdin without blocking the event loop."""

    def __init__(self) -> None:
        self._fd = None if sys.stdin is None else sys.stdin.fileno()
        self._unread = bytearray()
        self._offset = 0

    async def read_prompt(self) -> str | None:
        """Read one prompt; None at the end of stdin. If a line ends with a backslash, the prompt
        continues on the next line."""
        rows: list[str] = []
        while (row := await self._read_line()) is not None:
            if not row.endswith("\\"):
                return "\n".join([*rows, row])
            rows.append(row[:-1])
        return "\n".join(rows) if rows else None

    async def _read_line(self) -> str | None:
        """Read one line, without its line break."""
        searched = 0
        while (end := self._unread.find(b"\n", searched)) < 0:
            searched = len(self._unread)
            # Not `sys.stdin`: Python cannot exit while a thread waits inside it.
            data = b"" if self._fd is None else await _read(self._fd)
            if not data:
                end = searched
                break
            self._unread += data
        line = bytes(self._unread[: end + 1])
        del self._unread[: end + 1]
        if not line:
            return None
        text = decode_line(line, self._offset)
        self._offset += len(line)
        return text.rstrip("\r\n")


async def _read(fd: int) -> bytes:
    return await anyio.to_thread.run_sync(os.read, fd, _READ_SIZE, abandon_on_cancel=True)


async def _warn(events: Sequence[Event]) -> None:
    """Print to stderr the warnings and the denied permission requests in these events."""
    for event in events:
        if isinstance(event, Notice) and event.level in ("warning", "error") and event.code != "retry":
            click.echo(f"geminids: {one_line(with_flags(event.message))}", err=True)
        elif isinstance(event, Finished):
            for decision in event.decisions:
                if decision.decision == "deny":
                    why = one_line(with_flags(decision.reason or "there was no user to ask"))
                    click.echo(f"geminids: denied {one_line(decision.what)}: {why}", err=True)


def _print(result: Result, as_json: bool) -> None:
    if sys.stdout is None:
        return
    if as_json:
        report = TurnReport(
            result.answer,
            result.outcome,
            result.reason,
            result.failure,
            result.session_id,
            result.usage,
            result.cost,
            result.finish_reason,
            result.discarded,
        )
        text = encode_json(report)
    else:
        print_failure(result)
        text = result.answer.rstrip("\n").encode("utf-8", "replace")
    if text:
        sys.stdout.buffer.write(text + b"\n")
        sys.stdout.buffer.flush()
