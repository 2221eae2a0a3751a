"""A chat: a conversation whose prompts are sent to a session of a warm process.

A warm process is a CLI process that stays alive between prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import anyio

from geminids.errors import GeminidsError
from geminids.events.cost import Cost
from geminids.events.model import Usage
from geminids.ids import new_run_id
from geminids.options import Approval, Options, make_options
from geminids.run.accounting.lease import RunLease
from geminids.run.result import Result
from geminids.run.schema.answer_schema import AnswerSchema, schema_option
from geminids.run.session_claim import Claim
from geminids.run.stopping import wait_shielded
from geminids.spending.budget import BaseBudget
from geminids.warm.chat_turn import ChatTurn
from geminids.warm.conversation import ProcessProvider, WarmConversation
from geminids.warm.permissions.answer import OnPermission

if TYPE_CHECKING:
    from geminids.warm.acp.process import WarmProcess

__all__ = ["Chat", "ChatHost"]

_T = TypeVar("_T")

# These options can be set for each prompt. All others can be set only for the whole chat.
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


class ChatHost(ProcessProvider, Protocol):
    """The methods of a pool that a chat uses."""

    @property
    def budgets(self) -> tuple[BaseBudget, ...]: ...
    def start_task(self, work: Callable[[_T], Coroutine[Any, Any, None]], argument: _T) -> None:
        """Run `work(argument)` as a task. The task continues if the caller is cancelled."""

    def emit_notice(self, code: str, text: str) -> None:
        """Send the caller a warning that belongs to no turn."""

    def turn_ended(self, process: WarmProcess | None) -> None: ...
    def chat_closed(self, chat: Chat) -> None: ...


class Chat:
    """One conversation. `Pool.chat` creates it.

    Leaving its `async with` block stops its turns. It also ends shell commands that run in the
    background, unless the option `leftovers` is `keep`.
    """

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
        """The numbers of the API requests whose answers the CLI discarded."""
        lease = RunLease(options, owner_text="this chat", budgets=host.budgets, shares_process=True)
        self._conversation = WarmConversation(
            host, options, Claim(new_run_id()), lease, asks=on_permission is not None, environ=environ
        )
        self._host = host
        self._on_permission = on_permission
        self._schema = schema
        self._turns: set[ChatTurn] = set()
        self._turn_lock = anyio.Lock()
        self._open = False
        self._has_succeeded = True
        """Whether the last turn succeeded."""
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
        """The id of the conversation's current session; None before the first session is open.

        The id changes when the conversation continues in a new session. The first prompt of the
        new session contains the earlier messages as text.
        """
        return self._conversation.session_id

    async def __aenter__(self) -> Chat:
        self._open = True
        await self._conversation.open_early()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def send(self, prompt: str, **fields: Any) -> ChatTurn:
        """Send a prompt and return the turn. Iterate over the turn to get its events.

        `fields` are options for this turn only. Only one turn runs at a time; a second turn waits
        until the first has ended.
        """
        invalid = [name for name in fields if name not in _TURN_OPTIONS]
        if invalid:
            raise GeminidsError(
                f"{', '.join(invalid)} cannot be set for one prompt",
                hint="Set the option when you open the chat, or use `set_model` and `set_mode`.",
            )
        if not self._open:
            raise GeminidsError(
                "the chat is not open", hint="Use the chat inside `async with pool.chat(…) as chat`."
            )
        schema = self._schema
        if "schema" in fields:
            schema, fields["schema"] = schema_option(fields["schema"])
        options = make_options(self.options, **fields) if fields else self.options
        turn = ChatTurn(self._conversation, prompt, options, self._on_permission, schema, self._add_result)
        self._turns.add(turn)
        self._host.start_task(self._drive, turn)
        return turn

    async def ask(self, prompt: str, **fields: Any) -> Result:
        """Send a prompt, wait for the end of its turn, and return the result.

        A failed turn does not raise an error: the result contains the failure.
        """
        async with self.send(prompt, **fields) as turn:
            async for _ in turn:
                pass
        return turn.result

    async def _drive(self, turn: ChatTurn) -> None:
        try:
            await turn.drive(self._turn_lock)
        finally:
            self._turns.discard(turn)
            self._host.turn_ended(self._conversation.process)

    def _add_result(self, result: Result) -> None:
        self._has_succeeded = result.ok
        if result.usage is not None:
            self.usage.append(result.usage)
        if result.cost is not None:
            self.costs.append(result.cost)
        self.discarded += result.discarded

    async def set_model(self, model: str) -> None:
        """Use another model, beginning with the next prompt."""
        async with self._turn_lock:
            await self._conversation.set_model(model)

    async def set_mode(self, mode: Approval) -> None:
        """Use another approval mode, beginning with the next prompt.

        Raises `GeminidsError` if the folder does not allow the mode.
        """
        async with self._turn_lock:
            await self._conversation.set_mode(mode)

    def stop(self) -> None:
        """Ask the running turn, and the turns that wait for it, to end."""
        for turn in self._turns:
            turn.stop()

    async def close(self) -> None:
        """Stop the turns, and release the session and its process.

        Shell commands that run in the background are ended, unless the option `leftovers` is
        `keep`.
        """
        if self._open:
            self._open = False
            self._closed = anyio.Event()
            self._host.start_task(self._close, self._closed)
        if self._closed is not None:
            await wait_shielded(self._closed)

    async def _close(self, done: anyio.Event) -> None:
        try:
            with anyio.CancelScope(shield=True):
                self.stop()
                for turn in list(self._turns):
                    await turn.done.wait()
                await self._conversation.release_process()
                lost = None if self._has_succeeded else self._conversation.lease.failed_recording
                self._conversation.close(keep_recording=self._has_succeeded)
                if lost is not None:
                    text = f"the last turn of the chat did not succeed: its recording is in {lost}"
                    self._host.emit_notice("record", text)
        finally:
            self._host.chat_closed(self)
            done.set()
