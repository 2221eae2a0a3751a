"""A program of a SubLang user, with the names of its document, run on the real Gemini CLI."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from geminids.adapters import sublang
from geminids.adapters.sublang import AgentEvent, AgentOptions, GeminiAdapter, PermissionPolicy
from geminids.errors import GeminidsError
from geminids.gemini.install.cli import install

pytestmark = pytest.mark.real
deep = pytest.mark.deep

PAGE = Path(__file__).parents[2] / "docs" / "migrate" / "sublang.md"
WRITE = ("write_file", {"file_path": "by-write", "content": "x\n"})
SHELL = ("run_shell_command", {"command": "touch by-shell"})
FETCH = ("web_fetch", {"prompt": "Summarize http://127.0.0.1:9/page"})
READ = ("read_file", {"file_path": "given.txt"})

Watch = Callable[[AgentEvent], object]


def collect(
    adapter: Any, prompt: str = "hello", watch: Watch | None = None, **options: Any
) -> list[AgentEvent]:
    """Run an adapter and return its events. `watch` is called with each."""
    events = []

    async def main() -> None:
        with anyio.fail_after(150):
            async for event in sublang.run_agent(adapter, prompt, AgentOptions(**options)):
                events.append(event)
                if watch is not None:
                    watch(event)

    anyio.run(main)
    return events


def script(world: Any, *calls: Any) -> None:
    """Let the model make these calls in one turn each, and then answer."""
    (world.cwd / "given.txt").write_text("given\n")
    for call in calls:
        world.gateway.when("hello", calls=[call])
    world.gateway.when("hello", text="Done.")


def files(world: Any) -> set[str]:
    return {file.name for file in world.cwd.iterdir() if file.name.startswith("by-")}


def payloads(events: list[AgentEvent], kind: str) -> list[Any]:
    return [event.payload for event in events if event.type == kind]


def statuses(events: list[AgentEvent]) -> list[str]:
    return [result.status for result in payloads(events, "tool_result")]


@pytest.fixture
def world(make_world: Any) -> Any:
    """A world with the release that the document is checked with."""
    return make_world("0.61.0")


def wrapper(world: Any, installs: Any, body: str) -> str:
    """Write a program `gemini` that runs `body`; `$GEMINI` is the real CLI."""
    real = " ".join(install(world.version, places=installs).command(installs))
    program = Path(world.root / "gemini")
    program.write_text(
        f"#!/bin/sh\nGEMINI='{real}'\ncase \"$*\" in --version) exec $GEMINI --version;; esac\n{body}\n"
    )
    program.chmod(0o755)
    return str(program)


# S4: the event table.


def test_events_of_a_run(world: Any) -> None:
    """Each line of the CLI becomes the event of the document's table, with all its fields."""
    (world.cwd / "given.txt").write_text("given\n")
    world.gateway.when("hello", thought="**Plan**\nLook first.", text=["Let me ", "see."], calls=[READ])
    world.gateway.when("hello", text="It says given.")
    events = collect(GeminiAdapter(world.options()), model="pro")

    types = [event.type for event in events]
    assert (types[0], types[-1], types.count("init"), types.count("done")) == ("init", "done", 1, 1)
    for event in events:
        line = msgspec.json.decode(sublang.encode_agent_event(event))
        assert sublang.is_agent_event(line)
        assert {"type", "agent", "timestamp", "sessionId", "payload"} <= set(line)
        assert "role" not in line
        assert sublang.encode_agent_event(sublang.decode_agent_event(msgspec.json.encode(line)))
    assert {event.agent for event in events} == {"gemini"}
    assert len({event.session_id for event in events}) == 1

    [init] = payloads(events, "init")
    assert (init.model, init.cwd) == ("pro", str(world.cwd))
    assert {"read_file", "list_directory", "glob"} <= set(init.tools)
    assert (init.capabilities.tools_known, init.capabilities.tools_source) == (True, "gateway")
    assert [text.content for text in payloads(events, "text")] == ["Let me see.", "It says given."]
    assert "".join(delta.delta for delta in payloads(events, "text_delta")) == "Let me see.It says given."
    assert [thought.summary for thought in payloads(events, "thinking")] == ["Plan: Look first."]
    [use], [result] = payloads(events, "tool_use"), payloads(events, "tool_result")
    assert (use.tool_name, use.input) == READ
    assert (result.tool_name, result.tool_use_id, result.status) == ("read_file", use.tool_use_id, "success")
    assert "given" in result.output
    assert result.duration_ms is not None

    [done] = payloads(events, "done")
    assert (done.status, done.result, done.resume_token) == (
        "success",
        "It says given.",
        events[0].session_id,
    )
    assert done.duration_ms > 0
    usage = done.usage
    assert (usage.tool_uses, usage.tokens.coverage, len(usage.tokens.records)) == (1, "complete", 2)
    totals = usage.tokens.totals
    assert totals.input.total == sum(record.tokens.input.total for record in usage.tokens.records) > 0
    assert totals.output.total == sum(record.tokens.output.total for record in usage.tokens.records) > 0
    assert (usage.cost.currency, usage.cost.source) == ("USD", "agent-estimate")


def test_tools_are_those_of_the_first_request(world: Any) -> None:
    """`init.tools` has exactly the tools that the CLI declared to the model, and a tool that the
    agent may not use is not among them."""
    script(world)
    events = collect(GeminiAdapter(world.options()), disallowed_tools=("glob",))
    body = msgspec.json.decode(world.gateway.requests[0].raw)
    declared = [function["name"] for tool in body["tools"] for function in tool["functionDeclarations"]]
    [init] = payloads(events, "init")
    assert list(init.tools) == declared
    assert "glob" not in init.tools
    assert init.capabilities.disallowed_tools == ("glob",)


def test_tools_are_unknown_without_the_gateway(world: Any) -> None:
    """Without the gateway, `init` says that the tools are not known."""
    script(world)
    events = collect(GeminiAdapter(world.options(gateway="off")))
    assert events[0].type == "init"
    init = events[0].payload
    assert (init.tools, init.capabilities.tools_known, init.capabilities.tools_source) == (
        (),
        False,
        "unavailable",
    )
    assert events[-1].payload.status == "success"


def test_a_malformed_line_is_a_recoverable_error(world: Any, installs: Any) -> None:
    """A line that is not JSON gives an `error` with `recoverable: true`, and the run goes on."""
    script(world)
    gemini = wrapper(world, installs, "echo '{oops'\nexec $GEMINI \"$@\"")
    events = collect(GeminiAdapter(world.options(gemini=gemini)))
    [error] = [error for error in payloads(events, "error") if error.code == "NDJSON_PARSE_ERROR"]
    assert (error.recoverable, "{oops" in error.message) == (True, True)
    assert events[0].type == "init"
    assert (events[-1].payload.status, events[-1].payload.result) == ("success", "Done.")


@deep  # the CLI waits five seconds
def test_a_failed_request_is_a_recoverable_error(world: Any) -> None:
    """A request that the CLI repeats gives an `error` with `recoverable: true`, and the run goes
    on."""
    world.gateway.reply(status=429, error="slow down")
    world.gateway.reply(text="Done.")
    events = collect(GeminiAdapter(world.options()))
    errors = payloads(events, "error")
    assert errors
    assert all(error.recoverable for error in errors)
    assert events[-1].payload.status == "success"


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refused_key_has_no_usage(world: Any, status: int) -> None:
    """If the API refuses the key, nothing was measured: `usage` has no tokens and no cost, not 0."""
    world.gateway.reply(status=status, error="API key not valid.")
    events = collect(GeminiAdapter(world.options()))
    done = msgspec.json.decode(sublang.encode_agent_event(events[-1]))["payload"]
    assert (done["status"], done["usage"]) == ("error", {"toolUses": 0})
    [error] = payloads(events, "error")[-1:]
    assert not error.recoverable


# S5: exit codes.


def test_exit_code_table() -> None:
    """The document's table of exit codes; code 0 without a result is no success."""
    table = {0: "success", 1: "error", 42: "error", 53: "max_turns"}
    assert {code: sublang.done_status(code) for code in table} == table
    assert sublang.done_status(0, has_result=False) == "error"


@pytest.mark.parametrize(("code", "status"), [(0, "error"), (1, "error"), (42, "error"), (53, "max_turns")])
def test_exit_without_a_result(world: Any, installs: Any, code: int, status: str) -> None:
    """A CLI that ends without a result gives the status of its exit code; 0 is no success."""
    events = collect(GeminiAdapter(world.options(gemini=wrapper(world, installs, f"exit {code}"))))
    assert events[-1].payload.status == status
    assert events[-1].metadata.exit_code == code  # type: ignore[union-attr]


def test_max_turns(world: Any) -> None:
    """`max_turns` ends the run: the real CLI exits with 53, and the status is `max_turns`."""
    script(world, READ, READ)
    events = collect(GeminiAdapter(world.options()), max_turns=1)
    assert events[-1].payload.status == "max_turns"
    assert events[-1].metadata.exit_code == 53  # type: ignore[union-attr]
    assert len(world.gateway.requests) == 1


# S6: permissions, by their effect.


def test_allowed_works_and_denied_leaves_no_trace(world: Any) -> None:
    """What the policy allows happens, and what it denies does not."""
    script(world, WRITE, SHELL)
    policy = PermissionPolicy(file_write="allow", shell_execute="deny", network_access="deny")
    events = collect(GeminiAdapter(world.options()), permissions=policy)
    assert files(world) == {"by-write"}
    assert statuses(events) == ["success", "denied"]


def test_network_access(world: Any) -> None:
    """A denied web tool is not called, and is not offered to the model."""
    script(world, FETCH)
    policy = PermissionPolicy(network_access="deny", shell_execute="allow")
    events = collect(GeminiAdapter(world.options()), permissions=policy)
    assert statuses(events) == ["denied"]
    [init] = payloads(events, "init")
    assert "web_fetch" not in init.tools
    assert "run_shell_command" in init.tools


@deep
def test_allowed_network_access(world: Any) -> None:
    """An allowed web tool is called: the run is not stopped by a permission."""
    script(world, FETCH)
    events = collect(GeminiAdapter(world.options()), permissions=PermissionPolicy(network_access="allow"))
    assert "denied" not in statuses(events)
    assert len(statuses(events)) == 1


def test_ask_without_anybody_is_a_deny(world: Any) -> None:
    """`ask`, which is the default of a policy, is a deny if nobody can answer."""
    script(world, WRITE, SHELL)
    events = collect(GeminiAdapter(world.options()), permissions=PermissionPolicy())
    assert files(world) == set()
    assert statuses(events) == ["denied", "denied"]


def test_ask_with_somebody(world: Any) -> None:
    """`ask` asks the callback. What it allows happens, and what it denies leaves no trace."""
    script(world, WRITE, SHELL)
    adapter = GeminiAdapter(
        world.options(), on_permission=lambda request: "allow" if request.tool == "write_file" else "deny"
    )
    events = collect(adapter, permissions=PermissionPolicy())
    assert files(world) == {"by-write"}
    assert statuses(events) == ["success", "denied"]
    requests = payloads(events, "permission_request")
    assert [request.tool_name for request in requests] == ["write_file", "run_shell_command"]
    assert requests[1].input == {"command": "touch by-shell"}
    assert payloads(events, "init")[0].capabilities.tools_known


def test_allowed_tools_restrict(world: Any) -> None:
    """`allowed_tools` are the only tools that the agent has, and they need no further permission."""
    script(world, WRITE, SHELL, READ)
    events = collect(GeminiAdapter(world.options()), allowed_tools=("write_file",))
    assert files(world) == {"by-write"}
    assert statuses(events) == ["success", "denied", "denied"]
    assert payloads(events, "init")[0].tools == ("write_file",)


@pytest.mark.parametrize("answer", [None, "deny", "allow"])
def test_an_allowed_tool_can_need_permission(world: Any, answer: str | None) -> None:
    """A tool in `allowed_tools` whose level is `ask` is asked about for each call, and denied if
    nobody can answer."""
    script(world, WRITE, READ)
    asked: list[str] = []

    def decide(request: Any) -> Any:
        asked.append(request.tool)
        return answer

    adapter = GeminiAdapter(world.options(), on_permission=decide if answer else None)
    policy = PermissionPolicy(file_write="ask")
    events = collect(adapter, permissions=policy, allowed_tools=("write_file", "read_file"))
    assert files(world) == ({"by-write"} if answer == "allow" else set())
    assert asked == (["write_file"] if answer else [])
    assert statuses(events) == ["success" if answer == "allow" else "denied", "success"]


def test_disallowed_tools(world: Any) -> None:
    """A disallowed tool cannot be called, even if everything else may."""
    script(world, WRITE, SHELL)
    events = collect(
        GeminiAdapter(world.options()),
        permissions=PermissionPolicy(mode="bypass"),
        disallowed_tools=("write_file",),
    )
    assert files(world) == {"by-shell"}
    assert statuses(events) == ["denied", "success"]


def test_denials_have_the_names_of_the_options(world: Any) -> None:
    """The reason of a denied call names the options of the document, not those of geminids."""
    script(world, READ, SHELL, ("glob", {"pattern": "*"}), FETCH)
    events = collect(
        GeminiAdapter(world.options()),
        permissions=PermissionPolicy(shell_execute="deny"),
        allowed_tools=("run_shell_command", "glob", "write_file"),
        disallowed_tools=("glob",),
    )
    assert [result.output for result in payloads(events, "tool_result")] == [
        "read_file is not in allowed_tools",
        "permissions.shell_execute is deny",
        "glob is in disallowed_tools",
        "web_fetch is not in allowed_tools",
    ]


def test_no_tools(world: Any) -> None:
    """An empty list of allowed tools takes every tool away."""
    script(world, READ)
    events = collect(GeminiAdapter(world.options()), allowed_tools=())
    assert statuses(events) == ["denied"]
    init = payloads(events, "init")[0]
    assert (init.tools, init.capabilities.tools_known) == ((), True)


# S7: options.


def test_model(world: Any) -> None:
    """The model of the options is the one that the CLI asks, and the one in `init`."""
    script(world)
    events = collect(GeminiAdapter(world.options()), model="gemini-3.8-pro")
    assert world.gateway.requests[0].model == "gemini-3.8-pro"
    assert payloads(events, "init")[0].model == "gemini-3.8-pro"


def test_stored_policy() -> None:
    """A policy that is stored as the document's JSON can be read."""
    stored = b'{"fileWrite":"allow","shellExecute":"ask","networkAccess":"deny"}'
    policy = PermissionPolicy(file_write="allow", shell_execute="ask", network_access="deny")
    assert msgspec.json.decode(stored, type=PermissionPolicy) == policy
    assert msgspec.json.encode(policy) == stored


# S8: abort.


def test_abort_ends_the_whole_tree(world: Any) -> None:
    """An abort ends the CLI and the shell of its tool. `done` comes once, last, as `interrupted`.

    A fixture checks that no process is left.
    """
    command = "echo $$ > by-pid; sleep 300"
    world.gateway.when("hello", calls=[("run_shell_command", {"command": command})])
    signal = anyio.Event()
    events: list[AgentEvent] = []

    async def main() -> None:
        options = AgentOptions(abort_signal=signal, permissions=PermissionPolicy(mode="bypass"))
        adapter = GeminiAdapter(world.options(grace=0.3))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort_when_it_runs)
            events.extend([event async for event in sublang.run_agent(adapter, "hello", options)])

    async def abort_when_it_runs() -> None:
        with anyio.fail_after(90):
            while not (world.cwd / "by-pid").exists():
                await anyio.sleep(0.02)
        signal.set()

    anyio.run(main)
    assert [event.type for event in events].count("done") == 1
    assert (events[-1].type, events[-1].payload.status) == ("done", "interrupted")
    pid = int((world.cwd / "by-pid").read_text())
    assert not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.parametrize(
    "on_permission", [None, pytest.param(lambda request: "allow", marks=deep)], ids=["headless", "warm"]
)
def test_abort_of_a_shell_that_ignores_sigterm(world: Any, on_permission: Any) -> None:
    """`done` of an aborted run comes when all processes are gone, also if a shell ignores SIGTERM.
    It has the session, the tokens and the cost of the run, and without a callback the exit code."""
    command = "trap '' TERM; echo $$ > by-pid; sleep 295; sleep 296"
    world.gateway.when("hello", calls=[("run_shell_command", {"command": command})])
    signal = anyio.Event()
    alive: list[bool] = []

    def is_alive() -> bool:
        status = Path(f"/proc/{(world.cwd / 'by-pid').read_text().strip()}/status")
        return status.exists() and "State:\tZ" not in status.read_text()

    def watch(event: AgentEvent) -> None:
        if event.type == "done":
            alive.append(is_alive())

    events: list[AgentEvent] = []

    async def main() -> None:
        options = AgentOptions(abort_signal=signal, permissions=PermissionPolicy(mode="bypass"))
        adapter = GeminiAdapter(world.options(grace=2), on_permission=on_permission)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort_when_it_runs)
            async for event in sublang.run_agent(adapter, "hello", options):
                events.append(event)
                watch(event)

    async def abort_when_it_runs() -> None:
        with anyio.fail_after(90):
            while not (world.cwd / "by-pid").exists() or not (world.cwd / "by-pid").read_text().strip():
                await anyio.sleep(0.02)
        assert is_alive()
        signal.set()

    anyio.run(main)
    assert alive == [False]
    [done] = payloads(events, "done")
    assert (done.status, done.resume_token) == ("interrupted", events[0].session_id)
    assert done.usage.tokens.totals.input.total > 0
    assert done.usage.cost is not None
    assert (events[-1].metadata.exit_code is None) == (on_permission is not None)  # type: ignore[union-attr]


def test_pre_aborted_run_starts_nothing(world: Any, installs: Any) -> None:
    """A run whose signal is set already starts no process: its only event is `done`."""
    signal = anyio.Event()
    signal.set()
    gemini = wrapper(world, installs, f"touch {world.root}/was-started")
    [done] = collect(GeminiAdapter(world.options(gemini=gemini)), abort_signal=signal, resume="before")
    assert (done.type, done.payload.status, done.payload.resume_token) == ("done", "interrupted", "before")
    assert not (world.root / "was-started").exists()
    assert world.gateway.requests == []


# S9: instances and parallel runs.


def test_single_flight_and_resume(world: Any) -> None:
    """An instance has one run at a time. The next run continues its session, with its role."""
    script(world)
    world.gateway.when("again", text="Again.")
    coder = sublang.AgentInstance(GeminiAdapter(world.options()), AgentOptions(model="flash"), role="coder")

    async def main() -> list[AgentEvent]:
        first = coder.run("hello")
        events = [await anext(first)]
        with pytest.raises(GeminidsError, match="already running"):
            await anext(coder.run("too early"))
        events += [event async for event in first]
        return events + [event async for event in coder.run("again")]

    events = anyio.run(main)
    assert [done.status for done in payloads(events, "done")] == ["success", "success"]
    assert {event.role for event in events} == {"coder"}
    assert len({event.session_id for event in events}) == 1
    assert len({done.resume_token for done in payloads(events, "done")}) == 1


def test_a_failing_run_does_not_stop_the_others(world: Any) -> None:
    """Parallel runs give one stream, each with its own `done`; one that fails or is aborted ends
    alone."""
    script(world)
    world.gateway.when("hang", text="half", stall=True)
    signal = anyio.Event()
    good, bad = GeminiAdapter(world.options()), GeminiAdapter(world.options(gemini=str(world.root / "none")))
    tasks = [
        sublang.AgentTask(agent=good, prompt="hello", role="works"),
        sublang.AgentTask(agent=bad, prompt="hello", role="fails"),
        sublang.AgentTask(agent="nobody", prompt="hello", role="unknown"),
        sublang.AgentTask(
            agent=good, prompt="hang", role="aborted", options=AgentOptions(abort_signal=signal)
        ),
    ]
    streams: dict[str | None, list[AgentEvent]] = defaultdict(list)

    async def main() -> None:
        with anyio.fail_after(150):
            async for event in sublang.run_parallel(tasks):
                streams[event.role].append(event)
                if event.role == "aborted" and event.type == "text_delta":
                    signal.set()

    anyio.run(main)
    ends = {role: events[-1].payload.status for role, events in streams.items()}
    assert ends == {"works": "success", "fails": "error", "unknown": "error", "aborted": "interrupted"}
    for events in streams.values():
        assert [event.type for event in events].count("done") == 1


# S1 and S2: the adapter, the registry and the check.


class Parrot:
    """An adapter of the user's own."""

    agent = "parrot"

    def is_available(self) -> bool:
        return True

    async def run(self, prompt: str, options: AgentOptions) -> AsyncIterator[AgentEvent]:
        raise RuntimeError("no seeds")
        yield


def test_registry() -> None:
    """Adapters are registered by name: get, list, unregister. A duplicate name is an error."""
    assert isinstance(sublang.get("gemini"), sublang.AgentAdapter)
    assert sublang.get("gemini").agent == "gemini"
    sublang.register(Parrot())
    try:
        assert sublang.list()[:2] == ("gemini", "parrot")
        with pytest.raises(GeminidsError, match="already registered"):
            sublang.register(Parrot())
        events = collect("parrot")
        assert [event.type for event in events] == ["error", "done"]
        assert events[0].payload.code == "ADAPTER_ERROR"
    finally:
        assert sublang.unregister("parrot")
    assert not sublang.unregister("parrot")
    with pytest.raises(GeminidsError, match="no adapter 'parrot'"):
        sublang.get("parrot")


def test_is_available(world: Any, installs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`is_available()` finds the CLI on PATH. Nothing is written to the user's home."""
    wrapper(world, installs, "exit 1")
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("PATH", f"{world.root}:/usr/bin:/bin")
    monkeypatch.delenv("GEMINI_CLI_PATH", raising=False)
    assert sublang.is_available(timeout=90)  # a busy machine needs more than the five seconds
    assert list(world.home.iterdir()) == []


def test_a_cli_that_hangs_is_not_available(
    world: Any, installs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CLI that prints nothing and does not end is reported within five seconds. Its processes are
    ended (a fixture checks that), and nothing is left in the user's home or in ours."""
    real = " ".join(install(world.version, places=installs).command(installs))
    program = world.root / "gemini"
    program.write_text(f"#!/bin/sh\nsetsid sleep 300 &\n{real} --help > /dev/null\nsleep 300\n")
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.setenv("PATH", f"{world.root}:/usr/bin:/bin")
    monkeypatch.delenv("GEMINI_CLI_PATH", raising=False)
    before = {path.name for path in world.places.root.iterdir()}
    began = time.monotonic()
    assert not sublang.is_available()
    assert time.monotonic() - began <= 5.0
    assert list(world.home.iterdir()) == []
    left = {path.name for path in world.places.root.iterdir()} - before
    assert left <= {"preload.cjs", "compile-cache", "seen.json"}


def test_parse_ndjson() -> None:
    """`parse_ndjson` yields one result for each line: `ok` with `data`, or not with `error` and
    `raw`. Chunks may end anywhere."""
    text = '{"a": "é"}\r\n\n  \n{oops\n\ufeff[1]\n"last"'.encode()

    async def chunks() -> AsyncIterator[bytes]:
        for byte in text:
            yield bytes([byte])

    async def main() -> list[Any]:
        return [result async for result in sublang.parse_ndjson(chunks())]

    results = anyio.run(main)
    assert [result.ok for result in results] == [True, False, True, True]
    assert [result.data for result in results if result.ok] == [{"a": "é"}, [1], "last"]
    assert (results[1].raw, bool(results[1].error)) == ("{oops", True)


def test_the_program_of_the_page(world: Any) -> None:
    """The complete program of the page runs as it is."""
    [program] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=world.cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "done success" in done.stdout


def test_decoded_events_are_equal(world: Any) -> None:
    """Stored events decode to the same objects, with `Metadata` and capabilities."""
    script(world, READ)
    events = collect(GeminiAdapter(world.options()))
    assert [sublang.decode_agent_event(sublang.encode_agent_event(event)) for event in events] == events
    foreign = b'{"type":"done","agent":"x","timestamp":1,"sessionId":"s","payload":{"status":"success",'
    foreign += b'"usage":{"toolUses":0},"durationMs":1},"metadata":{"theirs":1}}'
    assert sublang.decode_agent_event(foreign).metadata == {"theirs": 1}


def test_an_aborted_run_has_its_init(world: Any) -> None:
    """A run that is aborted before the model has answered yields `init` and `done`."""
    world.gateway.reply(text="late", delay=60)
    abort = threading.Event()
    options = world.options()

    def abort_at_first_request() -> None:
        world.gateway.wait_for_requests(1, timeout=60)
        abort.set()

    watcher = threading.Thread(target=abort_at_first_request)
    watcher.start()
    events = collect(GeminiAdapter(options), abort_signal=abort)
    watcher.join()
    assert [event.type for event in events] == ["init", "done"]
    assert events[-1].payload.status == "interrupted"


def test_every_name_has_help() -> None:
    """`help()` works for each public name of the module."""
    for name in sublang.__all__:
        assert pydoc.render_doc(getattr(sublang, name)), name
