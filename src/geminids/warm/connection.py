"""JSON-RPC with one ACP process: our requests and their answers, updates, and the agent's requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from geminids.gemini.protocol.acp.calls import (
    Call,
    Cancel,
    encode_answer,
    encode_call,
    encode_error,
    encode_note,
)
from geminids.gemini.protocol.acp.messages import Answer, Note, RpcError, Unknown, Update, decode_lines
from geminids.process.child import Child
from geminids.process.line_framer import LineFramer

if TYPE_CHECKING:
    import anyio

__all__ = ["Connection", "Gone", "Pending", "RpcFailed"]

_METHOD_NOT_FOUND = -32601


class Gone(Exception):
    """The process ended before it answered."""


class RpcFailed(Exception):
    """The agent answered with an error."""

    def __init__(self, error: RpcError) -> None:
        super().__init__(error.message)
        self.error = error


class Pending:
    """A request that we sent, and its answer when it arrives."""

    def __init__(self) -> None:
        import anyio

        self._done: anyio.Event = anyio.Event()
        self._answer: Answer | None = None

    @property
    def over(self) -> bool:
        return self._done.is_set()

    def settle(self, answer: Answer | None) -> None:
        """Set the answer; None if none will come."""
        self._answer = answer
        self._done.set()

    async def wait(self) -> None:
        await self._done.wait()

    def result(self) -> msgspec.Raw:
        """The result of the request; raises `Gone` or `RpcFailed`."""
        if self._answer is None:
            raise Gone
        if self._answer.error is not None:
            raise RpcFailed(self._answer.error)
        return self._answer.result


class Connection:
    """Sends and receives messages over the pipes of one process."""

    def __init__(
        self,
        child: Child,
        on_update: Callable[[Update | Unknown], None],
        on_permission_request: Callable[[Note], None],
        *,
        line_limit: int,
    ) -> None:
        self._child = child
        self._on_update = on_update
        self._on_permission_request = on_permission_request
        self._lines = LineFramer(line_limit)
        self._pending: dict[int, Pending] = {}
        self._number = 0
        self._unsent = bytearray()
        self._unsent_changed: anyio.Event | None = None
        self.closed = False

    def begin(self, call: Call | str) -> Pending:
        """Send a request; wait for its answer with the returned `Pending`."""
        pending = Pending()
        if self.closed:
            pending.settle(None)
            return pending
        self._number += 1
        self._pending[self._number] = pending
        self._send(encode_call(self._number, call))
        return pending

    async def call(self, call: Call | str) -> msgspec.Raw:
        """Send a request and wait for its result; raises `Gone` or `RpcFailed`."""
        pending = self.begin(call)
        await pending.wait()
        return pending.result()

    def note(self, note: Cancel) -> None:
        """Send a notification, which gets no answer."""
        self._send(encode_note(note))

    def answer(self, request: Note, option: str | None) -> None:
        """Answer a permission request with an option; None means that the turn is cancelled."""
        self._send(encode_answer(request.id, option))

    def _send(self, data: bytes) -> None:
        if self.closed:
            return
        if not self._unsent:
            data = self._child.write_now(data)
        if data:
            self._unsent += data
            if self._unsent_changed is not None:
                self._unsent_changed.set()

    async def pump(self) -> None:
        """Write the data that did not fit into the pipe at once, while the process lives."""
        import anyio

        while not self.closed:
            self._unsent_changed = anyio.Event()
            if not self._unsent:
                await self._unsent_changed.wait()
            piece = bytes(self._unsent)
            await self._child.write(piece)
            del self._unsent[: len(piece)]

    async def read(self) -> None:
        """Read messages until the process closes its output."""
        import anyio

        while chunk := await self._child.read_stdout():
            self._take(self._lines.feed(chunk))
            await anyio.lowlevel.checkpoint()
        self._take(self._lines.rest())

    def _take(self, block: bytes) -> None:
        for size in self._lines.dropped:
            text = f"a line of {size:,} bytes was dropped (limit {self._lines.limit:,})"
            self._on_update(Unknown(why="protocol", line=text))
        self._lines.dropped.clear()
        for message in decode_lines(block):
            if isinstance(message, (Update, Unknown)):
                self._on_update(message)
            elif isinstance(message, Answer):
                pending = self._pending.pop(message.id, None) if type(message.id) is int else None
                if pending is not None:
                    pending.settle(message)
            elif message.permission is not None:
                self._on_permission_request(message)
            else:
                text = f"geminids does not serve {message.method}"
                self._send(encode_error(message.id, _METHOD_NOT_FOUND, text))

    def close(self) -> None:
        """The process is gone: end all waits for an answer with `Gone`."""
        self.closed = True
        open_requests, self._pending = self._pending, {}
        for pending in open_requests.values():
            pending.settle(None)
        if self._unsent_changed is not None:
            self._unsent_changed.set()
