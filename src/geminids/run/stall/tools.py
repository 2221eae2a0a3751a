"""Why a run is silent while a tool runs: which one, and what its processes do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import ToolStarted
from geminids.events.stall import Stall
from geminids.run.stall.situation import SHELL, Moment
from geminids.run.stall.words import IDLE_CPU, children_of, cpu_words, cut, named, rounded, time_words

if TYPE_CHECKING:
    from geminids.run.stall.processes import Look, Seen

__all__ = ["EARLY", "Reason", "shell_of", "shell_reason", "tool_reason"]

EARLY = 1.0
"""A process may be born before its tool is told, by the time that its CLI takes to say so."""


class Reason(msgspec.Struct, frozen=True):
    """A cause, and the sentence that says it."""

    words: str
    stall: Stall


def shell_reason(moment: Moment) -> Reason | None:
    """What is known of the shell tools; None where none of them runs any more, and another tool may."""
    shells, look = moment.situation.shells, moment.look
    if look is None or not look.processes:
        return _unseen(shells, moment)
    found = [(tool, shell_of(moment, tool, alone=len(shells) == 1)) for tool in shells]
    running = [(tool, top) for tool, top in found if top is not None]
    if running:
        # One command may be a part of another: the longest that fits is the one.
        return _running(*max(running, key=lambda one: len(_command(one[0]) or "")), moment, look)
    left = [one for one in look.strays if one.born >= moment.began(shells[0]) - EARLY]
    if left and (moment.own is None or all(one.pid in moment.own for one in left)):
        return _left(shells, left, moment)
    others = any(tool.name != SHELL for tool in moment.situation.tools)
    return None if others else _unseen(shells, moment)


def shell_of(moment: Moment, tool: ToolStarted, *, alone: bool) -> Seen | None:
    """The shell that runs a tool's command: by its words, else, where no other shell tool runs, by its birth."""
    look = moment.look
    assert look is not None
    cli, since, command = look.processes[0].pid, moment.began(tool) - EARLY, _command(tool)
    young = [one for one in look.processes[1:] if one.parent == cli and one.born >= since]
    if moment.own is not None:
        young = [one for one in young if one.pid in moment.own]
    said = [one for one in young if command and command in one.command]
    return min(said or (young if alone else []), key=lambda one: one.born, default=None)


def _command(tool: ToolStarted) -> str | None:
    given = (tool.input or {}).get("command")
    return given.strip() if isinstance(given, str) else None


def _running(tool: ToolStarted, top: Seen, moment: Moment, look: Look) -> Reason:
    from geminids.run.stall.processes import cpu_percent
    from geminids.run.stall.waits import waits_on

    group = look.below(top.pid)
    # Subshells are forks of the shell, and look like it.
    children = [one for one in group if one.command != top.command]
    cpu = cpu_percent(moment.before, look, [one.pid for one in group])
    waits = waits_on(group) if cpu is None or cpu < IDLE_CPU else None
    facts = [f"pid {top.pid}", *cpu_words(cpu), *([f"reads from its {waits}"] if waits else [])]
    if any(one.stopped for one in group):
        facts.append("stopped by a signal")
    shown, total = children_of(children, moment.clean), len(children) + look.uncounted
    if shown:
        facts.append("children: " + named(shown, total))
    seconds = moment.span.wall - max(moment.began(tool), top.born)
    said, stall = _said(tool, seconds)
    told = msgspec.structs.replace(
        stall, pid=top.pid, cpu=cpu, waits_on=waits, children=shown, child_count=total
    )
    return Reason(f"{said} ({', '.join(facts)})", told)


def _left(shells: Sequence[ToolStarted], left: Sequence[Seen], moment: Moment) -> Reason:
    """The shell is gone, and the CLI waits for what it has left in the background."""
    said, stall = _said(shells[0], moment.span.wall - moment.began(shells[0]))
    shown = children_of(left, moment.clean)
    words = f"{said}: its shell has ended, and the CLI waits for what that left running: {named(shown, len(left))}"
    return Reason(words, msgspec.structs.replace(stall, children=shown, child_count=len(left)))


def _unseen(shells: Sequence[ToolStarted], moment: Moment) -> Reason:
    """Nothing of them can be seen: what the CLI has told."""
    said, stall = _said(shells[0], moment.span.wall - moment.began(shells[0]))
    if len(shells) > 1:
        others = ", ".join(f"`{cut(_command(one) or one.title, 60)}`" for one in shells[1:3])
        said += f", or one that was called with it: {others}"
    return Reason(said, stall)


def _said(tool: ToolStarted, seconds: float) -> tuple[str, Stall]:
    shown = cut(_command(tool) or tool.title)
    said = f"shell tool `{shown}` has been running for {time_words(seconds)}"
    return said, Stall(cause="tool", since_s=rounded(seconds), tool=tool.name, command=shown)


def tool_reason(moment: Moment) -> Reason:
    """A tool of the CLI's own, or of an MCP server."""
    tool = next(one for one in moment.situation.tools if one.name != SHELL)
    seconds = moment.span.wall - moment.began(tool)
    said = f"tool {tool.name} has been running for {time_words(seconds)}"
    stall = Stall(cause="tool", since_s=rounded(seconds), tool=tool.name)
    server = next((one for one in moment.situation.servers if _is_of(tool.name, one[0])), None)
    look = moment.look if moment.look is not None and moment.look.processes else None
    if server is not None:
        return _in_server(*server, Reason(said, stall), moment)
    if look is not None and look.peers and not moment.situation.gateway:
        said += f"; the CLI has a connection to {' and '.join(look.peers[:2])} open"
    return Reason(said, stall)


def _in_server(name: str, words: tuple[str, ...], told: Reason, moment: Moment) -> Reason:
    from geminids.run.stall.processes import cpu_percent

    said, look = f"{told.words} in the MCP server {name}", moment.look
    found = [one for one in look.processes[1:] if _is_command(one.command, words)] if look else []
    within = {one.pid for one in found}
    tops = [one for one in found if one.parent not in within]
    if look is None or len(tops) != 1:
        return Reason(said, told.stall)  # not seen, or two that look the same
    top = tops[0]
    group = look.below(top.pid)
    cpu = cpu_percent(moment.before, look, [one.pid for one in group])
    facts = [f"pid {top.pid}", *cpu_words(cpu)]
    if any(one.stopped for one in group):
        facts.append("stopped by a signal")
    command = cut(moment.clean(top.command))
    stall = msgspec.structs.replace(told.stall, pid=top.pid, command=command, cpu=cpu)
    return Reason(f"{said} ({', '.join(facts)})", stall)


def _is_command(line: str, words: tuple[str, ...]) -> bool:
    """Whether a command line is the one that these words started: by its arguments, else by its program.

    A script is run by its interpreter, a program may be a link: what stands before the arguments may differ.
    """
    if len(words) > 1:
        return line.endswith(" " + " ".join(words[1:]))
    programs = [os.path.basename(one) for one in line.split()[:2]]
    return bool(words) and os.path.basename(words[0]) in programs


def _is_of(tool: str, server: str) -> bool:
    # `mcp_server_tool` in newer releases, `server__tool` in older ones.
    return tool.startswith((f"mcp_{server}_", f"{server}__"))
