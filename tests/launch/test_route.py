"""The route of a run's requests: one pure decision for the run, `--dry-run` and `geminids doctor`."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import Options
from geminids.gateway.route import Route
from geminids.launch.auth import choose_auth
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
NEEDY: dict[str, Any] = {
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
    return decide_route(Options(**fields), env, chosen, settings or {}, budget=budget)


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
def test_every_sign_in_goes_through_the_gateway(env: dict[str, str], sign_in: str, api: str) -> None:
    """Without any option."""
    route = decide(env)
    assert (route.kind, route.sign_in, route.api) == ("gateway", sign_in, api)
    assert route.hides_credentials == (sign_in != "account")


@pytest.mark.parametrize(
    ("env", "name"),
    [(KEY, "GOOGLE_GEMINI_BASE_URL"), (ADC, "GOOGLE_VERTEX_BASE_URL"), (ACCOUNT, "CODE_ASSIST_ENDPOINT")],
)
def test_a_base_url_of_the_user_is_the_upstream(env: dict[str, str], name: str) -> None:
    """The one that belongs to the sign-in."""
    assert decide({**env, name: "https://own.example/v"}).base_url == "https://own.example/v"
    assert decide(env).base_url is None


def test_a_key_is_in_no_text() -> None:
    """Routes are shown by doctor and dry-run, and end up in logs."""
    route = decide(KEY)
    assert route.key == KEY["GEMINI_API_KEY"]
    assert route.key not in repr(route) + route_text(route) + str(route_notice(route))


@pytest.mark.parametrize("env", [KEY, VERTEX_KEY, ADC, ACCOUNT, {}])
def test_off_is_direct(env: dict[str, str]) -> None:
    """It is the user's choice, so no notice is needed."""
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
def test_what_needs_the_gateway_is_refused_without_it(
    name: str, env: dict[str, str], fields: dict[str, Any]
) -> None:
    """The refusal names the option and the next step."""
    if name == "key_from" and not fields and not env:
        pytest.skip("key_from is a sign-in of its own")
    route = decide(env, **fields, **{name: NEEDY[name]})
    assert route.kind == "refused"
    assert name in route.reason
    assert route.hint


def test_a_shared_budget_is_refused_without_the_gateway() -> None:
    """It would not be kept."""
    assert decide(KEY, gateway="off", budget=True).kind == "refused"
    assert decide(KEY, budget=True).kind == "gateway"


def test_a_key_that_only_the_cli_can_read_is_direct_with_a_warning() -> None:
    """The key is in the CLI's keychain or encrypted file."""
    route = decide({}, {"security": {"auth": {"selectedType": "gemini-api-key"}}})
    notice = route_notice(route)
    assert route.kind == "direct"
    assert notice is not None and notice[:2] == ("warning", "gateway")
    assert (
        decide({}, {"security": {"auth": {"selectedType": "gemini-api-key"}}}, max_tokens=5).kind == "refused"
    )


def test_an_account_is_reported() -> None:
    """The login stays with the CLI, in reach of its tools."""
    notice = route_notice(decide(ACCOUNT))
    assert notice is not None and notice[0] == "info" and "login" in notice[2]


@pytest.mark.parametrize("missing", ["GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"])
def test_vertex_without_project_or_location_is_refused(missing: str) -> None:
    """The refusal names what is missing."""
    route = decide({name: value for name, value in ADC.items() if name != missing})
    assert (route.kind, route.failure) == ("refused", "auth")
    assert missing in route.reason


def test_a_tool_of_a_warm_chat_cannot_start_a_run_of_its_own() -> None:
    """The token of its chat is in no environment, so the run is refused with the reason."""
    route = decide({"GEMINI_API_KEY": NO_KEY, "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1"})
    assert (route.kind, route.failure) == ("refused", "auth")
    assert "warm" in route.reason


def test_a_tool_of_a_warm_chat_with_a_key_of_its_own() -> None:
    """The address in its environment is that of the chat's gateway, which knows no such key: Google's own is used."""
    env = {"GEMINI_API_KEY": NO_KEY, "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:1"}
    route = decide(env, key_from="file:/repo/key")
    assert (route.kind, route.base_url, route.is_nested) == ("gateway", None, False)


@pytest.mark.parametrize("fields", [{"offline": True}, {"replay": "/repo/talk.jsonl"}])
def test_a_container_cannot_reach_the_script(fields: dict[str, Any]) -> None:
    """Offline and replayed runs in the CLI's container are refused, and the option is named."""
    route = decide({"GEMINI_SANDBOX": "docker"}, **fields)
    (option,) = fields
    assert route.kind == "refused"
    assert route.reason.startswith(f"{option} needs the gateway") and "tools.sandbox" in route.reason
    assert route.hint


@pytest.mark.parametrize("fields", [{"offline": True}, {"replay": "/repo/talk.jsonl"}])
def test_no_real_api_needs_no_sign_in(fields: dict[str, Any]) -> None:
    """The gateway answers itself."""
    assert decide({}, **fields) == Route(kind="gateway")


@pytest.mark.parametrize(
    ("sandbox", "env", "container"),
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
def test_containers(sandbox: Any, env: dict[str, str], container: bool) -> None:
    """Loopback inside a container is not ours. The variable outranks the setting; inside one there is no second."""
    assert uses_container({"tools": {"sandbox": sandbox}}, env) is container
