"""The gateway: a local server on 127.0.0.1 that looks like the Gemini API to the CLI. It runs in
its own thread.
"""

from __future__ import annotations

import contextvars
import errno
import os
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from geminids.at_fork import close_in_child, importing
from geminids.errors import GeminidsError
from geminids.gateway.request import Request, key_of
from geminids.gateway.upstream import Head, Part, Upstream, is_free
from geminids.log import get_logger

if TYPE_CHECKING:
    import asyncio

    import anyio

    from geminids.gateway.forward.connection import TcpConnection
    from geminids.gateway.script.replies import Reply, ReplyFields, ScriptLike

__all__ = ["Gateway"]

_log = get_logger("gateway")

# The length of the queue of connections that are not accepted yet. If the queue is full, the system
# drops a new connection, and the CLI waits 5 s before it tries again.
_BACKLOG = 4096
_MAX_ERRORS = 1000


class Gateway:
    """A local server that looks like the Gemini API to the CLI. Its answers come from a script
    (prepared replies) or from another upstream (an object that answers requests).

    >>> from geminids.gateway import Gateway, Reply
    >>> with Gateway([Reply(text="hi")]) as gateway:
    ...     gateway.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self,
        script: ScriptLike | Upstream = None,
        *,
        port: int = 0,
        keep: int | None = None,
        on_answer: Callable[[Request, str], None] | None = None,
        on_end: Callable[[str], None] | None = None,
    ) -> None:
        """Create a gateway. `start` opens it.

        `script` contains the prepared replies, or is an upstream (an object that answers requests).
        `port` is the port to listen on; 0 means any free port. `keep` is the number of latest
        requests to store; None stores all.

        The gateway's thread calls `on_answer(request, kind)` when an answer begins; `kind`
        describes the answer in a few words. It calls `on_end(reason)` when the gateway ends.
        """
        self.upstream = script if isinstance(script, Upstream) else _scripted(script)
        self._requested_port = port
        self._on_answer = on_answer
        self._on_end = on_end
        self._stopped = False
        self._changed = threading.Condition()
        self._requests: deque[Request] = deque(maxlen=keep)
        self._gone: deque[Request] = deque(maxlen=keep)
        self._errors: deque[str] = deque(maxlen=_MAX_ERRORS)
        self._count = 0
        self._open = 0
        self._socket: socket.socket | None = None
        self._port: int | None = None
        self._pid: int | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope: anyio.CancelScope | None = None

    # Start and stop.

    def start(self) -> Self:
        """Open the port and start to answer requests. This method returns immediately. Connections
        that arrive before the gateway's thread runs must wait. Raises `GeminidsError` if the port
        cannot be opened, if the thread cannot be started, or if the gateway was started before.
        """
        self.listen()
        self.begin()
        return self

    def listen(self) -> None:
        """Open the port. Connections are accepted by the system, but get no answer until `begin` is
        called. Raises `GeminidsError` if the port cannot be opened, or was opened before.
        """
        if self._socket is not None:
            raise GeminidsError(
                "this gateway has already been started", hint="Create a new Gateway for each start."
            )
        listener: socket.socket | None = None
        try:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self._requested_port))
            listener.listen(_BACKLOG)
            # Check that 127.0.0.1 is reachable: a port can be opened even if the loopback interface
            # is down. A UDP `connect` checks the route without sending anything.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(listener.getsockname())
        except (OSError, OverflowError) as error:
            if listener is not None:
                listener.close()
            raise GeminidsError(
                f"the gateway cannot listen on 127.0.0.1:{self._requested_port}: {error}",
                hint=_port_hint(error, self._requested_port),
            ) from None
        listener.setblocking(False)
        self._socket = close_in_child(listener)
        self._pid = os.getpid()
        self._port = listener.getsockname()[1]

    def begin(self) -> None:
        """Start to answer requests, in a new thread. Call `listen` first. A second call has no
        effect. Raises `GeminidsError` if the thread cannot be started.
        """
        # Import the modules of the thread here, before it starts: if two threads parse Python
        # source at once, Python 3.11 can raise "AST constructor recursion depth mismatch" (CPython
        # gh-106905). anyio parses its own source when it is imported, and pytest parses each of our
        # modules, because we have a pytest plugin.
        with importing():
            import anyio._backends._asyncio  # noqa: F401

            import geminids.gateway.server.accept
            import geminids.gateway.server.connection  # noqa: F401

            prepare = getattr(self.upstream, "prepare", None)
            if prepare is not None:
                prepare()
        with self._changed:
            if self._thread is not None or self._stopped:
                return
            thread = self._new_thread()
            try:
                thread.start()
            except RuntimeError as error:
                raise GeminidsError(
                    f"the gateway cannot start its thread: {error}",
                    hint="Raise the limit of processes (ulimit -u) or of memory, or run fewer agents at once.",
                ) from None
            self._thread = thread

    def _new_thread(self) -> threading.Thread:
        # Use an empty context: otherwise libraries in the thread would detect the caller's event
        # loop.
        target = contextvars.Context().run
        return threading.Thread(target=target, args=(self._run_thread,), name="geminids-gateway", daemon=True)

    def close(self) -> None:
        """Close all connections, including those that wait for an answer, and wait until the
        gateway's thread has ended. A second call has no effect.
        """
        self.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def stop(self) -> None:
        """Close all connections and end the gateway's thread. This method does not wait for the end
        of the thread.
        """
        if self._is_forked_child:
            return
        with self._changed:
            self._stopped = True
            if self._thread is None and self._socket is not None:
                self._socket.close()
            loop, scope = self._loop, self._scope
        if loop is not None and scope is not None:
            try:
                loop.call_soon_threadsafe(scope.cancel)
            except RuntimeError:
                pass  # The loop has ended already.

    @property
    def ended(self) -> bool:
        """Whether the gateway no longer answers requests."""
        return (
            self._stopped
            or self._is_forked_child
            or (self._thread is not None and not self._thread.is_alive())
        )

    @property
    def _is_forked_child(self) -> bool:
        """Whether this process is a forked child of the process that opened the gateway. The child
        has no gateway thread. If the parent's gateway thread held a lock during the fork, the
        child's copy of this lock is never released. Therefore `stop` does nothing in the child.
        """
        return self._pid not in (None, os.getpid())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # State, for tests.

    @property
    def port(self) -> int:
        if self._port is None:
            raise GeminidsError(
                "this gateway has not been started", hint="Call `start()`, or use a `with` block."
            )
        return self._port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """The environment variables that make the CLI use this gateway. The API key in them is a
        placeholder, because the gateway needs no real key.
        """
        return {
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GEMINI_API_KEY": "offline-no-key-needed",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }

    @property
    def requests(self) -> list[Request]:
        """The requests that the gateway has stored, the oldest one first. The list is a copy."""
        with self._changed:
            return list(self._requests)

    @property
    def gone(self) -> list[Request]:
        """The requests whose client disconnected before the answer was complete, the oldest one
        first.
        """
        with self._changed:
            return list(self._gone)

    @property
    def errors(self) -> list[str]:
        """Messages about errors inside the gateway, and about invalid HTTP from clients."""
        with self._changed:
            return list(self._errors)

    @property
    def open_connections(self) -> int:
        with self._changed:
            return self._open

    def wait_for_requests(self, count: int = 1, timeout: float = 10) -> bool:
        """Wait until the gateway has received `count` requests since its creation, and return True.
        Return False if this takes more than `timeout` seconds.
        """
        return self.wait_until(lambda: self._count >= count, timeout)

    def wait_until(self, holds: Callable[[], bool], timeout: float = 10) -> bool:
        """Wait until the function `holds` returns true, and return True. Return False if this takes
        more than `timeout` seconds.

        `holds` is called again after each new request, each client that disconnects, each error,
        and each opened or closed connection.
        """
        with self._changed:
            return self._changed.wait_for(holds, timeout)

    # The script.

    def reply(self, **fields: Unpack[ReplyFields]) -> Reply:
        """Add one reply to the script, and return it. For example: `gateway.reply(text="hi")` or
        `gateway.reply(calls=[("glob", {…})])`.

        Raises `GeminidsError` if the gateway does not answer from a script, and `ValueError` if a
        field is not valid.
        """
        # Imported late (4 ms), because this module is loaded before the CLI is spawned.
        from geminids.gateway.script.replies import make_reply
        from geminids.gateway.script.scripted_upstream import Scripted

        if not isinstance(self.upstream, Scripted):
            raise GeminidsError(
                "a reply cannot be added: this gateway does not answer from a script",
                hint="Create the gateway without an upstream: `Gateway()`.",
            )
        reply = make_reply(fields)
        self.upstream.add(reply)
        return reply

    def when(self, pattern: str, **fields: Unpack[ReplyFields]) -> Reply:
        """Add a reply for requests whose last user text matches the regular expression `pattern`.
        Return the reply. Raises the same errors as `reply`.
        """
        fields["when"] = pattern
        return self.reply(**fields)

    # The gateway's connections call these methods (see `connection.GatewayHooks`).

    def has_known_token(self, target: str, headers: dict[str, str]) -> bool:
        """Return whether a request with this URL and these headers contains a token that the
        gateway knows. If the upstream uses no tokens, return True. Only a request for which the
        result is True may have a large body.
        """
        knows = getattr(self.upstream, "knows", None)
        return True if knows is None else bool(knows(key_of(target, headers)))

    def add_request(self, verb: str, target: str, headers: dict[str, str], body: bytes) -> Request:
        with self._changed:
            self._count += 1
            request = Request.read(self._count, time.time(), verb, target, headers, body)
            self._requests.append(request)
            self._changed.notify_all()
        return request

    @property
    def upstream(self) -> Upstream:
        """The object that answers the requests."""
        return self._upstream

    @upstream.setter
    def upstream(self, upstream: Upstream) -> None:
        self._upstream, self._answers = upstream, _with_mark(upstream)

    def answer(self, request: Request) -> AsyncIterator[Part]:
        return self._answers.answer(request)

    def answer_started(self, request: Request, head: Head) -> None:
        if self._on_answer is not None:
            self._on_answer(request, head.kind)

    def left(self, request: Request) -> None:
        with self._changed:
            self._gone.append(request)
            self._changed.notify_all()

    def failed(self, what: str) -> None:
        with self._changed:
            self._errors.append(what)
            self._changed.notify_all()

    # The thread.

    def _run_thread(self) -> None:
        try:
            import anyio

            anyio.run(self._serve, backend="asyncio")
        except BaseException as error:  # a thread has no caller that could report the error
            reason = f"{type(error).__name__}: {error}"
            _log.error("the gateway failed", error=error)
            self.failed(f"the gateway failed: {reason}")
        else:
            reason = "it was closed"
        finally:
            if self._socket is not None:
                self._socket.close()
            if self._on_end is not None:
                self._on_end(reason)

    async def _serve(self) -> None:
        import asyncio

        import anyio

        from geminids.gateway.server.accept import accept
        from geminids.gateway.server.connection import Connection

        async def serve(tcp: TcpConnection) -> None:
            self._count_connections(1)
            try:
                await Connection(tcp, self).serve()
            except Exception as error:
                _log.warning("a connection failed", error=error)
                self.failed(f"a connection failed: {type(error).__name__}: {error}")
            finally:
                tcp.close()
                self._count_connections(-1)

        assert self._socket is not None
        loop = asyncio.get_running_loop()
        for name in ("_ssock", "_csock"):  # the loop's own sockets, for `call_soon_threadsafe`
            if isinstance(sock := getattr(loop, name, None), socket.socket):
                close_in_child(sock)
        with anyio.CancelScope() as scope:
            with self._changed:
                self._scope, self._loop = scope, loop
                if self._stopped:
                    scope.cancel()
            await accept(self._socket, serve, self.failed)

    def _count_connections(self, change: int) -> None:
        with self._changed:
            self._open += change
            self._changed.notify_all()


def _port_hint(error: OSError | OverflowError, port: int) -> str:
    """Return a hint for the user that says what to do if the port cannot be opened because of this
    error.
    """
    code = getattr(error, "errno", None)
    if code in (errno.EMFILE, errno.ENFILE):
        return "Too many files are open: raise the limit (ulimit -n), or run fewer agents at once."
    if code in (errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL):
        return "The loopback interface is down: turn it on (ip link set lo up)."
    if code in (errno.EACCES, errno.EPERM):
        return (
            "If the port is below 1024, use another port. Otherwise a sandbox forbids this process to listen "
            "on 127.0.0.1: allow this in the settings of the sandbox."
        )
    if port:
        return "Use another port, or 0 for any free port."
    return "Allow this process to listen on 127.0.0.1: the CLI sends its requests there."


def _scripted(script: ScriptLike) -> Upstream:
    # Imported late (4 ms): runs need no script, and they load this module before the CLI is
    # spawned.
    from geminids.gateway.script.scripted_upstream import Scripted

    return Scripted(script)


def _with_mark(upstream: Upstream) -> Upstream:
    """Return an upstream that marks and logs its answers, if no model makes them."""
    if not is_free(upstream):
        return upstream
    # Imported late (6 ms): runs forward to a real API, and load this module before the CLI is spawned.
    from geminids.gateway.free_answers import FreeAnswers

    return FreeAnswers(upstream)
