"""Read the network settings of a run from its environment variables: the proxy and the certificates
for connections to the API. This module does no I/O.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import msgspec

from geminids.errors import GeminidsError

__all__ = ["Address", "NetworkSettings", "Proxy", "read_address", "read_base_url", "read_network_settings"]

_PORTS = {"http": 80, "https": 443}
# The CLI uses one proxy for all URLs: the first of these variables that is set (the CLI's
# config.ts).
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
_WITH_PORT = re.compile(r"(.+):(\d+)")


class Address(msgspec.Struct, frozen=True):
    """The address of a server: host, port, and whether the connection uses TLS. If `host` is an
    IPv6 address, it has no brackets.
    """

    host: str
    port: int
    tls: bool

    @property
    def host_and_port(self) -> str:
        """The host and the port, separated by a colon, as in a `CONNECT` request. An IPv6 address
        is in brackets.
        """
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def host_header(self) -> str:
        return self.host_and_port.removesuffix(f":{_PORTS['https' if self.tls else 'http']}")


class Proxy(msgspec.Struct, frozen=True):
    """A proxy server. `authorization` is the value of the `Proxy-Authorization` header for it; None
    if the proxy needs no sign-in.
    """

    address: Address
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Proxy({self.address.host_and_port})"


class NetworkSettings(msgspec.Struct, frozen=True):
    """The proxy and the CA certificates for the connections of a run to the API.

    `no_proxy` lists the hosts that are reached without the proxy. `ca_file` is a file and
    `ca_folder` a folder with certificates that are used in place of the system's certificates.
    `more_ca` is a file with certificates that are used in addition.
    """

    proxy: Proxy | None = None
    no_proxy: tuple[str, ...] = ()
    ca_file: str | None = None
    ca_folder: str | None = None
    more_ca: str | None = None

    def proxy_to(self, address: Address) -> Proxy | None:
        """Return the proxy to use for this address. None means a direct connection. Connections to
        this machine itself (loopback) are always direct.
        """
        if self.proxy is None or _is_loopback(address.host):
            return None
        is_bypassed = any(_matches(entry, address) for entry in self.no_proxy)
        return None if is_bypassed else self.proxy


def read_network_settings(environ: Mapping[str, str]) -> NetworkSettings:
    """Read the network settings from environment variables. Raises `GeminidsError` if the proxy URL
    is not valid.

    The CLI uses one proxy for all URLs, and geminids uses the same one: `HTTPS_PROXY`, or else
    `HTTP_PROXY`. For each of these names, the upper-case form is read first, then the lower-case
    form. Certificates come from the variables of Python (`SSL_CERT_FILE`, `SSL_CERT_DIR`) and of
    Node (`NODE_EXTRA_CA_CERTS`).

    >>> read_network_settings({"HTTPS_PROXY": "http://proxy.test:3128", "NO_PROXY": ".corp.test"}).proxy
    Proxy(proxy.test:3128)
    """
    url = next((environ[name].strip() for name in _PROXIES if environ.get(name, "").strip()), None)
    no_proxy = environ.get("NO_PROXY", environ.get("no_proxy", ""))
    return NetworkSettings(
        proxy=None if url is None else _proxy(url),
        no_proxy=tuple(entry.lower() for entry in re.split(r"[,\s]", no_proxy) if entry),
        ca_file=environ.get("SSL_CERT_FILE") or None,
        ca_folder=environ.get("SSL_CERT_DIR") or None,
        more_ca=environ.get("NODE_EXTRA_CA_CERTS") or None,
    )


def read_base_url(url: str) -> tuple[Address, str]:
    """Split the base URL of an API. Return the address of the server, and the path of the URL
    without a slash at its end; the paths of requests are appended to this path.

    Raises `GeminidsError` if `url` is not an http or https URL, or if it contains a user name.

    >>> read_base_url("https://api.test/gemini/")
    (Address(host='api.test', port=443, tls=True), '/gemini')
    """
    address = read_address(url.strip())
    if address is None or "@" in urlsplit(url).netloc:
        raise GeminidsError(
            f"the base URL of the API is not valid: {_without_password(url)}",
            hint="Correct the variable with this URL (GOOGLE_GEMINI_BASE_URL, GOOGLE_VERTEX_BASE_URL or "
            "CODE_ASSIST_ENDPOINT): it must be an http or https URL without a user name.",
        )
    return address, urlsplit(url.strip()).path.removesuffix("/")


def read_address(url: str) -> Address | None:
    """Parse an http or https URL. Return the host, the port, and whether TLS is used. Return None
    if the text is not an http or https URL.

    >>> read_address("https://api.test:8443/token")
    Address(host='api.test', port=8443, tls=True)
    """
    try:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            return None
        return Address(parts.hostname, parts.port or _PORTS[parts.scheme], parts.scheme == "https")
    except ValueError:
        return None


def _proxy(url: str) -> Proxy:
    address = read_address(url if "://" in url else f"http://{url}")
    if address is None:
        raise GeminidsError(
            f"the proxy URL is not valid: {_without_password(url)}",
            hint="Correct the variable with this URL (HTTPS_PROXY or HTTP_PROXY): it must be an http or https URL. "
            "SOCKS proxies are not supported.",
        )
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if not parts.username:
        return Proxy(address)
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(address, "Basic " + base64.b64encode(pair.encode()).decode())


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", url)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _matches(entry: str, address: Address) -> bool:
    """Return whether `entry`, an entry of NO_PROXY, matches this address.

    An entry has the form `name`, `.name` or `*.name`, with or without a port. Each form matches the
    host `name` and all its subdomains. If the entry has a port, the port must be equal. The entry
    `*` matches all hosts. These rules are similar to those of undici, Node's HTTP client.
    """
    if entry == "*":
        return True
    with_port = _WITH_PORT.fullmatch(entry)
    name, port = (with_port[1], int(with_port[2])) if with_port else (entry, address.port)
    if port != address.port:
        return False
    name = name.removeprefix("*").strip("[]")
    return address.host == name.removeprefix(".") or address.host.endswith("." + name.removeprefix("."))
