"""Proxy and certificates for connections to the API, read from the environment of a run. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import msgspec

from geminids.errors import GeminidsError

__all__ = ["Address", "NetworkSettings", "Proxy", "read_address", "read_base_url", "read_network_settings"]

_PORTS = {"http": 80, "https": 443}
# The CLI uses one proxy for all URLs: the first of these that is set (its config.ts).
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
_WITH_PORT = re.compile(r"(.+):(\d+)")


class Address(msgspec.Struct, frozen=True):
    """Host and port of a server, and whether it uses TLS. An IPv6 host has no brackets."""

    host: str
    port: int
    tls: bool

    @property
    def host_and_port(self) -> str:
        """As in `CONNECT`, with the port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def host_header(self) -> str:
        return self.host_and_port.removesuffix(f":{_PORTS['https' if self.tls else 'http']}")


class Proxy(msgspec.Struct, frozen=True):
    """A proxy, and the `Proxy-Authorization` header for it."""

    address: Address
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Proxy({self.address.host_and_port})"


class NetworkSettings(msgspec.Struct, frozen=True):
    """Proxy and certificates. `ca_file` and `ca_folder` replace the system's certificates;
    `more_ca` is added to them."""

    proxy: Proxy | None = None
    no_proxy: tuple[str, ...] = ()
    ca_file: str | None = None
    ca_folder: str | None = None
    more_ca: str | None = None

    def proxy_to(self, address: Address) -> Proxy | None:
        """The proxy for this address, or None. Loopback addresses use none."""
        if self.proxy is None or _is_loopback(address.host):
            return None
        is_bypassed = any(_matches(entry, address) for entry in self.no_proxy)
        return None if is_bypassed else self.proxy


def read_network_settings(environ: Mapping[str, str]) -> NetworkSettings:
    """Read the network settings from an environment.

    The proxy is the one that the CLI uses (`HTTPS_PROXY`, else `HTTP_PROXY`, for every URL; upper
    case first). Certificates are those of Python (`SSL_CERT_FILE`, `SSL_CERT_DIR`) and of Node
    (`NODE_EXTRA_CA_CERTS`).

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
    """The address of an API and the path prefix in its base URL. Accepts any http or https URL, as
    the CLI does.

    >>> read_base_url("https://api.test/gemini/")
    (Address(host='api.test', port=443, tls=True), '/gemini')
    """
    address = read_address(url.strip())
    if address is None or "@" in urlsplit(url).netloc:
        raise GeminidsError(
            f"this is not a base URL of an API: {_without_password(url)}",
            hint="GOOGLE_GEMINI_BASE_URL, GOOGLE_VERTEX_BASE_URL or CODE_ASSIST_ENDPOINT must be an http or https URL "
            "without a user name.",
        )
    return address, urlsplit(url.strip()).path.removesuffix("/")


def read_address(url: str) -> Address | None:
    """The address in an http or https URL; None if it is anything else.

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
            f"this is not the URL of a usable proxy: {_without_password(url)}",
            hint="HTTPS_PROXY must be an http or https URL; the CLI does not support SOCKS proxies either.",
        )
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if not parts.username:
        return Proxy(address)
    import base64

    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(address, "Basic " + base64.b64encode(pair.encode()).decode())


def _without_password(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", url)


def _is_loopback(host: str) -> bool:
    try:
        import ipaddress  # imported late: this module is loaded before the spawn

        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _matches(entry: str, address: Address) -> bool:
    """Match an entry of NO_PROXY as undici does: a name, `.name` or `*.name` for all subdomains,
    each with or without a port; `*` for all. As in Python and curl, a bare name also matches its
    subdomains."""
    if entry == "*":
        return True
    with_port = _WITH_PORT.fullmatch(entry)
    name, port = (with_port[1], int(with_port[2])) if with_port else (entry, address.port)
    if port != address.port:
        return False
    name = name.removeprefix("*").strip("[]")
    return address.host == name.removeprefix(".") or address.host.endswith("." + name.removeprefix("."))
