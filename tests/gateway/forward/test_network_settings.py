"""Tests of network settings: proxies as the CLI reads them, certificates as Python and Node do."""

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
def test_proxy_variable(environ: dict[str, str], proxy: Proxy | None) -> None:
    """The first of the four proxy variables that is not empty names the proxy for every URL."""
    assert read_network_settings(environ).proxy == proxy
    assert read_network_settings(environ).proxy_to(API) == proxy


@pytest.mark.parametrize("url", ["socks5://proxy.test:1080", "http://", "http://proxy.test:port"])
def test_unusable_proxy(url: str) -> None:
    """A proxy URL that the CLI cannot use raises an error."""
    with pytest.raises(GeminidsError, match="proxy"):
        read_network_settings({"HTTPS_PROXY": url})


def test_proxy_password_is_not_shown() -> None:
    """Neither the repr of the settings nor an error contains the proxy's password."""
    assert "secret" not in repr(read_network_settings({"HTTPS_PROXY": "http://u:secret@proxy.test"}))
    with pytest.raises(GeminidsError) as caught:
        read_network_settings({"HTTPS_PROXY": "socks5://u:secret@proxy.test"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("no_proxy", "is_direct"),
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
def test_no_proxy(no_proxy: str, is_direct: bool) -> None:
    """NO_PROXY accepts names, domains, ports and `*`, as undici and curl read them."""
    assert (
        read_network_settings({"HTTPS_PROXY": URL, "NO_PROXY": no_proxy}).proxy_to(API) is None
    ) == is_direct


def test_upper_case_no_proxy_wins() -> None:
    """`NO_PROXY` wins over `no_proxy`, even if it is empty, as in the CLI."""
    assert read_network_settings({"HTTPS_PROXY": URL, "NO_PROXY": "", "no_proxy": "*"}).proxy_to(API) == PROXY
    assert read_network_settings({"HTTPS_PROXY": URL, "no_proxy": "*"}).proxy_to(API) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "api.localhost"])
def test_loopback_bypasses_the_proxy(host: str) -> None:
    """Connections to this machine never use the proxy."""
    assert read_network_settings({"HTTPS_PROXY": URL}).proxy_to(Address(host, 80, tls=False)) is None


def test_certificates() -> None:
    """SSL_CERT_FILE and SSL_CERT_DIR replace the system's certificates.
    NODE_EXTRA_CA_CERTS adds to them."""
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
    """Any http or https URL is a valid base URL, with or without a path."""
    assert read_base_url(url) == (address, prefix)


@pytest.mark.parametrize("url", ["", "api.test", "ftp://api.test", "https://", "https://u:secret@api.test"])
def test_invalid_base_urls(url: str) -> None:
    """An invalid base URL raises an error that does not show its password."""
    with pytest.raises(GeminidsError) as caught:
        read_base_url(url)
    assert "secret" not in str(caught.value)


def test_address_as_text() -> None:
    """An IPv6 host is written in brackets. The `Host` header leaves out the default port."""
    assert Address("::1", 80, tls=False).host_and_port == "[::1]:80"
    assert API.host_header == "api.test"
    assert Address("api.test", 80, tls=True).host_header == "api.test:80"
