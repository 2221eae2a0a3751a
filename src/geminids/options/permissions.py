"""The permissions of a run. The package `launch` translates them into settings and policies of the
CLI."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["CAPABILITIES", "Capability", "Permissions", "Power"]

Power = Literal["allow", "ask", "deny"]
Capability = Literal["file_write", "shell", "network", "mcp", "skills"]

CAPABILITIES: tuple[Capability, ...] = ("file_write", "shell", "network", "mcp", "skills")

Names = tuple[str, ...]


class Permissions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the agent may do: by capability, and by the name of a tool, command or MCP server.

    If a capability such as `shell` is None, the approval mode decides.

    If several rules match a call, a rule that denies it overrides a rule that allows it. The user's
    own policies (rule files of the CLI) also override rules that allow a call, and `plan` mode
    overrides `allow` for `file_write` and `shell`. With `ask`, the user is asked for permission; if
    nobody can answer, the call is denied and the reason is reported.

    >>> Permissions(shell="deny", allow_tools=("write_file",)).shell
    'deny'
    """

    file_write: Annotated[Power | None, Meta(description="Write and edit files.")] = None
    shell: Annotated[Power | None, Meta(description="Run shell commands.")] = None
    network: Annotated[Power | None, Meta(description="Search the web and fetch pages.")] = None
    mcp: Annotated[Power | None, Meta(description="Call tools of MCP servers.")] = None
    skills: Annotated[Power | None, Meta(description="Activate agent skills.")] = None
    allow_tools: Annotated[
        Names,
        Meta(
            description="Tools that need no approval. In `plan` mode, this works only for network, MCP and skill tools."
        ),
    ] = ()
    only_tools: Annotated[
        Names, Meta(description="The only tools that may be called; they may still need approval.")
    ] = ()
    deny_tools: Annotated[Names, Meta(description="Tools that may not be called.")] = ()
    allow_commands: Annotated[
        Names, Meta(description="Shell commands that may run, given by their first words (`git status`).")
    ] = ()
    deny_commands: Annotated[
        Names, Meta(description="Shell commands that may not run, given by their first words.")
    ] = ()
    allow_servers: Annotated[Names, Meta(description="MCP servers whose tools may be called.")] = ()
    deny_servers: Annotated[Names, Meta(description="MCP servers that are not started.")] = ()

    def __bool__(self) -> bool:
        """Return whether at least one permission differs from its default."""
        return self != _DEFAULT


_DEFAULT = Permissions()
