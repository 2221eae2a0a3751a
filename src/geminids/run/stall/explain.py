"""Explain why a run is silent.

The functions convert a snapshot of the run into a cause and a sentence for people.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from geminids.events.model import Level, PermissionAsked, ToolStarted
from geminids.events.stall import Stall, StallProcess
from geminids.gateway.messages import InFlightRequest
from geminids.run.stall.snapshot import (
    EARLY,
    SHELL,
    Failed,
    ProcessInfo,
    ProcessSnapshot,
    Span,
    StallSnapshot,
    cpu_percent,
)

__all__ = ["Reason", "level_of", "reason_of", "shell_of", "time_words"]


class Reason(msgspec.Struct, frozen=True):
    """Why a run is silent: as a sentence (`words`) and as fields (`stall`)."""

    words: str
    stall: Stall


def shell_reason(snapshot: StallSnapshot) -> Reason | None:
    """Return the reason for the silence: the run waits for a shell command.

    Return None if no process of a shell command is found and another tool may still be running.
    """
    shells, look = snapshot.situation.shells, snapshot.look
    if look is None or not look.processes:
        return _unseen(shells, snapshot)
    tops = [(tool, shell_of(snapshot, tool, alone=len(shells) == 1)) for tool in shells]
    running = [(tool, top) for tool, top in tops if top is not None]
    if running:
        # One command may be a part of another command, so choose the longest that matches.
        tool, top = max(running, key=lambda pair: len(_command(pair[0]) or ""))
        return _running(tool, top, snapshot, look)
    left = [process for process in look.strays if process.born >= snapshot.began(shells[0]) - EARLY]
    if left and (snapshot.own is None or all(process.pid in snapshot.own for process in left)):
        return _left(shells, left, snapshot)
    others = any(tool.name != SHELL for tool in snapshot.situation.tools)
    return None if others else _unseen(shells, snapshot)


def shell_of(snapshot: StallSnapshot, tool: ToolStarted, *, alone: bool) -> ProcessInfo | None:
    """Return the shell process that a tool call started, or None if it is not found.

    The process is found by its command line and its start time. If no other shell tool is running
    (`alone`), the start time is enough.
    """
    look = snapshot.look
    assert look is not None
    cli, since, command = look.processes[0].pid, snapshot.began(tool) - EARLY, _command(tool)
    young = [process for process in look.processes[1:] if process.parent == cli and process.born >= since]
    if snapshot.own is not None:
        young = [process for process in young if process.pid in snapshot.own]
    matching = [process for process in young if command and command in process.command]
    return min(matching or (young if alone else []), key=lambda process: process.born, default=None)


def _command(tool: ToolStarted) -> str | None:
    command = (tool.input or {}).get("command")
    return command.strip() if isinstance(command, str) else None


def _running(tool: ToolStarted, top: ProcessInfo, snapshot: StallSnapshot, look: ProcessSnapshot) -> Reason:
    group = look.below(top.pid)
    # Omit subshells: they are forks of the shell, with the same command line.
    children = [process for process in group if process.command != top.command]
    cpu = cpu_percent(snapshot.before, look, [process.pid for process in group])
    facts = [f"pid {top.pid}", *cpu_words(cpu)]
    if any(process.stopped for process in group):
        facts.append("stopped by a signal")
    shown, total = children_of(children, snapshot.clean), len(children) + look.uncounted
    if shown:
        facts.append("child processes: " + named(shown, total))
    seconds = snapshot.span.wall - max(snapshot.began(tool), top.born)
    words, stall = _shell_words(tool, seconds)
    stall = msgspec.structs.replace(stall, pid=top.pid, cpu=cpu, children=shown, child_count=total)
    return Reason(f"{words} ({', '.join(facts)})", stall)


def _left(shells: Sequence[ToolStarted], left: Sequence[ProcessInfo], snapshot: StallSnapshot) -> Reason:
    """Return the reason for the silence: the CLI waits for background processes of a shell.

    The shell itself has ended. `left` are its background processes.
    """
    words, stall = _shell_words(shells[0], snapshot.span.wall - snapshot.began(shells[0]))
    shown = children_of(left, snapshot.clean)
    words += (
        f": its shell has ended, and the CLI waits for its background processes: {named(shown, len(left))}"
    )
    return Reason(words, msgspec.structs.replace(stall, children=shown, child_count=len(left)))


def _unseen(shells: Sequence[ToolStarted], snapshot: StallSnapshot) -> Reason:
    """Return the reason for the silence: the run waits for a shell command.

    No process of the command was found, so the reason contains only what the CLI reported about the
    command.
    """
    words, stall = _shell_words(shells[0], snapshot.span.wall - snapshot.began(shells[0]))
    if len(shells) > 1:
        others = ", ".join(f"`{cut(_command(tool) or tool.title, 60)}`" for tool in shells[1:3])
        words += f", or a command that was called together with it: {others}"
    return Reason(words, stall)


def _shell_words(tool: ToolStarted, seconds: float) -> tuple[str, Stall]:
    shown = cut(_command(tool) or tool.title)
    words = f"shell tool `{shown}` has been running for {time_words(seconds)}"
    return words, Stall(cause="tool", since_s=rounded(seconds), tool=tool.name, command=shown)


def tool_reason(snapshot: StallSnapshot) -> Reason:
    """Return the reason for the silence: the run waits for a tool that is not the shell."""
    tool = next(tool for tool in snapshot.situation.tools if tool.name != SHELL)
    seconds = snapshot.span.wall - snapshot.began(tool)
    words = f"tool {tool.name} has been running for {time_words(seconds)}"
    stall = Stall(cause="tool", since_s=rounded(seconds), tool=tool.name)
    servers = snapshot.situation.servers
    server = next((server for server in servers if tool.name.startswith(f"mcp_{server[0]}_")), None)
    look = snapshot.look if snapshot.look is not None and snapshot.look.processes else None
    if server is not None:
        return _in_server(*server, Reason(words, stall), snapshot)
    if look is not None and look.peers and not snapshot.situation.gateway:
        words += f"; the CLI has an open connection to {' and '.join(look.peers[:2])}"
    return Reason(words, stall)


def _in_server(name: str, command_words: tuple[str, ...], reason: Reason, snapshot: StallSnapshot) -> Reason:
    """Return `reason` with details about the MCP server that runs the tool, such as its process id.

    `name` is the name of the server, and `command_words` the command that started it.
    """
    words, look = f"{reason.words} in the MCP server {name}", snapshot.look
    processes = look.processes[1:] if look else ()
    matching = [process for process in processes if _is_command(process.command, command_words)]
    pids = {process.pid for process in matching}
    tops = [process for process in matching if process.parent not in pids]
    if look is None or len(tops) != 1:
        return Reason(words, reason.stall)  # none or several processes have this command line
    top = tops[0]
    group = look.below(top.pid)
    cpu = cpu_percent(snapshot.before, look, [process.pid for process in group])
    facts = [f"pid {top.pid}", *cpu_words(cpu)]
    if any(process.stopped for process in group):
        facts.append("stopped by a signal")
    command = cut(snapshot.clean(top.command))
    stall = msgspec.structs.replace(reason.stall, pid=top.pid, command=command, cpu=cpu)
    return Reason(f"{words} ({', '.join(facts)})", stall)


def _is_command(line: str, words: tuple[str, ...]) -> bool:
    """Return whether `line` can be the command line of a process that the command `words` started.

    Only the arguments are compared or, if there are none, the names of the programs. The starts of
    the two command lines may differ, because an interpreter may run a script, and a program may be
    a link.
    """
    if len(words) > 1:
        return line.endswith(" " + " ".join(words[1:]))
    programs = [os.path.basename(word) for word in line.split()[:2]]
    return bool(words) and os.path.basename(words[0]) in programs


# If a process uses less than this percentage of a CPU, it counts as idle.
_IDLE_CPU = 2.0
_LONGEST = 200
_LONGEST_CHILD = 60
_MOST_CHILDREN = 5


def time_words(seconds: float) -> str:
    """Format a duration for people.

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
    """Return the text as one line, truncated to at most `longest` characters."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 3] + "..."


def children_of(processes: Sequence[ProcessInfo], clean: Callable[[str], str]) -> tuple[StallProcess, ...]:
    """Return the first five processes, for the field `children` of a `Stall`.

    `clean` is a function that masks secrets.
    """
    return tuple(
        StallProcess(process.pid, cut(clean(process.command))) for process in processes[:_MOST_CHILDREN]
    )


def named(children: Sequence[StallProcess], total: int) -> str:
    """Format child processes for people: their commands and ids, and how many more there are.

    `total` is the number of all child processes, including those that are not in `children`.
    """
    names = [f"{cut(child.command, _LONGEST_CHILD)} (pid {child.pid})" for child in children]
    more = total - len(children)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


# If a process uses more than this percentage of a CPU, it counts as busy.
_BUSY_CPU = 10.0
# If the CLI uses more than this percentage, it may be too busy to read the API's answer.
_VERY_BUSY_CPU = 50.0
_SHARED = "; other chats share this process"


def level_of(stall: Stall) -> Level:
    """Return the level of the notice about a stall.

    It is `warning` if the run waits for the API or a retry, or if the CLI does nothing or is
    stopped. Otherwise it is `info`: a running tool or an open permission request is normal.
    """
    return "warning" if stall.cause in ("api", "retry", "idle", "stopped") else "info"


def reason_of(snapshot: StallSnapshot) -> Reason | None:
    """Return why the run is silent, or None if that is unknown."""
    situation, span, look = snapshot.situation, snapshot.span, snapshot.look
    if situation.permission is not None:
        return _permission(*situation.permission, span)
    if look is not None and look.processes and look.processes[0].stopped:
        return _stopped(look, span)
    if situation.shells and (reason := shell_reason(snapshot)) is not None:
        return reason
    if situation.requests:
        return _request(situation.requests[0], snapshot)
    if situation.failed is not None:
        return _retry(situation.failed, snapshot)
    if any(tool not in situation.shells for tool in situation.tools):
        return tool_reason(snapshot)
    return _cli(snapshot)


def _permission(asked: PermissionAsked, since: float, span: Span) -> Reason:
    seconds = max(span.now - since, 0.0)
    shown = cut(asked.command or asked.title)
    words = f"waiting for permission for {time_words(seconds)}: {asked.tool} `{shown}`"
    return Reason(
        words, Stall(cause="permission", since_s=rounded(seconds), tool=asked.tool, command=asked.command)
    )


def _stopped(look: ProcessSnapshot, span: Span) -> Reason:
    """Return the reason for the silence: a signal (SIGSTOP or Ctrl-Z) has stopped the CLI.

    A stopped process does not continue by itself.
    """
    pid = look.processes[0].pid
    words = (
        f"the CLI (pid {pid}) was stopped by a signal; no output for {time_words(span.seconds)}. "
        f"To continue it, run `kill -CONT {pid}`"
    )
    return Reason(words, Stall(cause="stopped", since_s=rounded(span.seconds), pid=pid))


def _request(request: InFlightRequest, snapshot: StallSnapshot) -> Reason:
    situation, span = snapshot.situation, snapshot.span
    name = f"request {request.number} to {request.model or 'the API'}"
    left, until, first = request.left, request.held_until, request.first
    if left is None and until is not None:
        wait = max(until - span.now, 0.0)
        words = f"{name} waits {time_words(wait)} more before it is sent: {request.held_why}"
        return Reason(words, _of(request, "held", span.now - request.came, next_s=rounded(wait)))
    if first is not None and (busy := _busy(snapshot, _VERY_BUSY_CPU)) is not None:
        return busy  # the answer may have arrived, but the CLI is too busy to read it
    seconds = span.now - (left if left is not None else request.came)
    again = f" (attempt {request.attempt})" if request.attempt > 1 else ""
    last_at = request.last
    last = (
        "no data has arrived yet"
        if last_at is None
        else f"the last data arrived {time_words(span.now - last_at)} ago"
    )
    words = f"waiting for the API: {name}{again} was sent {time_words(seconds)} ago; {last}"
    if situation.tools:
        words += f" (for the tool {situation.tools[0].name})"
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


def _retry(failed: Failed, snapshot: StallSnapshot) -> Reason:
    span, of = snapshot.span, snapshot.situation.attempts
    wait, since = max(failed.next_in(span.now), 0.0), rounded(span.now - failed.at)
    if failed.held is not None:
        words = f"a request is {failed.held}; the CLI tries again in about {time_words(wait)}"
        return Reason(words, Stall(cause="held", since_s=since, next_s=rounded(wait)))
    count = "" if failed.attempt is None else f" {failed.attempt}" + (f" of {of}" if of else "")
    why = f"HTTP {failed.http_status}" if failed.http_status else "no answer"
    when = f"next attempt in about {time_words(wait)}" if wait >= 0.5 else "next attempt at any moment"
    stall = Stall(
        cause="retry",
        since_s=since,
        attempt=failed.attempt,
        of=of,
        http_status=failed.http_status,
        next_s=rounded(wait),
    )
    return Reason(f"API retry{count} after {why}, {when}", stall)


def _busy(snapshot: StallSnapshot, share: float) -> Reason | None:
    """Return the reason for the silence: the CLI is busy. Return None if the CLI is not busy.

    The CLI is busy if its process uses at least `share` percent of a CPU.
    """
    look, span = snapshot.look, snapshot.span
    if look is None or not look.processes:
        return None
    pid = look.processes[0].pid
    cpu = cpu_percent(snapshot.before, look, [pid])
    if cpu is None or cpu < share:
        return None
    words = f"the CLI (pid {pid}) is busy; no output for {time_words(span.seconds)}: {cpu:.0f} % CPU"
    shared = _SHARED if snapshot.own is not None else ""
    return Reason(words + shared, Stall(cause="busy", since_s=rounded(span.seconds), pid=pid, cpu=cpu))


def _cli(snapshot: StallSnapshot) -> Reason | None:
    """Return the reason for the silence if the CLI waits for no tool and for no known request.

    The possible reasons: the CLI itself is busy, has an open connection, does nothing, or cannot be
    inspected. Return None if the CLI has exited, or if its processes were not inspected.
    """
    look, span, gateway = snapshot.look, snapshot.span, snapshot.situation.gateway
    if look is None:
        return None  # the CLI has exited, which the end of the run reports
    if not look.processes:
        pid = snapshot.situation.pid
        words = f"no output for {time_words(span.seconds)}; the CLI (pid {pid}) cannot be inspected"
        return Reason(words, Stall(cause="idle", since_s=rounded(span.seconds), pid=pid))
    if (busy := _busy(snapshot, _BUSY_CPU)) is not None:
        return busy
    return _connected(look, look.peers, snapshot) if look.peers and not gateway else _nothing(look, snapshot)


def _connected(look: ProcessSnapshot, peers: tuple[str, ...], snapshot: StallSnapshot) -> Reason:
    """Return the reason for the silence: the CLI has an open connection, and waits for an answer.

    This is for runs without the gateway: an open connection is then the only sign of a request.
    """
    span = snapshot.span
    words = f"waiting for an answer for {time_words(span.seconds)}: "
    words += f"the CLI has an open connection to {' and '.join(peers[:2])}"
    tried, of = snapshot.situation.tried, snapshot.situation.attempts
    attempt = None if tried is None or (of is not None and tried >= of) else tried + 1
    words += f" (attempt {attempt})" if attempt else ""
    words += _SHARED if snapshot.own is not None else ""
    stall = Stall(
        cause="api",
        since_s=rounded(span.seconds),
        pid=look.processes[0].pid,
        attempt=attempt,
        of=of if attempt else None,
    )
    return Reason(words, stall)


def _nothing(look: ProcessSnapshot, snapshot: StallSnapshot) -> Reason:
    span, pid, below = snapshot.span, look.processes[0].pid, look.processes[1:]
    cpu = cpu_percent(snapshot.before, look, [process.pid for process in look.processes])
    children, total = children_of(below, snapshot.clean), len(below) + look.uncounted
    connections = (
        "no connection is open" if look.peers is not None else "it is unknown whether a connection is open"
    )
    facts = ["no request is in flight" if snapshot.situation.gateway else connections, *cpu_words(cpu)]
    if children:
        facts.append("child processes: " + named(children, total))
    since = rounded(span.seconds)
    stall = Stall(cause="idle", since_s=since, pid=pid, cpu=cpu, children=children, child_count=total)
    but = "" if cpu is None or cpu < _BUSY_CPU else ", but its child processes are busy"
    words = f"the CLI (pid {pid}) has done nothing for {time_words(span.seconds)}{but}: {', '.join(facts)}"
    return Reason(words + (_SHARED if snapshot.own is not None else ""), stall)
