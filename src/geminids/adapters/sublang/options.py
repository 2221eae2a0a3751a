"""Options of SubLang's runs, and its permission policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from geminids.adapters.sublang.feed import AbortSignal

__all__ = ["AgentOptions", "PermissionPolicy", "merge_options"]

Level = Literal["allow", "ask", "deny"]
Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]


class PermissionPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the agent may do. Without a `mode`, what is left out is `ask`; with one, all is allowed.

    >>> PermissionPolicy(shell_execute="deny").shell_execute
    'deny'
    """

    mode: Literal["auto", "bypass"] | None = None
    file_write: Level | None = None
    shell_execute: Level | None = None
    network_access: Level | None = None
    writable_paths: tuple[str, ...] | None = None


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one run, for any agent. None means "not given"; an empty tool list means "no tool at all".

    `resume` is the token of an earlier `done`; False starts a new session where an instance would resume.
    """

    cwd: str | None = None
    model: str | None = None
    permissions: PermissionPolicy | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    effort: Effort | None = None
    resume: str | Literal[False] | None = None
    abort: AbortSignal | None = None
    allowed_tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] | None = None


def merge_options(
    defaults: AgentOptions, call: AgentOptions | None, stored: str | None = None
) -> AgentOptions:
    """A call's options over an instance's defaults; `stored` is the token of the instance's last run.

    Permissions are merged member by member; a tool list replaces the other, also when it is empty.

    >>> merge_options(AgentOptions(model="pro", allowed_tools=("glob",)), AgentOptions(allowed_tools=())).allowed_tools
    ()
    """
    call = call or AgentOptions()
    fields = _over(defaults, call)
    if defaults.permissions is not None and call.permissions is not None:
        fields["permissions"] = PermissionPolicy(**_over(defaults.permissions, call.permissions))
    fields["resume"] = stored if call.resume is None else (call.resume if call.resume is not False else None)
    return AgentOptions(**fields)


def _over(under: msgspec.Struct, over: msgspec.Struct) -> dict[str, Any]:
    given = {name: getattr(over, name) for name in over.__struct_fields__}
    return {name: getattr(under, name) if value is None else value for name, value in given.items()}
