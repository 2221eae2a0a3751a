"""The conversation of `geminids chat`: it opens in the background, and runs one turn at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from geminids.errors import GeminidsError
from geminids.events.cost import Cost
from geminids.events.model import Event, Notice, PermissionAsked, ToolFinished, ToolStarted, Usage
from geminids.options import Approval, Options
from geminids.run.result import Result
from geminids.warm.acp.connection import ProcessGone, RpcFailed
from geminids.warm.chat import Chat
from geminids.warm.chat_turn import ChatTurn
from geminids.warm.permissions.answer import PermissionAnswer
from geminids.warm.pool import Pool

__all__ = ["ChatSession", "DeniedCall", "ShowEvents"]

ShowEvents = Callable[[Sequence[Event]], Awaitable[None]]
AskUser = Callable[[PermissionAsked], Awaitable[PermissionAnswer]]


class DeniedCall:
    """A tool call that was denied. The CLI's session file has neither its arguments nor the reason."""

    def __init__(self, title: str, command: str | None = None) -> None:
        self.title = title
        self.command = command
        """The exact command of a shell call; None for another tool."""
        self.reason: str | None = None


class ChatSession:
    """A conversation whose CLI starts while the user types the first prompt.

    Use it inside `async with session.opened()`. `asks` says whether a user answers permission
    requests; if not, they are all denied. `default_model` is the model that the user configured.
    """

    def __init__(self, options: Options, *, asks: bool, default_model: str | None = None) -> None:
        self.options = options
        self.asks = asks
        self.notices: list[Notice] = []
        """The notices about the processes that were ended at the end of the chat."""
        self.denied: dict[str, DeniedCall] = {}
        """The denied tool calls of all turns, by the id of the call."""
        self._default_model = default_model
        self._pool = Pool(options, size=1, on_notice=self.notices.append)
        self._chat: Chat | None = None
        self._is_open = anyio.Event()
        self._waiting: anyio.CancelScope | None = None
        self._turn: ChatTurn | None = None
        self._on_permission: AskUser | None = None
        self._calls: dict[str, DeniedCall] = {}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Inside this block, start the CLI and run turns. At its end, stop the CLI and all processes
        that it started."""
        async with self._pool as pool, anyio.create_task_group() as tasks:
            self._chat = pool.chat(on_permission=self._ask if self.asks else None)
            tasks.start_soon(self._open, self._chat)
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()

    async def _open(self, chat: Chat) -> None:
        await chat.__aenter__()  # the pool closes the chat
        self._is_open.set()

    @property
    def session_id(self) -> str | None:
        return self._chat.session_id if self._chat else self.options.resume

    @property
    def model(self) -> str | None:
        """The model of the next turns; None if Gemini CLI chooses it."""
        return (self._chat.model if self._chat else self.options.model) or self._default_model

    @property
    def mode(self) -> Approval:
        return self._chat.mode if self._chat else self.options.approval

    @property
    def usage(self) -> Sequence[Usage]:
        """The token usage of each turn so far, in the order of the turns."""
        return tuple(self._chat.usage) if self._chat else ()

    @property
    def costs(self) -> Sequence[Cost]:
        """The cost of each turn so far, in the order of the turns."""
        return tuple(self._chat.costs) if self._chat else ()

    @property
    def discarded(self) -> Sequence[int]:
        """The API requests whose answers the CLI did not use. Each item is the number of a request
        (`TokensUsed.request`)."""
        return tuple(self._chat.discarded) if self._chat else ()

    async def run_turn(
        self,
        prompt: str,
        fields: dict[str, Any],
        show: ShowEvents,
        on_permission: AskUser | None = None,
    ) -> Result | None:
        """Run a turn, and return its result; None if it was stopped before the CLI was ready.

        `fields` are options of this turn only. `show` is called with the events as they arrive.
        `on_permission` answers the permission requests of this turn.
        """
        assert self._chat is not None
        self._on_permission = on_permission
        with anyio.CancelScope() as self._waiting:
            await self._is_open.wait()
        stopped, self._waiting = self._waiting.cancelled_caught, None
        if stopped:
            return None
        turn = self._turn = self._chat.send(prompt, **fields)
        try:
            async with turn:
                while (batch := await turn.next_batch()) is not None:
                    self._note_denied(batch)
                    await show(batch)
                await turn.done.wait()
        finally:
            self._turn = None
        return turn.result

    def stop(self, reason: str) -> None:
        """Ask the current turn to stop. A second call ends the turn immediately."""
        if self._turn is not None:
            self._turn.stop(reason)
        elif self._waiting is not None:
            self._waiting.cancel()

    async def set_model(self, model: str) -> None:
        await self._set("model", model)

    async def set_mode(self, mode: str) -> None:
        await self._set("mode", mode)

    async def _set(self, what: str, value: str) -> None:
        await self._is_open.wait()
        try:
            await getattr(self._chat, f"set_{what}")(value)
        except (RpcFailed, ProcessGone) as error:
            raise GeminidsError(
                f"the {what} was not changed to {value!r}: {str(error) or 'the CLI process has ended'}",
                hint=None if isinstance(error, ProcessGone) else f"Try another {what}.",
            ) from None

    async def _ask(self, asked: PermissionAsked) -> PermissionAnswer:
        assert self._on_permission is not None
        return await self._on_permission(asked)

    def _note_denied(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, ToolStarted):
                self._calls[event.id] = DeniedCall(event.title)
            elif isinstance(event, PermissionAsked) and event.id in self._calls:
                self._calls[event.id].command = event.command
            elif isinstance(event, ToolFinished):
                call = self._calls.pop(event.id, None)
                if call is not None and event.status == "denied":
                    call.reason = event.error
                    self.denied[event.id] = call
