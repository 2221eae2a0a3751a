"""A snapshot of what a silent run waits for, and a key that changes when the run starts to wait for
a different thing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping

import msgspec

from geminids.events.model import PermissionAsked, ToolStarted
from geminids.gateway.messages import InFlightRequest
from geminids.gemini.protocol.stderr import StderrNotice
from geminids.options import Options
from geminids.run.gateway_events import GatewayEvents

__all__ = [
    "EARLY",
    "SHELL",
    "Failed",
    "ProcessInfo",
    "ProcessSnapshot",
    "Situation",
    "Span",
    "StallSnapshot",
    "cpu_percent",
    "key_of",
    "needs_look",
    "situation_of",
]

# The CLI sends a request to a named model at most this many times. With the model `auto`, it tries
# three times, and then uses another model.
_ATTEMPTS = 10
_TOO_MANY, _CLOSED, _SERVER = 429, 499, 500
# The start time of a process is exact to some hundredths of a second. If two start times differ by
# less than this (in seconds), they belong to the same process.
_SAME = 0.5


def situation_of(
    options: Options,
    pid: int,
    *,
    tools: tuple[ToolStarted, ...],
    gateway: GatewayEvents | None,
    retried: tuple[StderrNotice, float] | None,
    last_stdout_at: float,
    permission: tuple[PermissionAsked, float] | None = None,
    own: Callable[[], Collection[int]] | None = None,
) -> Situation:
    """Collect what is known about a run now.

    `retried` is the last retry that the CLI reported on stderr, with its time (monotonic). It is
    ignored if there is a gateway, or if it is older than `last_stdout_at`, the time of the last
    output on stdout.
    """
    attempts = _attempts(options, has_gateway=gateway is not None)
    failed = _by_stderr(retried, last_stdout_at) if gateway is None else _by_gateway(gateway)
    tried = failed.attempt if failed is not None else None
    if failed is not None and not (failed.is_awaited(time.monotonic()) and _is_tried(failed, attempts)):
        failed = None
    return Situation(
        pid=pid,
        permission=permission,
        tools=tools,
        gateway=gateway is not None,
        requests=() if gateway is None else tuple(gateway.in_flight),
        failed=failed,
        tried=tried,
        attempts=attempts,
        servers=tuple(
            (name, _words(server.command, server.args)) for name, server in options.mcp_servers.items()
        ),
        own=own,
    )


def _by_stderr(retried: tuple[StderrNotice, float] | None, last_stdout_at: float) -> Failed | None:
    if retried is None or retried[1] < last_stdout_at:
        return None
    remark, at = retried
    return Failed(remark.attempt, remark.http_status, at, remark.next_s, is_exact=remark.next_s is not None)


def _by_gateway(gateway: GatewayEvents) -> Failed | None:
    if gateway.failed is None:
        return None
    answer, at = gateway.failed
    status = answer.status if answer.status is not None and answer.status >= 400 else None
    # Even if the API asks for a shorter wait, the CLI waits as long as it usually does.
    wait = None if answer.retry_after is None else max(answer.retry_after, usual_wait(answer.attempt))
    held = answer.error if answer.held else None
    return Failed(answer.attempt, status, at, wait, answer.body, held=held)


def _is_tried(failed: Failed, attempts: int | None) -> bool:
    """Return whether the CLI sends the request again.

    The CLI gives up in two cases: all `attempts` are used up, or the API answered with a client
    error (HTTP 4xx) other than 429 and 499.
    """
    status = failed.http_status
    again = status is None or status in (_TOO_MANY, _CLOSED) or status >= _SERVER
    return again and (attempts is None or failed.attempt is None or failed.attempt < attempts)


def _attempts(options: Options, *, has_gateway: bool) -> int | None:
    uses_router = options.model in (None, "auto")
    if options.max_attempts is None:
        return None if uses_router else _ATTEMPTS
    # Only the gateway makes `max_attempts` apply to the requests of the router.
    return options.max_attempts if has_gateway or not uses_router else None


def _words(command: str | None, args: tuple[str, ...]) -> tuple[str, ...]:
    return () if command is None else (command, *args)


EARLY = 1.0
"""The process of a tool may start this many seconds before the CLI reports the tool."""
SHELL = "run_shell_command"
# The CLI waits before it sends a request again (core/src/utils/retry.ts of Gemini CLI): 5 s,
# doubled with each attempt up to 30 s, plus or minus 30 %.
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 30.0
_JITTER = 0.3
# On a busy machine, the CLI may need this many seconds to send a request after its wait.
_SENDING = 2.0


class Failed(msgspec.Struct, frozen=True):
    """A failed attempt of a request. The CLI may send the request again.

    `attempt` is the number of the attempt, `at` the time of the failure (monotonic), and `body`
    identifies the request. `wait` is the number of seconds between the failure and the next
    attempt; None means the usual wait. `is_exact` is True if the CLI itself reported the wait.
    `held` is the message of the gateway's own answer, if the gateway answered in place of the API
    because of a rate limit; otherwise None.
    """

    attempt: int | None
    http_status: int | None
    at: float
    wait: float | None = None
    body: int | None = None
    is_exact: bool = False
    held: str | None = None

    @property
    def whole_wait(self) -> float:
        return usual_wait(self.attempt) if self.wait is None else self.wait

    def next_in(self, now: float) -> float:
        """Return how many seconds remain until the CLI should send the next attempt.

        The value is negative if the attempt is late.
        """
        return self.whole_wait - (now - self.at)

    def is_awaited(self, now: float) -> bool:
        """Return whether the next attempt may still come. If not, the CLI has given up or hangs."""
        spread = 0.0 if self.is_exact else self.whole_wait * _JITTER
        return self.next_in(now) > -(spread + _SENDING)


def usual_wait(attempt: int | None) -> float:
    """Return how many seconds the CLI usually waits between this attempt of a request and the next.

    If the API asks for a longer wait, the CLI waits longer than this value.
    """
    return float(min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (min(attempt or 1, 10) - 1)))


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a run now.

    `permission` is an open permission request with its time. `tools` are the running tools.
    `gateway` is True if the requests go through the gateway. `requests` are the requests that have
    not ended; they are known only with the gateway.
    """

    pid: int | None = None
    permission: tuple[PermissionAsked, float] | None = None
    tools: tuple[ToolStarted, ...] = ()
    gateway: bool = False
    requests: tuple[InFlightRequest, ...] = ()
    failed: Failed | None = None
    """The last failed attempt of a request, while the next one is expected."""
    tried: int | None = None
    """The number of the last failed attempt of a request, or None.

    Unlike `failed`, it stays set when the next attempt is late.
    """
    attempts: int | None = None
    """The maximum number of times that the CLI sends a request; None if unknown."""
    servers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The name and the command line of each MCP server."""
    own: Callable[[], Collection[int]] | None = None
    """A function that returns the process ids of this chat's tools.

    None if no other chat uses the same CLI process.
    """

    @property
    def shells(self) -> tuple[ToolStarted, ...]:
        return tuple(tool for tool in self.tools if tool.name == SHELL)


class ProcessInfo(msgspec.Struct, frozen=True):
    """A process at one moment.

    `born` is its start time (Unix seconds), and `cpu` the CPU seconds that it has used. `stopped`
    is True if a signal such as SIGSTOP has paused it.
    """

    pid: int
    parent: int
    born: float
    command: str
    cpu: float
    stopped: bool = False


class ProcessSnapshot(msgspec.Struct, frozen=True):
    """The CLI and its descendants at the time `at` (monotonic).

    `processes` is empty if the processes cannot be inspected. `peers` are the addresses to which
    the CLI is connected, or None if unknown. `strays` are processes of the run that are no longer
    descendants of the CLI. At most 300 processes are inspected; `uncounted` is the number of the
    others.
    """

    at: float
    processes: tuple[ProcessInfo, ...]
    peers: tuple[str, ...] | None = None
    strays: tuple[ProcessInfo, ...] = ()
    uncounted: int = 0

    def below(self, pid: int) -> list[ProcessInfo]:
        """Return this process and its descendants, the oldest first."""
        pids = {pid}
        for _ in self.processes:
            more = {process.pid for process in self.processes if process.parent in pids} - pids
            if not more:
                break
            pids |= more
        return sorted(
            (process for process in self.processes if process.pid in pids), key=lambda process: process.born
        )


class Span(msgspec.Struct, frozen=True):
    """The time from the start of a silence until now.

    `silent` is the start and `now` the current time (both monotonic). `wall` is the current Unix
    time.
    """

    silent: float
    now: float
    wall: float

    @property
    def seconds(self) -> float:
        return self.now - self.silent


class StallSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All facts that are used to explain why a run is silent.

    `before` and `look` are two inspections of the processes, an earlier and a later one. `own` are
    the process ids that certainly belong to this chat; None if no other chat uses the CLI process.
    `allowed` maps the id of a tool call to the last time (Unix) at which the call waited for
    permission. `clean` is a function that masks secrets in a text.
    """

    situation: Situation
    span: Span
    clean: Callable[[str], str]
    before: ProcessSnapshot | None = None
    look: ProcessSnapshot | None = None
    own: Collection[int] | None = None
    allowed: Mapping[str, float] = {}

    def began(self, tool: ToolStarted) -> float:
        """Return the earliest time (Unix seconds) at which a tool can have started to run."""
        return max(tool.at / 1000, self.allowed.get(tool.id, 0.0))


def key_of(situation: Situation) -> Hashable:
    """Return a key that identifies what the run waits for.

    The key changes when the run starts to wait for something else. This function is called every
    second.
    """
    if situation.permission is not None:
        return "permission", situation.permission[0].id
    if situation.shells:
        return "tool", situation.shells[0].id
    if situation.requests:
        # `body` is the same for all attempts of a request.
        return "api", situation.requests[0].body
    if situation.gateway and situation.failed is not None:
        return "api", situation.failed.body
    return ("tool", situation.tools[0].id) if situation.tools else "cli"


def needs_look(situation: Situation) -> bool:
    """Return whether it helps to inspect the processes, to find out what the run waits for.

    It does not help if the run waits for permission.
    """
    return situation.permission is None


def cpu_percent(
    before: ProcessSnapshot | None, now: ProcessSnapshot | None, pids: Iterable[int]
) -> float | None:
    """Return the CPU percentage that these processes used between two inspections.

    Return None if an inspection is missing, or if no time has passed between the two.
    """
    if before is None or now is None or now.at <= before.at:
        return None
    earlier = {process.pid: process for process in before.processes}
    chosen = set(pids)
    used = sum(
        _spent(earlier.get(process.pid), process) for process in now.processes if process.pid in chosen
    )
    return round(used / (now.at - before.at) * 100, 1)


def _spent(before: ProcessInfo | None, now: ProcessInfo) -> float:
    # Compare the start times too, because the system may have used the pid for a new process.
    is_same = before is not None and abs(before.born - now.born) < _SAME
    return max(now.cpu - before.cpu, 0.0) if before is not None and is_same else now.cpu
