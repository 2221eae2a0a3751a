"""What the agent may do: pure data. `launch/` translates it into the CLI's settings and policies."""

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
    """Permissions by capability, and by name for tools, commands and servers.

    None leaves it to `approval`.

    A deny overrides an allow, the user's own policies override an allow, and `plan` mode overrides
    every allow of `file_write` and `shell`. Without someone to ask, `ask` denies, with a reason.

    >>> Permissions(shell="deny", allow_tools=("write_file",)).shell
    'deny'
    """

    file_write: Annotated[Power | None, Meta(description="Write and edit files.")] = None
    shell: Annotated[Power | None, Meta(description="Run shell commands.")] = None
    network: Annotated[Power | None, Meta(description="Search the web and fetch pages.")] = None
    mcp: Annotated[Power | None, Meta(description="Call tools of MCP servers.")] = None
    skills: Annotated[Power | None, Meta(description="Activate agent skills.")] = None
    allow_tools: Annotated[Names, Meta(description="Tools that may be called in every approval mode.")] = ()
    only_tools: Annotated[
        Names, Meta(description="No other tool may be called; this alone approves none of them.")
    ] = ()
    deny_tools: Annotated[Names, Meta(description="Tools that may not be called.")] = ()
    allow_commands: Annotated[
        Names, Meta(description="Shell commands that may run, by their first words (`git status`).")
    ] = ()
    deny_commands: Annotated[
        Names, Meta(description="Shell commands that may not run, by their first words.")
    ] = ()
    allow_servers: Annotated[Names, Meta(description="MCP servers whose tools may be called.")] = ()
    deny_servers: Annotated[Names, Meta(description="MCP servers that are not started.")] = ()

    def __bool__(self) -> bool:
        """Whether any field is set."""
        return self != _DEFAULT


_DEFAULT = Permissions()
