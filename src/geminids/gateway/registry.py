"""The gateway that all runs of this process share. It is open as long as any lease (a run's right
to use the gateway) is open.
"""

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
    """The gateway for all leases (the rights of runs to use it) of this process. Its port is open
    from the start. It answers requests only after `begin` was called.
    """

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
        """Whether the gateway still works. It is False after the gateway has ended, and in a forked
        child process.
        """
        return not self._server.ended

    def begin(self) -> None:
        """Start to answer requests. Until then, new connections wait.

        Call this after the CLI has been started. Otherwise the imports of the gateway's thread
        would delay the start of the CLI.
        """
        self._server.begin()

    def stop(self) -> None:
        self._server.stop()

    def _ended(self, reason: str) -> None:
        """Stop every run that uses the gateway, because the gateway has ended and cannot answer
        requests. `reason` says why it ended.
        """
        for lease in self.leases.all():
            lease.report(
                Halt(
                    kind="gone",
                    message=f"the gateway between the CLI and the API has ended: {reason}",
                    hint="Start the run again. If this happens again, use `gateway='off'` and report the problem.",
                )
            )


class _LazyUpstream:
    """Creates a `MeteredUpstream` when the gateway begins to answer, and lets it answer the
    requests. The module of `MeteredUpstream` is not imported earlier, because its import takes 12
    ms and would delay the start of the CLI.
    """

    def __init__(self, leases: Leases, port: Callable[[], int]) -> None:
        self._leases = leases
        self._port = port
        self._metered: MeteredUpstream | None = None

    def knows(self, token: str | None) -> bool:
        return self._leases.find(token) is not None

    def prepare(self) -> None:
        """Import and create the `MeteredUpstream`. The gateway calls this method before its thread
        starts.
        """
        from geminids.gateway.metering import MeteredUpstream  # imported late, see the class

        self._metered = MeteredUpstream(self._leases, self._port)

    def answer(self, request: Request) -> AsyncIterator[Part]:
        assert self._metered is not None
        return self._metered.answer(request)


class OpenLease:
    """A lease (a run's right to use the gateway) that is open. The CLI uses `url` and `token` to
    send requests to the gateway. After `close`, the token is not valid.
    """

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
        """Whether the gateway still answers. The gateway may stop unexpectedly before the lease is
        closed.
        """
        return self._gateway.usable

    def begin(self) -> None:
        self._gateway.begin()

    def renewed(self) -> OpenLease:
        """Close this lease, and open it again at a gateway that still answers. Return the new open
        lease. What the run has spent of its budgets stays the same. Raises `GeminidsError` if a new
        gateway is needed and its port cannot be opened.
        """
        self.close()
        self.lease.renew()
        return open_lease(self.lease)

    def close(self) -> None:
        """Close the lease. If no other lease is open, close the gateway too. A second call has no
        effect.
        """
        with _lock:
            if self._gateway.leases.remove(self.lease) == 0:
                self._gateway.stop()
                _forget(self._gateway)


_lock = threading.Lock()
_host: HostGateway | None = None


def open_lease(lease: Lease) -> OpenLease:
    """Open a lease (a run's right to use the gateway) at the gateway of this process. If no gateway
    is running, start one. Raises `GeminidsError` if its port cannot be opened.
    """
    global _host
    with _lock:
        if _host is None or not _host.usable:
            _host = HostGateway()
        _host.leases.add(lease)
        return OpenLease(_host, lease)


def keep_open() -> OpenLease:
    """Keep the gateway of this process open at the same URL, until the returned lease is closed.
    The token of this lease cannot be used for requests.

    Warm processes (CLI processes that serve several prompts) need this, because they use the same
    URL all the time.
    """
    return open_lease(Lease(_NoUpstream(), lambda message: None))


class _NoUpstream:
    async def answer(self, request: Request) -> AsyncIterator[Part]:
        raise UpstreamFault(
            "closed", "the token of this request only keeps the gateway open; it cannot be used for requests"
        )
        yield  # never reached; it makes the method an async generator, as in every upstream


def _after_fork() -> None:
    """Forget the gateway in a forked child process. The child has no gateway thread. Its copy of
    `_lock` may be locked by a thread that exists only in the parent, so `_lock` is replaced.
    """
    global _lock, _host
    _lock, _host = threading.Lock(), None


run_in_child(_after_fork)


def _forget(gateway: HostGateway) -> None:
    global _host
    if _host is gateway:
        _host = None
