"""Commands, MCP servers and tools that are allowed or denied by name, with the real CLI.

The tests check statuses and effects on disk."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from geminids import Permissions
from tool_actions import TOOL_ACTIONS, ActionRun, ToolAction, mark_server, prepare_world, run_actions

pytestmark = pytest.mark.real

MADE_FILE = "made.txt"

# Each command would create the file. At most its part `git status` is allowed.
NOT_ALLOWED = {
    "another": f"touch {MADE_FILE}",
    "and": f"git status && touch {MADE_FILE}",
    "or": f"git statu || touch {MADE_FILE}",
    "then": f"git status; touch {MADE_FILE}",
    "new line": f"git status\ntouch {MADE_FILE}",
    "pipe": f"git status | tee {MADE_FILE}",
    "background": f"git status & touch {MADE_FILE}",
    "substitution": f"git status $(touch {MADE_FILE})",
    "backticks": f"git status `touch {MADE_FILE}`",
    "process substitution": f"git status <(touch {MADE_FILE})",
    "function": f"git() {{ touch {MADE_FILE}; }}; git status",
    "condition": f"if git status; then touch {MADE_FILE}; fi",
    "subshell": f"(git status; touch {MADE_FILE})",
    "shell": f"sh -c 'git status; touch {MADE_FILE}'",
    "redirection": f"git status > {MADE_FILE}",
}
DENIED = {
    "alone": f"touch {MADE_FILE}",
    "and": f"echo hi && touch {MADE_FILE}",
    "then": f"echo hi; touch {MADE_FILE}",
    "pipe": f"echo hi | touch {MADE_FILE}",
    "new line": f"echo hi\ntouch {MADE_FILE}",
    "sh -c": f"sh -c 'touch {MADE_FILE}'",
    "bash -c": f'bash -c "echo hi && touch {MADE_FILE}"',
    "subshell": f"(touch {MADE_FILE})",
    "blanks": f"  touch {MADE_FILE}",
    "tab": f"touch\t{MADE_FILE}",
    "broken line": f"touch \\\n {MADE_FILE}",
    "by its path": f"/usr/bin/touch {MADE_FILE}",
}


def _shell(command: str, **arguments: Any) -> ToolAction:
    return ToolAction("run_shell_command", {"command": command, **arguments})


def _run_commands(world: Any, commands: dict[str, str], **fields: Any) -> ActionRun:
    subprocess.run(["git", "init", "-q", str(world.cwd)], check=True)
    return run_actions(world, [(name, _shell(command)) for name, command in commands.items()], **fields)


def _statuses(action_run: ActionRun) -> dict[str, str]:
    return {name: event.status for name, event in action_run.finished.items()}


def test_only_commands_with_an_allowed_prefix_run(world: Any) -> None:
    """`allow_commands` allows a command only if each of its parts starts with an allowed prefix."""
    allowed = {
        "itself": "git status",
        "with arguments": "git status --short",
        "twice": "git status && git status",
    }
    action_run = _run_commands(
        world, {**allowed, **NOT_ALLOWED}, permissions=Permissions(allow_commands=("git status",))
    )
    assert _statuses(action_run) == {**dict.fromkeys(allowed, "ok"), **dict.fromkeys(NOT_ALLOWED, "denied")}
    assert not (world.cwd / MADE_FILE).exists()
    assert "a part of the command is not in `allow_commands`" in action_run.why("and")
    assert "the command redirects its input or output, but file_write is not allowed" in action_run.why(
        "redirection"
    )


def test_an_allowed_name_among_the_arguments_allows_nothing(world: Any) -> None:
    """An allowed command that occurs in another argument of a tool call does not allow the call.
    The CLI's own `commandPrefix` rule would allow it."""
    prepare_world(world)
    actions = {
        "nested": _shell(f"touch {MADE_FILE}", extra={"command": "git status"}),
        "before": _shell(f"touch {MADE_FILE}", a={"command": "git status"}),
        "described": _shell(f"touch {MADE_FILE}", description='"command":"git status"'),
    }
    action_run = run_actions(world, actions.items(), permissions=Permissions(allow_commands=("git status",)))
    assert _statuses(action_run) == dict.fromkeys(actions, "denied")
    assert not (world.cwd / MADE_FILE).exists()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("approval", "permissions"),
    [
        ("default", Permissions(allow_commands=("git status",), file_write="allow")),
        ("auto_edit", Permissions(allow_commands=("git status",))),
    ],
    ids=["file_write allowed", "auto_edit"],
)
def test_an_allowed_command_redirects_where_files_may_be_written(
    world: Any, approval: str, permissions: Permissions
) -> None:
    """An allowed command may redirect with `>` if files may be written. A pipe into a command that
    is not allowed stays denied."""
    commands = {"redirection": f"git status > {MADE_FILE}", "pipe": "git status | tee other.txt"}
    action_run = _run_commands(world, commands, approval=approval, permissions=permissions)
    assert _statuses(action_run) == {"redirection": "ok", "pipe": "denied"}
    assert (world.cwd / MADE_FILE).exists()
    assert not (world.cwd / "other.txt").exists()


@pytest.mark.parametrize(
    ("approval", "permissions"),
    [
        ("yolo", Permissions(deny_commands=("touch ",))),
        pytest.param("default", Permissions(shell="allow", deny_commands=("touch",)), marks=pytest.mark.deep),
    ],
    ids=["yolo", "shell allowed"],
)
def test_a_denied_command_is_not_run(world: Any, approval: str, permissions: Permissions) -> None:
    """`deny_commands` denies a command wherever it occurs: alone, after `&&`, `;` or `|`, in a
    subshell, in `sh -c` and by its path. A command with a similar name runs."""
    allowed = {"other": "echo hi", "as an argument": "echo touch", "longer name": "touchy || true"}
    action_run = _run_commands(world, {**allowed, **DENIED}, approval=approval, permissions=permissions)
    assert _statuses(action_run) == {**dict.fromkeys(allowed, "ok"), **dict.fromkeys(DENIED, "denied")}
    assert not (world.cwd / MADE_FILE).exists()
    assert "is in `deny_commands`" in action_run.why("sh -c")


@pytest.mark.deep
def test_a_denied_command_may_have_arguments(world: Any) -> None:
    """`deny_commands` may name a program with arguments. Other uses of the same program run."""
    commands = {
        "denied": "git tag -d x",
        "with a tab": "git\ttag x",
        "other": "git status",
        "options together": "rm -rf seed.txt",
        "allowed": "rm seed.txt",
    }
    prepare_world(world)
    action_run = _run_commands(
        world, commands, approval="yolo", permissions=Permissions(deny_commands=("git tag", "rm -r"))
    )
    assert list(_statuses(action_run).values()) == ["denied", "denied", "ok", "denied", "ok"]


_TOOLS = {
    "lab": TOOL_ACTIONS["mcp"],
    "lab, other": ToolAction("mcp_lab_other", {}),
    "shed": ToolAction("mcp_shed_mark", {}),
}


def _call_server_tools(world: Any, approval: str, permissions: Permissions) -> tuple[list[str], set[str]]:
    """Call three tools of two MCP servers. Return the status of each call and the marker files that
    the servers created."""
    prepare_world(world)
    servers = {name: mark_server(world, name) for name in ("lab", "shed")}
    action_run = run_actions(
        world, _TOOLS.items(), approval=approval, permissions=permissions, mcp_servers=servers
    )
    marks = {file.name for file in world.cwd.iterdir() if file.suffix in (".started", ".called")}
    return [event.status for event in action_run.finished.values()], marks


_LAB, _SHED = {"lab.started"}, {"shed.started"}


@pytest.mark.parametrize(
    ("approval", "permissions", "statuses", "marks"),
    [
        (
            "default",
            Permissions(allow_servers=("lab",)),
            ["ok", "ok", "denied"],
            _LAB | _SHED | {"lab.mark.called", "lab.other.called"},
        ),
        (
            "yolo",
            Permissions(deny_servers=("lab",)),
            ["denied", "denied", "ok"],
            _SHED | {"shed.mark.called"},
        ),
        pytest.param(
            *("yolo", Permissions(mcp="deny"), ["denied", "denied", "denied"], set()), marks=pytest.mark.deep
        ),
        pytest.param(
            *("yolo", Permissions(mcp="ask"), ["denied", "denied", "denied"], set()), marks=pytest.mark.deep
        ),
        pytest.param(
            "yolo",
            Permissions(only_tools=("mcp_lab_mark",)),
            ["ok", "denied", "denied"],
            _LAB | {"lab.mark.called"},
            marks=pytest.mark.deep,
        ),
        pytest.param(
            "default",
            Permissions(allow_tools=("mcp_lab_mark",)),
            ["ok", "denied", "denied"],
            _LAB | _SHED | {"lab.mark.called"},
            marks=pytest.mark.deep,
        ),
        pytest.param(
            "plan",
            Permissions(allow_tools=("mcp_lab_mark",)),
            ["ok", "denied", "denied"],
            _LAB | _SHED | {"lab.mark.called"},
            marks=pytest.mark.deep,
        ),
    ],
    ids=["allow_servers", "deny_servers", "mcp denied", "mcp asked", "only_tools", "allow_tools", "plan"],
)
def test_denied_servers_do_not_start(
    world: Any, approval: str, permissions: Permissions, statuses: list[str], marks: set[str]
) -> None:
    """A denied MCP server is not started. Of the other servers, only the allowed tools run."""
    assert _call_server_tools(world, approval, permissions) == (statuses, marks)


@pytest.mark.deep
def test_an_old_tool_name_means_the_same_tool(world: Any) -> None:
    """`search_file_content` is an old name of `grep_search`: a rule for one name applies to
    both."""
    prepare_world(world)
    actions = {name: ToolAction(name, {"pattern": "star"}) for name in ("grep_search", "search_file_content")}
    for permissions, status in (
        (Permissions(only_tools=("grep_search",)), "ok"),
        (Permissions(deny_tools=("search_file_content",)), "denied"),
    ):
        assert set(_statuses(run_actions(world, actions.items(), permissions=permissions)).values()) == {
            status
        }


@pytest.mark.deep
@pytest.mark.parametrize(
    ("approval", "permissions", "files"),
    [
        ("yolo", Permissions(), {"by-shell", "by-tool"}),
        ("yolo", Permissions(shell="deny", file_write="deny"), set()),
        ("default", Permissions(), set()),
        ("default", Permissions(file_write="allow"), {"by-tool"}),
        ("auto_edit", Permissions(deny_tools=("write_file",)), set()),
    ],
    ids=["yolo", "denied", "default", "allowed", "deny_tools"],
)
def test_a_subagent_has_the_permissions_of_its_run(
    world: Any, approval: str, permissions: Permissions, files: set[str]
) -> None:
    """A subagent's tool calls follow the permissions of its run: only allowed calls create
    files."""
    calls = (
        ("invoke_agent", {"agent_name": "generalist", "prompt": "do it"}),
        ("run_shell_command", {"command": "touch by-shell"}),
        ("write_file", {"file_path": "by-tool", "content": "x"}),
        ("complete_task", {"result": {"response": "done"}}),
    )
    for call in calls:
        world.gateway.reply(calls=[call])
    world.gateway.reply(text="done")
    result = world.ask(approval=approval, permissions=permissions)
    assert result.ok
    assert {file.name for file in world.cwd.iterdir()} == files
