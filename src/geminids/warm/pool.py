"""The pool: warm processes, bounded in number and in what they hold, shared by chats that can share them."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from geminids.errors import GeminidsError, OptionsError
from geminids.events.model import Notice
from geminids.events.numbering import EventNumbers
from geminids.launch.build import build_warm
from geminids.launch.plan import WarmPlan
from geminids.launch.prepare import prepare
from geminids.launch.write import write
from geminids.options import Options, make_options
from geminids.run.accounting.cost import check_prices
from geminids.run.schema.answer_schema import schema_option
from geminids.run.starter import with_one_try_per_request
from geminids.run.stopping import see_through
from geminids.warm.chat import Chat
from geminids.warm.permissions.decide import OnPermission
from geminids.warm.process import WarmProcess
from geminids.warm.session import Conversation, GoOn

if TYPE_CHECKING:
    import anyio
    from anyio.abc import TaskGroup

    from geminids.gateway.registry import OpenLease
    from geminids.spending.budget import BaseBudget, Budget

__all__ = ["GoOn", "Pool", "ProcessStatus"]

_T = TypeVar("_T")
MEGABYTE = 1024 * 1024
# Asked whether it is well where it has said nothing for so long.
_QUIET = 5.0
_LOOK = 0.25
# In turns.
_LOOK_AT_MEMORY = 10


class ProcessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One warm process: what it runs, how much it serves, what it holds."""

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
    """Warm processes for many chats.

    At most `size` processes, each with at most `chats` chats at a time; who comes when all is taken waits. A
    process is retired (no new chats, and ended with its last one) after `sessions` sessions, after `turns` turns,
    or when it holds more than `memory` bytes (with twice as much it does not wait for its chats, which then go on
    elsewhere); one without chats is ended after `idle` seconds.
    `go_on` says how a conversation goes on whose process is gone: `handover` (a new session is told all of it) or
    `resume` (headless, from the session's file).
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
        wrong = [(name, "must be at least 1") for name, value in limits.items() if value < 1]
        if go_on not in ("handover", "resume"):
            wrong.append(("go_on", "is neither 'handover' nor 'resume'"))
        if wrong:
            raise OptionsError(wrong)
        self._size, self._chats, self._sessions, self._turns = size, chats, sessions, turns
        self._memory, self.idle = memory, idle
        self._on_permission = on_permission
        self._on_notice = on_notice
        self._processes: list[WarmProcess] = []
        self._open: dict[int, int] = {}
        """How many chats each process has, by the mark that it was given."""
        self._idle_since: dict[int, float] = {}
        self._living: set[Chat] = set()
        self._changed: anyio.Event | None = None
        self._tasks: TaskGroup | None = None
        self._keeper: OpenLease | None = None
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
        """A conversation, to be used as a block; raises `OptionsError` for bad options at once.

        `environ` stands for this process's own variables.
        """
        if self._tasks is None:
            raise GeminidsError("the pool is not open", hint="Use it within `async with Pool(…) as pool`.")
        given = fields.pop("schema", options.schema if options is not None else self.options.schema)
        schema, fields["schema"] = schema_option(given)
        merged = make_options(options or self.options, **fields)
        wrong = [
            (name, why)
            for name, why in (
                ("session_id", "cannot be chosen for a chat: the CLI makes it"),
                ("telemetry", "is written by a process, not by a chat"),
            )
            if getattr(merged, name)
        ]
        if wrong:
            raise OptionsError(wrong)
        chat = Chat(self, merged, on_permission or self._on_permission, schema, environ)
        self._living.add(chat)
        return chat

    def status(self) -> list[ProcessStatus]:
        """The processes that there are."""
        now = time.monotonic()
        return [
            ProcessStatus(
                pid=one.pid,
                version=one.plan.gemini.version,
                chats=self._open.get(id(one), 0),
                sessions=one.sessions,
                turns=one.turns,
                memory=one.memory(),
                age=now - one.made_at,
                idle=now - since if (since := self._idle_since.get(id(one))) is not None else None,
                retiring=one.retiring,
            )
            for one in self._processes
        ]

    async def __aenter__(self) -> Pool:
        import anyio

        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        self._changed = anyio.Event()
        tasks.start_soon(self._tend)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import anyio

        assert self._tasks is not None
        over = anyio.Event()
        self._tasks.start_soon(self._close, over)
        try:
            await see_through(over)
        finally:
            self._tasks.cancel_scope.cancel()
            # The block's own error is not handed to the task group, which would wrap it.
            await self._tasks.__aexit__(None, None, None)
            self._tasks = None

    async def _close(self, over: anyio.Event) -> None:
        """End all turns at once, then the chats, then the processes."""
        import anyio

        try:
            with anyio.CancelScope(shield=True):
                for chat in self._living:
                    chat.stop()
                for chat in list(self._living):
                    await chat.close()
                for process in self._processes:
                    process.stop()
                for process in list(self._processes):
                    await process.gone()
        finally:
            if self._keeper is not None:
                self._keeper.close()
            over.set()

    # What chats need of their pool.

    def begin(self, work: Callable[[_T], Coroutine[Any, Any, None]], about: _T) -> None:
        """Let something be done whatever becomes of the caller."""
        assert self._tasks is not None
        self._tasks.start_soon(work, about)

    def plan_for(self, options: Options, conversation: Conversation) -> WarmPlan:
        """What these options come to; raises `Refused`."""
        # The CLI would count the turns of the whole session: each prompt's are counted on our side.
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
        if lease.is_open and (self._keeper is None or not self._keeper.usable):
            from geminids.gateway.registry import keep_open

            # Its processes know the address: it stays while they live, whether a chat is open or not.
            self._keeper = keep_open()
        return plan

    async def place_for(self, conversation: Conversation) -> tuple[WarmPlan, WarmProcess]:
        """A process with room for one more chat; waits where all is taken. Raises what opening it raises."""
        import anyio

        options = conversation.options
        plan = self.plan_for(options, conversation)
        while True:
            process = self._with_room(plan)
            if process is None:
                assert self._changed is not None
                await self._changed.wait()
                continue
            self._open[id(process)] = self._open.get(id(process), 0) + 1
            self._idle_since.pop(id(process), None)
            # From now on the conversation leaves the process, also if it cannot be opened.
            conversation.process = process
            with anyio.fail_after(options.start_timeout):
                await process.open()
                if not process.sessions or await self.is_well(process):
                    process.mask(plan.secrets)
                    return plan, process
            process.stop()
            conversation.process = None
            self.left(process)

    async def is_well(self, process: WarmProcess) -> bool:
        """Whether a process that has been quiet for a while still answers."""
        if time.monotonic() - process.heard_at < _QUIET:
            return process.alive
        return await process.is_well()

    def turn_ended(self, process: WarmProcess | None) -> None:
        """See whether a process has served or grown enough."""
        if process is None:
            return
        memory = process.memory() if process.turns % _LOOK_AT_MEMORY == 0 else 0
        if process.turns >= self._turns or memory > self._memory:
            process.retiring = True
            self._let_go(process)
        if memory > 2 * self._memory and not process.busy:
            # Too much to wait for its chats: each goes on elsewhere with its next turn.
            process.stop()

    def left(self, process: WarmProcess) -> None:
        """A chat has left its process."""
        key = id(process)
        self._open[key] = max(0, self._open.get(key, 0) - 1)
        own = process.plan.route.kind == "gateway" and not process.plan.signs_in_sessions
        if own or process.sessions >= self._sessions or process.memory() > self._memory:
            # `own`: the token of the chat that left is in its environment, so no other chat can use it.
            process.retiring = True
        if not self._open[key]:
            self._idle_since[key] = time.monotonic()
            self._let_go(process)
        self._wake()

    def closed(self, chat: Chat) -> None:
        self._living.discard(chat)

    # Its processes.

    def _with_room(self, plan: WarmPlan) -> WarmProcess | None:
        fitting = [
            one
            for one in self._processes
            if one.alive
            and not one.retiring
            and one.plan.key == plan.key
            and self._open.get(id(one), 0) < self._chats
            and one.sessions < self._sessions
        ]
        if fitting:
            return min(fitting, key=lambda one: self._open.get(id(one), 0))
        if len(self._processes) < self._size:
            return self._spawn(plan)
        for one in self._processes:
            if not self._open.get(id(one), 0) and not one.retiring:
                one.stop()  # its place is taken when it is gone
                break
        return None

    def _spawn(self, plan: WarmPlan) -> WarmProcess:
        assert self._tasks is not None
        process = WarmProcess(plan, grace=self.options.grace, line_limit=self.options.line_limit)
        process.start()
        if self._keeper is not None:
            self._keeper.begin()
        self._processes.append(process)
        self._tasks.start_soon(self._serve, process)
        return process

    async def _serve(self, process: WarmProcess) -> None:
        try:
            await process.serve()
        finally:
            self._processes.remove(process)
            self._open.pop(id(process), None)
            self._idle_since.pop(id(process), None)
            self._wake()
            self._tell_ended(process)

    def _tell_ended(self, process: WarmProcess) -> None:
        """What no chat could be told to own ended with its process: somebody must hear of it."""
        others = [one for one in process.ended if one.pid != process.pid]
        if others and self._on_notice is not None:
            what = ", ".join(f"{one.pid} {process.redactor.text(one.command)[:80]}" for one in others)
            text = f"ended with a warm process, since no chat could be told to own them: {what}"
            self._on_notice(self._numbers.notice("warning", "leftovers", text))

    def _let_go(self, process: WarmProcess) -> None:
        if process.retiring and not self._open.get(id(process), 0):
            process.stop()

    async def _tend(self) -> None:
        """End what has been idle for too long."""
        import anyio

        while True:
            await anyio.sleep(min(_LOOK, self.idle / 4))
            now = time.monotonic()
            for process in list(self._processes):
                since = self._idle_since.get(id(process))
                if since is not None and now - since >= self.idle and not process.retiring:
                    process.stop()

    def _wake(self) -> None:
        import anyio

        waiting, self._changed = self._changed, anyio.Event()
        if waiting is not None:
            waiting.set()
