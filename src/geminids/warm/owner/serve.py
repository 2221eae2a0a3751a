"""The daemon's side of one connection. The daemon is the process that keeps CLIs warm, and its
clients are commands such as `geminids run --warm`.

After the greetings, the connection serves one run, or one other request, such as a request for the
daemon's status.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from typing import Protocol

import anyio
import msgspec

from geminids.errors import GeminidsError
from geminids.events.model import Finished, PermissionAsked, encode_event
from geminids.process.line_framer import LineFramer
from geminids.warm.chat import Chat
from geminids.warm.chat_turn import ChatTurn
from geminids.warm.owner.protocol import (
    AnswerMessage,
    ClientMessage,
    End,
    NotServed,
    Order,
    OwnerEnded,
    OwnerStatus,
    RetireOwner,
    StatusRequest,
    Stop,
    as_line,
    decode_client_messages,
    greeting_of,
    leaves,
)
from geminids.warm.owner.reach import our_hello
from geminids.warm.permissions.answer import PermissionAnswer
from geminids.warm.pool import Pool

__all__ = ["Host", "Visit"]

# A client must send its greeting and its request within this many seconds.
_GREETING = 5.0
# If no warm process is available within this many seconds, the client starts the CLI itself.
_OPENING = 20.0
_READ_SIZE = 256 * 1024
_GONE = "interrupted: the client disconnected"
_ENDS = "interrupted: the background process for warm runs was ended"


class Host(Protocol):
    """The attributes and methods of the owner daemon that a connection uses."""

    pool: Pool
    umask: int

    def status(self) -> OwnerStatus: ...
    def leave(self) -> None: ...
    def end(self) -> None: ...
    def began(self, keep: float) -> None: ...
    def ended(self) -> None: ...


class Visit:
    """The connection of one client to the owner daemon, from its greeting to its end."""

    def __init__(self, host: Host, sock: socket.socket) -> None:
        self._host = host
        self._sock = sock
        self._framer = LineFramer()
        self._received: deque[ClientMessage] = deque()
        self._turn: ChatTurn | None = None
        self._opening: anyio.CancelScope | None = None
        self._reason: str | None = None
        self._answers: dict[str, tuple[anyio.Event, list[AnswerMessage]]] = {}

    async def attend(self) -> None:
        request: ClientMessage | None = None
        with anyio.move_on_after(_GREETING):
            if await self._exchange_greetings():
                request = await self._next()
        if isinstance(request, Order):
            await self._serve(request)
        elif request is not None:
            await self._look(request)

    def owner_ends(self) -> None:
        """Stop the run of this connection, because the owner daemon ends."""
        self._stop(_ENDS)

    async def _exchange_greetings(self) -> bool:
        """Exchange greetings. Return True if client and daemon have the same geminids version.

        Return False if the client has another version or sent no greeting. A client of another
        version can only ask this owner daemon to release its socket (`RetireOwner`).
        """
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

    async def _look(self, request: ClientMessage) -> None:
        if isinstance(request, StatusRequest):
            await self._send(as_line(self._host.status()))
        elif isinstance(request, RetireOwner):
            self._host.leave()
        elif isinstance(request, End):
            status = self._host.status()
            processes = tuple(process.pid for process in status.processes)
            self._host.end()
            await self._send(as_line(OwnerEnded(pid=os.getpid(), runs=status.runs, processes=processes)))

    # Serve a run.

    async def _serve(self, order: Order) -> None:
        if order.umask != self._host.umask:
            await self._send(
                as_line(NotServed(why="the background process for warm runs was started with another umask"))
            )
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
            await self._send(as_line(NotServed(why=error.message)))
        finally:
            if chat is not None:
                await chat.close()
            self._host.ended()

    async def _run(self, chat: Chat, prompt: str) -> None:
        began = time.monotonic()
        with anyio.move_on_after(_OPENING) as self._opening:
            await chat.__aenter__()
        if self._opening.cancelled_caught:
            if self._reason is None:
                await self._send(as_line(NotServed(why="all warm processes are in use")))
            return
        self._opening = None
        turn = self._turn = chat.send(prompt)
        turn.began = began
        if self._reason is not None:
            turn.stop(self._reason)
        try:
            while (batch := await turn.next_batch()) is not None:
                if isinstance(batch[-1], Finished):
                    # Close the chat before the client receives the result. So no process of the
                    # run is left when the client receives it.
                    await chat.close()
                await self._send(b"".join(encode_event(event) + b"\n" for event in batch))
        except OSError:
            turn.stop(_GONE)

    async def _listen(self) -> None:
        """Handle the messages of the client. If the client disconnects, stop the run."""
        try:
            while (message := await self._next()) is not None:
                if isinstance(message, AnswerMessage):
                    arrived, answers = self._answers.get(message.id, (None, []))
                    answers.append(message)
                    if arrived is not None:
                        arrived.set()
                elif isinstance(message, Stop):
                    self._stop(message.reason, by_deadline=message.by_deadline)
        except (OSError, msgspec.DecodeError):
            pass
        self._stop(_GONE)

    def _stop(self, reason: str, *, by_deadline: bool = False) -> None:
        self._reason = self._reason or reason
        if self._turn is not None:
            self._turn.stop(reason, by_deadline=by_deadline)
        elif self._opening is not None:
            self._opening.cancel()

    async def _ask(self, asked: PermissionAsked) -> PermissionAnswer:
        """Wait for the client's answer to a permission request, and return the answer.

        The client receives the request as an event of the run.
        """
        arrived, answers = anyio.Event(), list[AnswerMessage]()
        self._answers[asked.id] = (arrived, answers)
        try:
            await arrived.wait()
        finally:
            del self._answers[asked.id]
        return PermissionAnswer(answers[0].decision, answers[0].by, answers[0].reason)

    # Read and write lines.

    async def _next(self) -> ClientMessage | None:
        """Return the next message of the client, or None if the client has disconnected.

        Raises `msgspec.DecodeError` if the client sends data that is not a valid message.
        """
        while not self._received:
            chunk = await self._read()
            if not chunk:
                return None
            self._received.extend(decode_client_messages(self._framer.feed(chunk)))
        return self._received.popleft()

    async def _line(self) -> bytes:
        """Read one line from the socket. Data after this line is not read.

        Return empty bytes if the client disconnects before the end of the line.
        """
        line = b""
        while not line.endswith(b"\n"):
            peek = await self._read(socket.MSG_PEEK)
            if not peek:
                return b""
            end = peek.find(b"\n") + 1
            line += self._sock.recv(end or len(peek))
        return line

    async def _read(self, flags: int = 0) -> bytes:
        while True:
            try:
                return self._sock.recv(_READ_SIZE, flags)
            except BlockingIOError:
                await anyio.wait_readable(self._sock)
            except ConnectionError:
                return b""

    async def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._sock.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._sock)
