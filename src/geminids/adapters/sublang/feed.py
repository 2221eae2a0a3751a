"""Read async iterators in their own tasks, so that the caller can stop reading or be cancelled at
any time.

A run is an async generator that yields inside a task group. Such a generator must be read from
start to end by a single task, inside a single cancel scope. `Feed` reads generators in this way.

This module also defines abort signals: objects with which a caller stops a run.
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
_MAX_ITEMS = 1000
_CLOSE_TIMEOUT = 10.0
_POLL = 0.02
_running: set[asyncio.Task[None]] = set()


class AbortSignal(Protocol):
    """The interface of an object that stops a run: the run stops when `is_set()` returns true.

    An `Event` of anyio, asyncio, trio or threading has this interface.
    """

    def is_set(self) -> bool: ...


async def until_set(signal: AbortSignal) -> None:
    """Wait until `signal` is set.

    A signal that cannot be awaited, such as a `threading.Event`, is checked fifty times a second.
    """
    wait = getattr(signal, "wait", None)
    if inspect.iscoroutinefunction(wait):
        try:
            await wait()
        except Exception as error:
            _log.debug("cannot await the abort signal; polling it", error=error)
    while not signal.is_set():
        await anyio.sleep(_POLL)


class Deadline:
    """An abort signal that becomes set a given number of seconds after its creation."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def is_set(self) -> bool:
        return time.monotonic() >= self._until

    async def wait(self) -> None:
        while not self.is_set():
            await anyio.sleep(max(0.0, self._until - time.monotonic()))


def watch(signal: AbortSignal | None, call: Callable[[], object]) -> Callable[[], None]:
    """Watch `signal` in the background, and call `call` once when the signal is set. Return a
    function that stops the watching.

    If `signal` is None, `call` is never called.
    """
    if signal is None:
        return lambda: None
    scope = anyio.CancelScope()

    async def wait() -> None:
        with scope:
            try:
                await until_set(signal)
            except Exception as error:
                # A signal that cannot be read could never stop the run: treat it as set.
                _log.warning("cannot read the abort signal; stopping the run", error=error)
            call()

    _spawn(wait)
    return scope.cancel


class Feed(Generic[T]):
    """Collects the items of one or more async iterators as they arrive, and closes the iterators."""

    def __init__(self, sources: Sequence[Callable[[], AsyncIterator[T]]]) -> None:
        self._sources = sources
        self._scopes = [anyio.CancelScope() for _ in sources]
        self._active = len(sources)
        self._items: deque[T] = deque()
        self._changed = anyio.Event()
        self._has_space = anyio.Event()
        self._ended = anyio.Event()
        self.aborted = False
        self.error: BaseException | None = None
        """The exception of the last iterator that failed."""
        self._unwatch: Callable[[], None] = lambda: None

    def start(self, abort: AbortSignal | None = None) -> None:
        for source, scope in zip(self._sources, self._scopes, strict=True):
            _spawn(partial(self._drive, source, scope))
        self._unwatch = watch(abort, self._on_abort)

    async def arrival(self, *, until_abort: bool = True) -> None:
        """Wait until an item arrives, all iterators have ended, or an iterator fails. With
        `until_abort`, also stop waiting when the abort signal is set."""
        while not self._items and self._active and not self.error and not (until_abort and self.aborted):
            self._changed = anyio.Event()
            await self._changed.wait()

    @property
    def is_empty(self) -> bool:
        """Whether `take` has no item to return at the moment."""
        return not self._items

    def take(self) -> T:
        """Return the next item. Call this only if `is_empty` is false."""
        item = self._items.popleft()
        if len(self._items) < _MAX_ITEMS:
            self._has_space.set()
        return item

    def cancel(self) -> None:
        """Cancel the tasks that read the iterators. This method does not wait until they end;
        `close` does."""
        self._unwatch()
        for scope in self._scopes:
            scope.cancel()

    async def close(self) -> None:
        """Cancel and close every iterator. Wait until all have ended, but at most ten seconds."""
        self.cancel()
        self._items.clear()
        self._has_space.set()
        with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
            while self._active:
                await self._ended.wait()

    async def _drive(self, source: Callable[[], AsyncIterator[T]], scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await self._collect(source)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:
            # Also catch BaseException: an exception that leaves a system task of trio would crash
            # the program.
            _log.debug("the events of an adapter ended with an error", error=error)
            self.error = error
        finally:
            self._active -= 1
            self._changed.set()
            if not self._active:
                self._ended.set()

    async def _collect(self, source: Callable[[], AsyncIterator[T]]) -> None:
        items = source()
        try:
            async for item in items:
                self._items.append(item)
                self._changed.set()
                if len(self._items) >= _MAX_ITEMS:
                    # The reader is slow: wait until it takes items, to limit the memory.
                    if self._has_space.is_set():
                        self._has_space = anyio.Event()
                    await self._has_space.wait()
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()

    def _on_abort(self) -> None:
        self.aborted = True
        self._changed.set()


def _spawn(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start a task that belongs to the event loop, not to a task group.

    A task group cannot be used, because a generator must not keep one open across a `yield`.
    """
    loop = current_token().native_token
    if isinstance(loop, asyncio.AbstractEventLoop):
        task = loop.create_task(work())
        _running.add(task)
        task.add_done_callback(_running.discard)
    else:
        import trio  # optional: a program without trio never gets here

        trio.lowlevel.spawn_system_task(work, context=contextvars.copy_context())
