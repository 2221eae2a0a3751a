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

# What may be said anew with each prompt; all else belongs to the chat.
_OF_A_TURN = (
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
    """What a chat needs of its pool."""

    @property
    def budgets(self) -> tuple[BaseBudget, ...]: ...
    def begin(self, work: Callable[[_T], Coroutine[Any, Any, None]], about: _T) -> None:
        """Run `work(about)` to its end, whatever becomes of the caller."""

    def turn_ended(self, process: WarmProcess | None) -> None: ...
    def closed(self, chat: Chat) -> None: ...


class Chat:
    """One conversation. Made by `Pool.chat`; leaving its block ends its turn and the shells that it has left."""

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
        """What each turn so far has cost."""
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
        self._one_at_a_time: anyio.Lock | None = None
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
        """The session that the conversation is in now; after a handover it is another one."""
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
        """Send a prompt; iterate what this returns for its events. `fields` are options of this turn alone.

        One turn goes on at a time; a second one waits for the first.
        """
        strange = [name for name in fields if name not in _OF_A_TURN]
        if strange:
            raise GeminidsError(
                f"{', '.join(strange)}: belongs to the chat, not to one prompt",
                hint="Say it when the chat is opened, or use set_model and set_mode.",
            )
        if not self._open:
            raise GeminidsError(
                "the chat is not open", hint="Use it within `async with pool.chat(…) as chat`."
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
        """Another model from the next prompt on."""
        async with self._lock:
            await self._conversation.set_model(model)

    async def set_mode(self, mode: Approval) -> None:
        """Another approval mode from the next prompt on; raises `GeminidsError` where the folder forbids it."""
        async with self._lock:
            await self._conversation.set_mode(mode)

    def stop(self) -> None:
        """Ask the turn that goes on, and those that wait behind it, to end."""
        for turn in self._turns:
            turn.stop()

    async def close(self) -> None:
        """End the turn that goes on, the shells that are left, and let the session go."""
        import anyio

        if self._open:
            self._open = False
            self._closed = anyio.Event()
            self._host.begin(self._close, self._closed)
        if self._closed is not None:
            await see_through(self._closed)

    async def _close(self, over: anyio.Event) -> None:
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
            over.set()

    @property
    def _lock(self) -> anyio.Lock:
        import anyio

        if self._one_at_a_time is None:
            self._one_at_a_time = anyio.Lock()
        return self._one_at_a_time
