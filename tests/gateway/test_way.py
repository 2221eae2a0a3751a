"""Which way leads to the API: proxies as the CLI takes them, certificates as Python and Node take them."""

from __future__ import annotations

import pytest

from geminids.errors import GeminidsError
from geminids.gateway.forward.network_settings import (
    Address,
    NetworkSettings,
    Proxy,
    read_base_url,
    read_network_settings,
)

API = Address("api.test", 443, tls=True)
PROXY = Proxy(Address("proxy.test", 3128, tls=False))
URL = "http://proxy.test:3128"


@pytest.mark.parametrize(
    ("environ", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": URL}, PROXY),
        ({"https_proxy": URL}, PROXY),
        ({"HTTP_PROXY": URL}, PROXY),
        ({"http_proxy": URL}, PROXY),
        ({"HTTPS_PROXY": URL, "HTTP_PROXY": "http://other.test"}, PROXY),
        ({"HTTPS_PROXY": "", "HTTP_PROXY": URL}, PROXY),
        ({"HTTPS_PROXY": f" {URL} "}, PROXY),
        ({"HTTPS_PROXY": "proxy.test:3128"}, PROXY),
        ({"HTTPS_PROXY": "https://proxy.test"}, Proxy(Address("proxy.test", 443, tls=True))),
        ({"HTTPS_PROXY": "http://u:p%40@proxy.test:3128"}, Proxy(PROXY.address, "Basic dTpwQA==")),
        ({"ALL_PROXY": URL}, None),
    ],
)
def test_the_proxy(environ: dict[str, str], proxy: Proxy | None) -> None:
    """One proxy for every URL: the first of the four variables that says something."""
    assert read_network_settings(environ).proxy == proxy
    assert read_network_settings(environ).proxy_to(API) == proxy


@pytest.mark.parametrize("url", ["socks5://proxy.test:1080", "http://", "http://proxy.test:port"])
def test_no_proxy_that_can_be_used(url: str) -> None:
    """A proxy that the CLI could not use either is an error with a hint, before anything is sent."""
    with pytest.raises(GeminidsError, match="proxy"):
        read_network_settings({"HTTPS_PROXY": url})


def test_a_password_is_not_shown() -> None:
    """Neither a proxy's own text nor an error shows its password."""
    assert "secret" not in repr(read_network_settings({"HTTPS_PROXY": "http://u:secret@proxy.test"}))
    with pytest.raises(GeminidsError) as caught:
        read_network_settings({"HTTPS_PROXY": "socks5://u:secret@proxy.test"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("spared", "direct"),
    [
        ("", False),
        ("*", True),
        ("api.test", True),
        ("API.TEST", True),
        ("other.test", False),
        ("test", True),
        (".test", True),
        ("*.test", True),
        ("*.api.test", True),
        ("i.test", False),
        ("other.test, api.test", True),
        ("other.test api.test", True),
        ("api.test:443", True),
        ("api.test:8443", False),
    ],
)
def test_no_proxy(spared: str, direct: bool) -> None:
    """Names, whole domains, ports and the star, as undici and curl read them."""
    assert (read_network_settings({"HTTPS_PROXY": URL, "NO_PROXY": spared}).proxy_to(API) is None) == direct


def test_the_upper_case_no_proxy_counts() -> None:
    """`NO_PROXY` counts before `no_proxy`, even when it is empty: so does the CLI."""
    assert read_network_settings({"HTTPS_PROXY": URL, "NO_PROXY": "", "no_proxy": "*"}).proxy_to(API) == PROXY
    assert read_network_settings({"HTTPS_PROXY": URL, "no_proxy": "*"}).proxy_to(API) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "api.localhost"])
def test_this_machine_needs_no_proxy(host: str) -> None:
    """An API on this machine is never looked for on another."""
    assert read_network_settings({"HTTPS_PROXY": URL}).proxy_to(Address(host, 80, tls=False)) is None


def test_certificates() -> None:
    """Python's variables take the place of the system's certificates, Node's adds to them."""
    environ = {"SSL_CERT_FILE": "/repo/a", "SSL_CERT_DIR": "/repo/b", "NODE_EXTRA_CA_CERTS": "/repo/c"}
    assert read_network_settings(environ) == NetworkSettings(
        ca_file="/repo/a", ca_folder="/repo/b", more_ca="/repo/c"
    )
    assert read_network_settings(dict.fromkeys(environ, "")) == NetworkSettings()


@pytest.mark.parametrize(
    ("url", "address", "prefix"),
    [
        ("https://api.test", API, ""),
        ("https://api.test/", API, ""),
        ("https://api.test/a/b/", API, "/a/b"),
        ("http://10.0.0.1:8080", Address("10.0.0.1", 8080, tls=False), ""),
        ("http://[::1]:8080", Address("::1", 8080, tls=False), ""),
    ],
)
def test_base_urls(url: str, address: Address, prefix: str) -> None:
    """Any http or https URL is a base URL, with a path or not, on any network."""
    assert read_base_url(url) == (address, prefix)


@pytest.mark.parametrize("url", ["", "api.test", "ftp://api.test", "https://", "https://u:secret@api.test"])
def test_no_base_urls(url: str) -> None:
    """What the CLI's own client would refuse is refused, and no password shown."""
    with pytest.raises(GeminidsError) as caught:
        read_base_url(url)
    assert "secret" not in str(caught.value)


def test_names_of_addresses() -> None:
    """An IPv6 host has its brackets again; the usual port is left out of `Host`."""
    assert Address("::1", 80, tls=False).host_and_port == "[::1]:80"
    assert API.host_header == "api.test"
    assert Address("api.test", 80, tls=True).host_header == "api.test:80"
