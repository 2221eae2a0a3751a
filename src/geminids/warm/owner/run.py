"""A run that the owner daemon serves. Callers use it like other runs.

If the daemon cannot serve the run, this process runs the CLI itself.
"""

from __future__ import annotations

import inspect
import time
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from geminids.config.paths import Places
from geminids.errors import GeminidsError
from geminids.events.model import Choice, Level, PermissionAsked, PermissionDecided
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.log import get_logger
from geminids.options import Options
from geminids.process.line_framer import LineFramer
from geminids.run.recorder import RunRecorder
from geminids.run.result import Result
from geminids.run.stopping import wait_shielded
from geminids.run.stream import BY_CALLER, EventStream
from geminids.warm.owner.account import OWNER_GONE, Account
from geminids.warm.owner.order import make_order, why_not_served
from geminids.warm.owner.protocol import AnswerMessage, Stop, as_line, decode_owner_messages
from geminids.warm.owner.reach import Link, reach_owner
from geminids.warm.permissions.answer import OnPermission, PermissionAnswer

if TYPE_CHECKING:
    import anyio
    from anyio.abc import TaskGroup

    from geminids.run.run import Run

__all__ = ["RemoteRun"]

_log = get_logger("warm")

_READ_SIZE = 256 * 1024
# After a stop, the owner daemon must end the run within the grace period plus `_SLACK` seconds.
# After a second stop, the daemon must end the run within `_HURRY` seconds.
_SLACK = 5.0
_HURRY = 3.0
_NEVER = float("inf")


class RemoteRun(EventStream):
    """One run in the owner daemon, the background process that keeps the warm CLI processes.

    Iterate over the run to get its events, then read `result`. To save time, `launch` sends the
    run to the daemon over a plain socket. anyio is imported afterwards, while the daemon already
    works on the run.
    """

    def __init__(
        self, prompt: str, options: Options, *, keep: float, on_permission: OnPermission | None = None
    ) -> None:
        super().__init__(RunRecorder())
        self.options = options
        self._prompt = prompt
        self._keep = keep
        self._on_permission = on_permission
        self._account = Account(self._recorder)
        self._framer = LineFramer()
        self._began = time.monotonic()
        self._launched = False
        self._link: Link | None = None
        self._run: Run | None = None
        self._stops: list[Stop] = []
        self._asked: dict[str, anyio.CancelScope] = {}
        self._give_up_at = _NEVER
        self._tasks: TaskGroup | None = None
        self._done: anyio.Event | None = None
        self._changed: anyio.Event | None = None

    def launch(self) -> None:
        """Send the run to the owner daemon. If there is no daemon, start one.

        If the daemon cannot serve the run, this process starts the CLI itself.
        """
        if self._launched:
            return
        self._launched = True
        self._began = time.monotonic()
        reason = why_not_served(self._prompt, self.options) or self._hand_over()
        if reason is not None:
            self._go_headless(reason)

    def _hand_over(self) -> str | None:
        """Send the run to the owner daemon. Return the reason if that fails, otherwise None."""
        try:
            order = make_order(self._prompt, self.options, self._keep, self._on_permission is not None)
            line = as_line(order)
            self._link = reach_owner(Places.of())
            self._link.sock.sendall(line)
            self._link.sock.setblocking(False)
        except UnicodeEncodeError:
            return "the prompt, an option or an environment variable cannot be encoded as UTF-8"
        except GeminidsError as error:
            return error.message if error.hint is None else f"{error.message}. {error.hint}"
        except OSError as error:
            return f"cannot communicate with the background process for warm runs: {error.strerror or 'no answer'}"
        return None

    def _go_headless(self, reason: str) -> None:
        # Imported only here: the imports take 40 ms, and the owner daemon serves most runs.
        from geminids.run.run import Run
        from geminids.warm.single_run import SingleRun

        self._disconnect()
        options = self.options
        elapsed = time.monotonic() - self._began
        # Subtract the time that has passed, if it is more than a second. Otherwise keep the
        # caller's time-out.
        if options.timeout is not None and elapsed > 1:
            options = msgspec.structs.replace(options, timeout=max(options.timeout - elapsed, 0.001))
        notice: tuple[Level, str, str] = (
            "warning",
            "transport",
            f"the run does not use a warm process: {reason}",
        )
        make_warm = None if self._on_permission is None else partial(SingleRun, self._on_permission)
        self._run = Run(self._prompt, options, make_warm=make_warm, notices=[notice])
        self._run.launch()

    @property
    def result(self) -> Result:
        """The result of the run. Raises `GeminidsError` if the run has not ended yet."""
        if self._run is not None:
            return self._run.result
        self._result = self._account.result
        return super().result

    def stop(self, reason: str = BY_CALLER) -> None:
        """Stop the run. A second call skips the grace period.

        The method returns at once. The run has ended when its last event, `Finished`, is emitted.
        """
        self._ask_to_stop(Stop(reason=reason))

    def _ask_to_stop(self, stop: Stop) -> None:
        if self._run is not None:
            self._run.stop(stop.reason)
            return
        self._stops.append(stop)
        patience = self.options.grace + _SLACK if len(self._stops) == 1 else _HURRY
        self._give_up_at = min(self._give_up_at, time.monotonic() + patience)
        self._send(stop)
        if self._changed is not None:
            self._changed.set()

    def _send(self, message: msgspec.Struct) -> None:
        """Send a message to the owner daemon. Ignore errors of the socket.

        The messages are small, so they fit into the socket's buffer.
        """
        if self._link is not None:
            try:
                self._link.sock.send(as_line(message))
            except OSError:
                pass

    async def __aenter__(self) -> RemoteRun:
        import anyio

        self.launch()
        self._done, self._changed = anyio.Event(), anyio.Event()
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        tasks.start_soon(self._drive)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._tasks is not None and self._done is not None
        if not self._done.is_set() and not self._account.over:
            self.stop()
        try:
            await wait_shielded(self._done, self.stop)
        finally:
            await self._tasks.__aexit__(None, None, None)

    # Handle the messages of the owner daemon.

    async def _drive(self) -> None:
        """Drive the run until it ends, even if the caller is cancelled.

        Leaving the `async with` block stops the run.
        """
        import anyio

        assert self._done is not None
        with anyio.CancelScope(shield=True):
            try:
                if self._run is None:
                    await self._follow()
                if self._run is not None:
                    await self._relay(self._run)
            finally:
                self._disconnect()
                self._recorder.close()
                self._done.set()

    async def _relay(self, run: Run) -> None:
        async with run:
            while (batch := await run.next_batch()) is not None:
                self._recorder.relay(batch)

    async def _follow(self) -> None:
        import anyio

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_clocks, tasks.cancel_scope)
                await self._receive(tasks)
                tasks.cancel_scope.cancel()
        except* (OSError, msgspec.DecodeError):
            pass  # continue as if the owner daemon had ended
        account = self._account
        if account.result is not None:
            return
        if self._stops:
            first = self._stops[0]
            account.finish(
                Ending("timed_out" if first.by_deadline else "interrupted", first.reason), self._began
            )
        elif account.started is not None:
            account.finish(OWNER_GONE, self._began)
        else:
            self._go_headless(
                account.cold or "the background process for warm runs ended before the run had begun"
            )

    async def _receive(self, tasks: TaskGroup) -> None:
        """Read messages until the run has ended or the owner daemon closes the connection."""
        while not self._account.over and (chunk := await self._read()):
            messages = decode_owner_messages(self._framer.feed(chunk))
            for event in self._account.take(messages, stopped=bool(self._stops)):
                if isinstance(event, PermissionAsked) and self._on_permission is not None:
                    tasks.start_soon(self._answer, event, self._on_permission)
                elif isinstance(event, PermissionDecided) and event.id in self._asked:
                    self._asked.pop(event.id).cancel()  # the callback is no longer needed

    async def _read(self) -> bytes:
        import anyio

        assert self._link is not None
        while True:
            try:
                return self._link.sock.recv(_READ_SIZE)
            except BlockingIOError:
                await anyio.wait_readable(self._link.sock)
            except ConnectionError:
                return b""

    async def _answer(self, asked: PermissionAsked, ask: OnPermission) -> None:
        import anyio

        with anyio.CancelScope() as scope:
            self._asked[asked.id] = scope
            answer = await _decided(ask, asked)
            self._send(
                AnswerMessage(id=asked.id, decision=answer.decision, by=answer.by, reason=answer.reason)
            )

    async def _watch_clocks(self, scope: anyio.CancelScope) -> None:
        """Stop the run when its `timeout` has passed.

        If the run was stopped but the owner daemon does not end it in time, cancel `scope`.
        Cancelling `scope` ends the wait for the daemon.
        """
        import anyio

        timeout = self.options.timeout
        until = _NEVER if timeout is None else self._began + timeout
        while True:
            now = time.monotonic()
            if now >= until:
                until = _NEVER
                self._ask_to_stop(Stop(reason=f"timed out after {timeout:g} s", by_deadline=True))
            if now >= self._give_up_at:
                scope.cancel()
            self._changed = anyio.Event()
            with anyio.move_on_after(min(until, self._give_up_at) - now):
                await self._changed.wait()

    def _disconnect(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()


async def _decided(ask: OnPermission, asked: PermissionAsked) -> PermissionAnswer:
    """Return the answer of the callback `ask` to a permission request.

    If the callback fails, or its answer is not valid, return `deny`.
    """
    try:
        returned: Any = ask(asked)
        if inspect.isawaitable(returned):
            returned = await returned
    except Exception as error:
        _log.warning("the permission callback failed; the tool is denied", error=error)
        return PermissionAnswer("deny", "callback", f"the callback failed: {type(error).__name__}: {error}")
    if isinstance(returned, PermissionAnswer):
        return returned
    if returned in get_args(Choice):
        return PermissionAnswer(returned)
    return PermissionAnswer(
        "deny", "callback", f"the callback returned {returned!r}; expected 'allow', 'allow_always' or 'deny'"
    )
