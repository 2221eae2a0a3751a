"""Permissions on the warm transport with the real CLI: a call runs, asks for permission or is
denied."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from acp_client import AcpClient, Decide, allow_once, deny
from geminids.launch.build import build_warm
from geminids.launch.errors import Refused
from geminids.launch.permissions.verdicts import session_mode
from geminids.launch.prepare import prepare
from geminids.launch.write import write
from geminids.options import Approval, Permissions
from permission_table import AS_PERMISSIONS, TABLE
from tool_actions import SKILL, TOOL_ACTIONS, ToolAction, mark_server, prepare_world

pytestmark = pytest.mark.real

NEWEST = "0.61.0"
FAST = (("default", "nothing"), ("auto_edit", "nothing"), ("yolo", "nothing"))
# Texts in the tool results of calls that the CLI blocked.
_BLOCKED = ("not found in registry", "denied by policy", "command was blocked")
_ASK_ALWAYS = AS_PERMISSIONS["ask"]
_HARMLESS = ToolAction("run_shell_command", {"command": "echo harmless-words", "description": "try"})


@dataclass
class WarmCli:
    """A warm CLI with one session, in which the model makes one tool call per turn."""

    world: Any
    client: AcpClient
    session: str

    def run_action(self, action: ToolAction, decide: Decide) -> tuple[list[str], str]:
        """Let the model make a tool call.

        Return the tools for which the CLI requested permission, and the tool results as JSON."""
        gateway = self.world.gateway
        gateway.reply(calls=[(action.tool, action.args)])
        gateway.reply(text="done")
        self.client.asked.clear()
        self.client.decide = decide
        before = len(gateway.requests)
        self.client.prompt(self.session, "please do it")
        results = [result for request in gateway.requests[before:] for result in request.tool_results]
        return self.client.tools_asked(), json.dumps(results)

    def happened(self, name: str, results: str) -> bool:
        """Return whether the tool call had its effect, on disk or in the tool results."""
        action = TOOL_ACTIONS[name]
        if name == "search":
            return (
                "not found in registry" not in results
                and "canceled" not in results
                and "denied" not in results
            )
        if name == "fetch":
            return "Blocked Host" in results or "fetch failed" in results
        if name in ("skill", "read"):
            return (SKILL if name == "skill" else "the old star") in results
        file = self.world.cwd / action.leaves
        return bool(file.exists() and (action.text is None or file.read_text() == action.text))


@contextmanager
def start_warm_cli(
    world: Any, approval: Approval, permissions: Permissions, *, asks: bool = False, **fields: Any
) -> Iterator[WarmCli]:
    """Start a warm CLI with these permissions."""
    prepare_world(world)
    servers = {"mcp_servers": {"lab": mark_server(world)}}
    # The test itself starts the CLI from the plan, without a gateway, so the CLI connects to the
    # scripted API.
    options = world.options(
        approval=approval, permissions=permissions, gateway="off", **{**servers, **fields}
    )
    plan = build_warm(prepare(options, transport="warm", asks=asks), None)
    write(plan)
    with AcpClient(plan.argv, plan.env, world.tmp, seconds=20) as client:
        yield WarmCli(world, client, client.new_session(world.cwd, session_mode(approval)))


def _runs() -> list[Any]:
    runs = dict.fromkeys(row[:2] for row in TABLE)
    return [
        pytest.param(*run, id="-".join(run).replace(" ", "_"), marks=() if run in FAST else pytest.mark.deep)
        for run in runs
    ]


@pytest.mark.parametrize(("approval", "permissions"), _runs())
def test_the_permission_table_holds_on_the_warm_transport(
    make_world: Any, approval: Approval, permissions: str
) -> None:
    """A call that a headless run allows runs without a permission request. Any other call has no
    effect: it needs permission or is blocked."""
    cells = {row[2]: row[3] for row in TABLE if row[:2] == (approval, permissions)}
    with start_warm_cli(make_world(NEWEST), approval, AS_PERMISSIONS[permissions]) as cli:
        wrong = [
            mismatch for name, expected in cells.items() if (mismatch := _table_mismatch(cli, name, expected))
        ]
    assert not wrong, "\n".join(wrong)


def _table_mismatch(cli: WarmCli, name: str, expected: str) -> str | None:
    """Make a call and deny every permission request. Return a description if the call does not
    behave as the table expects, otherwise None."""
    asked, results = cli.run_action(TOOL_ACTIONS[name], deny)
    happened = cli.happened(name, results)
    stopped = asked or any(map(results.count, _BLOCKED))
    is_expected = (happened and not asked) if expected == "ok" else (not happened and stopped)
    if is_expected:
        return None
    return f"{name}: not {expected}; asked {asked}, happened {happened}, results {results}"


@pytest.mark.parametrize(
    "approval",
    ["yolo", *(pytest.param(mode, marks=pytest.mark.deep) for mode in ("default", "auto_edit", "plan"))],
)
def test_each_call_asks_in_every_mode(make_world: Any, approval: Approval) -> None:
    """With `ask` permissions, the CLI requests permission before each call in every mode. A denied
    call has no effect, an allowed call runs. In plan mode, write and shell calls are blocked."""
    names = [name for name in TOOL_ACTIONS if name not in ("read", "shell $()")]
    with start_warm_cli(make_world(NEWEST), approval, _ASK_ALWAYS, asks=True) as cli:
        wrong = [mismatch for name in names if (mismatch := _request_mismatch(cli, name, approval))]
        asked, results = cli.run_action(_HARMLESS, deny)
        assert (asked, "harmless-words" in results) == (
            [] if approval == "plan" else ["run_shell_command"],
            False,
        )
        assert cli.run_action(TOOL_ACTIONS["read"], deny)[0] == []
    assert not wrong, "\n".join(wrong)


def _request_mismatch(cli: WarmCli, name: str, approval: Approval) -> str | None:
    """Make a call twice, denied and allowed. Return a description if its permission requests or
    effects are not as expected, otherwise None."""
    action = TOOL_ACTIONS[name]
    expected = (
        []
        if approval == "plan" and action.tool in ("write_file", "replace", "run_shell_command")
        else [action.tool]
    )
    refused, results = cli.run_action(action, deny)
    if refused != expected or cli.happened(name, results):
        return f"{name}, refused: asked {refused}, results {results}"
    allowed, results = cli.run_action(action, allow_once)
    if allowed != expected or cli.happened(name, results) != bool(expected):
        return f"{name}, allowed: asked {allowed}, results {results}"
    return None


def _shell(command: str) -> ToolAction:
    return ToolAction("run_shell_command", {"command": command, "description": "try"})


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


def test_ask_overrides_the_users_allows_but_not_denies(make_world: Any) -> None:
    """`ask` overrides an allow rule or a trusted server of the user, but not a deny rule."""
    world = make_world(NEWEST)
    gemini = world.home / ".gemini"
    (gemini / "policies").mkdir(parents=True)
    (gemini / "policies" / "mine.toml").write_text(_POLICY)
    prepare_world(world)
    trusted_server = {
        "command": mark_server(world).command,
        "args": list(mark_server(world).args),
        "trust": True,
    }
    settings = {
        "mcpServers": {"lab": trusted_server},
        "tools": {"allowed": ["write_file"], "exclude": ["replace", "run_shell_command(mkdir)"]},
    }
    (gemini / "settings.json").write_text(json.dumps(settings))
    secret = ToolAction("write_file", {"file_path": "secret.txt", "content": "x"})
    with start_warm_cli(world, "yolo", _ASK_ALWAYS, asks=True, mcp_servers={}) as cli:
        assert cli.run_action(TOOL_ACTIONS["shell"], deny)[0] == ["run_shell_command"]
        assert cli.run_action(TOOL_ACTIONS["mcp"], deny)[0] == ["mcp_lab_mark"]
        assert cli.run_action(TOOL_ACTIONS["write"], allow_once)[0] == ["write_file"]
        for denied in (secret, TOOL_ACTIONS["replace"], TOOL_ACTIONS["fetch"], _shell("mkdir folder")):
            asked, results = cli.run_action(denied, allow_once)
            assert not asked and any(map(results.count, _BLOCKED)), results
    files = {file.name for file in world.cwd.iterdir()}
    assert files == {"seed.txt", "lab.started", "written.txt"}


@pytest.mark.deep
def test_auto_edit_respects_the_users_denies(make_world: Any) -> None:
    """A deny rule of the user applies in `auto_edit`, although the CLI's own mode `autoEdit` checks
    no rules on ACP."""
    world = make_world(NEWEST)
    (world.home / ".gemini" / "policies").mkdir(parents=True)
    (world.home / ".gemini" / "policies" / "mine.toml").write_text(_POLICY)
    with start_warm_cli(world, "auto_edit", Permissions()) as cli:
        asked, results = cli.run_action(
            ToolAction("write_file", {"file_path": "secret.txt", "content": "x"}), allow_once
        )
        assert not asked and "denied by policy" in results
        assert cli.run_action(TOOL_ACTIONS["write"], deny)[0] == []
        assert cli.happened("write", "")
        assert cli.run_action(TOOL_ACTIONS["shell"], deny)[0] == []  # allowed by the user's own rule
        assert cli.run_action(TOOL_ACTIONS["shell >"], deny)[0] == ["run_shell_command"]
    assert not (world.cwd / "secret.txt").exists()


@pytest.mark.parametrize(
    ("permissions", "files"),
    [(Permissions(shell="ask"), set()), (Permissions(), {"inner.txt"})],
    ids=["asks", "nothing_to_ask"],
)
def test_a_subagent_cannot_hang_on_a_question(
    make_world: Any, permissions: Permissions, files: set[str]
) -> None:
    """A permission request of a subagent reaches no client. A subagent that could need permission
    is therefore not started, and a subagent cannot write build files."""
    world = make_world(NEWEST)
    calls: list[Mapping[str, Any]] = [
        {"file_path": "pyproject.toml", "content": "x"},
        {"file_path": "inner.txt", "content": "x"},
    ]
    with start_warm_cli(world, "yolo", permissions, asks=True) as cli:
        reply = world.gateway.reply
        reply(calls=[("invoke_agent", {"agent_name": "generalist", "prompt": "do it"})])
        if files:
            for call in calls:
                reply(calls=[("write_file", call)])
            reply(calls=[("complete_task", {"result": {"summary": "done"}, "response": "done"})])
        for _ in range(3):  # the CLI lets a subagent try again before the turn continues
            reply(text="done")
        cli.client.prompt(cli.session, "please do it")
        assert cli.client.asked == []
    assert {file.name for file in world.cwd.iterdir()} - {"seed.txt", "lab.started"} == files


@pytest.mark.deep
@pytest.mark.parametrize("approval", ["default", "auto_edit"])
def test_an_allowed_shell_asks_about_dangerous_commands(make_world: Any, approval: Approval) -> None:
    """With `shell="allow"`, plain commands run without a permission request. Dangerous commands and
    commands that cannot be parsed need permission."""
    world = make_world(NEWEST)
    (world.cwd / "sub").mkdir()
    with start_warm_cli(world, approval, Permissions(shell="allow")) as cli:
        inner = ToolAction(
            "run_shell_command", {"command": "touch a.txt", "dir_path": "sub", "description": "try"}
        )
        for allowed in (
            inner,
            TOOL_ACTIONS["shell >"],
            _shell("git --version && echo x; for i in 1 2; do echo $i; done"),
        ):
            assert cli.run_action(allowed, deny)[0] == [], allowed.args
        for needs_permission in (_shell("rm -rf seed.txt"), _shell("touch 'unclosed")):
            assert cli.run_action(needs_permission, deny)[0] == ["run_shell_command"], needs_permission.args
    files = {file.name for file in world.cwd.iterdir()}
    assert files == {"seed.txt", "lab.started", "sub", "redirected.txt"}
    assert (world.cwd / "sub" / "a.txt").exists()


def test_a_hook_that_acp_ignores_keeps_a_run_off_the_warm_transport(make_world: Any) -> None:
    """A user's `BeforeTool` hook can deny calls, but the CLI ignores it on ACP. geminids therefore
    refuses the warm transport. An `AfterTool` hook does not prevent it."""
    world = make_world(NEWEST)
    hook = {"matcher": "*", "hooks": [{"type": "command", "command": "exit 2"}]}
    settings = world.home / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": {"BeforeTool": [hook]}}))
    with pytest.raises(Refused, match="BeforeTool hooks"):
        prepare(world.options(), transport="warm", asks=True)
    settings.write_text(json.dumps({"hooks": {"AfterTool": [hook]}}))
    prepare(world.options(), transport="warm", asks=True)
