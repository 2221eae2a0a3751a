"""Why a run is silent: what is known of it in a moment becomes a cause and a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminids.events.model import Level, PermissionAsked
from geminids.events.stall import Stall
from geminids.run.stall.situation import Failed, Moment, Span
from geminids.run.stall.tools import Reason, shell_reason, tool_reason
from geminids.run.stall.words import children_of, cpu_words, cut, named, rounded, time_words

if TYPE_CHECKING:
    from geminids.gateway.under_way import UnderWay
    from geminids.run.stall.processes import Look

__all__ = ["level_of", "reason_of"]

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


def _request(request: UnderWay, moment: Moment) -> Reason:
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


def _of(request: UnderWay, cause: str, seconds: float, **more: object) -> Stall:
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
    words += ", and reads nothing" if moment.told_reads else ""
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
