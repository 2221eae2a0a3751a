"""What another thread tells reaches the run's loop, whichever that is."""

from __future__ import annotations

import os
import threading
from collections import deque

import anyio
import pytest

from geminids.run.mailbox import Mailbox


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_letters_from_another_thread_wake_the_loop(backend: str) -> None:
    """In their order, none lost, on both kinds of loop."""

    async def main() -> list[int]:
        box: Mailbox[int] = Mailbox()
        thread = threading.Thread(target=lambda: deque(map(box.put, range(1000)), maxlen=0))
        found: list[int] = []
        with anyio.fail_after(10):
            thread.start()
            while len(found) < 1000:
                await box.wait()
                found += box.take()
        thread.join()
        box.close()
        return found

    assert anyio.run(main, backend=backend) == list(range(1000))


def test_what_comes_before_and_after_is_kept() -> None:
    """Before there is a loop, and after it has gone; closing twice does no harm."""
    box: Mailbox[str] = Mailbox()
    box.put("early")

    async def main() -> None:
        with anyio.fail_after(1):
            await box.wait()

    anyio.run(main)
    assert box.take() == ["early"]
    box.close()
    box.close()
    box.put("late")
    assert box.take() == ["late"]


def test_waking_without_a_letter() -> None:
    """Whoever waits for something else looks again."""

    async def main() -> None:
        box: Mailbox[int] = Mailbox()

        async def wake() -> None:
            await anyio.sleep(0.01)
            box.wake()

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wake)
                await box.wait()
        assert box.take() == []
        box.close()

    anyio.run(main)


def test_no_descriptor_is_left() -> None:
    """A hundred boxes that were waited for."""
    before = len(os.listdir("/proc/self/fd"))

    async def main() -> None:
        for number in range(100):
            box: Mailbox[int] = Mailbox()
            with anyio.move_on_after(0):
                await box.wait()
            box.put(number)
            box.close()

    anyio.run(main)
    assert len(os.listdir("/proc/self/fd")) <= before + 1
