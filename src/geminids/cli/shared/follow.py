"""Follow a run until it ends: print and save its events, and stop the run when a signal arrives."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING

import anyio
import click

from geminids.cli.shared.signals import stop_on_signals
from geminids.errors import GeminidsError
from geminids.events.model import Event, encode_event
from geminids.outcome import EXIT_CODES
from geminids.run.result import Result
from geminids.views import plain
from geminids.views.plain import DialectOutput

if TYPE_CHECKING:
    from geminids.cli.shared.ask_permission import Asker
    from geminids.run.run import Run
    from geminids.views.terminal.terminal import TerminalView
    from geminids.warm.owner.run import RemoteRun

__all__ = ["follow"]

# After the run was stopped, wait this number of seconds for a reader of stdout that does not read.
_READER_TIMEOUT = 1.0
_TICK = 0.1


def follow(
    run: Run | RemoteRun,
    output: str,
    sink: IO[bytes] | None,
    asker: Asker | None = None,
    printer: DialectOutput | None = None,
) -> Result:
    """Print the events of a run until the run ends, and return the result of the run.

    `output` is the format. Events are also saved to `sink`, if it is set. `asker` asks the user for
    permissions. If the format is a dialect (the format of another program), `printer` prints the
    events.

    If the program that reads stdout has ended, this process exits with code 141.
    """
    follower = _Follower(run, output, sink, asker, printer)
    try:
        anyio.run(follower.follow)
    finally:
        follower.close()
    if follower.stuck:
        # A thread is blocked, because nobody reads what it writes. A normal exit would wait for the
        # thread.
        os._exit(EXIT_CODES["interrupted"])
    if follower.write_error is not None:
        raise GeminidsError(
            f"cannot write the output: {follower.write_error}", hint="Check the free disk space."
        )
    if follower.reader_gone:
        # Do not raise BrokenPipeError: click would exit with code 1.
        raise click.exceptions.Exit(141)
    return run.result


class _Follower:
    """Prints and saves the events of a run.

    Events are printed in a separate thread. So the timeouts of the run still work if the program
    that reads stdout, such as a pager, stops reading.
    """

    def __init__(
        self,
        run: Run | RemoteRun,
        output: str,
        sink: IO[bytes] | None,
        asker: Asker | None,
        printer: DialectOutput | None,
    ) -> None:
        self._run = run
        self._sink = sink
        self._asker = asker
        self._view = _terminal_view(run, asker) if output == "pretty" else None
        self._show: Callable[..., None]
        self._close: Callable[[], None]
        view = self._view or printer
        self._show, self._close = (view.show, view.close) if view else _plain_printer(output, run)
        self.reader_gone = False
        self.stuck = False
        self.write_error: str | None = None

    async def follow(self) -> None:
        self._stopped = anyio.Event()
        self._write_lock = anyio.CapacityLimiter(1)
        if self._asker is not None:
            self._asker.writing = self._write_lock
        async with anyio.create_task_group() as tasks, self._run:
            tasks.start_soon(stop_on_signals, self._run, self._on_stop)
            if self._view:
                tasks.start_soon(self._show_stopping, self._view)
                if self._view.live:
                    tasks.start_soon(self._tick, self._view)
            while (batch := await self._run.next_batch()) is not None:
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
            self._write_now(self._close)

    async def _write(self, write: Callable[..., None], *events: Event) -> None:
        """Call `write` with these events in a separate thread, and wait until the call has ended.

        After the run was stopped, wait at most one second, because the program that reads stdout
        may no longer read. Do nothing if stdout has already failed.
        """
        if self.stuck or self.reader_gone or self.write_error:
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._abandon_write, tasks.cancel_scope)
            await anyio.to_thread.run_sync(
                self._write_now, write, *events, abandon_on_cancel=True, limiter=self._write_lock
            )
            tasks.cancel_scope.cancel()
        if self.reader_gone or self.write_error:
            # Stop the run in the normal way, so that its last events are still saved.
            self._run.stop()

    async def _abandon_write(self, scope: anyio.CancelScope) -> None:
        await self._stopped.wait()
        await anyio.sleep(_READER_TIMEOUT)
        self.stuck = True
        scope.cancel()

    def _write_now(self, write: Callable[..., None], *events: Event) -> None:
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
            while rest:  # the file is unbuffered, so a write can write only a part
                rest = rest[self._sink.write(rest) :]
        except OSError as error:
            # Stop the run, because a recording with missing events is not useful.
            self._sink = None
            self.write_error = f"--save-events: {error.strerror}"
            self._run.stop()

    async def _tick(self, view: TerminalView) -> None:
        """Update the status line regularly, so that the time in it is right even while no events
        arrive."""
        while True:
            await anyio.sleep(_TICK)
            await self._write(view.tick)

    async def _show_stopping(self, view: TerminalView) -> None:
        await self._stopped.wait()
        await self._write(view.stopping)


def _terminal_view(run: Run | RemoteRun, asker: Asker | None) -> TerminalView:
    from geminids.views.terminal.terminal import TerminalView

    if asker is not None:
        from geminids.views.permission import AskingView

        asker.view = AskingView(offline=run.options.is_scripted, home=str(run.options.home))
        return asker.view
    return TerminalView(offline=run.options.is_scripted, home=str(run.options.home))


def _plain_printer(output: str, run: Run | RemoteRun) -> tuple[Callable[..., None], Callable[[], None]]:
    """Return two functions for the format `output`: one prints events, the other flushes stdout."""
    if output == "events":
        return plain.print_events, plain.flush
    return (plain.print_answer if run.options.schema is None else plain.print_value), plain.flush
