"""Why a run is silent: what is known of it in a moment becomes a cause and a sentence."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import Level, PermissionAsked, ToolStarted
from geminids.events.stall import Stall, StallProcess
from geminids.run.stall.snapshot import SHELL, Failed, Moment, Span

if TYPE_CHECKING:
    from geminids.gateway.messages import InFlightRequest
    from geminids.run.stall.processes import Look, Seen

__all__ = ["EARLY", "Reason", "level_of", "reason_of", "shell_of", "time_words"]

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

    group = look.below(top.pid)
    # Subshells are forks of the shell, and look like it.
    children = [one for one in group if one.command != top.command]
    cpu = cpu_percent(moment.before, look, [one.pid for one in group])
    facts = [f"pid {top.pid}", *cpu_words(cpu)]
    if any(one.stopped for one in group):
        facts.append("stopped by a signal")
    shown, total = children_of(children, moment.clean), len(children) + look.uncounted
    if shown:
        facts.append("children: " + named(shown, total))
    seconds = moment.span.wall - max(moment.began(tool), top.born)
    said, stall = _said(tool, seconds)
    told = msgspec.structs.replace(stall, pid=top.pid, cpu=cpu, children=shown, child_count=total)
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
    return tool.startswith(f"mcp_{server}_")


# Less than this share of a core is a process that ticks over.
_IDLE_CPU = 2.0
_LONGEST = 200
_LONGEST_CHILD = 60
_MOST_CHILDREN = 5


def time_words(seconds: float) -> str:
    """A time as one says it.

    >>> time_words(31.4), time_words(600), time_words(7500)
    ('31 s', '10 min', '2 h 5 min')
    """
    whole = round(max(seconds, 0.0))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def rounded(seconds: float) -> float:
    return round(max(seconds, 0.0), 1)


def cpu_words(cpu: float | None) -> list[str]:
    if cpu is None:
        return []
    return ["no CPU"] if cpu < _IDLE_CPU else [f"{cpu:.0f} % CPU"]


def cut(text: str, longest: int = _LONGEST) -> str:
    """One line of text that is not too long."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 3] + "..."


def children_of(found: Sequence[Seen], clean: Callable[[str], str]) -> tuple[StallProcess, ...]:
    """The first few of them."""
    return tuple(StallProcess(one.pid, cut(clean(one.command))) for one in found[:_MOST_CHILDREN])


def named(children: Sequence[StallProcess], total: int) -> str:
    """These, and how many more there are."""
    told = [f"{cut(one.command, _LONGEST_CHILD)} (pid {one.pid})" for one in children]
    more = total - len(children)
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")


# More than this share of a core is a process that works.
_BUSY_CPU = 10.0
# A CLI that works so hard may be the one that does not take what the API has sent.
_HARD_AT_WORK = 50.0
_SHARED = "; other chats share this process"


def level_of(stall: Stall) -> Level:
    """Work and questions are no trouble; an API that fails and a CLI that hangs may be."""
    return "warning" if stall.cause in ("api", "retry", "idle", "stopped") else "info"


def reason_of(moment: Moment) -> Reason | None:
    """The reason; None where nothing is known."""
    situation, span, look = moment.situation, moment.span, moment.look
    if situation.permission is not None:
        return _permission(*situation.permission, span)
    if look is not None and look.processes and look.processes[0].stopped:
        return _stopped(look, span)
    if situation.shells and (found := shell_reason(moment)) is not None:
        return found
    if situation.requests:
        return _request(situation.requests[0], moment)
    if situation.failed is not None:
        return _retry(situation.failed, moment)
    if any(tool not in situation.shells for tool in situation.tools):
        return tool_reason(moment)
    return _cli(moment)


def _permission(asked: PermissionAsked, since: float, span: Span) -> Reason:
    seconds = max(span.now - since, 0.0)
    what = cut(asked.command or asked.title)
    words = f"waiting {time_words(seconds)} for permission: {asked.tool} `{what}`"
    return Reason(
        words, Stall(cause="permission", since_s=rounded(seconds), tool=asked.tool, command=asked.command)
    )


def _stopped(look: Look, span: Span) -> Reason:
    """Somebody has sent it SIGSTOP, or Ctrl-Z: whatever it waited for, it does not go on by itself."""
    pid = look.processes[0].pid
    words = (
        f"the CLI (pid {pid}) is stopped by a signal, and has said nothing for {time_words(span.seconds)}: "
        f"`kill -CONT {pid}` lets it go on"
    )
    return Reason(words, Stall(cause="stopped", since_s=rounded(span.seconds), pid=pid))


def _request(request: InFlightRequest, moment: Moment) -> Reason:
    situation, span = moment.situation, moment.span
    what = f"request {request.number} to {request.model or 'the API'}"
    left, until, first = request.left, request.held_until, request.first
    if left is None and until is not None:
        wait = max(until - span.now, 0.0)
        words = f"{what} is held back for {time_words(wait)} more: {request.held_why}"
        return Reason(words, _of(request, "held", span.now - request.came, next_s=rounded(wait)))
    if first is not None and (busy := _busy(moment, _HARD_AT_WORK)) is not None:
        return busy  # the answer may have come, and not have been taken
    seconds = span.now - (left if left is not None else request.came)
    again = f" (attempt {request.attempt})" if request.attempt > 1 else ""
    heard = request.last
    last = "no byte yet" if heard is None else f"the last byte came {time_words(span.now - heard)} ago"
    words = f"waiting for the API: {what}{again} was sent {time_words(seconds)} ago, {last}"
    if situation.tools:
        words += f" (for {situation.tools[0].name})"
    attempt = request.attempt if request.attempt > 1 else None
    return Reason(
        words, _of(request, "api", seconds, attempt=attempt, of=situation.attempts if attempt else None)
    )


def _of(request: InFlightRequest, cause: str, seconds: float, **more: object) -> Stall:
    return Stall(
        cause=cause,  # type: ignore[arg-type]
        since_s=rounded(seconds),
        request=request.number,
        model=request.model,
        **more,  # type: ignore[arg-type]
    )


def _retry(failed: Failed, moment: Moment) -> Reason:
    span, of = moment.span, moment.situation.attempts
    wait, since = max(failed.next_in(span.now), 0.0), rounded(span.now - failed.at)
    if failed.held is not None:
        words = f"a request is {failed.held}; the CLI asks again in about {time_words(wait)}"
        return Reason(words, Stall(cause="held", since_s=since, next_s=rounded(wait)))
    count = "" if failed.attempt is None else f" {failed.attempt}" + (f" of {of}" if of else "")
    why = f"HTTP {failed.http_status}" if failed.http_status else "no answer"
    when = f"next in about {time_words(wait)}" if wait >= 0.5 else "next any moment"
    stall = Stall(
        cause="retry",
        since_s=since,
        attempt=failed.attempt,
        of=of,
        http_status=failed.http_status,
        next_s=rounded(wait),
    )
    return Reason(f"API retry{count} after {why}, {when}", stall)


def _busy(moment: Moment, share: float) -> Reason | None:
    """Where the CLI's own process uses more than this share of a core."""
    from geminids.run.stall.processes import cpu_percent

    look, span = moment.look, moment.span
    if look is None or not look.processes:
        return None
    pid = look.processes[0].pid
    cpu = cpu_percent(moment.before, look, [pid])
    if cpu is None or cpu < share:
        return None
    words = f"the CLI (pid {pid}) works, and has said nothing for {time_words(span.seconds)}: {cpu:.0f} % CPU"
    shared = _SHARED if moment.own is not None else ""
    return Reason(words + shared, Stall(cause="busy", since_s=rounded(span.seconds), pid=pid, cpu=cpu))


def _cli(moment: Moment) -> Reason | None:
    """The CLI itself: no tool and no request that is known of."""
    look, span, gateway = moment.look, moment.span, moment.situation.gateway
    if look is None:
        return None  # it is gone, and that is told by its end
    if not look.processes:
        pid = moment.situation.pid
        words = f"nothing has been heard for {time_words(span.seconds)}; what the CLI (pid {pid}) does cannot be seen"
        return Reason(words, Stall(cause="idle", since_s=rounded(span.seconds), pid=pid))
    if (busy := _busy(moment, _BUSY_CPU)) is not None:
        return busy
    return _connected(look, look.peers, moment) if look.peers and not gateway else _nothing(look, moment)


def _connected(look: Look, peers: tuple[str, ...], moment: Moment) -> Reason:
    """Without a gateway: an open connection is all that shows of a request."""
    span = moment.span
    words = f"waiting for an answer for {time_words(span.seconds)}: "
    words += f"the CLI has a connection to {' and '.join(peers[:2])} open"
    tried, of = moment.situation.tried, moment.situation.attempts
    attempt = None if tried is None or (of is not None and tried >= of) else tried + 1
    words += f" (attempt {attempt})" if attempt else ""
    words += _SHARED if moment.own is not None else ""
    stall = Stall(
        cause="api",
        since_s=rounded(span.seconds),
        pid=look.processes[0].pid,
        attempt=attempt,
        of=of if attempt else None,
    )
    return Reason(words, stall)


def _nothing(look: Look, moment: Moment) -> Reason:
    from geminids.run.stall.processes import cpu_percent

    span, pid, below = moment.span, look.processes[0].pid, look.processes[1:]
    cpu = cpu_percent(moment.before, look, [one.pid for one in look.processes])
    children, total = children_of(below, moment.clean), len(below) + look.uncounted
    connections = (
        "no connection is open" if look.peers is not None else "whether a connection is open is not known"
    )
    facts = ["no request is under way" if moment.situation.gateway else connections, *cpu_words(cpu)]
    if children:
        facts.append("children: " + named(children, total))
    since = rounded(span.seconds)
    stall = Stall(cause="idle", since_s=since, pid=pid, cpu=cpu, children=children, child_count=total)
    did = (
        "has done nothing" if cpu is None or cpu < _BUSY_CPU else "has said nothing, while its children work,"
    )
    words = f"the CLI (pid {pid}) {did} for {time_words(span.seconds)}: {', '.join(facts)}"
    return Reason(words + (_SHARED if moment.own is not None else ""), stall)
