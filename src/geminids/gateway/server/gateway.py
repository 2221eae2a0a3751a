"""The gateway: a Gemini API on 127.0.0.1, in a thread of its own, for sync code, asyncio and trio alike."""

from __future__ import annotations

import contextvars
import errno
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from geminids.at_fork import close_in_child, importing
from geminids.errors import GeminidsError
from geminids.gateway.request import Request, key_of
from geminids.gateway.upstream import Head, Upstream
from geminids.log import get_logger

if TYPE_CHECKING:
    import asyncio

    import anyio

    from geminids.gateway.forward.connection import Line
    from geminids.gateway.script.script import Reply, ReplyFields, ScriptLike

__all__ = ["Gateway"]

_log = get_logger("gateway")

# A burst of connections that the listener drops costs the CLI 5 s of sleep each.
_BACKLOG = 4096
_MOST_ERRORS = 1000


class Gateway:
    """A Gemini API on loopback that answers from a script, or from another upstream.

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
        """`keep`: how many requests to remember (default: all). `on_answer(request, kind)` is called in the
        gateway's thread when an answer begins, `on_end(why)` when the thread ends."""
        self.upstream: Upstream = script if isinstance(script, Upstream) else _scripted(script)
        self._wanted_port = port
        self._on_answer = on_answer
        self._on_end = on_end
        self._stopped = False
        self._changed = threading.Condition()
        self._requests: deque[Request] = deque(maxlen=keep)
        self._gone: deque[Request] = deque(maxlen=keep)
        self._errors: deque[str] = deque(maxlen=_MOST_ERRORS)
        self._count = 0
        self._open = 0
        self._socket: socket.socket | None = None
        self._port: int | None = None
        self._pid: int | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope: anyio.CancelScope | None = None

    # Its life.

    def start(self) -> Self:
        """Open the port and answer. Returns at once: connections wait in the backlog until the thread is up."""
        self.listen()
        self.begin()
        return self

    def listen(self) -> None:
        """Open the port; nothing is answered before `begin`."""
        if self._socket is not None:
            raise GeminidsError("this gateway has been started already")
        listener: socket.socket | None = None
        try:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self._wanted_port))
            listener.listen(_BACKLOG)
            # A port opens on a loopback interface that is down, too. UDP: this looks up the route, and sends nothing.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect(listener.getsockname())
        except (OSError, OverflowError) as error:
            if listener is not None:
                listener.close()
            raise GeminidsError(
                f"the gateway cannot listen on 127.0.0.1:{self._wanted_port}: {error}",
                hint=_hint(error, self._wanted_port),
            ) from None
        listener.setblocking(False)
        self._socket = close_in_child(listener)
        self._pid = os.getpid()
        self._port = listener.getsockname()[1]

    def begin(self) -> None:
        """Answer from now on; does nothing where that is so already."""
        if sys.version_info < (3, 12):
            # anyio parses its own source when it is imported (anyio/_lazyimport.py). Two threads that do so at once
            # raise "AST constructor recursion depth mismatch" on Python 3.11 (CPython gh-106905).
            import anyio.abc  # noqa: F401
        with self._changed:
            if self._thread is not None or self._stopped:
                return
            thread = self._made_thread()
            try:
                thread.start()
            except RuntimeError as error:
                raise GeminidsError(
                    f"the gateway cannot start its thread: {error}",
                    hint="Raise the limit of processes (ulimit -u) or of memory, or run fewer at once.",
                ) from None
            self._thread = thread

    def _made_thread(self) -> threading.Thread:
        # A fresh context: the thread must not believe that it is inside the caller's event loop.
        target = contextvars.Context().run
        return threading.Thread(target=target, args=(self._live,), name="geminids-gateway", daemon=True)

    def close(self) -> None:
        """Drop every connection, stalled ones too, and end the thread. Closing twice does no harm."""
        self.stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def stop(self) -> None:
        """Close, and do not wait for it."""
        if self._is_copy:
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
                pass  # The loop has ended by itself.

    @property
    def ended(self) -> bool:
        """Whether it will answer no more."""
        return self._stopped or self._is_copy or (self._thread is not None and not self._thread.is_alive())

    @property
    def _is_copy(self) -> bool:
        """Whether this process was forked from the one that serves: its thread is not here, and a lock that the thread
        held at the fork is never released."""
        return self._pid not in (None, os.getpid())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # What there is to see.

    @property
    def port(self) -> int:
        if self._port is None:
            raise GeminidsError("this gateway has not been started")
        return self._port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        """What to set in the CLI's environment. The key is a stand-in: no real one is needed."""
        return {
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GEMINI_API_KEY": "offline-no-key-needed",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }

    @property
    def requests(self) -> list[Request]:
        """The requests so far, oldest first: a copy."""
        with self._changed:
            return list(self._requests)

    @property
    def gone(self) -> list[Request]:
        """The requests whose client went away before it had the whole answer."""
        with self._changed:
            return list(self._gone)

    @property
    def errors(self) -> list[str]:
        """What went wrong inside, or with a client that does not speak HTTP."""
        with self._changed:
            return list(self._errors)

    @property
    def open_connections(self) -> int:
        with self._changed:
            return self._open

    def wait_for_requests(self, count: int = 1, timeout: float = 10) -> bool:
        """Wait until so many requests have come; False if the time is up before."""
        return self.wait_until(lambda: self._count >= count, timeout)

    def wait_until(self, holds: Callable[[], bool], timeout: float = 10) -> bool:
        """Wait until something holds; asked again whenever a request, an answer or a connection changes."""
        with self._changed:
            return self._changed.wait_for(holds, timeout)

    # What it answers.

    def reply(self, **fields: Unpack[ReplyFields]) -> Reply:
        """Add one reply to the script: `gateway.reply(text="hi")`, `gateway.reply(calls=[("glob", {…})])`."""
        from geminids.gateway.script.script import make_reply
        from geminids.gateway.script.scripted import Scripted

        if not isinstance(self.upstream, Scripted):
            raise GeminidsError("replies can be added to a scripted gateway alone")
        reply = make_reply(fields)
        self.upstream.add(reply)
        return reply

    def when(self, pattern: str, **fields: Unpack[ReplyFields]) -> Reply:
        """Add a reply for requests whose last user text matches this regular expression."""
        fields["when"] = pattern
        return self.reply(**fields)

    # What its connections tell it (see `connection.House`).

    def upstream_knows(self, target: str, headers: dict[str, str]) -> bool:
        """Whether the request comes with a known token: only then is a large body read."""
        knows = getattr(self.upstream, "knows", None)
        return True if knows is None else bool(knows(key_of(target, headers)))

    def came(self, verb: str, target: str, headers: dict[str, str], body: bytes) -> Request:
        with self._changed:
            self._count += 1
            request = Request.read(self._count, time.time(), verb, target, headers, body)
            self._requests.append(request)
            self._changed.notify_all()
        return request

    def answered(self, request: Request, head: Head) -> None:
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

    # Its thread.

    def _live(self) -> None:
        try:
            with importing():
                import anyio

                import geminids.gateway.server.accept
                import geminids.gateway.server.connection  # noqa: F401

                prepare = getattr(self.upstream, "prepare", None)
                if prepare is not None:
                    prepare()
            anyio.run(self._serve, backend="asyncio")
        except BaseException as error:  # Nobody above this would see it.
            why = f"{type(error).__name__}: {error}"
            _log.error("the gateway ended", error=error)
            self.failed(f"the gateway ended: {why}")
        else:
            why = "it was closed"
        finally:
            if self._socket is not None:
                self._socket.close()
            if self._on_end is not None:
                self._on_end(why)

    async def _serve(self) -> None:
        import asyncio

        import anyio

        from geminids.gateway.server.accept import accept
        from geminids.gateway.server.connection import Connection

        async def serve(line: Line) -> None:
            self._counted(1)
            try:
                await Connection(line, self).serve()
            except Exception as error:
                _log.warning("a connection failed", error=error)
                self.failed(f"a connection failed: {type(error).__name__}: {error}")
            finally:
                line.close()
                self._counted(-1)

        assert self._socket is not None
        loop = asyncio.get_running_loop()
        for name in ("_ssock", "_csock"):  # the loop's own pair, for `call_soon_threadsafe`
            if isinstance(sock := getattr(loop, name, None), socket.socket):
                close_in_child(sock)
        with anyio.CancelScope() as scope:
            with self._changed:
                self._scope, self._loop = scope, loop
                if self._stopped:
                    scope.cancel()
            await accept(self._socket, serve, self.failed)

    def _counted(self, change: int) -> None:
        with self._changed:
            self._open += change
            self._changed.notify_all()


def _hint(error: OSError | OverflowError, port: int) -> str:
    """What to do about a port that cannot be opened."""
    code = getattr(error, "errno", None)
    if code in (errno.EMFILE, errno.ENFILE):
        return "Too many files are open: raise the limit (ulimit -n), or close some and run fewer at once."
    if code in (errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL):
        return "The loopback interface is down: turn it on (ip link set lo up)."
    if code in (errno.EACCES, errno.EPERM):
        return "Allow this process to open a socket on 127.0.0.1: a sandbox or a low port number forbids it."
    if port:
        return "Use another port, or 0 for any that is free."
    return "Allow this process to listen on 127.0.0.1: the CLI reaches the API through it."


def _scripted(script: ScriptLike) -> Upstream:
    from geminids.gateway.script.scripted import Scripted  # imported late: runs have another upstream

    return Scripted(script)
