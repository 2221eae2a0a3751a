"""When a run goes through the gateway, and what is said where it cannot."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from geminids import Options, Permissions
from geminids.gateway import host
from geminids.gateway.purse import Limits, Purse
from geminids.launch.auth import Auth
from geminids.launch.gate import STAND_IN, StandInGate, asked_for, is_risky
from geminids.launch.refused import Refused
from geminids.run.gate import RunGate
from geminids.toolchain.releases import release_of

KEY = "AIzaSy-not-a-real-key-0123456789"
ENV = {"GEMINI_API_KEY": KEY, "GOOGLE_API_KEY": "another-key-0123", "COPY": f"--key={KEY}", "PATH": "/bin"}
BY_KEY = Auth("key", "GEMINI_API_KEY", "gemini-api-key")
VERTEX = Auth("vertex", "GOOGLE_GENAI_USE_VERTEXAI", "vertex-ai")
VERTEX_ENV = {"GOOGLE_GENAI_USE_VERTEXAI": "true"}
NEWEST, OLD = release_of("0.61.0"), release_of("0.24.0")


@pytest.fixture
def gates() -> Iterator[Any]:
    """Makes gates, and closes them."""
    made: list[RunGate] = []

    def make(**fields: Any) -> RunGate:
        made.append(RunGate(Options(**fields)))
        return made[-1]

    yield make
    for gate in made:
        gate.close()


@pytest.mark.parametrize(
    ("fields", "risky"),
    [
        ({}, False),
        ({"approval": "auto_edit"}, False),
        ({"approval": "yolo"}, True),
        ({"approval": "yolo", "trust_workspace": True}, False),
        ({"approval": "yolo", "permissions": Permissions(shell="deny")}, False),
        ({"permissions": Permissions(shell="allow")}, True),
        ({"permissions": Permissions(shell="ask")}, True),
        ({"permissions": Permissions(allow_commands=("pytest",))}, True),
    ],
)
def test_a_shell_in_a_strangers_folder_is_a_risk(fields: dict[str, Any], risky: bool) -> None:
    """The key could be looked for there; elsewhere a plain run stays as it is."""
    assert is_risky(Options(**fields)) is risky


@pytest.mark.parametrize(
    "fields",
    [
        {"gateway": "on"},
        {"max_requests": 3},
        {"max_budget": 0.5},
        {"day_tokens": 5},
        {"only_models": ("x",)},
        {"requests_per_minute": 5},
        {"key_from": "file:/repo/key"},
        {"record": "/repo/talk.jsonl"},
    ],
)
def test_what_cannot_be_had_without_it(fields: dict[str, Any]) -> None:
    """Each of these asks for the gateway by itself."""
    assert asked_for(Options(**fields)) is not None
    assert asked_for(Options()) is None


def test_the_environment_has_a_token_and_no_key(gates: Any) -> None:
    """Under whatever name; and the way leads to our loopback."""
    gate = gates(approval="yolo")
    given = gate.open(ENV, BY_KEY, NEWEST)
    assert gate.is_open
    assert given.hides
    assert KEY not in str(given.env)
    assert "GOOGLE_API_KEY" not in given.env
    assert given.env["GEMINI_API_KEY"].startswith("geminids-run-")
    assert given.env["GOOGLE_GEMINI_BASE_URL"].startswith("http://127.0.0.1:")
    assert {KEY, given.env["GEMINI_API_KEY"]} <= given.secrets
    assert gate.open(ENV, BY_KEY, NEWEST) == given, "asked again for another lane, it is the same lease"


def test_a_chats_token_is_not_in_the_environment() -> None:
    """Many chats share a process: each session brings its own."""
    gate = RunGate(Options(gateway="on"), by_session=True)
    try:
        given = gate.open(ENV, BY_KEY, NEWEST)
        assert given.env["GEMINI_API_KEY"] == STAND_IN
        assert gate.token is not None
        assert gate.token not in str(given.env)
    finally:
        gate.close()


@pytest.mark.parametrize("fields", [{}, {"gateway": "off", "approval": "yolo"}])
def test_where_nothing_asks_for_it_nothing_changes(gates: Any, fields: dict[str, Any]) -> None:
    """A plain run, and one whose user has said off."""
    gate = gates(**fields)
    assert gate.open(ENV, BY_KEY, NEWEST).env == ENV
    assert not gate.is_open
    assert gate.notices == []


@pytest.mark.parametrize("fields", [{"gateway": "on"}, {"max_requests": 3}, {"approval": "yolo"}])
def test_a_dry_run_tells_of_the_gateway(gates: Any, fields: dict[str, Any]) -> None:
    """What the run would get but for port and token, and the same refusal; nothing where it would have none."""
    told = StandInGate(Options(**fields)).open(ENV, BY_KEY, NEWEST)
    real = gates(**fields).open(ENV, BY_KEY, NEWEST)
    own = {"GEMINI_API_KEY": STAND_IN, "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:<port>"}
    assert told.env == {**real.env, **own}
    assert (told.hides, told.gatewayed) == (real.hides, real.gatewayed)
    assert StandInGate(Options()).open(ENV, BY_KEY, NEWEST).env == ENV


@pytest.mark.parametrize("gate_of", [StandInGate, RunGate])
def test_what_is_refused_is_refused_in_a_dry_run_too(gate_of: Any) -> None:
    """The gateway itself wants a key; a budget on an old release that writes no journal wants the gateway."""
    with pytest.raises(Refused, match="API key"):
        gate_of(Options(gateway="on")).open(VERTEX_ENV, VERTEX, NEWEST)
    with pytest.raises(Refused, match="no journal"):
        gate_of(Options(max_requests=3)).open(VERTEX_ENV, VERTEX, OLD)
    with pytest.raises(Refused, match="no journal"):
        gate_of(Options(max_requests=3, gateway="off")).open(ENV, BY_KEY, OLD)


@pytest.mark.parametrize(
    ("fields", "env", "auth"),
    [({"gateway": "off"}, ENV, BY_KEY), ({}, VERTEX_ENV, VERTEX)],
    ids=["off", "vertex"],
)
def test_a_shared_budget_is_not_given_up_in_silence(
    fields: dict[str, Any], env: dict[str, str], auth: Auth
) -> None:
    """Without the gateway it is counted by what the run tells, and a notice says how well."""
    purse = Purse("all", Limits(requests=1))
    gate = RunGate(Options(**fields), budgets=[purse])
    assert gate.open(env, auth, NEWEST).env == env
    assert gate.lease is None
    assert gate.allowance() is not None
    assert gate.purses == (purse,)
    ((level, code, text),) = gate.take_notices()
    assert (level, code, "without the gateway" in text) == ("info", "gateway", True)


@pytest.mark.parametrize("fields", [{"gateway": "on"}, {"only_models": ("x",)}, {"record": "/repo/x.jsonl"}])
def test_a_sign_in_that_stays_with_the_cli_is_refused(gates: Any, fields: dict[str, Any]) -> None:
    """Vertex and accounts: what was asked for cannot be had, and a hint says what to do."""
    with pytest.raises(Refused) as told:
        gates(**fields).open(VERTEX_ENV, VERTEX, NEWEST)
    assert (told.value.failure.kind, "API key" in told.value.failure.message) == ("bad_option", True)
    assert "key_from" in told.value.failure.hint


@pytest.mark.parametrize(
    ("auth", "words"), [(VERTEX, "stays with the CLI"), (Auth("key", "settings"), "the CLI's own store")]
)
def test_by_itself_it_only_says_what_is_not_protected(gates: Any, auth: Auth, words: str) -> None:
    """`auto` changes nothing there, and a notice says so."""
    gate = gates(approval="yolo")
    assert gate.open({"PATH": "/bin"}, auth, NEWEST).env == {"PATH": "/bin"}
    ((level, code, text),) = gate.take_notices()
    assert (level, code, words in text) == ("info", "gateway", True)
    assert gate.take_notices() == []


def test_no_sign_in_at_all_is_the_runs_to_tell(gates: Any) -> None:
    """Without any key the run fails as it always did; where the gateway is asked for, it is refused, since the CLI may
    find a key for itself and go past us."""
    gate = gates(approval="yolo")
    assert gate.open({}, Auth("none", "nothing found"), NEWEST).env == {}
    assert not gate.is_open
    for fields in ({"gateway": "on"}, {"max_requests": 1}):
        with pytest.raises(Refused) as refused:
            gates(**fields).open({}, Auth("none", "nothing found"), NEWEST)
        assert refused.value.failure.kind == "auth"


def test_a_key_from_a_file(gates: Any, tmp_path: Path) -> None:
    """It is read by the gateway alone; a file that others can read is refused."""
    file = tmp_path / "key"
    file.write_text(KEY + "\n")
    file.chmod(0o600)
    gate = gates(key_from=f"file:{file}")
    assert KEY not in str(gate.open({"GEMINI_API_KEY": STAND_IN}, BY_KEY, NEWEST).env)
    file.chmod(0o644)
    with pytest.raises(Refused) as told:
        gates(key_from=f"file:{file}").open({"GEMINI_API_KEY": STAND_IN}, BY_KEY, NEWEST)
    assert "chmod" in told.value.failure.message + told.value.failure.hint


def test_a_cassette_that_is_none_is_refused(gates: Any, tmp_path: Path) -> None:
    """Before anything is started."""
    file = tmp_path / "talk.jsonl"
    file.write_text("hello\n")
    with pytest.raises(Refused) as told:
        gates(replay=str(file)).open({"GEMINI_API_KEY": STAND_IN}, BY_KEY, NEWEST)
    assert "talk.jsonl" in told.value.failure.message


def test_a_gateway_in_place_of_a_dead_one_answers(gates: Any) -> None:
    """The next attempt of a run has a gateway that answers at once: nobody else would tell it to begin."""
    gate = gates(gateway="on")
    gate.open(ENV, BY_KEY, NEWEST)
    gate.begin()
    assert host._host is not None
    host._host.stop()
    assert gate.is_dead
    gate.open(ENV, BY_KEY, NEWEST)
    assert host._host is not None
    connection = http.client.HTTPConnection("127.0.0.1", host._host._server.port, timeout=5)
    connection.request("GET", "/")
    assert connection.getresponse().status == 403
    connection.close()
