"""The environment of a CLI behind the gateway: it reaches the gateway, and holds no credential."""

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


def _made(**env: str) -> dict[str, str]:
    return gateway_environment(env, BY_KEY, ENDPOINT)


def test_the_token_stands_in_for_the_key() -> None:
    """What the CLI needs to reach the gateway, and all that has nothing to do with the key."""
    given = {"GEMINI_API_KEY": KEY, "PATH": "/bin", "GOOGLE_GEMINI_BASE_URL": "https://other.example"}
    assert _made(**given) == {"PATH": "/bin", "GEMINI_API_KEY": "token", "GOOGLE_GEMINI_BASE_URL": URL}


@pytest.mark.parametrize(
    "value",
    [KEY, f"https://api.example/?key={KEY}", f"x-goog-api-key: {KEY}", f"{{'a': '{KEY}'}}"],
    ids=["copy", "URL", "header", "within"],
)
def test_no_other_variable_holds_the_key(value: str) -> None:
    """A copy under another name would be as good."""
    made = _made(GEMINI_API_KEY=KEY, COPY=value, OTHER="kept")
    assert "COPY" not in made
    assert made["OTHER"] == "kept"
    assert KEY not in str(made)


def test_the_other_keys_of_google_go_too() -> None:
    """GOOGLE_API_KEY is no part of this sign-in, whatever it holds."""
    assert "GOOGLE_API_KEY" not in _made(GOOGLE_API_KEY="AIzaSomethingElse")


def test_other_keys_are_the_users_own() -> None:
    """What the agent was given for other services is not ours to take."""
    assert _made(GITHUB_TOKEN="ghp_x")["GITHUB_TOKEN"] == "ghp_x"


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_key_nothing_else_is_dropped(key: str | None) -> None:
    """Offline there is none, and the empty text is in every value."""
    made = gateway_environment({"A": "1", "B": ""}, Route(kind="gateway", key=key), ENDPOINT)
    assert made == {"A": "1", "B": "", "GEMINI_API_KEY": "token", "GOOGLE_GEMINI_BASE_URL": URL}


@pytest.mark.parametrize("route", [VERTEX_KEY, VERTEX_CREDENTIALS], ids=["key", "credentials"])
def test_vertex_gets_the_token_as_its_key_and_no_credential(route: Route) -> None:
    """Neither key, file nor token. The project stays: the SDK uses the key all the same (0.54.4, 0.61.0)."""
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


def test_an_account_keeps_its_login_and_speaks_to_the_gateway() -> None:
    """The lease is identified by the path of the endpoint; keys of other sign-ins are removed."""
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


def test_what_is_removed_is_blank_in_a_trusted_folder() -> None:
    """The CLI reads a trusted folder's `.env` for every variable that is not set."""
    made = gateway_environment({"GEMINI_API_KEY": KEY}, BY_KEY, ENDPOINT, blank=True)
    assert made["GOOGLE_GENAI_USE_VERTEXAI"] == made["GOOGLE_API_KEY"] == ""
    assert made["GEMINI_API_KEY"] == "token"


def test_without_a_proxy_nothing_changes() -> None:
    """Nor with an empty one."""
    for env in ({"A": "1"}, {"HTTP_PROXY": "", "A": "1"}):
        assert bypass_proxies(env) == env


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"])
def test_a_newer_cli_is_told_to_pass_the_proxy(name: str) -> None:
    """The proxy stays for all else."""
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
def test_what_passes_the_proxy_already_still_does(before: dict[str, str], upper: str, lower: str) -> None:
    """Loopback is added to each of the two names, which programs take in different order."""
    made = bypass_proxies({"HTTP_PROXY": PROXY, **before})
    loopback = "127.0.0.1,localhost"
    assert (made["NO_PROXY"], made["no_proxy"]) == (
        upper.replace("+", loopback),
        lower.replace("+", loopback),
    )


def test_a_few_letters_are_not_looked_for() -> None:
    """A test server's key may be a word that stands in PATH: only a variable that is that word goes."""
    env = {"GEMINI_API_KEY": "key", "PATH": "/home/me/monkey/bin", "COPY": "key"}
    made = gateway_environment(env, Route(kind="gateway", sign_in="api_key", key="key"), ENDPOINT)
    assert made == {"PATH": "/home/me/monkey/bin", "GEMINI_API_KEY": "token", "GOOGLE_GEMINI_BASE_URL": URL}
