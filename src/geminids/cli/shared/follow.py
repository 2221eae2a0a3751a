"""Follow a run to its end: print and save its events, and stop it on signals."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING

import click

from geminids.cli.shared.signals import stop_on_signals
from geminids.errors import GeminidsError
from geminids.events.model import Event, encode_event
from geminids.outcome import EXIT_CODES
from geminids.run.result import Result

if TYPE_CHECKING:
    from anyio import CancelScope

    from geminids.cli.shared.ask_permission import Asker
    from geminids.run.run import Run
    from geminids.views.plain import DialectOutput
    from geminids.views.terminal.terminal import TerminalView
    from geminids.warm.owner.owner_run import RemoteRun

__all__ = ["follow"]

# After a stop, wait this long for a blocked reader of stdout.
_READER_TIMEOUT = 1.0
_TICK = 0.1


def follow(
    agent: Run | RemoteRun,
    output: str,
    sink: IO[bytes] | None,
    asker: Asker | None = None,
    printer: DialectOutput | None = None,
) -> Result:
    """Read the events to the end. Exit with 141 if the reader of stdout is gone.

    `printer` prints the events if the output is a dialect.
    """
    import anyio

    follower = _Follower(agent, output, sink, asker, printer)
    try:
        anyio.run(follower.follow)
    finally:
        follower.close()
    if follower.stuck:
        # A thread is blocked in a write that nobody reads: a normal exit would wait for it.
        os._exit(EXIT_CODES["interrupted"])
    if follower.write_error is not None:
        raise GeminidsError(f"cannot write the output: {follower.write_error}")
    if follower.reader_gone:
        # Not BrokenPipeError: click turns it into exit code 1.
        raise click.exceptions.Exit(141)
    return agent.result


class _Follower:
    """Writes in a thread: a reader that blocks (a paused pager) must not delay the deadlines."""

    def __init__(
        self,
        agent: Run | RemoteRun,
        output: str,
        sink: IO[bytes] | None,
        asker: Asker | None,
        printer: DialectOutput | None,
    ) -> None:
        self._agent = agent
        self._sink = sink
        self._asker = asker
        self._view = _terminal_view(agent, asker) if output == "pretty" else None
        self._show: Callable[..., None]
        self._close: Callable[[], None]
        view = self._view or printer
        self._show, self._close = (view.show, view.close) if view else _plain(output, agent)
        self.reader_gone = False
        self.stuck = False
        self.write_error: str | None = None

    async def follow(self) -> None:
        import anyio

        self._stopped = anyio.Event()
        self._write_lock = anyio.CapacityLimiter(1)
        if self._asker is not None:
            self._asker.writing = self._write_lock
        async with anyio.create_task_group() as tasks, self._agent:
            tasks.start_soon(stop_on_signals, self._agent, self._on_stop)
            if self._view:
                tasks.start_soon(self._show_stopping, self._view)
                if self._view.live:
                    tasks.start_soon(self._tick, self._view)
            while (batch := await self._agent.next_batch()) is not None:
                self._save(batch)
                await self._write(self._show, *batch)
                if self._asker is not None:
                    self._asker.shown(batch)
            tasks.cancel_scope.cancel()

    def _on_stop(self) -> None:
        self._stopped.set()
        if self._asker is not None:
            self._asker.stopped()

    def close(self) -> None:
        if not self.stuck:
            self._put(self._close)

    async def _write(self, write: Callable[..., None], *events: Event) -> None:
        """Write in the thread; after a stop, give up on a reader that blocks."""
        import anyio

        if self.stuck or self.reader_gone or self.write_error:
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._abandon_write, tasks.cancel_scope)
            await anyio.to_thread.run_sync(
                self._put, write, *events, abandon_on_cancel=True, limiter=self._write_lock
            )
            tasks.cancel_scope.cancel()
        if self.reader_gone or self.write_error:
            # Stop the run in order: its last events are still saved.
            self._agent.stop()

    async def _abandon_write(self, scope: CancelScope) -> None:
        import anyio

        await self._stopped.wait()
        await anyio.sleep(_READER_TIMEOUT)
        self.stuck = True
        scope.cancel()

    def _put(self, write: Callable[..., None], *events: Event) -> None:
        try:
            if not self.reader_gone:
                write(*events)
        except BrokenPipeError:
            self.reader_gone = True
        except OSError as error:
            self.write_error = f"stdout: {error.strerror}"

    def _save(self, batch: Sequence[Event]) -> None:
        if self._sink is None:
            return
        rest = memoryview(b"".join(encode_event(event) + b"\n" for event in batch))
        try:
            while rest:  # the file is unbuffered, so a write may be partial
                rest = rest[self._sink.write(rest) :]
        except OSError as error:
            # Stop the run: a recording with gaps is of no use.
            self._sink = None
            self.write_error = f"--save-events: {error.strerror}"
            self._agent.stop()

    async def _tick(self, view: TerminalView) -> None:
        """Update the elapsed time while no events arrive."""
        import anyio

        while True:
            await anyio.sleep(_TICK)
            await self._write(view.tick)

    async def _show_stopping(self, view: TerminalView) -> None:
        await self._stopped.wait()
        await self._write(view.stopping)


def _terminal_view(agent: Run | RemoteRun, asker: Asker | None) -> TerminalView:
    from geminids.views.terminal.terminal import TerminalView

    if asker is not None:
        from geminids.views.permission import AskingView

        asker.view = AskingView(offline=agent.options.offline, home=str(agent.options.home))
        return asker.view
    return TerminalView(offline=agent.options.offline, home=str(agent.options.home))


def _plain(output: str, agent: Run | RemoteRun) -> tuple[Callable[..., None], Callable[[], None]]:
    """The functions that print a batch of events and flush the output."""
    from geminids.views import plain

    if output == "events":
        return plain.print_events, plain.flush
    return (plain.print_answer if agent.options.schema is None else plain.print_value), plain.flush
