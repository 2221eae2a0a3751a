"""Open a connection to a server: look up its address (DNS), connect through a proxy if needed, and
start TLS. Each kind of failure has its own value of `UpstreamFault.kind`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import socket
import ssl
import threading
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Literal

import anyio
import h11

from geminids.at_fork import close_in_child
from geminids.gateway.forward.connection import TcpConnection
from geminids.gateway.forward.network_settings import Address, NetworkSettings, Proxy
from geminids.gateway.upstream import UpstreamFault
from geminids.log import get_logger

__all__ = ["open_connection"]

_log = get_logger("gateway")

_CONNECT_SECONDS = 30
# If an address does not answer in this many seconds, the next one is tried in parallel (RFC 8305).
_FALLBACK_SECONDS = 0.25
_KEEPALIVE_SECONDS = 60


async def open_connection(address: Address, network: NetworkSettings) -> TcpConnection:
    """Open a connection to this address, through the proxy in `network` if there is one. Raises
    `UpstreamFault` if no connection can be opened.
    """
    proxy = network.proxy_to(address)
    first = proxy.address if proxy else address
    tcp: TcpConnection | None = None
    try:
        with anyio.fail_after(_CONNECT_SECONDS):
            tcp = await _connect_tcp(first, "proxy" if proxy else "")
            if proxy is not None:
                if proxy.address.tls:
                    await _start_tls(tcp, proxy.address, network)
                await _open_tunnel(tcp, address, proxy)
            if address.tls:
                await _start_tls(tcp, address, network)
            return tcp
    except BaseException as error:
        if tcp is not None:
            tcp.drop()
        if isinstance(error, TimeoutError):
            raise UpstreamFault(
                "connect", f"no connection to {address.host_and_port} within {_CONNECT_SECONDS} s"
            ) from None
        raise


async def _connect_tcp(address: Address, kind: Literal["proxy", ""]) -> TcpConnection:
    where = f"the proxy {address.host_and_port}" if kind else address.host_and_port
    try:
        addresses = await _resolve(address)
    except OSError as error:
        raise UpstreamFault(
            kind or "dns", f"the address of {address.host} was not found: {error.strerror or error}"
        ) from None
    try:
        sock = await _connect_first(addresses)
    except OSError as error:
        raise UpstreamFault(kind or "connect", f"no connection to {where}: {_reason(error)}") from None
    _, tcp = await asyncio.get_running_loop().create_connection(TcpConnection, sock=sock)
    return tcp


def _reason(error: OSError) -> str:
    # Use the system's message, because asyncio replaces it with its own.
    return os.strerror(error.errno) if error.errno else str(error)


_SocketAddress = tuple[socket.AddressFamily, Any]


async def _resolve(address: Address) -> list[_SocketAddress]:
    """Look up the IP addresses of the host in `address`, in a daemon thread. Raises `OSError` if no
    IP address can be found.

    The lookup does not use the thread pool of the event loop. With the pool, a name server that
    does not answer would delay the exit of this process.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[_SocketAddress]] = loop.create_future()

    def settle(addresses: list[_SocketAddress], error: OSError | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(addresses)

    def look_up() -> None:
        try:
            infos, error = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM), None
        except (OSError, UnicodeError) as problem:
            infos, error = [], problem if isinstance(problem, OSError) else OSError(str(problem))
        try:
            loop.call_soon_threadsafe(settle, _interleave([(info[0], info[4]) for info in infos]), error)
        except RuntimeError:
            pass  # the loop has ended

    try:
        threading.Thread(target=look_up, name="geminids-dns", daemon=True).start()
    except RuntimeError as error:  # no more threads
        raise OSError(str(error)) from None
    return await future


def _interleave(addresses: list[_SocketAddress]) -> list[_SocketAddress]:
    """Return the addresses in an order that alternates between IPv6 and IPv4. So if the network
    supports only IPv4 or only IPv6, the unusable addresses cause no long wait.
    """
    first = [address for address in addresses if addresses[0][0] == address[0]]
    other = [address for address in addresses if addresses[0][0] != address[0]]
    return [address for pair in zip_longest(first, other) for address in pair if address is not None]


async def _connect_first(addresses: list[_SocketAddress]) -> socket.socket:
    """Connect to one of these addresses, and return the connected socket. The addresses are tried
    in their order. If one does not answer within 0.25 seconds, the next one is tried in parallel.
    Raises `OSError` if no address accepts a connection.
    """
    connected: list[socket.socket] = []
    errors: list[OSError] = []

    async def attempt(address: _SocketAddress, is_done: anyio.Event) -> None:
        try:
            connected.append(await _connect(address))
            tasks.cancel_scope.cancel()
        except OSError as error:
            errors.append(error)
        is_done.set()

    try:
        async with anyio.create_task_group() as tasks:
            for address in addresses:
                is_done = anyio.Event()
                tasks.start_soon(attempt, address, is_done)
                with anyio.move_on_after(_FALLBACK_SECONDS):
                    await is_done.wait()
    except BaseException:
        for sock in connected:
            sock.close()
        raise
    for sock in connected[1:]:
        sock.close()
    if not connected:
        raise errors[0] if errors else OSError("no IP address was found for this host")
    return connected[0]


async def _connect(address: _SocketAddress) -> socket.socket:
    sock = close_in_child(socket.socket(address[0], socket.SOCK_STREAM))
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # An answer may pause for a long time: let the system check that the server still exists.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        idle = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
        if idle is not None:
            sock.setsockopt(socket.IPPROTO_TCP, idle, _KEEPALIVE_SECONDS)
        await asyncio.get_running_loop().sock_connect(sock, address[1])
    except BaseException:
        sock.close()
        raise
    return sock


async def _open_tunnel(tcp: TcpConnection, address: Address, proxy: Proxy) -> None:
    """Open a tunnel to `address` through a proxy, with the HTTP method CONNECT. Like the CLI,
    geminids uses a tunnel for http URLs too, not only for https. Raises `UpstreamFault` if the
    proxy refuses the tunnel or gives no valid answer.
    """
    headers = [("Host", address.host_and_port)]
    if proxy.authorization:
        headers.append(("Proxy-Authorization", proxy.authorization))
    http = h11.Connection(h11.CLIENT)
    where = f"the proxy {proxy.address.host_and_port}"
    try:
        head = http.send(h11.Request(method="CONNECT", target=address.host_and_port, headers=headers))
        await tcp.write((head or b"") + (http.send(h11.EndOfMessage()) or b""))
        while (event := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await tcp.read())
    except (OSError, h11.RemoteProtocolError) as error:
        raise UpstreamFault("proxy", f"{where} gave no valid answer to CONNECT: {error}") from None
    if not isinstance(event, h11.Response) or event.status_code // 100 != 2:
        status = getattr(event, "status_code", None)
        detail = " (it needs a user name and a password)" if status == 407 else ""
        message = f"{where} refused to connect to {address.host_and_port}: HTTP {status}{detail}"
        raise UpstreamFault("proxy", message)


async def _start_tls(tcp: TcpConnection, address: Address, network: NetworkSettings) -> None:
    try:
        context = _context(network)
    except (OSError, ssl.SSLError) as error:
        raise UpstreamFault(
            "tls", f"the CA certificates cannot be read (check SSL_CERT_FILE and SSL_CERT_DIR): {error}"
        ) from None
    try:
        loop = asyncio.get_running_loop()
        secured = await loop.start_tls(tcp.transport, tcp, context, server_hostname=address.host)
        assert secured is not None
        tcp.connection_made(secured)
    except ssl.SSLCertVerificationError as error:
        hint = "to trust another CA, set NODE_EXTRA_CA_CERTS or SSL_CERT_FILE"
        message = (
            f"the certificate of {address.host_and_port} is not trusted: {error.verify_message} ({hint})"
        )
        raise UpstreamFault("tls", message) from None
    except OSError as error:
        raise UpstreamFault("tls", f"TLS with {address.host_and_port} failed: {error}") from None


@lru_cache(maxsize=8)
def _context(network: NetworkSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=network.ca_file, capath=network.ca_folder)
    if not (network.ca_file or network.ca_folder or _system_has_certificates(context)):
        _load_bundled(context)
    if network.more_ca is not None:
        try:
            context.load_verify_locations(network.more_ca)
        except (OSError, ssl.SSLError) as error:
            # Continue without them: Node does so too, with a warning.
            _log.warning(
                "the certificates in %s (NODE_EXTRA_CA_CERTS) cannot be loaded", network.more_ca, error=error
            )
    return context


def _system_has_certificates(context: ssl.SSLContext) -> bool:
    # OpenSSL loads certificates from this folder on demand, so the statistics do not count them.
    folder = ssl.get_default_verify_paths().capath
    return bool(context.cert_store_stats()["x509_ca"] or (folder and os.listdir(folder)))


def _load_bundled(context: ssl.SSLContext) -> None:
    """Load the CA certificates of the package certifi, if it is installed.

    This is needed because a small container may have no certificates of its own. The CLI works
    there, because Node contains certificates.
    """
    try:
        certifi = importlib.import_module("certifi")
    except ImportError:
        return
    context.load_verify_locations(certifi.where())
