"""Tests of the environment of a CLI that uses the gateway: it has the gateway's address and no
credential."""

from __future__ import annotations

import pytest

from geminids.gateway.route import Route
from geminids.launch.gateway_env import Endpoint, bypass_proxies, gateway_environment

KEY = "AIzaSyExampleExampleExample"
URL = "http://127.0.0.1:4711"
PROXY = "http://proxy.example:3128"


BY_KEY = Route(kind="gateway", sign_in="api_key", key=KEY)
VERTEX_KEY = Route(kind="gateway", sign_in="vertex_key", api="vertex", key=KEY)
VERTEX_CREDENTIALS = Route(
    kind="gateway", sign_in="vertex_credentials", api="vertex", project="p", location="l"
)
ACCOUNT = Route(kind="gateway", sign_in="account", api="code_assist")
ENDPOINT = Endpoint(URL, "token")


def _environment(**env: str) -> dict[str, str]:
    return gateway_environment(env, BY_KEY, ENDPOINT)


def test_the_token_replaces_the_key() -> None:
    """The CLI gets a token instead of the key, and the gateway's address as base URL; other
    variables stay."""
    env = {"GEMINI_API_KEY": KEY, "PATH": "/bin", "GOOGLE_GEMINI_BASE_URL": "https://other.example"}
    assert _environment(**env) == {"PATH": "/bin", "GEMINI_API_KEY": "token", "GOOGLE_GEMINI_BASE_URL": URL}


@pytest.mark.parametrize(
    "value",
    [KEY, f"https://api.example/?key={KEY}", f"x-goog-api-key: {KEY}", f"{{'a': '{KEY}'}}"],
    ids=["copy", "URL", "header", "within"],
)
def test_copies_of_the_key_are_removed(value: str) -> None:
    """A variable whose value contains the key is removed."""
    env = _environment(GEMINI_API_KEY=KEY, COPY=value, OTHER="kept")
    assert "COPY" not in env
    assert env["OTHER"] == "kept"
    assert KEY not in str(env)


def test_google_api_key_is_removed() -> None:
    """With an API key sign-in, GOOGLE_API_KEY is removed, whatever its value."""
    assert "GOOGLE_API_KEY" not in _environment(GOOGLE_API_KEY="AIzaSomethingElse")


def test_keys_of_other_services_stay() -> None:
    """Keys of other services stay in the environment."""
    assert _environment(GITHUB_TOKEN="ghp_x")["GITHUB_TOKEN"] == "ghp_x"


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_key_no_variable_is_removed(key: str | None) -> None:
    """Without a key no variable is removed, although an empty key would be part of every value."""
    env = gateway_environment({"A": "1", "B": ""}, Route(kind="gateway", key=key), ENDPOINT)
    assert env == {"A": "1", "B": "", "GEMINI_API_KEY": "token", "GOOGLE_GEMINI_BASE_URL": URL}


@pytest.mark.parametrize("route", [VERTEX_KEY, VERTEX_CREDENTIALS], ids=["key", "credentials"])
def test_vertex_gets_the_token_and_no_credential(route: Route) -> None:
    """With Vertex the CLI gets the token as its key and no credential.

    The project stays, because the SDK still uses the key (0.54.4, 0.61.0).
    """
    env = {
        "GOOGLE_GENAI_USE_VERTEXAI": "true",
        "GOOGLE_API_KEY": KEY,
        "GEMINI_API_KEY": "AIzaAnotherKey",
        "GOOGLE_APPLICATION_CREDENTIALS": "/repo/key.json",
        "GOOGLE_CLOUD_ACCESS_TOKEN": "ya29.token",
        "GOOGLE_CLOUD_PROJECT": "p",
        "GOOGLE_CLOUD_LOCATION": "l",
        "PATH": "/bin",
    }
    assert gateway_environment(env, route, ENDPOINT) == {
        "PATH": "/bin",
        "GOOGLE_CLOUD_PROJECT": "p",
        "GOOGLE_CLOUD_LOCATION": "l",
        "GOOGLE_GENAI_USE_VERTEXAI": "true",
        "GOOGLE_API_KEY": "token",
        "GOOGLE_VERTEX_BASE_URL": URL,
    }


def test_an_account_keeps_its_login() -> None:
    """With an account the login stays, and the endpoint's path identifies the lease.

    Keys of other sign-ins are removed.
    """
    env = {
        "GOOGLE_GENAI_USE_GCA": "true",
        "GOOGLE_CLOUD_ACCESS_TOKEN": "ya29.token",
        "CODE_ASSIST_ENDPOINT": "https://other.example",
        "GEMINI_API_KEY": KEY,
    }
    assert gateway_environment(env, ACCOUNT, ENDPOINT) == {
        "GOOGLE_GENAI_USE_GCA": "true",
        "GOOGLE_CLOUD_ACCESS_TOKEN": "ya29.token",
        "CODE_ASSIST_ENDPOINT": f"{URL}/token",
    }


def test_removed_variables_are_blank_in_a_trusted_folder() -> None:
    """In a trusted folder removed variables are set to empty, because the CLI reads unset variables
    from the folder's `.env`."""
    env = gateway_environment({"GEMINI_API_KEY": KEY}, BY_KEY, ENDPOINT, blank=True)
    assert env["GOOGLE_GENAI_USE_VERTEXAI"] == env["GOOGLE_API_KEY"] == ""
    assert env["GEMINI_API_KEY"] == "token"


def test_without_a_proxy_nothing_changes() -> None:
    """Without a proxy, or with an empty one, the environment is unchanged."""
    for env in ({"A": "1"}, {"HTTP_PROXY": "", "A": "1"}):
        assert bypass_proxies(env) == env


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"])
def test_loopback_bypasses_the_proxy(name: str) -> None:
    """With a proxy, loopback addresses bypass it, and the proxy stays for other addresses."""
    loopback = "127.0.0.1,localhost"
    assert bypass_proxies({name: PROXY}) == {name: PROXY, "NO_PROXY": loopback, "no_proxy": loopback}


@pytest.mark.parametrize(
    ("before", "upper", "lower"),
    [
        ({"NO_PROXY": "a.example, .b.example"}, "a.example,.b.example,+", "a.example,.b.example,+"),
        ({"no_proxy": "a.example"}, "a.example,+", "a.example,+"),
        ({"NO_PROXY": "a.example", "no_proxy": "b.example"}, "a.example,+", "b.example,+"),
        ({"NO_PROXY": "", "no_proxy": "b.example"}, "+", "b.example,+"),
        ({"NO_PROXY": "localhost,127.0.0.1"}, "localhost,127.0.0.1", "localhost,127.0.0.1"),
        ({"NO_PROXY": "*"}, "*", "*"),
    ],
)
def test_existing_proxy_exceptions_are_kept(before: dict[str, str], upper: str, lower: str) -> None:
    """Loopback is added to existing NO_PROXY and no_proxy values.

    Both are set, because programs prefer one or the other.
    """
    env = bypass_proxies({"HTTP_PROXY": PROXY, **before})
    loopback = "127.0.0.1,localhost"
    assert (env["NO_PROXY"], env["no_proxy"]) == (
        upper.replace("+", loopback),
        lower.replace("+", loopback),
    )


def test_a_short_key_is_not_searched_in_values() -> None:
    """A short key is not searched inside other values, as it may be part of a word.

    Only a variable with exactly this value is removed.
    """
    env = {"GEMINI_API_KEY": "key", "PATH": "/home/me/monkey/bin", "COPY": "key"}
    changed = gateway_environment(env, Route(kind="gateway", sign_in="api_key", key="key"), ENDPOINT)
    assert changed == {
        "PATH": "/home/me/monkey/bin",
        "GEMINI_API_KEY": "token",
        "GOOGLE_GEMINI_BASE_URL": URL,
    }
