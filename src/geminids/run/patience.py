"""Waiting for an end that must be seen, whoever is in a hurry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import anyio

__all__ = ["see_through"]


async def see_through(over: anyio.Event, hurry: Callable[[], None] | None = None) -> None:
    """Wait until it is over. Who is cancelled meanwhile is let go then, and not before; `hurry` is called each time.

    asyncio's own `task.cancel()` knows no shield.
    """
    import anyio

    again: BaseException | None = None
    while not over.is_set():
        try:
            with anyio.CancelScope(shield=True):
                await over.wait()
        except anyio.get_cancelled_exc_class() as cancelled:
            again = cancelled
            if hurry is not None:
                hurry()
    if again is not None:
        raise again
