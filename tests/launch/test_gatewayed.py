"""The environment of a CLI that speaks to the gateway."""

from __future__ import annotations

import pytest

from geminids.launch.gatewayed import gatewayed_environment, past_proxies

KEY = "AIzaSyExampleExampleExample"
URL = "http://127.0.0.1:4711"
PROXY = "http://proxy.example:3128"


def _made(**env: str) -> dict[str, str]:
    return gatewayed_environment(env, KEY, URL, "token")


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
    made = gatewayed_environment({"A": "1", "B": ""}, key, URL, "token")
    assert made == {"A": "1", "B": "", "GEMINI_API_KEY": "token", "GOOGLE_GEMINI_BASE_URL": URL}


@pytest.mark.parametrize("honours", [True, False])
def test_without_a_proxy_nothing_changes(honours: bool) -> None:
    """Nor with an empty one."""
    for env in ({"A": "1"}, {"HTTP_PROXY": "", "A": "1"}):
        assert past_proxies(env, honours) == env


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"])
def test_a_newer_cli_is_told_to_pass_the_proxy(name: str) -> None:
    """The proxy stays for all else."""
    loopback = "127.0.0.1,localhost"
    assert past_proxies({name: PROXY}, True) == {name: PROXY, "NO_PROXY": loopback, "no_proxy": loopback}


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
    made = past_proxies({"HTTP_PROXY": PROXY, **before}, True)
    loopback = "127.0.0.1,localhost"
    assert (made["NO_PROXY"], made["no_proxy"]) == (
        upper.replace("+", loopback),
        lower.replace("+", loopback),
    )


def test_an_older_cli_knows_no_proxy_and_its_tools_do() -> None:
    """It would send our own requests there: it cannot be told otherwise."""
    env = {"HTTP_PROXY": "http://plain.example", "https_proxy": PROXY, "NO_PROXY": "a.example", "A": "1"}
    made = past_proxies(env, False)
    assert made == {"ALL_PROXY": PROXY, "all_proxy": PROXY, "NO_PROXY": "a.example", "A": "1"}
    assert (
        past_proxies({**env, "ALL_PROXY": "socks5://own.example"}, False)["ALL_PROXY"]
        == "socks5://own.example"
    )


def test_a_few_letters_are_not_looked_for() -> None:
    """A test server's key may be a word that stands in PATH: only a variable that is that word goes."""
    env = {"GEMINI_API_KEY": "key", "PATH": "/home/me/monkey/bin", "COPY": "key"}
    made = gatewayed_environment(env, "key", URL, "token")
    assert made == {"PATH": "/home/me/monkey/bin", "GEMINI_API_KEY": "token", "GOOGLE_GEMINI_BASE_URL": URL}
