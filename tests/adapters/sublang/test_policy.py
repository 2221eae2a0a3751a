"""SubLang's options and policy in our terms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geminids import Options, Permissions
from geminids.adapters.sublang import AgentOptions, PermissionPolicy
from geminids.adapters.sublang.policy import is_within, options_for, writable_folders
from geminids.errors import OptionsError
from geminids.events.model import PermissionAsked
from geminids.gemini.tools import BUILT_IN
from geminids.launch.permissions.verdicts import contradictions, denied_tools

BASE = Options()


def _ours(policy: dict[str, Any] | None = None, **fields: Any) -> Options:
    given = None if policy is None else PermissionPolicy(**policy)
    return options_for(AgentOptions(permissions=given, **fields), BASE)


def _problems(**fields: Any) -> list[tuple[str, str]]:
    with pytest.raises(OptionsError) as raised:
        options_for(AgentOptions(**fields), BASE)
    return list(raised.value.problems)


def test_nothing_said() -> None:
    """The options below are used as they are, and there are no rules."""
    assert _ours() == BASE
    below = Options(model="pro", permissions=Permissions(shell="deny"), timeout=3)
    assert options_for(AgentOptions(), below) == below


def test_fields(tmp_path: Path) -> None:
    """What has a name of ours goes there; a scale that is longer than the CLI's ends where that ends."""
    ours = _ours(cwd=str(tmp_path), model="flash", max_turns=3, resume="s-1", effort="minimal")
    assert ours == Options(cwd=str(tmp_path), model="flash", max_turns=3, resume="s-1", effort="minimal")
    assert [_ours(effort=effort).effort for effort in ("high", "xhigh", "max")] == ["high"] * 3
    assert _ours(resume="").resume is None
    assert _ours(resume=False).resume is None


def test_a_policy_without_a_mode() -> None:
    """What is left out is asked for, also where all of it is left out."""
    asking = Permissions(file_write="ask", shell="ask", network="ask")
    assert _ours({}).permissions == asking
    mixed = {"file_write": "allow", "shell_execute": "deny"}
    assert _ours(mixed).permissions == Permissions(file_write="allow", shell="deny", network="ask")
    assert _ours(mixed).approval == "default"


@pytest.mark.parametrize("mode", ["auto", "bypass"])
def test_a_mode(mode: str) -> None:
    """All is allowed, whatever else the policy says; tool lists still hold."""
    ours = _ours({"mode": mode, "shell_execute": "deny"}, disallowed_tools=("glob",))
    assert (ours.approval, ours.permissions) == ("yolo", Permissions(deny_tools=("glob",)))


def test_allowed_tools() -> None:
    """These and no other, and each of them approved: an ask gives way, a deny does not."""
    ours = _ours({"shell_execute": "deny"}, allowed_tools=("write_file", "run_shell_command", "glob"))
    assert ours.permissions == Permissions(
        shell="deny", network="ask", only_tools=("write_file", "glob"), allow_tools=("write_file", "glob")
    )
    assert list(contradictions(ours.permissions)) == []


def test_allowed_and_disallowed() -> None:
    """A deny beats an allow."""
    ours = _ours(allowed_tools=("glob", "read_file"), disallowed_tools=("glob",)).permissions
    assert ours == Permissions(only_tools=("read_file",), allow_tools=("read_file",), deny_tools=("glob",))
    assert list(contradictions(ours)) == []


@pytest.mark.parametrize(
    "fields", [{"allowed_tools": ()}, {"allowed_tools": ("glob",), "disallowed_tools": ("glob",)}]
)
@pytest.mark.parametrize("policy", [None, {}, {"mode": "bypass"}])
def test_no_tool_at_all(fields: dict[str, Any], policy: dict[str, Any] | None) -> None:
    """An empty list, or one of which nothing is left, takes every tool away."""
    ours = _ours(policy, **fields).permissions
    assert set(denied_tools(ours)) == {tool.name for tool in BUILT_IN}
    assert ours.mcp == "deny"
    assert list(contradictions(ours)) == []


def test_denies_below_are_kept() -> None:
    """A call adds to them."""
    below = Options(permissions=Permissions(deny_tools=("glob",)))
    ours = options_for(AgentOptions(disallowed_tools=("glob", "read_file")), below)
    assert ours.permissions.deny_tools == ("glob", "read_file")


def test_bad_names_are_told_with_their_index() -> None:
    """Every problem at once, before anything is started."""
    problems = _problems(allowed_tools=("glob", "", "mcp_*"), disallowed_tools=("a\ud800",))
    assert [name for name, _ in problems] == ["allowed_tools[1]", "allowed_tools[2]", "disallowed_tools[0]"]


@pytest.mark.parametrize(
    "path",
    ["/etc", "", ".", "./", "a/../b", "a//b", "*.py", "$HOME", "a;b", "a\nb", "C:\\x", "\\\\host", "~/x"],
)
def test_bad_paths(path: str) -> None:
    """Absolute, empty, the root, with `..`, an empty part, a glob, shell or control characters: refused."""
    policy = PermissionPolicy(file_write="allow", writable_paths=("src", path))
    [(name, _)] = _problems(permissions=policy)
    assert name == "permissions.writable_paths[1]"


@pytest.mark.parametrize(
    "fields",
    [
        {"effort": "huge"},
        {"max_budget_usd": -1.0},
        {"permissions": PermissionPolicy(mode="yolo")},  # type: ignore[arg-type]
        {"permissions": PermissionPolicy(file_write="maybe")},  # type: ignore[arg-type]
        {"permissions": PermissionPolicy(writable_paths=("a",)), "allowed_tools": ("write_file",)},
    ],
)
def test_what_cannot_be_held(fields: dict[str, Any]) -> None:
    """Is refused, not passed over."""
    assert len(_problems(**fields)) == 1


def test_our_own_checks_hold_too() -> None:
    """A folder that is not there is told as always."""
    assert _problems(cwd="/none/such")[0][0] == "cwd"


def test_writable_paths(tmp_path: Path) -> None:
    """A write is asked for, and lies within a path or not: links are followed, and no path is outside."""
    policy = PermissionPolicy(file_write="allow", writable_paths=("./src/", "docs\\made"))
    assert _ours({"file_write": "allow", "writable_paths": ("src",)}).permissions.file_write == "ask"
    folders = writable_folders(policy, str(tmp_path))
    assert folders == (tmp_path / "src", tmp_path / "docs" / "made")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "out").symlink_to(tmp_path)

    def within(*paths: str) -> bool:
        asked = PermissionAsked(
            at=1,
            seq=1,
            attempt=1,
            turn=1,
            id="c",
            tool="write_file",
            kind="write",
            title="",
            cwd=str(tmp_path),
            paths=paths,
        )
        return is_within(asked, folders or ())

    assert within("src/a", str(tmp_path / "docs/made/b"))
    assert not within("src/a", "b")
    assert not within("src/out/b")
    assert not within("src-too/a")
    assert not within()


@pytest.mark.parametrize(
    "policy", [None, PermissionPolicy(), PermissionPolicy(mode="auto", writable_paths=("a",))]
)
def test_no_paths(policy: PermissionPolicy | None) -> None:
    """Where the policy names none, or a mode makes them void."""
    assert writable_folders(policy, "/") is None


def test_a_budget_in_dollars() -> None:
    """Is held by our own."""
    assert _ours(max_budget_usd=1.5).max_budget == 1.5
