"""Drive async iterators in tasks of their own, so that their reader may stop, time out or be cancelled anywhere.

An async generator that yields inside a task group (as a run does) must be driven from one task, and no cancel scope may
open or close around a single step. A feed does that for its reader. Abort signals are here too.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import anyio
from anyio.lowlevel import current_token

from geminids.log import get_logger

__all__ = ["AbortSignal", "Deadline", "Feed", "until_set", "watch"]

_log = get_logger("adapters")

T = TypeVar("T")
_MOST = 1000
_PATIENCE = 10.0
_LOOK = 0.02
_running: set[asyncio.Task[None]] = set()


class AbortSignal(Protocol):
    """Stops a run from outside. The `Event` of anyio, asyncio, trio or threading is one."""

    def is_set(self) -> bool: ...


async def until_set(signal: AbortSignal) -> None:
    """Wait for a signal. A signal that this event loop cannot await (of a thread, of another loop) is polled."""
    wait = getattr(signal, "wait", None)
    if inspect.iscoroutinefunction(wait):
        try:
            await wait()
        except Exception as error:
            _log.debug("waiting for the stop signal failed; it is polled", error=error)
    while not signal.is_set():
        await anyio.sleep(_LOOK)


class Deadline:
    """An abort signal that is set this many seconds after it was made."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def is_set(self) -> bool:
        return time.monotonic() >= self._until

    async def wait(self) -> None:
        while not self.is_set():
            await anyio.sleep(max(0.0, self._until - time.monotonic()))


def watch(signal: AbortSignal | None, call: Callable[[], object]) -> Callable[[], None]:
    """Call `call` once when the signal is set. The returned function stops the watch."""
    if signal is None:
        return lambda: None
    scope = anyio.CancelScope()

    async def wait() -> None:
        with scope:
            try:
                await until_set(signal)
            except Exception as error:
                # A signal that cannot be read could never stop the run: treat it as set.
                _log.warning("the stop signal cannot be read; the run is stopped", error=error)
            call()

    _spawn(wait)
    return scope.cancel


class Feed(Generic[T]):
    """The items of one or more async iterators, as they arrive; each iterator is closed at the end."""

    def __init__(self, sources: Sequence[Callable[[], AsyncIterator[T]]]) -> None:
        self._sources = sources
        self._scopes = [anyio.CancelScope() for _ in sources]
        self._left = len(sources)
        self._items: deque[T] = deque()
        self._news = anyio.Event()
        self._room = anyio.Event()
        self._ended = anyio.Event()
        self.aborted = False
        self.error: BaseException | None = None
        """The exception of the last iterator that failed."""
        self._unwatch: Callable[[], None] = lambda: None

    def start(self, abort: AbortSignal | None = None) -> None:
        for source, scope in zip(self._sources, self._scopes, strict=True):
            _spawn(partial(self._drive, source, scope))
        self._unwatch = watch(abort, self._on_abort)

    async def arrival(self, *, heeding_abort: bool = True) -> None:
        """Wait for an item, the end of all iterators, an abort or a failure."""
        while not self._items and self._left and not self.error and not (heeding_abort and self.aborted):
            self._news = anyio.Event()
            await self._news.wait()

    @property
    def is_empty(self) -> bool:
        """Whether there is no item now."""
        return not self._items

    def take(self) -> T:
        """The next item, which there must be."""
        item = self._items.popleft()
        if len(self._items) < _MOST:
            self._room.set()
        return item

    def cancel(self) -> None:
        """Ask the iterators to end; `close` waits for them."""
        self._unwatch()
        for scope in self._scopes:
            scope.cancel()

    async def close(self) -> None:
        """Stop and close every iterator. One that takes too long is left to its own task."""
        self.cancel()
        self._items.clear()
        self._room.set()
        with anyio.move_on_after(_PATIENCE, shield=True):
            while self._left:
                await self._ended.wait()

    async def _drive(self, source: Callable[[], AsyncIterator[T]], scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await self._carry(source)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            # BaseException: one that leaves a system task of trio crashes the whole program.
            _log.debug("an adapter's events ended with an error", error=error)
            self.error = error
        finally:
            self._left -= 1
            self._news.set()
            if not self._left:
                self._ended.set()

    async def _carry(self, source: Callable[[], AsyncIterator[T]]) -> None:
        items = source()
        try:
            async for item in items:
                self._items.append(item)
                self._news.set()
                if len(self._items) >= _MOST:
                    # A slow reader pauses the iterators, which bounds the memory.
                    if self._room.is_set():
                        self._room = anyio.Event()
                    await self._room.wait()
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()

    def _on_abort(self) -> None:
        self.aborted = True
        self._news.set()


def _spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start a task that belongs to the event loop: a generator cannot hold a task group open across a yield."""
    loop = current_token().native_token
    if isinstance(loop, asyncio.AbstractEventLoop):
        task = loop.create_task(work())
        _running.add(task)
        task.add_done_callback(_running.discard)
    else:
        import trio

        trio.lowlevel.spawn_system_task(work, context=contextvars.copy_context())
