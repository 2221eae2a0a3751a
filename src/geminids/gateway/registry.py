"""The gateway of this process: one for all its runs, open while a lease is open."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from geminids.at_fork import run_in_child
from geminids.gateway.lease import Lease, Leases
from geminids.gateway.messages import Halt
from geminids.gateway.request import Request
from geminids.gateway.server.gateway import Gateway
from geminids.gateway.upstream import Part, UpstreamFault

if TYPE_CHECKING:
    from geminids.gateway.metering import Leased

__all__ = ["HostGateway", "OpenLease", "keep_open", "open_lease"]


class HostGateway:
    """A gateway that serves leases. It listens from the first lease on, and answers once `begin` was called."""

    def __init__(self) -> None:
        self.leases = Leases()
        upstream = _LateUpstream(self.leases, lambda: self._server.port)
        self._server = Gateway(upstream, keep=0, on_end=self._ended)
        self._server.listen()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def usable(self) -> bool:
        """Whether it answers. It does not after it has ended, nor in a forked child."""
        return not self._server.ended

    def begin(self) -> None:
        """Answer; connections have waited in the backlog until now. Call it after the CLI is spawned: the imports of
        the thread would slow its start."""
        self._server.begin()

    def stop(self) -> None:
        self._server.stop()

    def _ended(self, why: str) -> None:
        """Tell each run that nobody will answer its requests any more."""
        for lease in self.leases.all():
            lease.tell(
                Halt(
                    kind="gone",
                    message=f"the gateway between the CLI and the API has ended: {why}",
                    hint="Run again; if it stays so, run with gateway='off' and report it.",
                )
            )


class _LateUpstream:
    """`Leased`, imported by the gateway's thread: it takes 12 ms, in which the CLI is spawned already."""

    def __init__(self, leases: Leases, port: Callable[[], int]) -> None:
        self._leases = leases
        self._port = port
        self._leased: Leased | None = None

    def knows(self, token: str | None) -> bool:
        return self._leases.find(token) is not None

    def prepare(self) -> None:
        """Called by the gateway's thread before it answers."""
        from geminids.gateway.metering import Leased

        self._leased = Leased(self._leases, self._port)

    def answer(self, request: Request) -> AsyncIterator[Part]:
        assert self._leased is not None
        return self._leased.answer(request)


class OpenLease:
    """A lease in use. `url` and `token` are for the CLI; `close` makes the token worthless."""

    def __init__(self, gateway: HostGateway, lease: Lease) -> None:
        self._gateway = gateway
        self.lease = lease

    @property
    def url(self) -> str:
        return self._gateway.url

    @property
    def token(self) -> str:
        return self.lease.token

    @property
    def usable(self) -> bool:
        """Whether the gateway is there: it can die while the lease goes on."""
        return self._gateway.usable

    def begin(self) -> None:
        self._gateway.begin()

    def renewed(self) -> OpenLease:
        """The same lease, with what it has spent, at the gateway that is there now."""
        self.close()
        self.lease.renew()
        return open_lease(self.lease)

    def close(self) -> None:
        """Closing twice does no harm."""
        with _lock:
            if self._gateway.leases.remove(self.lease) == 0:
                self._gateway.stop()
                _forget(self._gateway)


_lock = threading.Lock()
_host: HostGateway | None = None


def open_lease(lease: Lease) -> OpenLease:
    """Let a lease in, into the gateway of this process, which is started where there is none."""
    global _host
    with _lock:
        if _host is None or not _host.usable:
            _host = HostGateway()
        _host.leases.add(lease)
        return OpenLease(_host, lease)


def keep_open() -> OpenLease:
    """Keep the gateway at its address while processes live that know it; nobody gets an answer by this lease."""
    return open_lease(Lease(_Nobody(), lambda told: None))


class _Nobody:
    async def answer(self, request: Request) -> AsyncIterator[Part]:
        raise UpstreamFault("closed", "nobody answers here")
        yield  # an async generator, as every upstream is


def _after_fork() -> None:
    """The child has no thread that serves, and the lock may have been held by one that it has not either."""
    global _lock, _host
    _lock, _host = threading.Lock(), None


run_in_child(_after_fork)


def _forget(gateway: HostGateway) -> None:
    global _host
    if _host is gateway:
        _host = None
