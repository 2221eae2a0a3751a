"""The headless lane: one `gemini --output-format stream-json` process a run, from spawn to `Finished`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from geminids.config.places import Places, private_dir
from geminids.events.fold import Fold
from geminids.events.from_stream import StreamTranslator
from geminids.events.ledger import Ledger
from geminids.events.model import EndedProcess, Event, Retry, Started
from geminids.launch.plan import Plan
from geminids.options import Options
from geminids.process.child import Child, spawn
from geminids.process.guard import guard_run, release_run
from geminids.process.lines import LineFramer
from geminids.process.marker import Mark, new_mark, with_mark
from geminids.redact import Redactor
from geminids.run.deadlines import Deadlines
from geminids.run.outbox import Outbox
from geminids.wire.endings import Ending, Evidence, judge
from geminids.wire.stderr import Remark, StderrReader
from geminids.wire.stream_json import decode_block, error_of

if TYPE_CHECKING:
    import anyio

    from geminids.process.tree import Ended

__all__ = ["HeadlessLane"]

# How long the pipes may stay open after the process is gone, where a process that was kept holds them.
_DRAIN = 0.3
# A pipe of ours holds a megabyte; what a process that was kept says after that is not the CLI's.
_MOST_DRAINED = 1024 * 1024
_LONGEST_COMMAND = 200


class HeadlessLane:
    """Drives one attempt. `start` is synchronous, so that the CLI loads while Python still imports."""

    def __init__(
        self, plan: Plan, options: Options, run_id: str, ledger: Ledger, outbox: Outbox, fold: Fold
    ) -> None:
        self._plan = plan
        self._options = options
        self._run_id = run_id
        self._ledger = ledger
        self._outbox = outbox
        self._fold = fold
        self._redactor = Redactor(plan.secrets)
        self._lines = LineFramer(options.line_limit)
        self._stderr_lines = LineFramer(limit=1024 * 1024)
        self._stderr = StderrReader()
        self._unsent = b""
        self._over: anyio.Event | None = None
        self._asked = False
        self._hurry = False
        self._stop_reason: str | None = None
        self._stopped_by_deadline = False
        self._result_came_first = False
        self._ended: list[Ended] = []
        self.stream = StreamTranslator(ledger, self._redactor)
        self.deadlines = Deadlines(options)
        self.mark: Mark = new_mark(run_id)
        self.child: Child | None = None

    def start(self) -> None:
        """Spawn the CLI and hand it the prompt; raises OSError where the system says no."""
        guard_run(self.mark)
        try:
            child = spawn(self._plan.argv, cwd=self._plan.cwd, env=with_mark(self._plan.env, self.mark))
        except OSError:
            release_run(self.mark)
            raise
        self.child = child
        self.deadlines.started()
        # The CLI waits half a second for the first byte of its stdin: it is there before the CLI looks.
        self._unsent = child.write_now(self._plan.stdin)
        if not self._unsent:
            child.close_stdin()
        self._put(
            [
                Started(
                    at=int(time.time() * 1000),
                    seq=self._ledger.next(),
                    attempt=self._ledger.attempt,
                    turn=self._ledger.turn,
                    run_id=self._run_id,
                    session_id=self._plan.session_id,
                    model=self._options.model,
                    cwd=self._plan.cwd,
                    cli_version=self._plan.gemini.version,
                    lane="headless",
                    pid=child.pid,
                )
            ]
        )

    def stop(self, reason: str) -> None:
        """The caller asks for the end; asked a second time, the grace is cut short."""
        self._hurry = self._asked
        self._asked = True
        self._begin_to_stop(reason, by_deadline=False)

    def leave(self, reason: str) -> None:
        """The caller is gone: stop, but whoever has asked for that before has not asked twice."""
        if not self._asked:
            self.stop(reason)

    def _on_deadline(self, reason: str) -> None:
        self._begin_to_stop(reason, by_deadline=reason != LINGERING)

    def _begin_to_stop(self, reason: str, *, by_deadline: bool) -> None:
        if self._stop_reason is not None:
            return
        self._stop_reason = reason
        self._stopped_by_deadline = by_deadline
        # What the CLI makes of being stopped is no result of its own.
        self._result_came_first = self.stream.result is not None
        if self._over is not None:
            self._over.set()

    async def drive(self) -> None:
        """See the child through to its end, and everything of it gone."""
        import anyio

        assert self.child is not None
        self._over = anyio.Event()
        if self._stop_reason is not None:
            self._over.set()
        try:
            async with anyio.create_task_group() as tasks:
                stdout_read, stderr_read = anyio.Event(), anyio.Event()
                tasks.start_soon(self._read_stdout, stdout_read)
                tasks.start_soon(self._read_stderr, stderr_read)
                tasks.start_soon(self._watch_exit)
                tasks.start_soon(self.deadlines.watch, self._on_deadline)
                if self._unsent:
                    tasks.start_soon(self.child.feed, self._unsent)
                await self._over.wait()
                self._outbox.lift()
                await self._end_processes()
                with anyio.move_on_after(_DRAIN):
                    await stdout_read.wait()
                    await stderr_read.wait()
                tasks.cancel_scope.cancel()
        except BaseException:
            # No time for grace: the event loop is being taken down, or we have made a mistake.
            self._end_now()
            raise
        finally:
            self._drain()
            self.child.close()
            release_run(self.mark)
            self._finish_streams()

    def ending(self) -> Ending:
        """What it was."""
        if self._stop_reason is None or self._stop_reason == LINGERING:
            return self._judge()
        if self._result_came_first or self._said_success:
            return self._judge()
        return Ending("timed_out" if self._stopped_by_deadline else "interrupted", self._stop_reason)

    def redacted(self, text: str) -> str:
        return self._redactor.text(text)

    @property
    def exit_code(self) -> int | None:
        return self.child.exit_code if self.child else None

    @property
    def session_id(self) -> str | None:
        init = self.stream.init
        return (init.session_id if init else None) or self._plan.session_id

    @property
    def ended(self) -> tuple[EndedProcess, ...]:
        return tuple(
            # Redacted before it is cut: half a secret would no longer be known for one.
            EndedProcess(
                one.pid, _cut(self._redactor.text(one.command)), "KILL" if one.signal == "KILL" else "TERM"
            )
            for one in self._ended
        )

    def _judge(self) -> Ending:
        result = self.stream.result
        error = error_of(result.error) if result else None
        return judge(
            Evidence(
                release=self._plan.release,
                exit_code=self.exit_code,
                result_status=result.status if result else None,
                error_type=error[0] if error else None,
                error_message=error[1] if error else None,
                error_lines=tuple((line.severity, line.message) for line in self.stream.errors),
                answer=self._fold.answer,
                stderr=self._stderr.tail,
            )
        )

    async def _end_processes(self) -> None:
        """The tree where we stop it, what is left where it ended by itself."""
        from geminids.process import stop  # imported late: psutil

        assert self.child is not None
        grace = self._options.grace
        keep = self._keeps_leftovers()

        def hurry() -> bool:
            return self._hurry

        if self.child.exit_code is None:
            # Done but lingering: what it has left on purpose stays, the CLI itself does not.
            ending = stop.end_child(self.child, grace, hurry=hurry) if keep else None
            self._ended = await (ending or stop.end_tree(self.child, self.mark, grace, hurry=hurry))
        elif not keep:
            self._ended = await stop.end_leftovers(self.mark, grace, hurry=hurry)
        if keep:
            self._record_kept()

    def _end_now(self) -> None:
        from geminids.process import stop

        assert self.child is not None
        if self._stop_reason is None:
            self._begin_to_stop("interrupted: the event loop was taken down", by_deadline=False)
        self._ended += stop.end_now(self.child, self.mark)

    @property
    def _said_success(self) -> bool:
        result = self.stream.result
        return result is not None and result.status == "success"

    def _keeps_leftovers(self) -> bool:
        """Only a run that succeeded, and that nobody stopped, may leave something on purpose."""
        stopped = self._stop_reason not in (None, LINGERING)
        return self._options.leftovers == "keep" and self._said_success and not stopped

    def _record_kept(self) -> None:
        """Leave word of what was left on purpose, for whoever looks for orphans later."""
        from geminids.process.tree import marked

        if not marked(str(self.mark)):
            return
        try:
            (private_dir(Places.of().kept) / self._run_id).touch(mode=0o600)
        except OSError as error:
            text = f"no record of the kept processes could be written: {error}"
            self._put([self._ledger.notice("warning", "kept", text)])

    async def _watch_exit(self) -> None:
        assert self.child is not None and self._over is not None
        await self.child.wait()
        self._over.set()

    async def _read_stdout(self, done: anyio.Event) -> None:
        import anyio

        assert self.child is not None
        while chunk := await self.child.read_stdout():
            self.deadlines.heard(stdout=True)
            self._take_stdout(chunk)
            await self._room()
            await anyio.lowlevel.checkpoint()
        self.deadlines.closed()
        done.set()

    async def _room(self) -> None:
        if self._outbox.full:
            # The consumer is slow, not the CLI: the idle clock stands still.
            with self.deadlines.paused():
                await self._outbox.room()

    def _take_stdout(self, chunk: bytes) -> None:
        block = self._lines.feed(chunk)
        if block or self._lines.dropped:
            self._take(block)

    def _take(self, block: bytes) -> None:
        """Whole lines, from bytes to events."""
        events = self.stream.translate(decode_block(block))
        self.deadlines.busy = self.stream.tools_running
        if self.stream.result is not None:
            self.deadlines.closed()
        self._put([*self._dropped(), *events] if self._lines.dropped else events, len(block))

    def _dropped(self) -> list[Event]:
        sizes, self._lines.dropped = self._lines.dropped, []
        limit = self._options.line_limit
        return [
            self._ledger.notice(
                "warning", "line_too_long", f"a line of {size:,} bytes was dropped (limit {limit:,})"
            )
            for size in sizes
        ]

    async def _read_stderr(self, done: anyio.Event) -> None:
        import anyio

        assert self.child is not None
        while chunk := await self.child.read_stderr():
            self.deadlines.heard(stdout=False)
            self._take_stderr(self._stderr_lines.feed(chunk))
            await self._room()
            await anyio.lowlevel.checkpoint()
        done.set()

    def _take_stderr(self, block: bytes) -> None:
        if self._stderr_lines.dropped:
            sizes, self._stderr_lines.dropped = self._stderr_lines.dropped, []
            self._put([self._told(self._stderr.dropped(size)) for size in sizes])
        if block:
            text = self._redactor.block(block).decode("utf-8", "replace")
            self._put([self._told(remark) for remark in self._stderr.read(text)], len(block))

    def _told(self, remark: Remark) -> Event:
        retry = Retry(remark.attempt, remark.http_status) if remark.code == "retry" else None
        return self._ledger.notice(remark.level, remark.code, remark.message, retry)

    def _drain(self) -> None:
        """What the pipes hold when their readers are gone: on a busy event loop they may have come too late."""
        assert self.child is not None
        for read, take in (
            (self.child.stdout_now, self._take_stdout),
            (self.child.stderr_now, lambda chunk: self._take_stderr(self._stderr_lines.feed(chunk))),
        ):
            left = _MOST_DRAINED
            while left > 0 and (chunk := read()):
                left -= len(chunk)
                take(chunk)

    def _finish_streams(self) -> None:
        """What the pipes still held, an unfinished last line, and the tools that were cut off."""
        rest = self._lines.rest()
        if rest.strip():
            self._take(rest)
        elif self._lines.dropped:
            self._put(self._dropped())
        self._take_stderr(self._stderr_lines.rest())
        self._put([self._told(remark) for remark in self._stderr.finish()])
        self._put(self.stream.finish())

    def _put(self, events: list[Event], size: int = 0) -> None:
        self._fold.add(events)
        self._outbox.put(events, size)


def _cut(command: str) -> str:
    return command if len(command) <= _LONGEST_COMMAND else command[: _LONGEST_COMMAND - 3] + "..."


LINGERING = "the CLI closed its output and did not exit"
