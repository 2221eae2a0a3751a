"""Exchange JSON-RPC messages with one ACP process.

We send requests and receive their answers. The agent in the process sends updates and its own
requests.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.lowlevel
import msgspec

from geminids.gemini.protocol.acp.calls import (
    Call,
    Cancel,
    encode_answer,
    encode_call,
    encode_error,
    encode_notification,
)
from geminids.gemini.protocol.acp.messages import (
    RpcError,
    RpcRequest,
    RpcResponse,
    Unknown,
    Update,
    decode_lines,
)
from geminids.process.child import Child
from geminids.process.line_framer import LineFramer

__all__ = ["AcpConnection", "PendingRequest", "ProcessGone", "RpcFailed"]

_METHOD_NOT_FOUND = -32601


class ProcessGone(Exception):
    """The process ended before it answered a request."""


class RpcFailed(Exception):
    """The CLI answered a request with an error."""

    def __init__(self, error: RpcError) -> None:
        super().__init__(error.message)
        self.error = error


class PendingRequest:
    """A request that we have sent. When the answer has arrived, `result` returns it."""

    def __init__(self) -> None:
        self._done = anyio.Event()
        self._answer: RpcResponse | None = None

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def settle(self, answer: RpcResponse | None) -> None:
        """Store the answer, and end all waits for it. None means that no answer will come."""
        self._answer = answer
        self._done.set()

    async def wait(self) -> None:
        await self._done.wait()

    def result(self) -> msgspec.Raw:
        """Return the result of the request. Call this only after `wait`.

        Raises `RpcFailed` if the CLI answered with an error, and `ProcessGone` if no answer will
        come.
        """
        if self._answer is None:
            raise ProcessGone
        if self._answer.error is not None:
            raise RpcFailed(self._answer.error)
        return self._answer.result


class AcpConnection:
    """Sends and receives the messages of one CLI process."""

    def __init__(
        self,
        child: Child,
        on_update: Callable[[Update | Unknown], None],
        on_permission_request: Callable[[RpcRequest], None],
        *,
        line_limit: int,
    ) -> None:
        self._child = child
        self._on_update = on_update
        self._on_permission_request = on_permission_request
        self._framer = LineFramer(line_limit)
        self._pending: dict[int, PendingRequest] = {}
        self._last_id = 0
        self._unsent = bytearray()
        self._unsent_changed = anyio.Event()
        self.closed = False

    def begin(self, call: Call | str) -> PendingRequest:
        """Send a request. Use the returned `PendingRequest` to wait for its answer."""
        pending = PendingRequest()
        if self.closed:
            pending.settle(None)
            return pending
        self._last_id += 1
        self._pending[self._last_id] = pending
        self._send(encode_call(self._last_id, call))
        return pending

    async def call(self, call: Call | str) -> msgspec.Raw:
        """Send a request, wait for the answer, and return the result.

        Raises `RpcFailed` if the CLI answers with an error, and `ProcessGone` if the process ends
        before it answers.
        """
        pending = self.begin(call)
        await pending.wait()
        return pending.result()

    def notify(self, note: Cancel) -> None:
        """Send a notification. It gets no answer."""
        self._send(encode_notification(note))

    def answer(self, request: RpcRequest, option: str | None) -> None:
        """Answer a permission request of the agent.

        `option` is the id of the chosen option; None means that the turn is cancelled.
        """
        self._send(encode_answer(request.id, option))

    def _send(self, data: bytes) -> None:
        if self.closed:
            return
        if not self._unsent:
            data = self._child.write_now(data)
        if data:
            self._unsent += data
            self._unsent_changed.set()

    async def pump(self) -> None:
        """Write data that did not fit into the pipe when it was sent.

        This coroutine runs until the connection is closed.
        """
        while not self.closed:
            self._unsent_changed = anyio.Event()
            if not self._unsent:
                await self._unsent_changed.wait()
            piece = bytes(self._unsent)
            await self._child.write(piece)
            del self._unsent[: len(piece)]

    async def read(self) -> None:
        """Read messages until the process closes its stdout."""
        while chunk := await self._child.read_stdout():
            self._process(self._framer.feed(chunk))
            await anyio.lowlevel.checkpoint()
        self._process(self._framer.rest())

    def _process(self, block: bytes) -> None:
        for size in self._framer.dropped:
            text = f"a line of {size:,} bytes was dropped (limit {self._framer.limit:,})"
            self._on_update(Unknown(why="protocol", line=text))
        self._framer.dropped.clear()
        for message in decode_lines(block):
            if isinstance(message, (Update, Unknown)):
                self._on_update(message)
            elif isinstance(message, RpcResponse):
                pending = self._pending.pop(message.id, None) if type(message.id) is int else None
                if pending is not None:
                    pending.settle(message)
            elif message.permission is not None:
                self._on_permission_request(message)
            else:
                text = f"geminids does not support {message.method}"
                self._send(encode_error(message.id, _METHOD_NOT_FOUND, text))

    def close(self) -> None:
        """Close the connection. Every call that still waits for an answer raises `ProcessGone`."""
        self.closed = True
        unanswered, self._pending = self._pending, {}
        for pending in unanswered.values():
            pending.settle(None)
        self._unsent_changed.set()
