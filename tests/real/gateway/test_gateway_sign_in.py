"""Sources of a sign-in. The `.env` and the settings of a trusted folder are routed through the
gateway. A sign-in that cannot be routed runs directly with a warning, or is refused if a limit is
set."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

import geminids
from collect_events import select_events
from fake_google import FakeGoogle
from fake_sign_ins import FakeVertex
from geminids import Notice, Started, TokensUsed
from geminids.gateway import Call, Reply, ReplyUsage, Request

pytestmark = pytest.mark.real
deep = pytest.mark.deep

KEY = "AIzaSy-not-a-real-key-0123456789"
FOLDERS_KEY = "AIzaSy-of-the-folder-0123456789"


def answer_after_tool(request: Request) -> Reply | None:
    if request.method != "stream":
        return None
    if not request.turn_results:
        return Reply(calls=[Call("run_shell_command", {"command": "env > tool_env.txt"})])
    return Reply(text="hi")


@pytest.fixture
def world(make_world: Any) -> Any:
    return make_world("0.61.0")


def make_options(world: Any, env: dict[str, str], **fields: Any) -> geminids.Options:
    own = {"HOME": str(world.home), "TMPDIR": str(world.tmp), **env}
    fixed = {
        "cwd": str(world.cwd),
        "gemini": world.version,
        "model": "gemini-2.5-flash",
        "env": own,
        "grace": 2.0,
    }
    fixed |= {"approval": "yolo", "trust_workspace": True, "max_attempts": 1, "timeout": 60.0}
    return geminids.Options(**{**fixed, **fields})


def run(world: Any, env: dict[str, str], **fields: Any) -> list[Any]:
    return list(geminids.stream_sync("hello", make_options(world, env, **fields)))


def write_env(world: Any, **variables: str) -> None:
    (world.cwd / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))


def write_settings(folder: Any, **settings: Any) -> None:
    (folder / ".gemini").mkdir(exist_ok=True)
    (folder / ".gemini" / "settings.json").write_text(json.dumps(settings))


def assert_routed(world: Any, google: FakeGoogle, events: list[Any], key: str) -> None:
    """Check that the gateway reported each request, and that the CLI's tools see neither the key
    nor the API's address."""
    assert (events[-1].outcome, events[-1].answer) == ("success", "hi"), events[-1].failure
    assert {one.key for one in google.asked} == {key}
    assert [used.request for used in select_events(events, TokensUsed)] == [1, 2]
    assert events[-1].cost.basis == "exact"
    assert select_events(events, Notice, code="gateway") == []
    text = (world.cwd / "tool_env.txt").read_text()
    assert key not in text
    assert google.url not in text


def test_a_key_in_a_trusted_folder(world: Any) -> None:
    """A key in the `.env` of a trusted folder is the key of the run."""
    write_env(world, GEMINI_API_KEY=FOLDERS_KEY)
    with FakeGoogle(answer_after_tool, with_key=FOLDERS_KEY) as google:
        events = run(world, {"GOOGLE_GEMINI_BASE_URL": google.url}, max_requests=5)
    assert_routed(world, google, events, FOLDERS_KEY)


@deep
def test_a_key_in_a_folder_that_is_not_trusted(world: Any) -> None:
    """The `.env` of a folder that is not trusted is ignored. So there is no sign-in, and nothing is
    sent."""
    write_env(world, GEMINI_API_KEY=FOLDERS_KEY)
    with FakeGoogle(answer_after_tool) as google:
        events = run(world, {"GOOGLE_GEMINI_BASE_URL": google.url}, trust_workspace=False)
    assert (events[-1].failure.kind, google.asked) == ("auth", [])


@pytest.mark.parametrize("place", ["environment", pytest.param("folder", marks=deep)])
def test_a_base_url_in_a_trusted_folder(world: Any, place: str) -> None:
    """A base URL in the `.env` of a trusted folder becomes the gateway's upstream, with the key in
    the environment or in the folder."""
    with FakeGoogle(answer_after_tool, with_key=KEY) as google:
        folder_env = {"GOOGLE_GEMINI_BASE_URL": google.url}
        env = {"GEMINI_API_KEY": KEY} if place == "environment" else {}
        write_env(world, **folder_env, **({} if env else {"GEMINI_API_KEY": KEY}))
        events = run(world, env)
    assert_routed(world, google, events, KEY)


def test_vertex_in_a_trusted_folder(world: Any) -> None:
    """A trusted folder can choose Vertex with its own key, as for the plain CLI. The user's own key
    is not used."""
    with FakeVertex(answer_after_tool, with_key=FOLDERS_KEY) as google:
        write_env(world, **google.env)
        events = run(world, {"GEMINI_API_KEY": KEY})
    assert_routed(world, google, events, FOLDERS_KEY)
    assert KEY not in (world.cwd / "tool_env.txt").read_text()


@pytest.mark.parametrize("chosen", ["vertex-ai", pytest.param("gemini-api-key", marks=deep)])
def test_settings_of_a_trusted_folder_choose_the_sign_in(world: Any, chosen: str) -> None:
    """The sign-in in the settings of a trusted folder outranks the user's variables, for the CLI
    and for the gateway's route."""
    write_settings(world.cwd, security={"auth": {"selectedType": chosen}})
    make = FakeVertex if chosen == "vertex-ai" else FakeGoogle
    with make(answer_after_tool, with_key=KEY) as google:
        env = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": google.url}
        env |= {"GOOGLE_API_KEY": KEY, "GOOGLE_VERTEX_BASE_URL": google.url}
        events = run(world, env)
    assert_routed(world, google, events, KEY)


@deep
def test_settings_that_choose_a_sign_in_without_its_variables(world: Any) -> None:
    """If settings choose Vertex without its variables, the run is refused before the start, and the
    message names a missing variable."""
    write_settings(world.cwd, security={"auth": {"selectedType": "vertex-ai"}})
    with FakeGoogle(answer_after_tool, with_key=KEY) as google:
        events = run(world, {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": google.url})
    failure = events[-1].failure
    assert (failure.kind, google.asked, select_events(events, Started)) == ("auth", [], [])
    assert "GOOGLE_CLOUD_PROJECT" in failure.message


# Sign-ins that cannot be routed.

STORED_KEY = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
CONTAINER: dict[str, Any] = {"tools": {"sandbox": "docker"}, **STORED_KEY}
DIRECT: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    "stored_key": (STORED_KEY, {}, "the CLI's own store"),
    "container": (CONTAINER, {"GEMINI_API_KEY": KEY}, "tools.sandbox"),
    "container_by_variable": (
        STORED_KEY,
        {"GEMINI_API_KEY": KEY, "GEMINI_SANDBOX": "docker"},
        "tools.sandbox",
    ),
}
CASES = ["stored_key", "container", pytest.param("container_by_variable", marks=deep)]


@pytest.mark.parametrize("name", CASES)
def test_an_unroutable_sign_in_runs_directly_with_a_warning(world: Any, name: str) -> None:
    """With a key in the CLI's own store, or with a container, a warning says that requests bypass
    the gateway, and why. (The CLI itself fails here, without a stored key and without docker.)"""
    settings, env, reason = DIRECT[name]
    write_settings(world.home, **settings)
    path = {"PATH": str(world.root)} if "container" in name else {}  # a PATH without docker
    with FakeGoogle(answer_after_tool, with_key=KEY) as google:
        events = run(world, {"GOOGLE_GEMINI_BASE_URL": google.url, **env, **path})
    (notice,) = select_events(events, Notice, code="gateway")
    assert (notice.level, "bypass the gateway" in notice.message, reason in notice.message) == (
        "warning",
        True,
        True,
    )
    assert len(select_events(events, Started)) == 1
    assert events[-1].outcome == "failed"
    assert events[-1].cost.basis in ("estimate", "unknown")


# Stores a key as the CLI does when its user enters one (fileKeychain.ts and
# apiKeyCredentialStorage.ts of 0.61.0). Node runs this, so that the salt has the host name and the
# user name as Node sees them.
STORE = """
const [crypto, fs, os] = ["crypto", "fs", "os"].map(require);
const [file, accessToken] = process.argv.slice(1);
const serverName = "default-api-key";
const stored = {serverName, token: {accessToken, tokenType: "ApiKey"}, updatedAt: Date.now()};
const data = {"gemini-cli-api-key": {[serverName]: JSON.stringify(stored)}};
const salt = `${os.hostname()}-${os.userInfo().username}-gemini-cli`;
const iv = crypto.randomBytes(12);
const cipher = crypto.createCipheriv("aes-256-gcm", crypto.scryptSync("gemini-cli-oauth", salt, 32), iv);
const text = cipher.update(JSON.stringify(data), "utf8", "hex") + cipher.final("hex");
fs.writeFileSync(file, [iv.toString("hex"), cipher.getAuthTag().toString("hex"), text].join(":"), {mode: 0o600});
"""


def answer_with_usage(request: Request) -> Reply | None:
    if request.method != "stream":
        return None
    if not request.turn_results:
        call = Call("run_shell_command", {"command": "env > tool_env.txt"})
        return Reply(calls=[call], usage=ReplyUsage(input=1_000, output=10, cached=400, thinking=0))
    return Reply(text="hi", usage=ReplyUsage(input=2_000, output=20, cached=0, thinking=0))


@pytest.mark.parametrize("transport", ["headless", pytest.param("warm", marks=deep)])
def test_a_key_in_the_clis_own_store_runs_directly(world: Any, node: Path, transport: str) -> None:
    """The CLI finds the key in its own store and sends its requests to the API itself. The run
    succeeds, with a warning, the CLI's totals and an estimated cost."""
    write_settings(world.home, **STORED_KEY)
    store = world.home / ".gemini" / "gemini-credentials.json"
    subprocess.run([node, "-e", STORE, str(store), KEY], check=True)
    encrypted = store.read_text()
    with FakeGoogle(answer_with_usage, with_key=KEY) as google:
        # Without this variable, a machine with a working keyring does not use the file.
        env = {"GOOGLE_GEMINI_BASE_URL": google.url, "GEMINI_FORCE_FILE_STORAGE": "true"}
        options = make_options(world, env)

        async def run_chat() -> list[Any]:
            async with geminids.Pool(options) as pool, pool.chat() as chat:
                return [event async for event in chat.send("hello")]

        events = run(world, env) if transport == "headless" else anyio.run(run_chat)
    finished = events[-1]
    assert (finished.outcome, finished.answer) == ("success", "hi"), finished.failure
    assert [(one.key, one.request.method) for one in google.asked] == [(KEY, "stream")] * 2
    # The CLI has the address of the API, not that of a gateway.
    assert f"GOOGLE_GEMINI_BASE_URL={google.url}\n" in (world.cwd / "tool_env.txt").read_text()
    (notice,) = select_events(events, Notice, code="gateway")
    assert notice.level == "warning"
    assert "bypass the gateway" in notice.message
    assert "the CLI's own store" in notice.message
    assert finished.cost.basis == "estimate"
    usage = finished.usage
    assert (usage.input, usage.output, usage.cached, usage.total) == (3_000, 30, 400, 3_030)
    assert usage.requests is None  # the CLI does not count them
    assert store.read_text() == encrypted


LIMITS: list[Any] = [{"max_requests": 3}]
LIMITS += [pytest.param(limit, marks=deep) for limit in ({"day_budget": 1.0}, {"record": "recorded.jsonl"})]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_an_unroutable_sign_in_with_a_limit_is_refused(world: Any, name: str, limit: dict[str, Any]) -> None:
    """A sign-in that cannot be routed is refused if a limit is set. The message names the option
    and the reason, and nothing is started."""
    settings, env, reason = DIRECT[name]
    write_settings(world.home, **settings)
    with FakeGoogle(answer_after_tool, with_key=KEY) as google:
        events = run(world, {"GOOGLE_GEMINI_BASE_URL": google.url, **env}, **limit)
    failure = events[-1].failure
    assert failure is not None
    (option,) = limit
    assert (failure.kind, google.connections, select_events(events, Started)) == ("bad_option", 0, [])
    assert f"`{option}` needs the gateway" in failure.message
    assert reason in failure.message
    assert failure.hint
