"""Tests of converting SubLang's options and permission policy to geminids options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminids import Options, Permissions
from geminids.adapters.sublang import AgentOptions, PermissionPolicy
from geminids.adapters.sublang.denials import Denials
from geminids.adapters.sublang.policy import is_within, options_for, writable_folders
from geminids.errors import OptionsError
from geminids.events.model import PermissionAsked
from geminids.gemini.tools import BUILT_IN
from geminids.launch.permissions.verdicts import contradictions, denied_tools

BASE = Options()


def _converted(policy: dict[str, Any] | None = None, **fields: Any) -> Options:
    permissions = None if policy is None else PermissionPolicy(**policy)
    return options_for(AgentOptions(permissions=permissions, **fields), BASE)


def _problems(**fields: Any) -> list[tuple[str, str]]:
    with pytest.raises(OptionsError) as raised:
        options_for(AgentOptions(**fields), BASE)
    return list(raised.value.problems)


def test_without_a_policy() -> None:
    """Without a policy, the base options are used unchanged."""
    assert _converted() == BASE
    base = Options(model="pro", permissions=Permissions(shell="deny"), timeout=3)
    assert options_for(AgentOptions(), base) == base


def test_option_fields(tmp_path: Path) -> None:
    """Each field sets its geminids option. An effort above the CLI's scale becomes "high"."""
    options = _converted(cwd=str(tmp_path), model="flash", max_turns=3, resume="s-1", effort="minimal")
    assert options == Options(cwd=str(tmp_path), model="flash", max_turns=3, resume="s-1", effort="minimal")
    assert [_converted(effort=effort).effort for effort in ("high", "xhigh", "max")] == ["high"] * 3
    assert _converted(resume="").resume is None
    assert _converted(resume=False).resume is None


def test_policy_without_a_mode() -> None:
    """In a policy without a mode, every missing permission is "ask"."""
    asking = Permissions(file_write="ask", shell="ask", network="ask")
    assert _converted({}).permissions == asking
    mixed = {"file_write": "allow", "shell_execute": "deny"}
    assert _converted(mixed).permissions == Permissions(file_write="allow", shell="deny", network="ask")
    assert _converted(mixed).approval == "default"


@pytest.mark.parametrize("mode", ["auto", "bypass"])
def test_policy_with_a_mode(mode: str) -> None:
    """The modes "auto" and "bypass" allow everything except tools in the deny list."""
    options = _converted({"mode": mode, "shell_execute": "deny"}, disallowed_tools=("glob",))
    assert (options.approval, options.permissions) == ("yolo", Permissions(deny_tools=("glob",)))


def test_allowed_tools() -> None:
    """Only the allowed tools exist, and they need no approval. A deny of the policy still wins."""
    options = _converted({"shell_execute": "deny"}, allowed_tools=("write_file", "run_shell_command", "glob"))
    assert options.permissions == Permissions(
        shell="deny", network="ask", only_tools=("write_file", "glob"), allow_tools=("write_file", "glob")
    )
    assert list(contradictions(options.permissions)) == []


def test_disallowed_tools_win() -> None:
    """A tool that is both allowed and disallowed is denied."""
    options = _converted(allowed_tools=("glob", "read_file"), disallowed_tools=("glob",)).permissions
    assert options == Permissions(only_tools=("read_file",), allow_tools=("read_file",), deny_tools=("glob",))
    assert list(contradictions(options)) == []


@pytest.mark.parametrize(
    "fields", [{"allowed_tools": ()}, {"allowed_tools": ("glob",), "disallowed_tools": ("glob",)}]
)
@pytest.mark.parametrize("policy", [None, {}, {"mode": "bypass"}])
def test_no_allowed_tool_denies_all(fields: dict[str, Any], policy: dict[str, Any] | None) -> None:
    """If the list of allowed tools is empty, every tool is denied, including MCP tools."""
    options = _converted(policy, **fields).permissions
    assert set(denied_tools(options)) == {tool.name for tool in BUILT_IN}
    assert options.mcp == "deny"
    assert list(contradictions(options)) == []


def test_base_denials_are_kept() -> None:
    """Denied tools of the base options stay denied, and a call adds to them."""
    base = Options(permissions=Permissions(deny_tools=("glob",)))
    options = options_for(AgentOptions(disallowed_tools=("glob", "read_file")), base)
    assert options.permissions.deny_tools == ("glob", "read_file")


def test_invalid_tool_names() -> None:
    """All invalid tool names are reported at once, with their index."""
    problems = _problems(allowed_tools=("glob", "", "mcp_*"), disallowed_tools=("a\ud800",))
    assert [name for name, _ in problems] == ["allowed_tools[1]", "allowed_tools[2]", "disallowed_tools[0]"]


@pytest.mark.parametrize(
    "path",
    ["/etc", "", ".", "./", "a/../b", "a//b", "*.py", "$HOME", "a;b", "a\nb", "C:\\x", "\\\\host", "~/x"],
)
def test_invalid_writable_paths(path: str) -> None:
    """A writable path must be relative and plain; every other form is refused, with its index."""
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
def test_unsupported_values(fields: dict[str, Any]) -> None:
    """A value that geminids cannot apply is reported as a problem and not ignored."""
    assert len(_problems(**fields)) == 1


def test_option_checks_apply(tmp_path: Path) -> None:
    """The usual checks of options apply, for example of a folder that is a file."""
    (tmp_path / "file").touch()
    assert _problems(cwd=str(tmp_path / "file"))[0][0] == "cwd"


def test_missing_folder(tmp_path: Path) -> None:
    """A missing `cwd` is refused without advice to use an option that `AgentOptions` do not have.
    The adapter's own options may allow to create it."""
    missing = str(tmp_path / "none")
    assert _problems(cwd=missing) == [("cwd", f"{missing} does not exist; create the folder first")]
    assert options_for(AgentOptions(cwd=missing), Options(make_cwd=True)).cwd == missing


@pytest.mark.parametrize(
    ("fields", "tool", "can_ask", "reason"),
    [
        ({"disallowed_tools": ("glob",)}, "glob", True, "glob is in disallowed_tools"),
        (
            {"disallowed_tools": ("search_file_content",)},
            "grep_search",
            True,
            "grep_search is in disallowed_tools",
        ),
        (
            {"disallowed_tools": ("glob",), "allowed_tools": ("glob",)},
            "glob",
            True,
            "glob is in disallowed_tools",
        ),
        ({"allowed_tools": ("glob",)}, "read_file", True, "read_file is not in allowed_tools"),
        ({"allowed_tools": ()}, "mcp_lab_mark", True, "mcp_lab_mark is not in allowed_tools"),
        (
            {"permissions": PermissionPolicy(shell_execute="deny"), "allowed_tools": ("run_shell_command",)},
            "run_shell_command",
            True,
            "permissions.shell_execute is deny",
        ),
        (
            {"permissions": PermissionPolicy()},
            "web_fetch",
            False,
            "permissions.network_access is ask, but the adapter has no on_permission callback",
        ),
        ({"permissions": PermissionPolicy()}, "web_fetch", True, None),
        (
            {"permissions": PermissionPolicy(), "allowed_tools": ("write_file",)},
            "write_file",
            False,
            None,
        ),
        ({"permissions": PermissionPolicy(file_write="allow")}, "write_file", False, None),
        ({"permissions": PermissionPolicy(mode="auto", file_write="deny")}, "write_file", False, None),
        ({"permissions": PermissionPolicy()}, "mcp_lab_mark", False, None),
        ({}, "write_file", False, None),
    ],
)
def test_reasons_of_denials(fields: dict[str, Any], tool: str, can_ask: bool, reason: str | None) -> None:
    """A call that the options deny has a reason with the names of `AgentOptions`; None means that
    the options do not deny it."""
    assert Denials(AgentOptions(**fields), can_ask=can_ask).reason(tool) == reason


def test_unknown_fields_of_a_stored_policy() -> None:
    """A stored policy with a misspelt field is refused: it would deny or allow something else."""
    with pytest.raises(msgspec.ValidationError, match="fileWrites"):
        msgspec.json.decode(b'{"fileWrites":"allow"}', type=PermissionPolicy)


def test_writable_paths(tmp_path: Path) -> None:
    """With writable paths, each write needs a decision.
    A path is within only if it is still inside after links are resolved."""
    policy = PermissionPolicy(file_write="allow", writable_paths=("./src/", "docs\\made"))
    assert _converted({"file_write": "allow", "writable_paths": ("src",)}).permissions.file_write == "ask"
    folders = writable_folders(policy, str(tmp_path))
    assert folders == (tmp_path / "src", tmp_path / "docs" / "made")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "out").symlink_to(tmp_path)

    def are_within(*paths: str) -> bool:
        request = PermissionAsked(
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
        return is_within(request, folders or ())

    assert are_within("src/a", str(tmp_path / "docs/made/b"))
    assert not are_within("src/a", "b")
    assert not are_within("src/out/b")
    assert not are_within("src-too/a")
    assert not are_within()


@pytest.mark.parametrize(
    "policy", [None, PermissionPolicy(), PermissionPolicy(mode="auto", writable_paths=("a",))]
)
def test_no_writable_folders(policy: PermissionPolicy | None) -> None:
    """`writable_folders` is None if the policy has no paths or has a mode."""
    assert writable_folders(policy, "/") is None


def test_dollar_budget() -> None:
    """`max_budget_usd` sets the option `max_budget`."""
    assert _converted(max_budget_usd=1.5).max_budget == 1.5
