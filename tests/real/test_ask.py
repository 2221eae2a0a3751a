"""Permissions on the warm lane, proven with the real CLI: what is asked for, what is not, what cannot run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from acp_client import AcpClient, Decide, always, never
from acts import ACTS, SKILL, Act, furnish, server
from geminids.launch.build import build_warm
from geminids.launch.errors import Refused
from geminids.launch.permissions.verdicts import session_mode
from geminids.launch.prepare import prepare
from geminids.launch.write import write
from geminids.options import Approval, Permissions
from permission_table import AS_PERMISSIONS, TABLE

pytestmark = pytest.mark.real

NEWEST = "0.61.0"
FAST = (("default", "nothing"), ("auto_edit", "nothing"), ("yolo", "nothing"))
# What the CLI tells the model of a call that no rule lets through.
_GONE = ("not found in registry", "denied by policy", "command was blocked")
_EVERYTHING = AS_PERMISSIONS["ask"]
_HARMLESS = Act("run_shell_command", {"command": "echo harmless-words", "description": "try"})


@dataclass
class Stage:
    """A warm process in a furnished world; the model asks for one act a turn."""

    world: Any
    client: AcpClient
    session: str

    def play(self, act: Act, decide: Decide) -> tuple[list[str], str]:
        """Let the model ask for it: the tools that the CLI asked for, and what the model was told."""
        gateway = self.world.gateway
        gateway.reply(calls=[(act.tool, act.args)])
        gateway.reply(text="done")
        self.client.asked.clear()
        self.client.decide = decide
        before = len(gateway.requests)
        self.client.prompt(self.session, "please do it")
        told = [result for request in gateway.requests[before:] for result in request.tool_results]
        return self.client.tools_asked(), json.dumps(told)

    def happened(self, name: str, told: str) -> bool:
        act = ACTS[name]
        if name == "search":
            return "not found in registry" not in told and "canceled" not in told and "denied" not in told
        if name == "fetch":
            return "Blocked Host" in told or "fetch failed" in told
        if name in ("skill", "read"):
            return (SKILL if name == "skill" else "the old star") in told
        file = self.world.cwd / act.leaves
        return bool(file.exists() and (act.text is None or file.read_text() == act.text))


@contextmanager
def stage(
    world: Any, approval: Approval, permissions: Permissions, *, asks: bool = False, **fields: Any
) -> Iterator[Stage]:
    furnish(world)
    servers = {"mcp_servers": {"lab": server(world)}}
    # The plan is carried out by the test itself, so the CLI speaks to the scripted API.
    options = world.options(
        approval=approval, permissions=permissions, gateway="off", **{**servers, **fields}
    )
    plan = build_warm(prepare(options, transport="warm", asks=asks), None)
    write(plan)
    with AcpClient(plan.argv, plan.env, world.tmp, seconds=20) as client:
        yield Stage(world, client, client.new_session(world.cwd, session_mode(approval)))


def _runs() -> list[Any]:
    runs = dict.fromkeys(row[:2] for row in TABLE)
    return [
        pytest.param(*run, id="-".join(run).replace(" ", "_"), marks=() if run in FAST else pytest.mark.deep)
        for run in runs
    ]


@pytest.mark.parametrize(("approval", "permissions"), _runs())
def test_the_table_holds_on_the_warm_lane(make_world: Any, approval: Approval, permissions: str) -> None:
    """What a headless run may do runs unasked; what it may not is asked for, or cannot be called at all."""
    cells = {row[2]: row[3] for row in TABLE if row[:2] == (approval, permissions)}
    with stage(make_world(NEWEST), approval, AS_PERMISSIONS[permissions]) as on:
        wrong = [what for name, expected in cells.items() if (what := _odd(on, name, expected))]
    assert not wrong, "\n".join(wrong)


def _odd(on: Stage, name: str, expected: str) -> str | None:
    asked, told = on.play(ACTS[name], never)
    happened = on.happened(name, told)
    stopped = asked or any(map(told.count, _GONE))
    fine = (happened and not asked) if expected == "ok" else (not happened and stopped)
    return None if fine else f"{name}: not {expected}; asked {asked}, happened {happened}, told {told}"


@pytest.mark.parametrize(
    "approval",
    ["yolo", *(pytest.param(mode, marks=pytest.mark.deep) for mode in ("default", "auto_edit", "plan"))],
)
def test_what_must_be_asked_for_is(make_world: Any, approval: Approval) -> None:
    """In every mode the CLI asks before each call: a no leaves no trace, a yes lets it happen."""
    names = [name for name in ACTS if name not in ("read", "shell $()")]
    with stage(make_world(NEWEST), approval, _EVERYTHING, asks=True) as on:
        wrong = [what for name in names if (what := _unasked(on, name, approval))]
        asked, told = on.play(_HARMLESS, never)
        assert (asked, "harmless-words" in told) == (
            [] if approval == "plan" else ["run_shell_command"],
            False,
        )
        assert on.play(ACTS["read"], never)[0] == []
    assert not wrong, "\n".join(wrong)


def _unasked(on: Stage, name: str, approval: Approval) -> str | None:
    act = ACTS[name]
    expected = (
        []
        if approval == "plan" and act.tool in ("write_file", "replace", "run_shell_command")
        else [act.tool]
    )
    refused, told = on.play(act, never)
    if refused != expected or on.happened(name, told):
        return f"{name}, refused: asked {refused}, told {told}"
    allowed, told = on.play(act, always)
    if allowed != expected or on.happened(name, told) != bool(expected):
        return f"{name}, allowed: asked {allowed}, told {told}"
    return None


def _shell(command: str) -> Act:
    return Act("run_shell_command", {"command": command, "description": "try"})


_POLICY = """
[[rule]]
toolName = "run_shell_command"
commandPrefix = "touch"
decision = "allow"
priority = 300
[[rule]]
toolName = "write_file"
argsPattern = "secret"
decision = "deny"
priority = 100
[[rule]]
toolName = "web_fetch"
decision = "deny"
priority = 5
"""


def test_a_question_beats_the_users_allows_and_not_the_users_denies(make_world: Any) -> None:
    """The user's own rules and settings: an allow and a trusted server are asked for, a deny stays one."""
    world = make_world(NEWEST)
    gemini = world.home / ".gemini"
    (gemini / "policies").mkdir(parents=True)
    (gemini / "policies" / "mine.toml").write_text(_POLICY)
    furnish(world)
    mine = {"command": server(world).command, "args": list(server(world).args), "trust": True}
    settings = {
        "mcpServers": {"lab": mine},
        "tools": {"allowed": ["write_file"], "exclude": ["replace", "run_shell_command(mkdir)"]},
    }
    (gemini / "settings.json").write_text(json.dumps(settings))
    secret = Act("write_file", {"file_path": "secret.txt", "content": "x"})
    with stage(world, "yolo", _EVERYTHING, asks=True, mcp_servers={}) as on:
        assert on.play(ACTS["shell"], never)[0] == ["run_shell_command"]
        assert on.play(ACTS["mcp"], never)[0] == ["mcp_lab_mark"]
        assert on.play(ACTS["write"], always)[0] == ["write_file"]
        for denied in (secret, ACTS["replace"], ACTS["fetch"], _shell("mkdir folder")):
            asked, told = on.play(denied, always)
            assert not asked and any(map(told.count, _GONE)), told
    there = {file.name for file in world.cwd.iterdir()}
    assert there == {"seed.txt", "lab.started", "written.txt"}


@pytest.mark.deep
def test_auto_edit_hears_the_users_denies(make_world: Any) -> None:
    """In the CLI's own autoEdit a file tool on ACP asks no rule at all."""
    world = make_world(NEWEST)
    (world.home / ".gemini" / "policies").mkdir(parents=True)
    (world.home / ".gemini" / "policies" / "mine.toml").write_text(_POLICY)
    with stage(world, "auto_edit", Permissions()) as on:
        asked, told = on.play(Act("write_file", {"file_path": "secret.txt", "content": "x"}), always)
        assert not asked and "denied by policy" in told
        assert on.play(ACTS["write"], never)[0] == []
        assert on.happened("write", "")
        assert on.play(ACTS["shell"], never)[0] == []  # allowed by the user's own rule
        assert on.play(ACTS["shell >"], never)[0] == ["run_shell_command"]
    assert not (world.cwd / "secret.txt").exists()


@pytest.mark.parametrize(
    ("permissions", "made"),
    [(Permissions(shell="ask"), set()), (Permissions(), {"inner.txt"})],
    ids=["asks", "nothing_to_ask"],
)
def test_a_subagent_cannot_hang_on_a_question(
    make_world: Any, permissions: Permissions, made: set[str]
) -> None:
    """Its questions reach nobody: where it could ask it is not called, and build files are denied to it."""
    world = make_world(NEWEST)
    calls: list[Mapping[str, Any]] = [
        {"file_path": "pyproject.toml", "content": "x"},
        {"file_path": "inner.txt", "content": "x"},
    ]
    with stage(world, "yolo", permissions, asks=True) as on:
        reply = world.gateway.reply
        reply(calls=[("invoke_agent", {"agent_name": "generalist", "prompt": "do it"})])
        if made:
            for call in calls:
                reply(calls=[("write_file", call)])
            reply(calls=[("complete_task", {"result": {"summary": "done"}, "response": "done"})])
        for _ in range(3):  # the agent is given another chance before the turn goes on
            reply(text="done")
        on.client.prompt(on.session, "please do it")
        assert on.client.asked == []
    assert {file.name for file in world.cwd.iterdir()} - {"seed.txt", "lab.started"} == made


@pytest.mark.deep
@pytest.mark.parametrize("approval", ["default", "auto_edit"])
def test_an_allowed_shell_is_asked_about_what_headless_denies(make_world: Any, approval: Approval) -> None:
    """Another folder, a redirection and several commands run unasked; what is dangerous or unclear does not."""
    world = make_world(NEWEST)
    (world.cwd / "sub").mkdir()
    with stage(world, approval, Permissions(shell="allow")) as on:
        inner = Act("run_shell_command", {"command": "touch a.txt", "dir_path": "sub", "description": "try"})
        for free in (
            inner,
            ACTS["shell >"],
            _shell("git --version && echo x; for i in 1 2; do echo $i; done"),
        ):
            assert on.play(free, never)[0] == [], free.args
        for fenced in (_shell("rm -rf seed.txt"), _shell("touch 'unclosed")):
            assert on.play(fenced, never)[0] == ["run_shell_command"], fenced.args
    there = {file.name for file in world.cwd.iterdir()}
    assert there == {"seed.txt", "lab.started", "sub", "redirected.txt"}
    assert (world.cwd / "sub" / "a.txt").exists()


def test_a_hook_that_would_be_passed_over_keeps_a_run_from_the_warm_lane(make_world: Any) -> None:
    """The CLI runs no such hook on ACP, and it may be there to deny: that is told before anything is started."""
    world = make_world(NEWEST)
    hook = {"matcher": "*", "hooks": [{"type": "command", "command": "exit 2"}]}
    settings = world.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": {"BeforeTool": [hook]}}))
    with pytest.raises(Refused, match="BeforeTool hooks"):
        prepare(world.options(), transport="warm", asks=True)
    settings.write_text(json.dumps({"hooks": {"AfterTool": [hook]}}))
    prepare(world.options(), transport="warm", asks=True)
