"""What a run may do, decided here as the CLI will decide it: for its rules, and to say why a call was refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from geminids.options import CAPABILITIES, Approval, Options, Permissions
from geminids.toolchain.tools import BUILT_IN, SHELL, BuiltIn, built_in, is_mcp_name, tools_with

__all__ = ["Verdicts", "contradictions", "denied_tools", "is_denied", "modes_of"]

# What a capability gives no mode by itself, plan mode never has.
_PLAN_KEEPS_OUT = ("file_write", "shell")
_MODES: dict[str, tuple[Approval, ...]] = {
    "always": ("default", "auto_edit", "yolo", "plan"),
    "work": ("default", "auto_edit", "yolo"),
    "edit": ("auto_edit", "yolo"),
    "yolo": ("yolo",),
    "never": (),
}


def modes_of(tool: BuiltIn | None) -> tuple[Approval, ...]:
    """The modes that approve a tool by themselves; one that is not built in needs `yolo`."""
    return _MODES[tool.level if tool else "yolo"]


def is_denied(permissions: Permissions, capability: str) -> bool:
    """Whether a capability is out: denied, or to be asked for where nobody can be asked."""
    return getattr(permissions, capability) in ("deny", "ask")


def contradictions(permissions: Permissions) -> Iterator[str]:
    """What was allowed and denied at once, each in one sentence."""
    for tool in permissions.allow_tools:
        row = built_in(tool)
        capability = row.capability if row else ("mcp" if is_mcp_name(tool) else None)
        if tool in permissions.deny_tools:
            yield f"{tool} is both in allow_tools and in deny_tools"
        elif capability and is_denied(permissions, capability):
            yield f"{tool} is in allow_tools, but {capability} is {getattr(permissions, capability)}"
        elif permissions.only_tools and tool not in permissions.only_tools:
            yield f"{tool} is in allow_tools, but not in only_tools"
    for tool in permissions.only_tools:
        if tool in permissions.deny_tools:
            yield f"{tool} is both in only_tools and in deny_tools"
    if permissions.allow_commands and is_denied(permissions, "shell"):
        yield f"allow_commands names shell commands, but shell is {permissions.shell}"
    for command in permissions.allow_commands:
        if command in permissions.deny_commands:
            yield f"{command!r} is both in allow_commands and in deny_commands"
    if permissions.allow_servers and is_denied(permissions, "mcp"):
        yield f"allow_servers names MCP servers, but mcp is {permissions.mcp}"
    for server in permissions.allow_servers:
        if server in permissions.deny_servers:
            yield f"{server} is both in allow_servers and in deny_servers"


class Verdicts(msgspec.Struct, frozen=True):
    """Says why a call could not be made. The CLI's own words do not: a denied tool is "not found" to it."""

    approval: Approval
    permissions: Permissions
    servers: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: Options, servers: tuple[str, ...] = ()) -> Verdicts:
        return cls(options.approval, options.permissions, servers)

    def why_not(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """One sentence, or None where nothing that we know of forbids it.

        >>> Verdicts("yolo", Permissions(shell="deny")).why_not("run_shell_command", {})
        'shell is denied by the permissions of this run'
        """
        said = self.permissions
        row = built_in(tool)
        server = self._server(tool)
        capability = row.capability if row else ("mcp" if server or is_mcp_name(tool) else None)
        if tool in said.deny_tools:
            return f"{tool} is in deny_tools"
        if said.only_tools and tool not in said.only_tools:
            return f"{tool} is not in only_tools"
        if server and server in said.deny_servers:
            return f"the MCP server {server} is in deny_servers"
        if capability and is_denied(said, capability):
            return _denied(capability, getattr(said, capability))
        if tool == SHELL and (command := self._refused_command(arguments)):
            return command
        if tool in ("enter_plan_mode", "exit_plan_mode") and self.approval != "yolo":
            return f"{tool} would leave approval={self.approval} for yolo"
        if self._allowed(tool, capability, server, arguments) or self.approval in modes_of(row):
            return None
        return self._not_in_this_mode(tool, row, capability)

    def _server(self, tool: str) -> str | None:
        from geminids.toolchain.tools import server_of

        return server_of(tool, self.servers)

    def _refused_command(self, arguments: Mapping[str, Any]) -> str | None:
        command = arguments.get("command")
        for begin in self.permissions.deny_commands:
            if isinstance(command, str) and begin in command:
                return f"{begin!r} is in deny_commands"
        return None

    def _allowed(
        self, tool: str, capability: str | None, server: str | None, arguments: Mapping[str, Any]
    ) -> bool:
        said = self.permissions
        if self.approval == "plan" and capability in _PLAN_KEEPS_OUT:
            return False
        if tool in said.allow_tools or (server and server in said.allow_servers):
            return True
        if tool == SHELL and said.shell is None and said.allow_commands:
            command = arguments.get("command")
            return isinstance(command, str) and command.startswith(said.allow_commands)
        return capability is not None and getattr(said, capability) == "allow"

    def _not_in_this_mode(self, tool: str, row: BuiltIn | None, capability: str | None) -> str | None:
        if row is None and capability is None:
            return None  # no tool that we know: it may not exist at all
        if row is not None and row.level == "never":
            return f"{tool} needs a person, and there is none in a headless run"
        if self.approval == "plan":
            return f"approval=plan does not let {tool} be called"
        if tool == SHELL and self.permissions.allow_commands:
            return "the command begins with none of allow_commands"
        way = f"allow {capability}" if capability else f"put {tool} into allow_tools"
        return f"approval={self.approval} does not let {tool} be called; {way}, or use another approval mode"


def _denied(capability: str, power: str) -> str:
    if power == "ask":
        return f"{capability} must be asked for, and nobody can be asked in a headless run"
    return f"{capability} is denied by the permissions of this run"


def denied_tools(permissions: Permissions) -> dict[str, str]:
    """Every built-in tool that the permissions take away, with the reason."""
    gone: dict[str, str] = {}
    if permissions.only_tools:
        gone |= {
            t.name: f"{t.name} is not in only_tools" for t in BUILT_IN if t.name not in permissions.only_tools
        }
    for capability in CAPABILITIES:
        if is_denied(permissions, capability):
            why = _denied(capability, getattr(permissions, capability))
            gone |= dict.fromkeys(tools_with(capability), why)
    return gone | {tool: f"{tool} is in deny_tools" for tool in permissions.deny_tools}
