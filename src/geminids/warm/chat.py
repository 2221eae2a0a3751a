"""A chat: one conversation whose turns are prompts in a session of a warm process."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from geminids.errors import GeminidsError
from geminids.events.cost import Cost
from geminids.events.model import Usage
from geminids.ids import new_run_id
from geminids.options import Approval, Options, make_options
from geminids.run.accounting.lease import RunLease
from geminids.run.result import Result
from geminids.run.schema.answer_schema import schema_option
from geminids.run.session_claim import Claim
from geminids.run.stopping import see_through
from geminids.warm.chat_turn import ChatTurn
from geminids.warm.permissions.decide import OnPermission
from geminids.warm.process import WarmProcess
from geminids.warm.session import Conversation, Processes

if TYPE_CHECKING:
    import anyio

    from geminids.run.schema.answer_schema import AnswerSchema
    from geminids.spending.budget import BaseBudget

__all__ = ["Chat", "ChatHost"]

_T = TypeVar("_T")

# Options that can be set per prompt; all others are set for the chat.
_TURN_OPTIONS = (
    "files",
    "grace",
    "idle_timeout",
    "images",
    "instructions",
    "literal",
    "max_turns",
    "permission_timeout",
    "schema",
    "schema_tries",
    "stall_after",
    "template",
    "timeout",
    "variables",
    "videos",
)


class ChatHost(Processes, Protocol):
    """The interface of a pool that a chat uses."""

    @property
    def budgets(self) -> tuple[BaseBudget, ...]: ...
    def begin(self, work: Callable[[_T], Coroutine[Any, Any, None]], argument: _T) -> None:
        """Run `work(argument)` as a task that continues if the caller is cancelled."""

    def turn_ended(self, process: WarmProcess | None) -> None: ...
    def closed(self, chat: Chat) -> None: ...


class Chat:
    """One conversation, created by `Pool.chat`. Leaving its block stops its turn and its background shells."""

    def __init__(
        self,
        host: ChatHost,
        options: Options,
        on_permission: OnPermission | None,
        schema: AnswerSchema | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.usage: list[Usage] = []
        """The tokens of each turn so far."""
        self.costs: list[Cost] = []
        """The cost of each turn so far."""
        self.discarded: list[int] = []
        """The numbers of the requests whose answers the CLI discarded."""
        lease = RunLease(options, whose="this chat", budgets=host.budgets, shares_process=True)
        self._conversation = Conversation(
            host, options, Claim(new_run_id()), lease, asks=on_permission is not None, environ=environ
        )
        self._host = host
        self._on_permission = on_permission
        self._schema = schema
        self._turns: set[ChatTurn] = set()
        self._turn_lock: anyio.Lock | None = None
        self._open = False
        self._closed: anyio.Event | None = None

    @property
    def options(self) -> Options:
        return self._conversation.options

    @property
    def model(self) -> str | None:
        return self.options.model

    @property
    def mode(self) -> Approval:
        return self.options.approval

    @property
    def session_id(self) -> str | None:
        """The current session of the conversation; a handover changes it."""
        return self._conversation.session_id

    async def __aenter__(self) -> Chat:
        self._open = True
        await self._conversation.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def send(self, prompt: str, **fields: Any) -> ChatTurn:
        """Send a prompt; iterate the turn for its events. `fields` are options for this turn only.

        One turn runs at a time; a second one waits for the first.
        """
        invalid = [name for name in fields if name not in _TURN_OPTIONS]
        if invalid:
            raise GeminidsError(
                f"{', '.join(invalid)}: cannot be set for one prompt",
                hint="Set it when you open the chat, or use set_model and set_mode.",
            )
        if not self._open:
            raise GeminidsError(
                "the chat is not open", hint="Use it inside `async with pool.chat(…) as chat`."
            )
        schema = self._schema
        if "schema" in fields:
            schema, fields["schema"] = schema_option(fields["schema"])
        options = make_options(self.options, **fields) if fields else self.options
        turn = ChatTurn(self._conversation, prompt, options, self._on_permission, schema, self._ended)
        self._turns.add(turn)
        self._host.begin(self._drive, turn)
        return turn

    async def ask(self, prompt: str, **fields: Any) -> Result:
        """Send a prompt and wait for its end. A failed turn is reported in the result, not raised."""
        async with self.send(prompt, **fields) as turn:
            async for _ in turn:
                pass
        return turn.result

    async def _drive(self, turn: ChatTurn) -> None:
        try:
            await turn.drive(self._lock)
        finally:
            self._turns.discard(turn)
            self._host.turn_ended(self._conversation.process)

    def _ended(self, result: Result) -> None:
        if result.usage is not None:
            self.usage.append(result.usage)
        if result.cost is not None:
            self.costs.append(result.cost)
        self.discarded += result.discarded

    async def set_model(self, model: str) -> None:
        """Use another model from the next prompt on."""
        async with self._lock:
            await self._conversation.set_model(model)

    async def set_mode(self, mode: Approval) -> None:
        """Use another approval mode from the next prompt on; raises `GeminidsError` if the folder forbids it."""
        async with self._lock:
            await self._conversation.set_mode(mode)

    def stop(self) -> None:
        """Request the end of the running turn and of the turns that wait for it."""
        for turn in self._turns:
            turn.stop()

    async def close(self) -> None:
        """Stop the turns, end the background shells, and release the session."""
        import anyio

        if self._open:
            self._open = False
            self._closed = anyio.Event()
            self._host.begin(self._close, self._closed)
        if self._closed is not None:
            await see_through(self._closed)

    async def _close(self, done: anyio.Event) -> None:
        import anyio

        try:
            with anyio.CancelScope(shield=True):
                self.stop()
                for turn in list(self._turns):
                    await turn.done.wait()
                await self._conversation.release_process()
                self._conversation.close()
        finally:
            self._host.closed(self)
            done.set()

    @property
    def _lock(self) -> anyio.Lock:
        import anyio

        if self._turn_lock is None:
            self._turn_lock = anyio.Lock()
        return self._turn_lock
