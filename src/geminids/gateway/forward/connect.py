"""A connection to a server: names looked up, a proxy passed, TLS spoken; what goes wrong is told apart."""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import ssl
import threading
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import anyio
import h11

from geminids.at_fork import close_in_child
from geminids.gateway.forward.connection import Line
from geminids.gateway.forward.network_settings import Address, Proxy, Way
from geminids.gateway.upstream import UpstreamFault
from geminids.log import get_logger

__all__ = ["dial"]

_log = get_logger("gateway")

_CONNECT_SECONDS = 30
# How long an address may keep us waiting before the next one is tried as well (RFC 8305).
_NEXT_SECONDS = 0.25
_ALIVE_SECONDS = 60


async def dial(address: Address, way: Way) -> Line:
    """Open a connection to this address; raises `UpstreamFault`."""
    proxy = way.proxy_to(address)
    first = proxy.address if proxy else address
    line: Line | None = None
    try:
        with anyio.fail_after(_CONNECT_SECONDS):
            line = await _connected(first, "proxy" if proxy else "")
            if proxy is not None:
                if proxy.address.tls:
                    await _secured(line, proxy.address, way)
                await _tunnelled(line, address, proxy)
            if address.tls:
                await _secured(line, address, way)
            return line
    except BaseException as error:
        if line is not None:
            line.drop()
        if isinstance(error, TimeoutError):
            raise UpstreamFault(
                "connect", f"no connection to {address.named} within {_CONNECT_SECONDS} s"
            ) from None
        raise


async def _connected(address: Address, what: str) -> Line:
    where = f"the proxy {address.named}" if what else address.named
    try:
        found = await _looked_up(address)
    except OSError as error:
        kind = "proxy" if what else "dns"
        raise UpstreamFault(
            kind, f"the address of {address.host} was not found: {error.strerror or error}"
        ) from None
    try:
        taken = await _first_of(found)
    except OSError as error:
        raise UpstreamFault(what or "connect", f"no connection to {where}: {_reason(error)}") from None
    _, line = await asyncio.get_running_loop().create_connection(Line, sock=taken)
    return line


def _reason(error: OSError) -> str:
    # asyncio puts words of its own in place of the system's.
    return os.strerror(error.errno) if error.errno else str(error)


_Found = tuple[socket.AddressFamily, Any]


async def _looked_up(address: Address) -> list[_Found]:
    """In a thread that nobody waits for: a name server that does not answer must not hold up the end of the host,
    as the executor of the event loop would."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[_Found]] = loop.create_future()

    def settle(found: list[_Found], error: OSError | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found)

    def look_up() -> None:
        try:
            told, error = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM), None
        except (OSError, UnicodeError) as problem:
            told, error = [], problem if isinstance(problem, OSError) else OSError(str(problem))
        try:
            loop.call_soon_threadsafe(settle, _mixed([(one[0], one[4]) for one in told]), error)
        except RuntimeError:
            pass  # the loop has ended

    try:
        threading.Thread(target=look_up, name="geminids-dns", daemon=True).start()
    except RuntimeError as error:  # no more threads
        raise OSError(str(error)) from None
    return await future


def _mixed(found: list[_Found]) -> list[_Found]:
    """IPv6 and IPv4 in turn, in the order in which they came: a network without the one is not waited for."""
    first = [one for one in found if found[0][0] == one[0]]
    other = [one for one in found if found[0][0] != one[0]]
    return [one for pair in zip_longest(first, other) for one in pair if one is not None]


async def _first_of(found: list[_Found]) -> socket.socket:
    """The first of these addresses that lets us in; each but the last is given a moment before the next is tried."""
    taken: list[socket.socket] = []
    errors: list[OSError] = []

    async def attempt(one: _Found, over: anyio.Event) -> None:
        try:
            taken.append(await _connect(one))
            tasks.cancel_scope.cancel()
        except OSError as error:
            errors.append(error)
        over.set()

    try:
        async with anyio.create_task_group() as tasks:
            for one in found:
                over = anyio.Event()
                tasks.start_soon(attempt, one, over)
                with anyio.move_on_after(_NEXT_SECONDS):
                    await over.wait()
    except BaseException:
        for sock in taken:
            sock.close()
        raise
    for sock in taken[1:]:
        sock.close()
    if not taken:
        raise errors[0] if errors else OSError("it has no address")
    return taken[0]


async def _connect(one: _Found) -> socket.socket:
    sock = close_in_child(socket.socket(one[0], socket.SOCK_STREAM))
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # An answer may be silent for long: whether its server is still there is asked by the system.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
        if idle is not None:
            sock.setsockopt(socket.IPPROTO_TCP, idle, _ALIVE_SECONDS)
        await asyncio.get_running_loop().sock_connect(sock, one[1])
    except BaseException:
        sock.close()
        raise
    return sock


async def _tunnelled(line: Line, address: Address, proxy: Proxy) -> None:
    """Ask a proxy to lead us on to an address; for http too, as the CLI's own client does."""
    headers = [("Host", address.named)]
    if proxy.authorization:
        headers.append(("Proxy-Authorization", proxy.authorization))
    http = h11.Connection(h11.CLIENT)
    where = f"the proxy {proxy.address.named}"
    try:
        ask = http.send(h11.Request(method="CONNECT", target=address.named, headers=headers))
        await line.write((ask or b"") + (http.send(h11.EndOfMessage()) or b""))
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await line.read())
    except (OSError, h11.RemoteProtocolError) as error:
        raise UpstreamFault("proxy", f"{where} does not answer as a proxy: {error}") from None
    if not isinstance(event, h11.Response) or event.status_code // 100 != 2:
        status = getattr(event, "status_code", None)
        why = " (it wants a user name and a password)" if status == 407 else ""
        raise UpstreamFault("proxy", f"{where} refused the way to {address.named}: HTTP {status}{why}")


async def _secured(line: Line, address: Address, way: Way) -> None:
    try:
        context = _context(way)
    except (OSError, ssl.SSLError) as error:
        raise UpstreamFault("tls", f"the CA certificates cannot be read: {error}") from None
    try:
        loop = asyncio.get_running_loop()
        secured = await loop.start_tls(line.transport, line, context, server_hostname=address.host)
        assert secured is not None
        line.connection_made(secured)
    except ssl.SSLCertVerificationError as error:
        hint = "NODE_EXTRA_CA_CERTS or SSL_CERT_FILE can name a CA to believe"
        message = f"{address.named} has no certificate that can be believed: {error.verify_message} ({hint})"
        raise UpstreamFault("tls", message) from None
    except OSError as error:
        raise UpstreamFault("tls", f"TLS with {address.named} failed: {error}") from None


@lru_cache(maxsize=8)
def _context(way: Way) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=way.ca_file, capath=way.ca_folder)
    if not (way.ca_file or way.ca_folder or _system_has_certificates(context)):
        _load_bundled(context)
    if way.more_ca is not None:
        try:
            context.load_verify_locations(way.more_ca)
        except (OSError, ssl.SSLError) as error:
            # As Node does, which prints a warning.
            _log.warning("the extra certificates cannot be loaded", error=error)
    return context


def _system_has_certificates(context: ssl.SSLContext) -> bool:
    folder = ssl.get_default_verify_paths().capath  # read when one is needed: they are not in the statistics
    return bool(context.cert_store_stats()["x509_ca"] or (folder and os.listdir(folder)))


def _load_bundled(context: ssl.SSLContext) -> None:
    """Node has certificates of its own, so that the CLI works in a container that has none: so do most Pythons."""
    try:
        certifi = importlib.import_module("certifi")
    except ImportError:
        return
    context.load_verify_locations(certifi.where())
