"""A chat on an event loop in a thread of its own: prompts go in, events and questions come out of a queue.

The main thread is left to the terminal: line editing and Ctrl-C work there alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from geminids.errors import GeminidsError
from geminids.events.cost import Cost
from geminids.events.model import Event, Notice, PermissionAsked, Usage
from geminids.options import Approval, Options
from geminids.run.result import Result
from geminids.warm.connection import Gone, RpcFailed
from geminids.warm.permissions.decide import Said
from geminids.warm.pool import Pool

if TYPE_CHECKING:
    from concurrent.futures import Future

    import anyio
    from anyio.from_thread import BlockingPortal

    from geminids.warm.chat import Chat
    from geminids.warm.chat_turn import ChatTurn

__all__ = ["ChatThread", "Heard", "Over", "Question"]


class Over(msgspec.Struct, frozen=True):
    """A turn is over; without a result where it was stopped before the chat was there."""

    result: Result | None = None


class Question:
    """A permission that waits for its answer."""

    def __init__(self, asked: PermissionAsked, portal: BlockingPortal, answered: anyio.Event) -> None:
        self.asked = asked
        self.withdrawn = False
        """Nobody waits for the answer any more: the turn was stopped, or the time is over."""
        self.said: Said | None = None
        self._portal = portal
        self._answered = answered

    def answer(self, said: Said) -> None:
        self.said = said
        self._portal.start_task_soon(self._answered.set)


Heard = Sequence[Event] | Question | Over


class ChatThread:
    """Opens the chat at once and in the background. All methods are for the main thread, none of them prints."""

    def __init__(self, options: Options, *, asks: bool) -> None:
        self.options = options
        self.heard: SimpleQueue[Heard] = SimpleQueue()
        self.notices: SimpleQueue[Notice] = SimpleQueue()
        self._asks = asks
        self._pool = Pool(options, size=1, on_notice=self.notices.put)
        self._stack = ExitStack()
        self._chat: Chat | None = None
        self._sending: ChatTurn | None = None
        self._waiting: anyio.CancelScope | None = None

    def __enter__(self) -> ChatThread:
        import anyio
        from anyio.from_thread import start_blocking_portal

        self._portal = self._stack.enter_context(start_blocking_portal("asyncio"))
        self._opened = self._portal.call(anyio.Event)
        self._leaving = self._portal.call(anyio.Event)
        self._opening = self._portal.call(anyio.CancelScope)
        self._living: Future[None] = self._portal.start_task_soon(self._live)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the turn that goes on, the chat, its process, and all that they have started."""
        with self._stack:
            self._portal.call(self._leave)
            self._living.result()

    @property
    def session_id(self) -> str | None:
        return self._chat.session_id if self._chat else self.options.resume

    @property
    def model(self) -> str | None:
        return self._chat.model if self._chat else self.options.model

    @property
    def mode(self) -> Approval:
        return self._chat.mode if self._chat else self.options.approval

    @property
    def usage(self) -> Sequence[Usage]:
        """The tokens of each turn so far."""
        return tuple(self._chat.usage) if self._chat else ()

    @property
    def costs(self) -> Sequence[Cost]:
        """What each turn so far has cost."""
        return tuple(self._chat.costs) if self._chat else ()

    @property
    def discarded(self) -> Sequence[int]:
        """The numbers of the requests whose answers the CLI discarded."""
        return tuple(self._chat.discarded) if self._chat else ()

    def send(self, prompt: str, fields: dict[str, Any] | None = None) -> None:
        """Begin a turn; what comes of it, `Over` last, is put into `heard`."""
        self._portal.start_task_soon(self._turn, prompt, fields or {})

    def stop(self, reason: str) -> None:
        """Ask the turn to end; asked again, it ends at once."""
        self._portal.call(self._stop, reason)

    def set_model(self, model: str) -> None:
        self._portal.call(self._set, "set_model", model)

    def set_mode(self, mode: str) -> None:
        self._portal.call(self._set, "set_mode", mode)

    # On the loop.

    async def _live(self) -> None:
        try:
            async with self._pool as pool:
                chat = pool.chat(on_permission=self._decide if self._asks else None)
                with self._opening:
                    await chat.__aenter__()
                    self._chat = chat
                self._opened.set()
                await self._leaving.wait()  # the pool closes its chats
        finally:
            self._opened.set()

    def _leave(self) -> None:
        self._leaving.set()
        self._opening.cancel()

    async def _turn(self, prompt: str, fields: dict[str, Any]) -> None:
        import anyio

        over = Over()
        try:
            with anyio.CancelScope() as self._waiting:
                await self._opened.wait()
            self._waiting = None
            if self._chat is None or not self._opened.is_set():
                return
            async with self._chat.send(prompt, **fields) as self._sending:
                while (batch := await self._sending.next_batch()) is not None:
                    self.heard.put(batch)
                await self._sending.done.wait()
            over = Over(self._sending.result)
        finally:
            self._sending = None
            self.heard.put(over)

    def _stop(self, reason: str) -> None:
        if self._sending is not None:
            self._sending.stop(reason)
        elif self._waiting is not None:
            self._waiting.cancel()

    async def _set(self, method: str, value: str) -> None:
        await self._opened.wait()
        assert self._chat is not None
        try:
            await getattr(self._chat, method)(value)
        except (RpcFailed, Gone) as error:
            raise GeminidsError(
                f"{value} was not taken: {str(error) or 'the CLI is gone'}", hint="Try another one."
            ) from None

    async def _decide(self, asked: PermissionAsked) -> Said:
        import anyio

        answered = anyio.Event()
        question = Question(asked, self._portal, answered)
        self.heard.put(question)
        try:
            await answered.wait()
        finally:
            question.withdrawn = True
        assert question.said is not None
        return question.said
