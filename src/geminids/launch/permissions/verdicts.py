"""Decide what a run may do, as the CLI will decide it, and refuse permissions that contradict each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    "misspelt",
    "modes_of",
    "session_mode",
    "unknown_servers",
    "without_asks",
]

# The subagents whose tools all read: there is nothing for them to ask.
READING_AGENTS = ("codebase_investigator", "cli_help")
_WORKING: tuple[Approval, ...] = ("default", "auto_edit", "yolo")
# What may be allowed in plan mode too: none of it writes into the folder by itself.
_FIT_FOR_PLANS = ("network", "mcp", "skills")
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


def allowable_modes(capability: str | None) -> tuple[Approval, ...]:
    """The modes in which an allow counts: plan mode stays without files, shells and tools that we do not know."""
    return (*_WORKING, "plan") if capability in _FIT_FOR_PLANS else _WORKING


def session_mode(approval: Approval) -> str:
    """The mode to set in a session: `auto_edit` is made of rules.

    >>> session_mode("auto_edit"), session_mode("yolo")
    ('default', 'yolo')
    """
    return "default" if approval == "auto_edit" else approval


def is_denied(permissions: Permissions, capability: str) -> bool:
    """Whether a capability is out: denied, or to be asked for where nobody can be asked."""
    return getattr(permissions, capability) in ("deny", "ask")


def without_asks(permissions: Permissions) -> Permissions:
    """What is left of them for rules and settings where somebody can be asked: an `ask` is no deny then."""
    asked = {name: None for name in CAPABILITIES if getattr(permissions, name) == "ask"}
    return msgspec.structs.replace(permissions, **asked) if asked else permissions


def capability_of(tool: str) -> str | None:
    """The capability that a tool stands for; None for one that has none, or that we do not know."""
    row = built_in(tool)
    return row.capability if row else ("mcp" if is_mcp_name(tool) else None)


class Answer(msgspec.Struct, frozen=True):
    """What our rules say to a question of the CLI's, and the rule in one sentence."""

    allow: bool
    reason: str


class Verdicts(msgspec.Struct, frozen=True):
    """Says why a call could not be made. The CLI's own words do not: a denied tool is "not found" to it."""

    approval: Approval
    permissions: Permissions
    servers: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """What the user's own policies and settings deny, `*` at the end included."""
    warm: bool = False
    asks: bool = False
    """On the warm lane: whether somebody can be asked."""

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
        """One sentence, or None where nothing that we know of forbids it.

        >>> Verdicts("yolo", Permissions(shell="deny")).why_not("run_shell_command", {})
        'shell is denied by the permissions of this run'
        """
        row = built_in(tool)
        server = server_of(tool, self.servers)
        capability = "mcp" if server else capability_of(tool)
        command = arguments.get("command") if tool == SHELL else None
        denied = self._forbidden(tool, capability, server, command if isinstance(command, str) else "")
        if denied or (self.warm and self._is_mute(tool, arguments)):
            return (
                denied
                or f"{arguments['agent_name']} could not ask from a warm process: a headless run can call it"
            )
        if self._allowed(tool, capability, server) or self.approval in modes_of(row):
            return self._redirected(command) if isinstance(command, str) else None
        if tool == SHELL and self.permissions.allow_commands and self.approval != "plan":
            return self._redirected(command) or "a part of the command is not in allow_commands"
        return self._not_in_this_mode(tool, row, capability)

    def answer(self, tool: str, command: str | None = None, paths: Sequence[str] = ()) -> Answer | None:
        """What the rules say where the CLI asks for a call; None where they leave it to somebody.

        A call that a rule of the CLI's allows is asked for by its own protections (build files, odd arguments):
        that is never answered by a rule. `paths` are the files of the call, links resolved.

        >>> said = Permissions(shell="ask", allow_commands=("ls",))
        >>> Verdicts("default", said, asks=True).answer("run_shell_command", "ls -l")
        Answer(allow=True, reason="'ls' is in allow_commands")
        """
        server = server_of(tool, self.servers)
        capability = "mcp" if server else capability_of(tool)
        if denied := self._forbidden(tool, capability, server, ""):
            return Answer(allow=False, reason=denied)
        if begin := denied_begin(command or "", self.permissions.deny_commands):
            return Answer(allow=False, reason=f"{begin!r} is in deny_commands")
        if self.approval not in allowable_modes(capability):
            return Answer(allow=False, reason=f"approval=plan does not let {tool} be called")
        if not capability or getattr(self.permissions, capability) != "ask" or any(map(is_build_file, paths)):
            return None
        named = self._named(tool, server, command)
        return Answer(allow=True, reason=named) if named else None

    def _named(self, tool: str, server: str | None, command: str | None) -> str | None:
        said = self.permissions
        if not set(known_as(tool)).isdisjoint(said.allow_tools):
            return f"{tool} is in allow_tools"
        if server in said.allow_servers:
            return f"the MCP server {server} is in allow_servers"
        begin = allowed_begin(command or "", said.allow_commands) if tool == SHELL else None
        return f"{begin!r} is in allow_commands" if begin else None

    def _is_mute(self, tool: str, arguments: Mapping[str, Any]) -> bool:
        """Whether this calls a subagent that warm processes do without."""
        agent = arguments.get("agent_name")
        if tool != "invoke_agent" or not isinstance(agent, str) or agent in READING_AGENTS:
            return False
        return self.approval != "yolo" or is_asking(self.permissions, self.asks)

    def _forbidden(self, tool: str, capability: str | None, server: str | None, command: str) -> str | None:
        """Why neither mode nor person can let it be called."""
        denied = self._denied(tool, capability, server, command)
        if denied or (tool in ("enter_plan_mode", "exit_plan_mode") and self.approval != "yolo"):
            return denied or f"{tool} would leave approval={self.approval} for yolo"
        if any(fits(name, rule) for name in known_as(tool) for rule in self.users):
            return f"{tool} is denied by the user's own policies or settings"
        return None

    def _denied(self, tool: str, capability: str | None, server: str | None, command: str) -> str | None:
        said = without_asks(self.permissions) if self.asks else self.permissions
        names = known_as(tool)
        if not set(names).isdisjoint(said.deny_tools):
            return f"{tool} is in deny_tools"
        if said.only_tools and set(names).isdisjoint(said.only_tools):
            return f"{tool} is not in only_tools"
        if server and server in said.deny_servers:
            return f"the MCP server {server} is in deny_servers"
        if capability and is_denied(said, capability):
            return _why_denied(capability, getattr(said, capability), warm=self.warm)
        begins = [begin for begin in said.deny_commands if begin.strip() in command]
        return f"{begins[0]!r} is in deny_commands" if begins else None

    def _allowed(self, tool: str, capability: str | None, server: str | None) -> bool:
        said = self.permissions
        if self.approval not in allowable_modes(capability):
            return False
        by_name = tool in said.allow_tools or server in said.allow_servers
        return by_name or (capability is not None and getattr(said, capability) == "allow")

    def _redirected(self, command: Any) -> str | None:
        """Only `default` looks at redirections."""
        said = self.permissions
        if self.approval != "default" or not isinstance(command, str):
            return None
        by_commands = said.shell is None and SHELL not in said.allow_tools
        begins = command.startswith(tuple(map(str.strip, said.allow_commands)))
        if not {*"<>"} & {*command} or (by_commands and not begins):
            return None
        denied = said.file_write != "allow" if by_commands else is_denied(said, "file_write")
        return "the command redirects, and file_write is not allowed" if denied else None

    def _not_in_this_mode(self, tool: str, row: BuiltIn | None, capability: str | None) -> str | None:
        if row is None and capability is None:
            return None  # no tool that we know: it may not exist at all
        if row is not None and row.level == "never":
            where = "a warm process" if self.warm else "a headless run"
            return f"{tool} needs a person, and there is none in {where}"
        if self.approval == "plan":
            return f"approval=plan does not let {tool} be called"
        way = f"allow {capability}" if capability else f"put {tool} into allow_tools"
        return f"approval={self.approval} does not let {tool} be called; {way}, or use another approval mode"


def fits(name: str, rule: str) -> bool:
    """Whether a rule for `rule` is for this tool: its name, or the beginning of names and `*`."""
    return name.startswith(rule[:-1]) if rule.endswith("*") else name == rule


def is_asking(permissions: Permissions, asks: bool) -> bool:
    """Whether anything at all must be asked for, and can be."""
    return asks and without_asks(permissions) != permissions


def _why_denied(capability: str, power: str, *, warm: bool) -> str:
    if power == "ask":
        nobody = "there is nobody to ask" if warm else "nobody can be asked in a headless run"
        return f"{capability} must be asked for, and {nobody}"
    return f"{capability} is denied by the permissions of this run"


def denied_tools(permissions: Permissions, *, warm: bool = False) -> dict[str, str]:
    """Every built-in tool that the permissions take away, with the reason."""
    gone: dict[str, str] = {}
    if permissions.only_tools:
        # A rule for an old name of a tool would take the tool itself away, one for an agent its calls.
        kept = {name for tool in permissions.only_tools for name in known_as(tool)}
        kept.update(AGENTS if "invoke_agent" in kept else ())
        gone |= {t.name: "not in only_tools" for t in BUILT_IN if t.name not in kept}
    for capability in CAPABILITIES:
        if is_denied(permissions, capability):
            why = _why_denied(capability, getattr(permissions, capability), warm=warm)
            gone |= dict.fromkeys(tools_with(capability), why)
    return gone | {tool: f"{tool} is in deny_tools" for tool in permissions.deny_tools}


def contradictions(permissions: Permissions) -> Iterator[str]:
    """What was allowed and denied at once, each in one sentence."""
    for tool in permissions.allow_tools:
        capability = capability_of(tool)
        if tool in permissions.deny_tools:
            yield f"{tool} is both in allow_tools and in deny_tools"
        elif capability and is_denied(permissions, capability):
            yield f"{tool} is in allow_tools, but {capability} is {getattr(permissions, capability)}"
        elif permissions.only_tools and tool not in permissions.only_tools:
            yield f"{tool} is in allow_tools, but not in only_tools"
        elif server := server_of(tool, permissions.deny_servers):
            yield f"{tool} is in allow_tools, but its server {server} is in deny_servers"
    for tool in permissions.only_tools:
        if tool in permissions.deny_tools:
            yield f"{tool} is both in only_tools and in deny_tools"
    if permissions.allow_commands and is_denied(permissions, "shell"):
        yield f"allow_commands names shell commands, but shell is {permissions.shell}"
    elif permissions.allow_commands and SHELL in permissions.deny_tools:
        yield f"allow_commands names shell commands, but {SHELL} is in deny_tools"
    elif permissions.allow_commands and permissions.only_tools and SHELL not in permissions.only_tools:
        yield f"allow_commands names shell commands, but {SHELL} is not in only_tools"
    for command in permissions.allow_commands:
        if command in permissions.deny_commands:
            yield f"{command!r} is both in allow_commands and in deny_commands"
    if permissions.allow_servers and is_denied(permissions, "mcp"):
        yield f"allow_servers names MCP servers, but mcp is {permissions.mcp}"
    for server in permissions.allow_servers:
        if server in permissions.deny_servers:
            yield f"{server} is both in allow_servers and in deny_servers"


def misspelt(permissions: Permissions) -> Iterator[str]:
    """Names of tools that there are not, where one with nearly that name is: the CLI would pass over them."""
    for field in ("allow_tools", "only_tools", "deny_tools"):
        for tool in getattr(permissions, field):
            if built_in(tool) is None and not is_mcp_name(tool):
                from difflib import get_close_matches  # imported late: such a name is rare

                for meant in get_close_matches(tool.lower(), [row.name for row in BUILT_IN], 1, 0.85):
                    yield f"{field} names {tool}, which is no tool; {meant} is one"


def unknown_servers(permissions: Permissions, servers: Sequence[str]) -> Iterator[str]:
    """MCP servers that there are not: a deny that denies nobody is a hole."""
    there = ", ".join(servers) or "none"
    for field in ("allow_servers", "deny_servers"):
        for server in getattr(permissions, field):
            if server not in servers:
                yield f"{field} names {server}, but the MCP servers of this run are: {there}"
