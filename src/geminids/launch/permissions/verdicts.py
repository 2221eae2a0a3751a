"""Predict which calls the CLI allows in a run, and find permissions that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from geminids.gemini.tools import (
    AGENTS,
    BUILT_IN,
    SHELL,
    BuiltIn,
    built_in,
    is_mcp_name,
    known_as,
    server_of,
    tools_with,
)
from geminids.launch.permissions.commands import allowed_begin, denied_begin, is_build_file
from geminids.options import CAPABILITIES, Approval, Options, Permissions

__all__ = [
    "READING_AGENTS",
    "Answer",
    "Verdicts",
    "allowable_modes",
    "capability_of",
    "contradictions",
    "denied_tools",
    "fits",
    "is_asking",
    "is_denied",
    "misspelled_tools",
    "modes_of",
    "session_mode",
    "unknown_servers",
    "without_asks",
]

# Subagents whose tools only read. They never need permission.
READING_AGENTS = ("codebase_investigator", "cli_help")
_WORKING: tuple[Approval, ...] = ("default", "auto_edit", "yolo")
# The caller's permissions can allow these capabilities even in plan mode, because their tools do
# not themselves write to the folder.
_PLAN_CAPABILITIES = ("network", "mcp", "skills")
_MODES: dict[str, tuple[Approval, ...]] = {
    "always": ("default", "auto_edit", "yolo", "plan"),
    "work": ("default", "auto_edit", "yolo"),
    "edit": ("auto_edit", "yolo"),
    "yolo": ("yolo",),
    "never": (),
}


def modes_of(tool: BuiltIn | None) -> tuple[Approval, ...]:
    """Return the approval modes in which a tool is allowed even if no permission allows it.

    `tool` is None for a tool that is not built in. Such a tool is allowed only in `yolo`.
    """
    return _MODES[tool.level if tool else "yolo"]


def allowable_modes(capability: str | None) -> tuple[Approval, ...]:
    """Return the approval modes in which the permissions of a run can allow a capability.

    `capability` is None for tools that have no known capability. In plan mode, permissions cannot
    allow `file_write`, `shell` and tools without a known capability.
    """
    return (*_WORKING, "plan") if capability in _PLAN_CAPABILITIES else _WORKING


def session_mode(approval: Approval) -> str:
    """Return the approval mode to set in a warm session, given the mode of the run.

    For `auto_edit`, the session uses `default`, and the policy has additional allow rules.

    >>> session_mode("auto_edit"), session_mode("yolo")
    ('default', 'yolo')
    """
    return "default" if approval == "auto_edit" else approval


def is_denied(permissions: Permissions, capability: str) -> bool:
    """Whether a capability is set to `deny` or to `ask`.

    `ask` counts as denied, because a run that cannot ask the user must deny the call. For a session
    that can ask, pass `without_asks(permissions)`.
    """
    return getattr(permissions, capability) in ("deny", "ask")


def without_asks(permissions: Permissions) -> Permissions:
    """Return the permissions with None in place of every `ask`.

    Use the result to build rules for a session that can ask. If a permission were still `ask`, the
    rules would deny its calls.
    """
    asked = {name: None for name in CAPABILITIES if getattr(permissions, name) == "ask"}
    return msgspec.structs.replace(permissions, **asked) if asked else permissions


def capability_of(tool: str) -> str | None:
    """Return the capability that a tool needs; None if the tool needs none or is unknown."""
    row = built_in(tool)
    return row.capability if row else ("mcp" if is_mcp_name(tool) else None)


class Answer(msgspec.Struct, frozen=True):
    """The answer that the permissions of a run give to a permission request, with the reason."""

    allow: bool
    reason: str


class Verdicts(msgspec.Struct, frozen=True):
    """Explains why a call was denied, and answers permission requests with the run's permissions.

    The CLI itself gives no reason: it reports a denied tool as "not found". `servers` are the names
    of the MCP servers. `warm` is True for a warm process, which serves several prompts.
    """

    approval: Approval
    permissions: Permissions
    servers: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """Names of the tools that the user's own policies and settings deny.

    A `*` at the end of a name matches several tools.
    """
    warm: bool = False
    asks: bool = False
    """Whether the run can ask for permission. Only a warm session can."""

    @classmethod
    def of(
        cls,
        options: Options,
        servers: tuple[str, ...],
        users: tuple[str, ...],
        *,
        warm: bool = False,
        asks: bool = False,
    ) -> Verdicts:
        return cls(options.approval, options.permissions, servers, users, warm, asks)

    def why_not(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Return why a call is denied, or None if no reason is known.

        >>> Verdicts("yolo", Permissions(shell="deny")).why_not("run_shell_command", {})
        'shell is denied by the permissions of this run'
        """
        row = built_in(tool)
        server = server_of(tool, self.servers)
        capability = "mcp" if server else capability_of(tool)
        command = arguments.get("command") if tool == SHELL else None
        denied = self._forbidden(tool, capability, server, command if isinstance(command, str) else "")
        if denied:
            return denied
        if self.warm and self._cannot_ask(tool, arguments):
            agent = arguments["agent_name"]
            return f"the subagent {agent} cannot ask for permission in a warm process; use a headless run"
        if self._allowed(tool, capability, server) or self.approval in modes_of(row):
            return self._redirected(command) if isinstance(command, str) else None
        if tool == SHELL and self.permissions.allow_commands and self.approval != "plan":
            return self._redirected(command) or "a part of the command is not in `allow_commands`"
        return self._not_in_this_mode(tool, row, capability)

    def answer(self, tool: str, command: str | None = None, paths: Sequence[str] = ()) -> Answer | None:
        """Answer a permission request of the CLI with the permissions of the run.

        Return None if a person must decide. `command` is the shell command of the call; `paths` are
        the files of the call, with links resolved.

        The CLI also asks about some calls that its rules allow: changes to build files, and
        commands with unusual arguments. A person must answer such a request.

        >>> permissions = Permissions(shell="ask", allow_commands=("ls",))
        >>> Verdicts("default", permissions, asks=True).answer("run_shell_command", "ls -l")
        Answer(allow=True, reason="'ls' is in `allow_commands`")
        """
        server = server_of(tool, self.servers)
        capability = "mcp" if server else capability_of(tool)
        if denied := self._forbidden(tool, capability, server, ""):
            return Answer(allow=False, reason=denied)
        if begin := denied_begin(command or "", self.permissions.deny_commands):
            return Answer(allow=False, reason=f"{begin!r} is in `deny_commands`")
        if self.approval not in allowable_modes(capability):
            return Answer(allow=False, reason=f"`approval='plan'` does not allow {tool}")
        if not capability or getattr(self.permissions, capability) != "ask" or any(map(is_build_file, paths)):
            return None
        allowed = self._allowed_by_name(tool, server, command)
        return Answer(allow=True, reason=allowed) if allowed else None

    def _allowed_by_name(self, tool: str, server: str | None, command: str | None) -> str | None:
        permissions = self.permissions
        if not set(known_as(tool)).isdisjoint(permissions.allow_tools):
            return f"{tool} is in `allow_tools`"
        if server in permissions.allow_servers:
            return f"the MCP server {server} is in `allow_servers`"
        begin = allowed_begin(command or "", permissions.allow_commands) if tool == SHELL else None
        return f"{begin!r} is in `allow_commands`" if begin else None

    def _cannot_ask(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the call starts a subagent that may need permission.

        A subagent in a warm process cannot ask for permission, so a warm process denies this call.
        """
        agent = arguments.get("agent_name")
        if tool != "invoke_agent" or not isinstance(agent, str) or agent in READING_AGENTS:
            return False
        return self.approval != "yolo" or is_asking(self.permissions, self.asks)

    def _forbidden(self, tool: str, capability: str | None, server: str | None, command: str) -> str | None:
        """Return why the call is denied even if a person would allow it.

        Return None if there is no such reason.
        """
        denied = self._denied(tool, capability, server, command)
        if denied:
            return denied
        if tool in ("enter_plan_mode", "exit_plan_mode") and self.approval != "yolo":
            return f"{tool} would change the approval mode from {self.approval} to yolo"
        if any(fits(name, rule) for name in known_as(tool) for rule in self.users):
            return f"{tool} is denied by the user's own policies or settings"
        return None

    def _denied(self, tool: str, capability: str | None, server: str | None, command: str) -> str | None:
        permissions = without_asks(self.permissions) if self.asks else self.permissions
        names = known_as(tool)
        if not set(names).isdisjoint(permissions.deny_tools):
            return f"{tool} is in `deny_tools`"
        if permissions.only_tools and set(names).isdisjoint(permissions.only_tools):
            return f"{tool} is not in `only_tools`"
        if server and server in permissions.deny_servers:
            return f"the MCP server {server} is in `deny_servers`"
        if capability and is_denied(permissions, capability):
            return _why_denied(capability, getattr(permissions, capability), warm=self.warm)
        begins = [begin for begin in permissions.deny_commands if begin.strip() in command]
        return f"{begins[0]!r} is in `deny_commands`" if begins else None

    def _allowed(self, tool: str, capability: str | None, server: str | None) -> bool:
        permissions = self.permissions
        if self.approval not in allowable_modes(capability):
            return False
        by_name = tool in permissions.allow_tools or server in permissions.allow_servers
        return by_name or (capability is not None and getattr(permissions, capability) == "allow")

    def _redirected(self, command: Any) -> str | None:
        """Return why the redirection in a shell command is denied.

        Return None if it is not denied, or if the command has no redirection. The CLI checks
        redirections only in the mode `default`.
        """
        permissions = self.permissions
        if self.approval != "default" or not isinstance(command, str):
            return None
        by_commands = permissions.shell is None and SHELL not in permissions.allow_tools
        begins = command.startswith(tuple(map(str.strip, permissions.allow_commands)))
        if not {*"<>"} & {*command} or (by_commands and not begins):
            return None
        denied = permissions.file_write != "allow" if by_commands else is_denied(permissions, "file_write")
        return "the command redirects its input or output, but file_write is not allowed" if denied else None

    def _not_in_this_mode(self, tool: str, row: BuiltIn | None, capability: str | None) -> str | None:
        if row is None and capability is None:
            return None  # an unknown tool: it may not exist
        if row is not None and row.level == "never":
            transport = "a warm process" if self.warm else "a headless run"
            return f"{tool} needs a user who answers, but {transport} has no user"
        if self.approval == "plan":
            return f"`approval='plan'` does not allow {tool}"
        remedy = f"{capability}='allow'" if capability else f"allow_tools=[{tool!r}]"
        mode = f"`approval={self.approval!r}`"
        return f"{mode} does not allow {tool}; use `permissions.{remedy}` or another approval mode"


def fits(name: str, rule: str) -> bool:
    """Whether a rule applies to the tool `name`.

    `rule` is the name of a tool, or a prefix followed by `*`.
    """
    return name.startswith(rule[:-1]) if rule.endswith("*") else name == rule


def is_asking(permissions: Permissions, asks: bool) -> bool:
    """Whether at least one capability is set to `ask` and the session can ask (`asks` is True)."""
    return asks and without_asks(permissions) != permissions


def _why_denied(capability: str, power: str, *, warm: bool) -> str:
    if power == "ask":
        nobody = "there is no user to ask" if warm else "a headless run cannot ask for it"
        return f"{capability} needs permission, but {nobody}"
    return f"{capability} is denied by the permissions of this run"


def denied_tools(permissions: Permissions, *, warm: bool = False) -> dict[str, str]:
    """Return the tools that the permissions deny: name → reason."""
    denied: dict[str, str] = {}
    if permissions.only_tools:
        # Do not deny any name of an allowed tool: denying its old name would deny the tool too. If
        # `invoke_agent` is allowed, do not deny the names of agents.
        kept = {name for tool in permissions.only_tools for name in known_as(tool)}
        kept.update(AGENTS if "invoke_agent" in kept else ())
        denied |= {tool.name: "not in `only_tools`" for tool in BUILT_IN if tool.name not in kept}
    for capability in CAPABILITIES:
        if is_denied(permissions, capability):
            why = _why_denied(capability, getattr(permissions, capability), warm=warm)
            denied |= dict.fromkeys(tools_with(capability), why)
    return denied | {tool: f"{tool} is in `deny_tools`" for tool in permissions.deny_tools}


def contradictions(permissions: Permissions) -> Iterator[str]:
    """Yield a message for each pair of permissions that contradict each other."""
    for tool in permissions.allow_tools:
        capability = capability_of(tool)
        if tool in permissions.deny_tools:
            yield f"{tool} is both in `allow_tools` and in `deny_tools`"
        elif capability and is_denied(permissions, capability):
            yield f"{tool} is in `allow_tools`, but {capability} is {getattr(permissions, capability)}"
        elif permissions.only_tools and tool not in permissions.only_tools:
            yield f"{tool} is in `allow_tools`, but not in `only_tools`"
        elif server := server_of(tool, permissions.deny_servers):
            yield f"{tool} is in `allow_tools`, but its server {server} is in `deny_servers`"
    for tool in permissions.only_tools:
        if tool in permissions.deny_tools:
            yield f"{tool} is both in `only_tools` and in `deny_tools`"
    if permissions.allow_commands and is_denied(permissions, "shell"):
        yield f"`allow_commands` names shell commands, but shell is {permissions.shell}"
    elif permissions.allow_commands and SHELL in permissions.deny_tools:
        yield f"`allow_commands` names shell commands, but {SHELL} is in `deny_tools`"
    elif permissions.allow_commands and permissions.only_tools and SHELL not in permissions.only_tools:
        yield f"`allow_commands` names shell commands, but {SHELL} is not in `only_tools`"
    for command in permissions.allow_commands:
        if command in permissions.deny_commands:
            yield f"{command!r} is both in `allow_commands` and in `deny_commands`"
    if permissions.allow_servers and is_denied(permissions, "mcp"):
        yield f"`allow_servers` names MCP servers, but mcp is {permissions.mcp}"
    for server in permissions.allow_servers:
        if server in permissions.deny_servers:
            yield f"{server} is both in `allow_servers` and in `deny_servers`"


def misspelled_tools(permissions: Permissions) -> Iterator[str]:
    """Yield a message for each unknown tool in the permissions that resembles a known tool.

    The CLI would ignore a permission for an unknown tool.
    """
    for field in ("allow_tools", "only_tools", "deny_tools"):
        for tool in getattr(permissions, field):
            if built_in(tool) is None and not is_mcp_name(tool):
                for similar in get_close_matches(tool.lower(), [row.name for row in BUILT_IN], 1, 0.85):
                    yield f"`{field}` names {tool}, which is not a tool; did you mean {similar}?"


def unknown_servers(permissions: Permissions, servers: Sequence[str]) -> Iterator[str]:
    """Yield a message for each MCP server in the permissions that the run does not have.

    `servers` are the names of the run's MCP servers. A deny rule with a misspelled server name
    would deny nothing.
    """
    known = ", ".join(servers) or "none"
    for field in ("allow_servers", "deny_servers"):
        for server in getattr(permissions, field):
            if server not in servers:
                yield f"`{field}` names {server}, but the MCP servers of this run are: {known}"
