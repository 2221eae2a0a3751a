"""A chat without a terminal: prompts come from the lines of stdin, answers go to stdout."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from geminids.cli.chat.lines import read_prompt
from geminids.cli.chat.slash_commands import Commands, Leave, prompt_of
from geminids.cli.chat.thread import ChatThread, TurnEnded
from geminids.cli.shared.result import exit_code, print_failure
from geminids.cli.shared.signals import HungUp, Interrupts
from geminids.events.cost import Cost
from geminids.events.encoding import encode_json
from geminids.events.model import Event, Finished, Notice, Usage
from geminids.outcome import EXIT_CODES, Failure, Outcome
from geminids.run.result import Result
from geminids.views.sanitize import one_line

__all__ = ["TurnReport", "converse"]

_INTERRUPTED = EXIT_CODES["interrupted"]


class TurnReport(msgspec.Struct, frozen=True):
    """A turn, as `--json` prints it."""

    answer: str
    outcome: Outcome
    reason: str | None
    failure: Failure | None
    session_id: str | None
    usage: Usage | None
    cost: Cost | None = None
    finish_reason: str | None = None
    discarded: tuple[int, ...] = ()


def converse(
    chat: ChatThread,
    commands: Commands,
    interrupts: Interrupts,
    *,
    first: str | None,
    fields: dict[str, Any],
    as_json: bool,
) -> int:
    """Answer all prompts; returns the exit code of the last turn, as `geminids run` does."""
    code = 0
    try:
        for line in _prompts(first, interrupts):
            prompt = prompt_of(line)
            if prompt is None:
                for reply in commands.run(line):
                    click.echo(f"geminids: {reply.plain}", err=True)
                continue
            result = _turn(chat, interrupts, prompt, fields)
            fields = {}
            if result is None:
                return _INTERRUPTED
            _print(result, as_json)
            code = exit_code(result)
            if interrupts.waiting or result.outcome == "interrupted":
                break
    except Leave:
        pass
    except (KeyboardInterrupt, HungUp):
        return _INTERRUPTED
    return code


def _prompts(first: str | None, interrupts: Interrupts) -> Iterator[str]:
    if first is not None:
        yield first
    while sys.stdin is not None:
        try:
            with interrupts.prompting():
                line = read_prompt(_line)
        except EOFError:
            return
        if line.strip():
            yield line


def _line(is_first: bool) -> str:
    line = sys.stdin.buffer.readline().decode("utf-8", "replace")
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


def _turn(chat: ChatThread, interrupts: Interrupts, prompt: str, fields: dict[str, Any]) -> Result | None:
    from queue import Empty

    chat.send(prompt, fields)
    while True:
        number = interrupts.take()
        if number is not None:
            chat.stop(f"interrupted by {signal.Signals(number).name}")
        try:
            update = chat.updates.get(timeout=0.1)
        except Empty:
            continue
        if isinstance(update, TurnEnded):
            return update.result
        if isinstance(update, (list, tuple)):
            _warn(update)


def _warn(events: list[Event] | tuple[Event, ...]) -> None:
    """Print warnings and denied permissions to stderr."""
    for event in events:
        if isinstance(event, Notice) and event.level in ("warning", "error") and event.code != "retry":
            click.echo(f"geminids: {one_line(event.message)}", err=True)
        elif isinstance(event, Finished):
            for decision in event.decisions:
                if decision.decision == "deny":
                    why = one_line(decision.reason or "nobody could be asked")
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
