"""A pool of warm processes: CLI processes that stay alive, and that chats share.

The pool limits the number of processes and their load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup

from geminids.errors import GeminidsError, OptionsError
from geminids.events.model import Notice
from geminids.events.numbering import EventNumbers
from geminids.gateway.registry import OpenLease, keep_open
from geminids.launch.build import build_warm
from geminids.launch.plan import WarmPlan
from geminids.launch.prepare import prepare
from geminids.launch.write import write
from geminids.options import Options, make_options
from geminids.run.accounting.cost import check_prices
from geminids.run.schema.answer_schema import schema_option
from geminids.run.starter import with_one_try_per_request
from geminids.run.stopping import wait_shielded
from geminids.spending.budget import BaseBudget, Budget
from geminids.warm.acp.spawn import spawn_warm
from geminids.warm.chat import Chat
from geminids.warm.conversation import GoOn, WarmConversation
from geminids.warm.permissions.answer import OnPermission

if TYPE_CHECKING:
    from geminids.warm.acp.process import WarmProcess

__all__ = ["GoOn", "Pool", "ProcessStatus"]

_T = TypeVar("_T")
MEGABYTE = 1024 * 1024
# If a process has sent nothing for this many seconds, the pool checks that the process answers
# before a chat uses it.
_PING_AFTER = 5.0
_IDLE_CHECK = 0.25
# Check the memory of a process when its number of turns is a multiple of this number.
_MEMORY_CHECK_TURNS = 10


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of one warm process.

    `memory` is in bytes. `age` and `idle` are in seconds; `idle` is None if the process has chats.
    `retiring` is True if the process gets no new chats.
    """

    pid: int
    version: str | None
    chats: int
    sessions: int
    turns: int
    memory: int
    age: float
    idle: float | None
    retiring: bool


class Pool:
    """A pool of warm processes that many chats share.

    The pool starts at most `size` processes. A process has at most `chats` chats at a time; further
    chats wait. A process without chats stops after `idle` seconds.

    A process retires after `sessions` sessions, after `turns` turns, or when it uses more than
    `memory` bytes. A retired process gets no new chats, and stops after its last chat. If a process
    uses more than twice `memory` at the end of a turn, and no other turn runs in it, it is stopped
    at once. Its chats continue in another process.

    `go_on` selects how a conversation continues if its process ends. With `handover`, a new session
    receives the conversation as text. With `resume`, a headless run resumes the conversation from
    the session's file.
    """

    def __init__(
        self,
        options: Options | None = None,
        /,
        *,
        size: int = 4,
        chats: int = 30,
        sessions: int = 120,
        turns: int = 5000,
        memory: int = 1000 * MEGABYTE,
        idle: float = 300.0,
        go_on: GoOn = "handover",
        on_permission: OnPermission | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        budget: Budget | None = None,
        **fields: Any,
    ) -> None:
        self.options = make_options(options, **fields)
        self.go_on: GoOn = go_on
        self.budgets: tuple[BaseBudget, ...] = () if budget is None else (budget,)
        limits = {"size": size, "chats": chats, "sessions": sessions, "turns": turns, "memory": memory}
        invalid = [(name, "must be at least 1") for name, value in limits.items() if value < 1]
        if go_on not in ("handover", "resume"):
            invalid.append(("go_on", "must be 'handover' or 'resume'"))
        if invalid:
            raise OptionsError(invalid)
        self._size, self._chats, self._sessions, self._turns = size, chats, sessions, turns
        self._memory, self.idle = memory, idle
        self._on_permission = on_permission
        self._on_notice = on_notice
        self._processes: list[WarmProcess] = []
        self._chat_counts: dict[int, int] = {}
        """The number of chats of each process, by `id(process)`."""
        self._idle_since: dict[int, float] = {}
        self._open_chats: set[Chat] = set()
        self._changed = anyio.Event()
        self._tasks: TaskGroup | None = None
        self._gateway_lease: OpenLease | None = None
        self._numbers = EventNumbers()

    def chat(
        self,
        options: Options | None = None,
        /,
        *,
        on_permission: OnPermission | None = None,
        environ: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Chat:
        """Create a chat, to be used with `async with`.

        If `environ` is set, the chat uses these variables instead of the environment of this
        process. `fields` are options of the chat. Raises `OptionsError` for invalid options.
        """
        if self._tasks is None:
            raise GeminidsError(
                "the pool is not open", hint="Use the pool inside `async with Pool(…) as pool`."
            )
        requested = fields.pop("schema", options.schema if options is not None else self.options.schema)
        schema, fields["schema"] = schema_option(requested)
        merged = make_options(options or self.options, **fields)
        invalid = [
            (name, problem)
            for name, problem in (
                ("session_id", "cannot be set for a chat: the CLI creates it"),
                ("telemetry", "cannot be set for a chat: all chats of a process share its telemetry file"),
            )
            if getattr(merged, name)
        ]
        if invalid:
            raise OptionsError(invalid)
        chat = Chat(self, merged, on_permission or self._on_permission, schema, environ)
        self._open_chats.add(chat)
        return chat

    def status(self) -> list[ProcessStatus]:
        """Return the status of each process."""
        now = time.monotonic()
        return [
            ProcessStatus(
                pid=process.pid,
                version=process.plan.gemini.version,
                chats=self._chat_counts.get(id(process), 0),
                sessions=process.sessions,
                turns=process.turns,
                memory=process.memory(),
                age=now - process.created_at,
                idle=now - since if (since := self._idle_since.get(id(process))) is not None else None,
                retiring=process.retiring,
            )
            for process in self._processes
        ]

    async def __aenter__(self) -> Pool:
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        self._changed = anyio.Event()
        tasks.start_soon(self._stop_idle_processes)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        done = anyio.Event()
        self._tasks.start_soon(self._close, done)
        try:
            await wait_shielded(done)
        finally:
            self._tasks.cancel_scope.cancel()
            # Do not pass the error of the caller's block: the task group would wrap it in an
            # exception group.
            await self._tasks.__aexit__(None, None, None)
            self._tasks = None

    async def _close(self, done: anyio.Event) -> None:
        """Stop all turns at the same time. Then close the chats, and then stop the processes."""
        try:
            with anyio.CancelScope(shield=True):
                for chat in self._open_chats:
                    chat.stop()
                for chat in list(self._open_chats):
                    await chat.close()
                for process in self._processes:
                    process.stop()
                for process in list(self._processes):
                    await process.wait_gone()
        finally:
            if self._gateway_lease is not None:
                self._gateway_lease.close()
            done.set()

    # These methods are called by chats.

    def start_task(self, work: Callable[[_T], Coroutine[Any, Any, None]], argument: _T) -> None:
        """Run `work(argument)` as a task of the pool.

        The task continues if the caller is cancelled.
        """
        assert self._tasks is not None
        self._tasks.start_soon(work, argument)

    def plan_for(self, options: Options, conversation: WarmConversation) -> WarmPlan:
        """Build the plan: all values that are needed to start a warm process and a session in it.

        Raises `Refused` if the options do not allow a warm process.
        """
        # Do not pass max_turns to the CLI: it counts turns per session, and we count them per
        # prompt.
        options = with_one_try_per_request(msgspec.structs.replace(options, max_turns=None, resume=None))
        check_prices(options)
        lease = conversation.lease
        context = prepare(
            options,
            transport="warm",
            asks=conversation.asks,
            environ=conversation.environ,
            budget=lease.has_budget,
        )
        plan = build_warm(context, lease.endpoint_for(context))
        write(plan)
        if lease.is_open and (self._gateway_lease is None or not self._gateway_lease.usable):
            # The processes have the gateway's address in their environment, so keep the gateway
            # open while they live.
            self._gateway_lease = keep_open()
        return plan

    async def acquire_process(self, conversation: WarmConversation) -> tuple[WarmPlan, WarmProcess]:
        """Wait for a process that can take one more chat. Return the plan and the process.

        Raises `Refused` if the options do not allow a warm process, and `OSError` if no process can
        be started. Raises `TimeoutError`, or an error of `WarmProcess.open`, if the process does
        not become ready.
        """
        options = conversation.options
        plan = self.plan_for(options, conversation)
        while True:
            process = self._find_process(plan)
            if process is None:
                await self._changed.wait()
                continue
            self._chat_counts[id(process)] = self._chat_counts.get(id(process), 0) + 1
            self._idle_since.pop(id(process), None)
            # From now on, the conversation must release the process, even if `open` fails.
            conversation.process = process
            with anyio.fail_after(options.start_timeout):
                await process.open()
                if not process.sessions or await self.is_responsive(process):
                    process.mask(plan.secrets)
                    return plan, process
            process.stop()
            conversation.process = None
            self.release_process(process)

    async def is_responsive(self, process: WarmProcess) -> bool:
        """Return whether the process answers.

        A process that has sent something in the last five seconds is not tested. In this case,
        return whether the process is alive.
        """
        if time.monotonic() - process.last_update_at < _PING_AFTER:
            return process.alive
        return await process.is_responsive()

    def turn_ended(self, process: WarmProcess | None) -> None:
        """Check the limits of a process after a turn. Do nothing if `process` is None.

        If the process has reached a limit, it gets no new chats, and stops after its last chat. If
        it uses more than twice the allowed memory, and no turn runs in it, it is stopped at once.
        """
        if process is None:
            return
        memory = process.memory() if process.turns % _MEMORY_CHECK_TURNS == 0 else 0
        if process.turns >= self._turns or memory > self._memory:
            process.retiring = True
            self._stop_if_unused(process)
        if memory > 2 * self._memory and not process.busy:
            # It uses far too much memory, so do not wait for the end of its chats. Each chat
            # continues in another process at its next turn.
            process.stop()

    def release_process(self, process: WarmProcess) -> None:
        """Record that a chat has left the process.

        A process that has reached a limit gets no new chats, and stops after its last chat. The
        same applies to a process that has the gateway token of one chat in its environment: other
        chats cannot use this process.
        """
        key = id(process)
        self._chat_counts[key] = max(0, self._chat_counts.get(key, 0) - 1)
        has_chat_token = process.plan.route.kind == "gateway" and not process.plan.signs_in_sessions
        if has_chat_token or process.sessions >= self._sessions or process.memory() > self._memory:
            # No other chat can use a process that has one chat's token in its environment.
            process.retiring = True
        if not self._chat_counts[key]:
            self._idle_since[key] = time.monotonic()
            self._stop_if_unused(process)
        self._notify_waiters()

    def emit_notice(self, code: str, text: str) -> None:
        if self._on_notice is not None:
            self._on_notice(self._numbers.notice("warning", code, text))

    def chat_closed(self, chat: Chat) -> None:
        self._open_chats.discard(chat)

    # Start and stop processes.

    def _find_process(self, plan: WarmPlan) -> WarmProcess | None:
        """Return a process for the plan: among the processes that fit, the one with the fewest
        chats.

        If no process fits, start a new process and return it. If the pool is full, return None, and
        stop one process that has no chats, if there is one. A new process can start when that
        process has ended.
        """
        fitting = [
            process
            for process in self._processes
            if process.alive
            and not process.retiring
            and process.plan.key == plan.key
            and self._chat_counts.get(id(process), 0) < self._chats
            and process.sessions < self._sessions
        ]
        if fitting:
            return min(fitting, key=lambda process: self._chat_counts.get(id(process), 0))
        if len(self._processes) < self._size:
            return self._spawn(plan)
        for process in self._processes:
            if not self._chat_counts.get(id(process), 0) and not process.retiring:
                process.stop()  # a new process can start when this one has ended
                break
        return None

    def _spawn(self, plan: WarmPlan) -> WarmProcess:
        assert self._tasks is not None
        options = self.options
        cli = spawn_warm(plan)
        from geminids.warm.acp.process import WarmProcess  # imported while the CLI loads

        process = WarmProcess(plan, cli, grace=options.grace, line_limit=options.line_limit)
        if self._gateway_lease is not None:
            self._gateway_lease.begin()
        self._processes.append(process)
        self._tasks.start_soon(self._serve, process)
        return process

    async def _serve(self, process: WarmProcess) -> None:
        try:
            await process.serve()
        finally:
            self._processes.remove(process)
            self._chat_counts.pop(id(process), None)
            self._idle_since.pop(id(process), None)
            self._notify_waiters()
            self._report_ended(process)

    def _report_ended(self, process: WarmProcess) -> None:
        """Emit a notice about the processes that were ended together with a warm process.

        The pool does not know which chat started these processes, so another chat may still have
        needed them.
        """
        others = [ended for ended in process.ended if ended.pid != process.pid]
        if others:
            listed = ", ".join(f"{ended.pid} {process.redactor.text(ended.command)[:80]}" for ended in others)
            text = (
                "these processes were ended together with a warm process, "
                f"because it is unknown which chat started them: {listed}"
            )
            self.emit_notice("leftovers", text)

    def _stop_if_unused(self, process: WarmProcess) -> None:
        if process.retiring and not self._chat_counts.get(id(process), 0):
            process.stop()

    async def _stop_idle_processes(self) -> None:
        """Stop processes that have had no chat for `idle` seconds."""
        while True:
            await anyio.sleep(min(_IDLE_CHECK, self.idle / 4))
            now = time.monotonic()
            for process in list(self._processes):
                since = self._idle_since.get(id(process))
                if since is not None and now - since >= self.idle and not process.retiring:
                    process.stop()

    def _notify_waiters(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()
