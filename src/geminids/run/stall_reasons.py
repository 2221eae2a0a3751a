"""Why a run is silent: what is known of it in a moment becomes a cause and a sentence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import Level, PermissionAsked, ToolStarted
from geminids.events.stall import Stall, StallProcess
from geminids.run.stall_situation import Failed, Situation, Span

if TYPE_CHECKING:
    from geminids.gateway.under_way import UnderWay
    from geminids.run.stall_processes import Look, Seen

__all__ = ["Reason", "level_of", "reason_of"]

# Less than this share of a core is a process that ticks over, more than the other one that works.
_IDLE_CPU = 2.0
_BUSY_CPU = 10.0
# When the next attempt was due so many seconds ago, it is on its way.
_SENT_BY_NOW = 2.0
_LONGEST = 200
_MOST_CHILDREN = 5


class Reason(msgspec.Struct, frozen=True):
    """A cause, and the sentence that says it."""

    words: str
    stall: Stall


def level_of(stall: Stall) -> Level:
    """Work and questions are no trouble; an API that fails and a CLI that hangs may be."""
    return "warning" if stall.cause in ("api", "retry", "idle") else "info"


def reason_of(
    situation: Situation, span: Span, before: Look | None, look: Look | None, clean: Callable[[str], str]
) -> Reason | None:
    """The reason; None where nothing is known. `clean` takes the secrets out of a command line."""
    if situation.permission is not None:
        return _permission(*situation.permission, span)
    if (shell := situation.shell) is not None:
        return _shell(shell, span, before, look, clean)
    if situation.requests:
        return _request(situation.requests[0], situation, span)
    failed = situation.failed
    if failed is not None and (situation.gateway or failed.next_in(span.now) > -_SENT_BY_NOW):
        return _retry(failed, situation, span)
    if situation.tools:
        return _tool(situation, span, before, look, clean)
    return _cli(situation, span, before, look, clean)


def _permission(asked: PermissionAsked, since: float, span: Span) -> Reason:
    seconds = max(span.now - since, 0.0)
    what = _cut(asked.command or asked.title)
    words = f"waiting {_time(seconds)} for permission: {asked.tool} `{what}`"
    return Reason(
        words, Stall(cause="permission", since_s=_round(seconds), tool=asked.tool, command=asked.command)
    )


def _shell(
    tool: ToolStarted, span: Span, before: Look | None, look: Look | None, clean: Callable[[str], str]
) -> Reason:
    from geminids.run.stall_processes import cpu_percent, shell_of, waits_on

    given = (tool.input or {}).get("command")
    command = given if isinstance(given, str) else None
    shown = _cut(command or tool.title)
    seconds = max(span.wall - tool.at / 1000, 0.0)
    top = None if look is None else shell_of(look, command, tool.at / 1000)
    said = f"shell tool `{shown}` has been running for {_time(seconds)}"
    stall = Stall(cause="tool", since_s=_round(seconds), tool=tool.name, command=shown)
    if look is None or top is None:
        return Reason(said, stall)
    group = look.below(top.pid)
    # Subshells are forks of the shell, and look like it.
    children = [one for one in group if one.command != top.command]
    cpu = cpu_percent(before, look, [one.pid for one in group])
    waits = waits_on(group) if cpu is None or cpu < _IDLE_CPU else None
    facts = [f"pid {top.pid}", *_cpu_words(cpu), *([f"reads from its {waits}"] if waits else [])]
    named = _children(children, clean)
    if named:
        facts.append("children: " + ", ".join(f"{_cut(one.command, 60)} (pid {one.pid})" for one in named))
    told = msgspec.structs.replace(stall, pid=top.pid, cpu=cpu, waits_on=waits, children=named)
    return Reason(f"{said} ({', '.join(facts)})", told)


def _request(request: UnderWay, situation: Situation, span: Span) -> Reason:
    what = f"request {request.number} to {request.model or 'the API'}"
    left, until = request.left, request.held_until
    if left is None and until is not None:
        wait = max(until - span.now, 0.0)
        words = f"{what} is held back for {_time(wait)} more: {request.held_why}"
        return Reason(words, _of(request, "held", span.now - request.came, next_s=_round(wait)))
    seconds = span.now - (left if left is not None else request.came)
    again = f" (attempt {request.attempt})" if request.attempt > 1 else ""
    last = (
        "no byte yet" if request.last is None else f"the last byte came {_time(span.now - request.last)} ago"
    )
    words = f"waiting for the API: {what}{again} was sent {_time(seconds)} ago, {last}"
    if situation.tools:
        words += f" (for {situation.tools[0].name})"
    attempt = request.attempt if request.attempt > 1 else None
    return Reason(
        words, _of(request, "api", seconds, attempt=attempt, of=situation.attempts if attempt else None)
    )


def _of(request: UnderWay, cause: str, seconds: float, **more: object) -> Stall:
    return Stall(
        cause=cause,  # type: ignore[arg-type]
        since_s=_round(seconds),
        request=request.number,
        model=request.model,
        **more,  # type: ignore[arg-type]
    )


def _retry(failed: Failed, situation: Situation, span: Span) -> Reason:
    wait = max(failed.next_in(span.now), 0.0)
    of = situation.attempts
    count = "" if failed.attempt is None else f" {failed.attempt}" + (f" of {of}" if of else "")
    why = f"HTTP {failed.http_status}" if failed.http_status else "no answer"
    words = f"API retry{count} after {why}, next in about {_time(wait)}"
    stall = Stall(
        cause="retry",
        since_s=_round(span.now - failed.at),
        attempt=failed.attempt,
        of=of,
        http_status=failed.http_status,
        next_s=_round(wait),
    )
    return Reason(words, stall)


def _tool(
    situation: Situation, span: Span, before: Look | None, look: Look | None, clean: Callable[[str], str]
) -> Reason:
    """A tool of the CLI's own, or of an MCP server."""
    from geminids.run.stall_processes import cpu_percent

    tool = situation.tools[0]
    seconds = max(span.wall - tool.at / 1000, 0.0)
    said = f"tool {tool.name} has been running for {_time(seconds)}"
    stall = Stall(cause="tool", since_s=_round(seconds), tool=tool.name)
    server = next((one for one in situation.servers if _is_of(tool.name, one[0])), None)
    if server is None:
        return Reason(said, stall)
    said += f" in the MCP server {server[0]}"
    top = next((one for one in look.processes[1:] if server[1] in one.command), None) if look else None
    if look is None or top is None:
        return Reason(said, stall)
    cpu = cpu_percent(before, look, [one.pid for one in look.below(top.pid)])
    told = msgspec.structs.replace(stall, pid=top.pid, command=_cut(clean(top.command)), cpu=cpu)
    return Reason(f"{said} ({', '.join([f'pid {top.pid}', *_cpu_words(cpu)])})", told)


def _is_of(tool: str, server: str) -> bool:
    # `mcp_server_tool` in newer releases, `server__tool` in older ones.
    return tool.startswith((f"mcp_{server}_", f"{server}__"))


def _cli(
    situation: Situation, span: Span, before: Look | None, look: Look | None, clean: Callable[[str], str]
) -> Reason | None:
    from geminids.run.stall_processes import cpu_percent

    if look is None:
        return None
    pid, since = look.processes[0].pid, _round(span.seconds)
    cpu = cpu_percent(before, look, [one.pid for one in look.processes])
    children = _children(list(look.processes[1:]), clean)
    if cpu is not None and cpu >= _BUSY_CPU:
        words = f"the CLI (pid {pid}) works, and has said nothing for {_time(span.seconds)}: {cpu:.0f} % CPU"
        return Reason(words, Stall(cause="busy", since_s=since, pid=pid, cpu=cpu, children=children))
    if look.peers and not situation.gateway:
        words = f"waiting for an answer for {_time(span.seconds)}: the CLI has a connection to {look.peers[0]} open"
        failed = situation.failed
        attempt = None if failed is None or failed.attempt is None else failed.attempt + 1
        of = situation.attempts if attempt else None
        words += f" (attempt {attempt})" if attempt else ""
        return Reason(words, Stall(cause="api", since_s=since, pid=pid, cpu=cpu, attempt=attempt, of=of))
    nothing = "no request is under way" if situation.gateway else "no connection is open"
    if look.peers is None and not situation.gateway:
        nothing = "whether a connection is open cannot be told"
    words = f"the CLI (pid {pid}) has done nothing for {_time(span.seconds)}: {', '.join([nothing, *_cpu_words(cpu)])}"
    return Reason(words, Stall(cause="idle", since_s=since, pid=pid, cpu=cpu, children=children))


def _children(found: Sequence[Seen], clean: Callable[[str], str]) -> tuple[StallProcess, ...]:
    return tuple(StallProcess(one.pid, _cut(clean(one.command))) for one in found[:_MOST_CHILDREN])


def _cpu_words(cpu: float | None) -> list[str]:
    if cpu is None:
        return []
    return ["no CPU"] if cpu < _IDLE_CPU else [f"{cpu:.0f} % CPU"]


def _cut(text: str, longest: int = _LONGEST) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _round(seconds: float) -> float:
    return round(max(seconds, 0.0), 1)


def _time(seconds: float) -> str:
    whole = round(max(seconds, 0.0))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"
