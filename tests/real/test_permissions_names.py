"""Commands, servers and tools that are allowed or denied by name, with the real CLI: the world is looked at."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from acts import ACTS, Act, Played, furnish, perform, server
from geminids import Permissions

pytestmark = pytest.mark.real

MADE = "made.txt"

# Each makes the file, were it run. The first part alone is allowed.
NOT_ALLOWED = {
    "another": f"touch {MADE}",
    "and": f"git status && touch {MADE}",
    "or": f"git statu || touch {MADE}",
    "then": f"git status; touch {MADE}",
    "new line": f"git status\ntouch {MADE}",
    "pipe": f"git status | tee {MADE}",
    "background": f"git status & touch {MADE}",
    "substitution": f"git status $(touch {MADE})",
    "backticks": f"git status `touch {MADE}`",
    "process substitution": f"git status <(touch {MADE})",
    "function": f"git() {{ touch {MADE}; }}; git status",
    "condition": f"if git status; then touch {MADE}; fi",
    "subshell": f"(git status; touch {MADE})",
    "shell": f"sh -c 'git status; touch {MADE}'",
    "redirection": f"git status > {MADE}",
}
DENIED = {
    "alone": f"touch {MADE}",
    "and": f"echo hi && touch {MADE}",
    "then": f"echo hi; touch {MADE}",
    "pipe": f"echo hi | touch {MADE}",
    "new line": f"echo hi\ntouch {MADE}",
    "sh -c": f"sh -c 'touch {MADE}'",
    "bash -c": f'bash -c "echo hi && touch {MADE}"',
    "subshell": f"(touch {MADE})",
    "blanks": f"  touch {MADE}",
    "tab": f"touch\t{MADE}",
    "broken line": f"touch \\\n {MADE}",
    "by its path": f"/usr/bin/touch {MADE}",
}


def _shell(command: str, **more: Any) -> Act:
    return Act("run_shell_command", {"command": command, **more})


def _perform(world: Any, commands: dict[str, str], **fields: Any) -> Played:
    subprocess.run(["git", "init", "-q", str(world.cwd)], check=True)
    return perform(world, [(name, _shell(command)) for name, command in commands.items()], **fields)


def _statuses(played: Played) -> dict[str, str]:
    return {name: event.status for name, event in played.finished.items()}


def test_only_what_begins_as_allowed_is_run(world: Any) -> None:
    """`allow_commands` lets through what begins so, each part of it: nothing behind it, around it or in it."""
    fine = {
        "itself": "git status",
        "with arguments": "git status --short",
        "twice": "git status && git status",
    }
    played = _perform(world, {**fine, **NOT_ALLOWED}, permissions=Permissions(allow_commands=("git status",)))
    assert _statuses(played) == {**dict.fromkeys(fine, "ok"), **dict.fromkeys(NOT_ALLOWED, "denied")}
    assert not (world.cwd / MADE).exists()
    assert "a part of the command is not in allow_commands" in played.why("and")
    assert "the command redirects, and file_write is not allowed" in played.why("redirection")


def test_no_other_argument_passes_for_the_command(world: Any) -> None:
    """The CLI's own `commandPrefix` finds an allowed command anywhere in the arguments; ours only where it is run."""
    furnish(world)
    acts = {
        "nested": _shell(f"touch {MADE}", extra={"command": "git status"}),
        "before": _shell(f"touch {MADE}", a={"command": "git status"}),
        "described": _shell(f"touch {MADE}", description='"command":"git status"'),
    }
    played = perform(world, acts.items(), permissions=Permissions(allow_commands=("git status",)))
    assert _statuses(played) == dict.fromkeys(acts, "denied")
    assert not (world.cwd / MADE).exists()


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
    """Then `>` adds nothing that the agent could not do; what is not allowed is still not run."""
    commands = {"redirection": f"git status > {MADE}", "pipe": "git status | tee other.txt"}
    played = _perform(world, commands, approval=approval, permissions=permissions)
    assert _statuses(played) == {"redirection": "ok", "pipe": "denied"}
    assert (world.cwd / MADE).exists()
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
    """`deny_commands` holds behind `&&`, `;`, `|` and within `sh -c`; what merely resembles it is run."""
    fine = {"other": "echo hi", "as an argument": "echo touch", "longer name": "touchy || true"}
    played = _perform(world, {**fine, **DENIED}, approval=approval, permissions=permissions)
    assert _statuses(played) == {**dict.fromkeys(fine, "ok"), **dict.fromkeys(DENIED, "denied")}
    assert not (world.cwd / MADE).exists()
    assert "is in deny_commands" in played.why("sh -c")


@pytest.mark.deep
def test_several_words_are_denied(world: Any) -> None:
    """A denied command may have words and options: other uses of the same program are run."""
    commands = {
        "denied": "git tag -d x",
        "with a tab": "git\ttag x",
        "other": "git status",
        "options together": "rm -rf seed.txt",
        "fine": "rm seed.txt",
    }
    furnish(world)
    played = _perform(
        world, commands, approval="yolo", permissions=Permissions(deny_commands=("git tag", "rm -r"))
    )
    assert list(_statuses(played).values()) == ["denied", "denied", "ok", "denied", "ok"]


_TOOLS = {"lab": ACTS["mcp"], "lab, other": Act("mcp_lab_other", {}), "shed": Act("mcp_shed_mark", {})}


def _with_servers(world: Any, approval: str, permissions: Permissions) -> tuple[list[str], set[str]]:
    """Call three tools of two servers; what became of each, and the marks that the servers have left."""
    furnish(world)
    servers = {name: server(world, name) for name in ("lab", "shed")}
    played = perform(world, _TOOLS.items(), approval=approval, permissions=permissions, mcp_servers=servers)
    marks = {file.name for file in world.cwd.iterdir() if file.suffix in (".started", ".called")}
    return [event.status for event in played.finished.values()], marks


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
def test_servers(
    world: Any, approval: str, permissions: Permissions, statuses: list[str], marks: set[str]
) -> None:
    """A server that is out is never started, and of the others only what is allowed is called."""
    assert _with_servers(world, approval, permissions) == (statuses, marks)


@pytest.mark.deep
def test_a_tool_is_one_under_its_old_name_too(world: Any) -> None:
    """`search_file_content` is `grep_search`: to keep one is to keep both, to deny one is to deny both."""
    furnish(world)
    acts = {name: Act(name, {"pattern": "star"}) for name in ("grep_search", "search_file_content")}
    for permissions, status in (
        (Permissions(only_tools=("grep_search",)), "ok"),
        (Permissions(deny_tools=("search_file_content",)), "denied"),
    ):
        assert set(_statuses(perform(world, acts.items(), permissions=permissions)).values()) == {status}


@pytest.mark.deep
@pytest.mark.parametrize(
    ("approval", "permissions", "made"),
    [
        ("yolo", Permissions(), {"by-shell", "by-tool"}),
        ("yolo", Permissions(shell="deny", file_write="deny"), set()),
        ("default", Permissions(), set()),
        ("default", Permissions(file_write="allow"), {"by-tool"}),
        ("auto_edit", Permissions(deny_tools=("write_file",)), set()),
    ],
    ids=["yolo", "denied", "default", "allowed", "deny_tools"],
)
def test_a_subagent_has_no_more_power(
    world: Any, approval: str, permissions: Permissions, made: set[str]
) -> None:
    """What the run may not do, an agent that it calls may not do either; and what it may, that may."""
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
    assert {file.name for file in world.cwd.iterdir()} == made
