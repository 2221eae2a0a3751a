"""What the agent may do: pure data, put into the CLI's own terms by `launch/`."""

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
    """Capabilities first, then tools, commands and servers by name. What is None is left to `approval`.

    A deny beats an allow, the user's own policies beat an allow, and `plan` mode beats every allow of
    `file_write` and `shell`. `ask` is a deny with a reason where nobody can be asked.

    >>> Permissions(shell="deny", allow_tools=("write_file",)).shell
    'deny'
    """

    file_write: Annotated[Power | None, Meta(description="Write and edit files.")] = None
    shell: Annotated[Power | None, Meta(description="Run shell commands.")] = None
    network: Annotated[Power | None, Meta(description="Search the web and fetch pages.")] = None
    mcp: Annotated[Power | None, Meta(description="Call tools of MCP servers.")] = None
    skills: Annotated[Power | None, Meta(description="Activate agent skills.")] = None
    allow_tools: Annotated[
        Names, Meta(description="Tools that may be called whatever the approval mode is.")
    ] = ()
    only_tools: Annotated[
        Names, Meta(description="If given, no other tool may be called; it approves none by itself.")
    ] = ()
    deny_tools: Annotated[Names, Meta(description="Tools that may not be called.")] = ()
    allow_commands: Annotated[
        Names, Meta(description="Shell commands that may be run, by how they begin (`git status`).")
    ] = ()
    deny_commands: Annotated[
        Names, Meta(description="Shell commands that may not be run, by how they begin.")
    ] = ()
    allow_servers: Annotated[Names, Meta(description="MCP servers whose tools may be called.")] = ()
    deny_servers: Annotated[Names, Meta(description="MCP servers that are not even started.")] = ()

    def __bool__(self) -> bool:
        """Whether anything at all was said."""
        return self != _NOTHING_SAID


_NOTHING_SAID = Permissions()
