"""Run a chat on an event loop in its own thread.

The main thread sends prompts to this thread and reads events from a queue. Only the main thread
uses the terminal, because line editing and Ctrl-C do not work in other threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import anyio
import msgspec
from anyio.from_thread import BlockingPortal, start_blocking_portal

from geminids.errors import GeminidsError
from geminids.events.cost import Cost
from geminids.events.model import Event, Notice, PermissionAsked, Usage
from geminids.options import Approval, Options
from geminids.run.result import Result
from geminids.warm.acp.connection import ProcessGone, RpcFailed
from geminids.warm.chat import Chat
from geminids.warm.chat_turn import ChatTurn
from geminids.warm.permissions.answer import PermissionAnswer
from geminids.warm.pool import Pool

__all__ = ["ChatThread", "Question", "TurnEnded", "Update"]


class TurnEnded(msgspec.Struct, frozen=True):
    """Reports the end of a turn.

    `result` is None if the turn was stopped before the CLI was ready.
    """

    result: Result | None = None


class Question:
    """A permission request that waits for the answer of the user."""

    def __init__(self, asked: PermissionAsked, portal: BlockingPortal, answered: anyio.Event) -> None:
        self.asked = asked
        self.withdrawn = False
        """Whether the answer is no longer needed: the turn was stopped or the request timed out."""
        self.answer: PermissionAnswer | None = None
        self._portal = portal
        self._answered = answered

    def set_answer(self, answer: PermissionAnswer) -> None:
        self.answer = answer
        self._portal.start_task_soon(self._answered.set)


Update = Sequence[Event] | Question | TurnEnded


class ChatThread:
    """Opens a chat on another thread, and runs its turns there.

    Call its public methods from the main thread. They print nothing.
    """

    def __init__(self, options: Options, *, asks: bool) -> None:
        self.options = options
        self.updates: SimpleQueue[Update] = SimpleQueue()
        self.notices: SimpleQueue[Notice] = SimpleQueue()
        self.asks = asks
        """Whether the user answers permission requests. If this is False, all requests are denied."""
        self._pool = Pool(options, size=1, on_notice=self.notices.put)
        self._stack = ExitStack()
        self._chat: Chat | None = None
        self._turn: ChatTurn | None = None
        self._waiting: anyio.CancelScope | None = None

    def __enter__(self) -> ChatThread:
        self._portal = self._stack.enter_context(start_blocking_portal("asyncio"))
        self._opened = self._portal.call(anyio.Event)
        self._leaving = self._portal.call(anyio.Event)
        self._opening = self._portal.call(anyio.CancelScope)
        self._task: Future[None] = self._portal.start_task_soon(self._run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the current turn, the chat, and the CLI process. Also end all processes that the turn
        or the CLI started."""
        with self._stack:
            self._portal.call(self._leave)
            self._task.result()

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

    def send(self, prompt: str, fields: dict[str, Any] | None = None) -> None:
        """Start a turn with this prompt, and return without waiting for the end of the turn.
        `fields` are options that apply only to this turn.

        The events and the permission requests of the turn are put into the queue `updates`. The
        last item of a turn is `TurnEnded`.
        """
        self._portal.start_task_soon(self._run_turn, prompt, fields or {})

    def stop(self, reason: str) -> None:
        """Ask the current turn to stop. A second call ends the turn immediately."""
        self._portal.call(self._stop, reason)

    def set_model(self, model: str) -> None:
        self._portal.call(self._set, "set_model", model)

    def set_mode(self, mode: str) -> None:
        self._portal.call(self._set, "set_mode", mode)

    # The methods below run on the event loop.

    async def _run(self) -> None:
        try:
            async with self._pool as pool:
                chat = pool.chat(on_permission=self._ask if self.asks else None)
                with self._opening:
                    await chat.__aenter__()
                    self._chat = chat
                self._opened.set()
                await self._leaving.wait()  # then the pool closes the chat
        finally:
            self._opened.set()

    def _leave(self) -> None:
        self._leaving.set()
        self._opening.cancel()

    async def _run_turn(self, prompt: str, fields: dict[str, Any]) -> None:
        ended = TurnEnded()
        try:
            with anyio.CancelScope() as self._waiting:
                await self._opened.wait()
            self._waiting = None
            if self._chat is None or not self._opened.is_set():
                return
            async with self._chat.send(prompt, **fields) as self._turn:
                while (batch := await self._turn.next_batch()) is not None:
                    self.updates.put(batch)
                await self._turn.done.wait()
            ended = TurnEnded(self._turn.result)
        finally:
            self._turn = None
            self.updates.put(ended)

    def _stop(self, reason: str) -> None:
        if self._turn is not None:
            self._turn.stop(reason)
        elif self._waiting is not None:
            self._waiting.cancel()

    async def _set(self, method: str, value: str) -> None:
        await self._opened.wait()
        assert self._chat is not None
        try:
            await getattr(self._chat, method)(value)
        except (RpcFailed, ProcessGone) as error:
            what = method.removeprefix("set_")
            raise GeminidsError(
                f"the {what} was not changed to {value!r}: {str(error) or 'the CLI process has ended'}",
                hint=None if isinstance(error, ProcessGone) else f"Try another {what}.",
            ) from None

    async def _ask(self, asked: PermissionAsked) -> PermissionAnswer:
        answered = anyio.Event()
        question = Question(asked, self._portal, answered)
        self.updates.put(question)
        try:
            await answered.wait()
        finally:
            question.withdrawn = True
        assert question.answer is not None
        return question.answer
