"""Tests of `decide_route`: whether the requests of a run use the gateway, go directly to the API,
or are refused."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import Options
from geminids.gateway.route import Route
from geminids.launch.auth import ResolvedAuth, choose_auth
from geminids.launch.gateway_env import NO_KEY
from geminids.launch.route import decide_route, route_notice, route_text, uses_container
from geminids.options.validate import LIMITS, NEED_GATEWAY

KEY = {"GEMINI_API_KEY": "AIzaSy-not-a-real-key-0123456789"}
VERTEX_KEY = {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_API_KEY": "AIzaSy-vertex-key-0123456789"}
ADC = {
    "GOOGLE_GENAI_USE_VERTEXAI": "true",
    "GOOGLE_CLOUD_PROJECT": "made-up",
    "GOOGLE_CLOUD_LOCATION": "europe-west4",
}
ACCOUNT = {"GOOGLE_GENAI_USE_GCA": "true", "GOOGLE_CLOUD_ACCESS_TOKEN": "ya29.not-a-token"}
NEED_GATEWAY_VALUES: dict[str, Any] = {
    "max_budget": 1.0,
    "max_tokens": 5,
    "max_requests": 3,
    "day_budget": 1.0,
    "day_tokens": 5,
    "day_requests": 3,
    "requests_per_minute": 5,
    "only_models": ("flash",),
    "key_from": "file:/repo/key",
    "record": "/repo/talk.jsonl",
}


def decide(env: dict[str, str], settings: dict[str, Any] | None = None, **fields: Any) -> Route:
    budget = fields.pop("budget", False)
    chosen = choose_auth(env, settings or {})
    resolved = ResolvedAuth(auth=chosen, env=env, settings=settings or {})
    return decide_route(Options(**fields), resolved, budget=budget)


@pytest.mark.parametrize(
    ("env", "sign_in", "api"),
    [
        (KEY, "api_key", "gemini"),
        (VERTEX_KEY, "vertex_key", "vertex"),
        (ADC, "vertex_credentials", "vertex"),
        (ACCOUNT, "account", "code_assist"),
        ({"GEMINI_CLI_USE_COMPUTE_ADC": "true"}, "account", "code_assist"),
    ],
)
def test_every_sign_in_uses_the_gateway(env: dict[str, str], sign_in: str, api: str) -> None:
    """By default every sign-in uses the gateway."""
    route = decide(env)
    assert (route.kind, route.sign_in, route.api) == ("gateway", sign_in, api)
    assert route.hides_credentials == (sign_in != "account")


@pytest.mark.parametrize(
    ("env", "name"),
    [(KEY, "GOOGLE_GEMINI_BASE_URL"), (ADC, "GOOGLE_VERTEX_BASE_URL"), (ACCOUNT, "CODE_ASSIST_ENDPOINT")],
)
def test_the_users_base_url_is_the_upstream(env: dict[str, str], name: str) -> None:
    """The user's base URL for the chosen sign-in becomes the upstream."""
    assert decide({**env, name: "https://own.example/v"}).base_url == "https://own.example/v"
    assert decide(env).base_url is None


def test_the_key_is_not_shown() -> None:
    """The key is neither in the repr of a route nor in its text or notice, because doctor and
    dry-run show them."""
    route = decide(KEY)
    assert route.key == KEY["GEMINI_API_KEY"]
    assert route.key not in repr(route) + route_text(route) + str(route_notice(route))


@pytest.mark.parametrize("env", [KEY, VERTEX_KEY, ADC, ACCOUNT, {}])
def test_gateway_off_is_direct(env: dict[str, str]) -> None:
    """With `gateway="off"` requests go directly to the API, without a notice, because the user
    chose it."""
    route = decide(env, gateway="off")
    assert route.kind == "direct"
    assert route_notice(route) is None


@pytest.mark.parametrize("name", [*LIMITS, *NEED_GATEWAY])
@pytest.mark.parametrize(
    ("env", "fields"),
    [
        (KEY, {"gateway": "off"}),
        ({}, {}),
        ({"GEMINI_SANDBOX": "docker", **KEY}, {}),
    ],
    ids=["off", "no sign-in", "container"],
)
def test_options_that_need_the_gateway_are_refused_without_it(
    name: str, env: dict[str, str], fields: dict[str, Any]
) -> None:
    """An option that needs the gateway is refused if there is none; the reason names the option,
    and there is a hint."""
    if name == "key_from" and not fields and not env:
        pytest.skip("key_from itself is a sign-in")
    route = decide(env, **fields, **{name: NEED_GATEWAY_VALUES[name]})
    assert route.kind == "refused"
    assert name in route.reason
    assert route.hint


def test_a_shared_budget_is_refused_without_the_gateway() -> None:
    """A shared budget is refused without the gateway, because nothing would enforce it."""
    assert decide(KEY, gateway="off", budget=True).kind == "refused"
    assert decide(KEY, budget=True).kind == "gateway"


def test_a_key_that_only_the_cli_can_read_is_direct() -> None:
    """If only the CLI can read the key (keychain or encrypted file), requests go directly to the
    API, with a warning."""
    route = decide({}, {"security": {"auth": {"selectedType": "gemini-api-key"}}})
    notice = route_notice(route)
    assert route.kind == "direct"
    assert notice is not None and notice[:2] == ("warning", "gateway")
    assert (
        decide({}, {"security": {"auth": {"selectedType": "gemini-api-key"}}}, max_tokens=5).kind == "refused"
    )


def test_an_account_gives_a_notice() -> None:
    """With an account a notice says that the login stays with the CLI, where its tools can reach
    it."""
    notice = route_notice(decide(ACCOUNT))
    assert notice is not None and notice[0] == "info" and "login" in notice[2]


@pytest.mark.parametrize("missing", ["GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"])
def test_vertex_without_project_or_location_is_refused(missing: str) -> None:
    """Vertex without project or location is refused, and the reason names the missing variable."""
    route = decide({name: value for name, value in ADC.items() if name != missing})
    assert (route.kind, route.failure) == ("refused", "auth")
    assert missing in route.reason


def test_a_run_inside_a_warm_chat_is_refused() -> None:
    """A run inside a tool of a warm chat is refused, because no environment contains the chat's
    token."""
    route = decide({"GEMINI_API_KEY": NO_KEY, "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1"})
    assert (route.kind, route.failure) == ("refused", "auth")
    assert "warm" in route.reason


def test_a_run_inside_a_warm_chat_with_its_own_key() -> None:
    """A run inside a tool of a warm chat that has its own key uses Google's address and not that of
    the chat's gateway."""
    env = {"GEMINI_API_KEY": NO_KEY, "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1"}
    route = decide(env, key_from="file:/repo/key")
    assert (route.kind, route.base_url, route.is_nested) == ("gateway", None, False)


@pytest.mark.parametrize("fields", [{"offline": True}, {"replay": "/repo/talk.jsonl"}])
def test_offline_runs_in_a_container_are_refused(fields: dict[str, Any]) -> None:
    """An offline or replayed run in the CLI's container is refused, and the reason names the
    option."""
    route = decide({"GEMINI_SANDBOX": "docker"}, **fields)
    (option,) = fields
    assert route.kind == "refused"
    assert route.reason.startswith(f"`{option}` needs the gateway") and "tools.sandbox" in route.reason
    assert route.hint


@pytest.mark.parametrize("fields", [{"offline": True}, {"replay": "/repo/talk.jsonl"}])
def test_offline_runs_need_no_sign_in(fields: dict[str, Any]) -> None:
    """An offline or replayed run needs no sign-in, because the gateway answers itself."""
    assert decide({}, **fields) == Route(kind="gateway")


@pytest.mark.parametrize(
    ("sandbox", "env", "expected"),
    [
        (None, {}, False),
        (False, {}, False),
        ("docker", {}, True),
        ("podman", {}, True),
        (True, {}, True),
        ({"enabled": True, "command": "docker"}, {}, True),
        ({"enabled": False}, {}, False),
        ("sandbox-exec", {}, False),
        (None, {"GEMINI_SANDBOX": "true"}, True),
        ("docker", {"GEMINI_SANDBOX": "false"}, False),
        ("docker", {"SANDBOX": "gemini-sandbox-1"}, False),
    ],
)
def test_container_detection(sandbox: Any, env: dict[str, str], expected: bool) -> None:
    """GEMINI_SANDBOX overrides the `tools.sandbox` setting.

    Inside a container the CLI starts no second one.
    """
    assert uses_container({"tools": {"sandbox": sandbox}}, env) is expected
