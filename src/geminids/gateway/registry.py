"""The gateway of this process: all runs share it, and it is open while any lease is open."""

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
    from geminids.gateway.metering import MeteredUpstream

__all__ = ["HostGateway", "OpenLease", "keep_open", "open_lease"]


class HostGateway:
    """A gateway that serves leases. It listens at once, and answers after `begin`."""

    def __init__(self) -> None:
        self.leases = Leases()
        upstream = _LazyUpstream(self.leases, lambda: self._server.port)
        self._server = Gateway(upstream, keep=0, on_end=self._ended)
        self._server.listen()

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def usable(self) -> bool:
        """False after the gateway has ended, and in a forked child."""
        return not self._server.ended

    def begin(self) -> None:
        """Start to answer; until now, connections wait in the backlog. Call it after the CLI is
        spawned: the imports of the gateway's thread would slow its start."""
        self._server.begin()

    def stop(self) -> None:
        self._server.stop()

    def _ended(self, reason: str) -> None:
        """Halt every run: its requests get no answer any more."""
        for lease in self.leases.all():
            lease.report(
                Halt(
                    kind="gone",
                    message=f"the gateway between the CLI and the API has ended: {reason}",
                    hint="Run again. If it happens again, run with gateway='off' and report it.",
                )
            )


class _LazyUpstream:
    """Imports `MeteredUpstream` in the gateway's thread: the import takes 12 ms and must not delay
    the spawn."""

    def __init__(self, leases: Leases, port: Callable[[], int]) -> None:
        self._leases = leases
        self._port = port
        self._metered: MeteredUpstream | None = None

    def knows(self, token: str | None) -> bool:
        return self._leases.find(token) is not None

    def prepare(self) -> None:
        """The gateway's thread calls this before it answers."""
        from geminids.gateway.metering import MeteredUpstream

        self._metered = MeteredUpstream(self._leases, self._port)

    def answer(self, request: Request) -> AsyncIterator[Part]:
        assert self._metered is not None
        return self._metered.answer(request)


class OpenLease:
    """A lease at a gateway. `url` and `token` are for the CLI; `close` invalidates the token."""

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
        """Whether the gateway still answers: it can die before the lease is closed."""
        return self._gateway.usable

    def begin(self) -> None:
        self._gateway.begin()

    def renewed(self) -> OpenLease:
        """Open the same lease, with what it has spent, at the current gateway."""
        self.close()
        self.lease.renew()
        return open_lease(self.lease)

    def close(self) -> None:
        """Close the lease, and the gateway with the last one. A second call has no effect."""
        with _lock:
            if self._gateway.leases.remove(self.lease) == 0:
                self._gateway.stop()
                _forget(self._gateway)


_lock = threading.Lock()
_host: HostGateway | None = None


def open_lease(lease: Lease) -> OpenLease:
    """Open a lease at the gateway of this process. Starts the gateway if there is none."""
    global _host
    with _lock:
        if _host is None or not _host.usable:
            _host = HostGateway()
        _host.leases.add(lease)
        return OpenLease(_host, lease)


def keep_open() -> OpenLease:
    """Keep the gateway at its address while processes that know it are alive. This lease answers no
    request."""
    return open_lease(Lease(_NoUpstream(), lambda message: None))


class _NoUpstream:
    async def answer(self, request: Request) -> AsyncIterator[Part]:
        raise UpstreamFault("closed", "this lease answers no request")
        yield  # makes this an async generator, as every upstream is


def _after_fork() -> None:
    """The child has no gateway thread, and a thread that it does not have may hold the lock."""
    global _lock, _host
    _lock, _host = threading.Lock(), None


run_in_child(_after_fork)


def _forget(gateway: HostGateway) -> None:
    global _host
    if _host is gateway:
        _host = None
