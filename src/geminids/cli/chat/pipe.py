"""A chat without a terminal: each line of stdin is a prompt, and the answers go to stdout."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from queue import Empty
from typing import Any

import click
import msgspec

from geminids.cli.chat.lines import read_prompt
from geminids.cli.chat.slash_commands import Commands, LeaveChat, prompt_of, resume_command
from geminids.cli.chat.thread import ChatThread, TurnEnded
from geminids.cli.shared.result import exit_code, print_failure
from geminids.cli.shared.signals import HungUp, Interrupts
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
_TICK = 0.1


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

    def __init__(self, chat: ChatThread, interrupts: Interrupts, *, as_json: bool) -> None:
        self._chat = chat
        self._interrupts = interrupts
        self._as_json = as_json
        self._offset = 0
        """How many bytes of stdin have been read."""

    def converse(self, first: str | None, fields: dict[str, Any]) -> int:
        """Run a turn for each prompt. Return the exit code of the last turn; if the chat was
        interrupted, return 130.

        `first` is the prompt from the command line, if any. `fields` are the options that apply
        only to the first prompt.
        """
        commands = Commands(self._chat, list, self._resume_command)
        code = 0
        try:
            for line in self._prompts(first):
                prompt = prompt_of(line)
                if prompt is None:
                    for reply in commands.run(line):
                        click.echo(f"geminids: {reply.plain}", err=True)
                    continue
                result = self._turn(prompt, fields)
                fields = {}
                if result is None:
                    return _INTERRUPTED
                _print(result, self._as_json)
                code = exit_code(result)
                if self._interrupts.waiting or result.outcome == "interrupted":
                    break
        except LeaveChat:
            pass
        except (KeyboardInterrupt, HungUp):
            return _INTERRUPTED
        return code

    def print_resume_command(self) -> None:
        """Print to stderr a command that resumes the session. Print nothing with `--json`, or if
        there is no session to resume."""
        if not self._as_json and (resume := self._resume_command()):
            click.echo(f"geminids: session {self._chat.session_id}; {resume}", err=True)

    def _resume_command(self) -> str | None:
        return resume_command(self._chat) if self._chat.usage else None

    def _prompts(self, first: str | None) -> Iterator[str]:
        if first is not None:
            yield first
        while sys.stdin is not None:
            try:
                with self._interrupts.prompting():
                    line = read_prompt(self._read_line)
            except EOFError:
                return
            if line.strip():
                yield line

    def _read_line(self, is_first: bool) -> str:
        line = sys.stdin.buffer.readline()
        if not line:
            raise EOFError
        text = decode_line(line, self._offset)
        self._offset += len(line)
        return text.rstrip("\r\n")

    def _turn(self, prompt: str, fields: dict[str, Any]) -> Result | None:
        self._chat.send(prompt, fields)
        while True:
            number = self._interrupts.take()
            if number is not None:
                self._chat.stop(f"interrupted by {signal.Signals(number).name}")
            try:
                update = self._chat.updates.get(timeout=_TICK)
            except Empty:
                continue
            if isinstance(update, TurnEnded):
                return update.result
            if isinstance(update, (list, tuple)):
                _warn(update)


def _warn(events: list[Event] | tuple[Event, ...]) -> None:
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
