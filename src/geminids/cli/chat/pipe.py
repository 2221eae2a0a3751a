"""A chat without a terminal: a prompt a line from stdin, an answer or a JSON object each on stdout."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from geminids.cli.chat.lines import joined
from geminids.cli.chat.slash_commands import Commands, Leave, prompt_of
from geminids.cli.chat.thread import ChatThread, Over
from geminids.cli.shared.result import exit_code, say_why
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
    """One turn, as `--json` prints it."""

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
    """Answer all prompts; the exit code is that of the last turn, as `geminids run` has it."""
    code = 0
    try:
        for line in _prompts(first, interrupts):
            prompt = prompt_of(line)
            if prompt is None:
                for told in commands.run(line):
                    click.echo(f"geminids: {told.plain}", err=True)
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
                line = joined(_line)
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
        came = interrupts.take()
        if came is not None:
            chat.stop(f"interrupted by {signal.Signals(came).name}")
        try:
            heard = chat.heard.get(timeout=0.1)
        except Empty:
            continue
        if isinstance(heard, Over):
            return heard.result
        if isinstance(heard, (list, tuple)):
            _warn(heard)


def _warn(events: list[Event] | tuple[Event, ...]) -> None:
    """What a person should know goes to stderr; what was refused too, since nobody could be asked."""
    for event in events:
        if isinstance(event, Notice) and event.level in ("warning", "error") and event.code != "retry":
            click.echo(f"geminids: {one_line(event.message)}", err=True)
        elif isinstance(event, Finished):
            for one in event.decisions:
                if one.decision == "deny":
                    why = one_line(one.reason or "nobody could be asked")
                    click.echo(f"geminids: denied {one_line(one.what)}: {why}", err=True)


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
        say_why(result)
        text = result.answer.rstrip("\n").encode("utf-8", "replace")
    if text:
        sys.stdout.buffer.write(text + b"\n")
        sys.stdout.buffer.flush()
