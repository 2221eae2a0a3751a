"""How the API is reached: which proxy and which certificates, by the environment of a run. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import msgspec

from geminids.errors import GeminidsError

__all__ = ["Address", "Proxy", "Way", "read_address", "read_base_url", "way_of"]

_PORTS = {"http": 80, "https": 443}
# The CLI takes one proxy for all, and these in their order (its config.ts).
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
_WITH_PORT = re.compile(r"(.+):(\d+)")


class Address(msgspec.Struct, frozen=True):
    """Where a server is: what a URL says without its path. A host in brackets has lost them."""

    host: str
    port: int
    tls: bool

    @property
    def named(self) -> str:
        """As `Host` and `CONNECT` have it, with the port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def host_header(self) -> str:
        return self.named.removesuffix(f":{_PORTS['https' if self.tls else 'http']}")


class Proxy(msgspec.Struct, frozen=True):
    """A proxy, and the header that it wants to see."""

    address: Address
    authorization: str | None = None

    def __repr__(self) -> str:
        return f"Proxy({self.address.named})"


class Way(msgspec.Struct, frozen=True):
    """How the API is reached. `ca_file` and `ca_folder` take the place of the system's certificates, `more_ca` is
    added to whichever they are."""

    proxy: Proxy | None = None
    no_proxy: tuple[str, ...] = ()
    ca_file: str | None = None
    ca_folder: str | None = None
    more_ca: str | None = None

    def proxy_to(self, address: Address) -> Proxy | None:
        """The proxy on the way to this address, if there is one; this machine itself needs none."""
        if self.proxy is None or _is_this_machine(address.host):
            return None
        passed_by = any(_fits(entry, address) for entry in self.no_proxy)
        return None if passed_by else self.proxy


def way_of(environ: Mapping[str, str]) -> Way:
    """The way that an environment asks for.

    Proxies are what the CLI takes (`HTTPS_PROXY`, else `HTTP_PROXY`, for every URL; upper case first); certificates are
    what Python takes (`SSL_CERT_FILE`, `SSL_CERT_DIR`) and what Node takes (`NODE_EXTRA_CA_CERTS`).

    >>> way_of({"HTTPS_PROXY": "http://proxy.test:3128", "NO_PROXY": ".corp.test"}).proxy
    Proxy(proxy.test:3128)
    """
    url = next((environ[name].strip() for name in _PROXIES if environ.get(name, "").strip()), None)
    spared = environ.get("NO_PROXY", environ.get("no_proxy", ""))
    return Way(
        proxy=None if url is None else _proxy(url),
        no_proxy=tuple(entry.lower() for entry in re.split(r"[,\s]", spared) if entry),
        ca_file=environ.get("SSL_CERT_FILE") or None,
        ca_folder=environ.get("SSL_CERT_DIR") or None,
        more_ca=environ.get("NODE_EXTRA_CA_CERTS") or None,
    )


def read_base_url(url: str) -> tuple[Address, str]:
    """An API's address, and the path before its own paths; any http or https URL will do, as for the CLI.

    >>> read_base_url("https://api.test/gemini/")
    (Address(host='api.test', port=443, tls=True), '/gemini')
    """
    address = read_address(url.strip())
    if address is None or "@" in urlsplit(url).netloc:
        raise GeminidsError(
            f"this is no base URL of an API: {_shown(url)}",
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
            f"this is no URL of a proxy that can be used: {_shown(url)}",
            hint="HTTPS_PROXY must be an http or https URL; SOCKS proxies are not known to the CLI either.",
        )
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if not parts.username:
        return Proxy(address)
    import base64

    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(address, "Basic " + base64.b64encode(pair.encode()).decode())


def _shown(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", url)


def _is_this_machine(host: str) -> bool:
    try:
        import ipaddress  # imported late: this module is loaded before the spawn

        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _fits(entry: str, address: Address) -> bool:
    """As undici reads an entry of NO_PROXY: a name, `.name` or `*.name` for all below it, each with a port or not;
    `*` for all. Python and curl let a bare name stand for all below it too, and so do we."""
    if entry == "*":
        return True
    found = _WITH_PORT.fullmatch(entry)
    name, port = (found[1], int(found[2])) if found else (entry, address.port)
    if port != address.port:
        return False
    name = name.removeprefix("*").strip("[]")
    return address.host == name.removeprefix(".") or address.host.endswith("." + name.removeprefix("."))
