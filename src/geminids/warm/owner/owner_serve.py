"""One connection to the pool's owner: a greeting, then a run with its events and answers, or a status request."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

import msgspec

from geminids.errors import GeminidsError
from geminids.events.model import Finished, PermissionAsked, encode_event
from geminids.process.line_framer import LineFramer
from geminids.warm.chat import Chat
from geminids.warm.chat_turn import ChatTurn
from geminids.warm.owner.owner_reach import our_hello
from geminids.warm.owner.owner_wire import (
    Answer,
    Asked,
    Cold,
    End,
    Ended,
    Leave,
    Look,
    Order,
    OwnerStatus,
    Stop,
    as_line,
    asked_in,
    greeting_of,
    leaves,
)
from geminids.warm.permissions.decide import Said
from geminids.warm.pool import Pool

if TYPE_CHECKING:
    import anyio

__all__ = ["Host", "Visit"]

# Seconds for a client to send its greeting and its request.
_GREETING = 5.0
# Seconds to wait for a warm process; after that the client runs the CLI itself.
_OPENING = 20.0
_READ_SIZE = 256 * 1024
_GONE = "interrupted: the client disconnected"
_ENDS = "interrupted: the pool's owner was ended"


class Host(Protocol):
    """The interface of the owner that a connection uses."""

    pool: Pool
    umask: int

    def status(self) -> OwnerStatus: ...
    def leave(self) -> None: ...
    def end(self) -> None: ...
    def began(self, keep: float) -> None: ...
    def ended(self) -> None: ...


class Visit:
    """A connection, from its greeting to its end."""

    def __init__(self, host: Host, sock: socket.socket) -> None:
        self._host = host
        self._sock = sock
        self._framer = LineFramer()
        self._heard: deque[Asked] = deque()
        self._sending: ChatTurn | None = None
        self._opening: anyio.CancelScope | None = None
        self._reason: str | None = None
        self._answers: dict[str, tuple[anyio.Event, list[Answer]]] = {}

    async def attend(self) -> None:
        import anyio

        wanted: Asked | None = None
        with anyio.move_on_after(_GREETING):
            if await self._greeted():
                wanted = await self._next()
        if isinstance(wanted, Order):
            await self._serve(wanted)
        elif wanted is not None:
            await self._look(wanted)

    def owner_ends(self) -> None:
        """The owner ends: stop the run of this connection."""
        self._stop(_ENDS)

    async def _greeted(self) -> bool:
        """Exchange greetings and check the version: of another version, only `Leave` is understood."""
        ours = our_hello()
        await self._send(as_line(ours))
        line = await self._line()
        theirs = greeting_of(line)
        if theirs is None:
            return False
        if (theirs.protocol, theirs.version) == (ours.protocol, ours.version):
            return True
        if leaves(await self._line()):
            self._host.leave()
        return False

    async def _look(self, wanted: Asked) -> None:
        if isinstance(wanted, Look):
            await self._send(as_line(self._host.status()))
        elif isinstance(wanted, Leave):
            self._host.leave()
        elif isinstance(wanted, End):
            there = self._host.status()
            processes = tuple(one.pid for one in there.processes)
            self._host.end()
            await self._send(as_line(Ended(pid=os.getpid(), runs=there.runs, processes=processes)))

    # A run.

    async def _serve(self, order: Order) -> None:
        import anyio

        if order.umask != self._host.umask:
            await self._send(as_line(Cold(why="the pool's owner was started with another umask")))
            return
        self._host.began(order.keep)
        chat: Chat | None = None
        try:
            chat = self._host.pool.chat(
                order.options, on_permission=self._ask if order.asks else None, environ=order.environ
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._listen)
                await self._run(chat, order.prompt)
                tasks.cancel_scope.cancel()
        except GeminidsError as error:
            await self._send(as_line(Cold(why=error.message)))
        finally:
            if chat is not None:
                await chat.close()
            self._host.ended()

    async def _run(self, chat: Chat, prompt: str) -> None:
        import anyio

        began = time.monotonic()
        with anyio.move_on_after(_OPENING) as self._opening:
            await chat.__aenter__()
        if self._opening.cancelled_caught:
            if self._reason is None:
                await self._send(as_line(Cold(why="all warm processes are taken")))
            return
        self._opening = None
        sending = self._sending = chat.send(prompt)
        sending.began = began
        if self._reason is not None:
            sending.stop(self._reason)
        try:
            while (batch := await sending.next_batch()) is not None:
                if isinstance(batch[-1], Finished):
                    await chat.close()  # before the result is sent: then nothing of the run is left
                await self._send(b"".join(encode_event(event) + b"\n" for event in batch))
        except OSError:
            sending.stop(_GONE)

    async def _listen(self) -> None:
        """Handle messages of the client. If it disconnects, stop the run."""
        try:
            while (said := await self._next()) is not None:
                if isinstance(said, Answer):
                    arrived, answers = self._answers.get(said.id, (None, []))
                    answers.append(said)
                    if arrived is not None:
                        arrived.set()
                elif isinstance(said, Stop):
                    self._stop(said.reason, by_deadline=said.by_deadline)
        except (OSError, msgspec.DecodeError):
            pass
        self._stop(_GONE)

    def _stop(self, reason: str, *, by_deadline: bool = False) -> None:
        self._reason = self._reason or reason
        if self._sending is not None:
            self._sending.stop(reason, by_deadline=by_deadline)
        elif self._opening is not None:
            self._opening.cancel()

    async def _ask(self, asked: PermissionAsked) -> Said:
        """Wait for the client's answer: the client got the request as an event."""
        import anyio

        arrived, answers = anyio.Event(), list[Answer]()
        self._answers[asked.id] = (arrived, answers)
        try:
            await arrived.wait()
        finally:
            del self._answers[asked.id]
        return Said(answers[0].decision, answers[0].by, answers[0].reason)

    # Lines.

    async def _next(self) -> Asked | None:
        """The next message of the client; None if it disconnected. Raises `msgspec.DecodeError`."""
        while not self._heard:
            chunk = await self._read()
            if not chunk:
                return None
            self._heard.extend(asked_in(self._framer.feed(chunk)))
        return self._heard.popleft()

    async def _line(self) -> bytes:
        """Read the next line; later data stays in the socket."""
        line = b""
        while not line.endswith(b"\n"):
            peek = await self._read(socket.MSG_PEEK)
            if not peek:
                return b""
            end = peek.find(b"\n") + 1
            line += self._sock.recv(end or len(peek))
        return line

    async def _read(self, flags: int = 0) -> bytes:
        import anyio

        while True:
            try:
                return self._sock.recv(_READ_SIZE, flags)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
            except ConnectionError:
                return b""

    async def _send(self, data: bytes) -> None:
        import anyio

        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._sock)
