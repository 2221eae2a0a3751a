"""SubLang's run options and permission policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from geminids.adapters.sublang.feed import AbortSignal

__all__ = ["AgentOptions", "PermissionPolicy", "merge_options"]

Level = Literal["allow", "ask", "deny"]
Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]


class PermissionPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What the agent may do. Without a `mode`, omitted fields mean `ask`; with a `mode`, all is allowed.

    >>> PermissionPolicy(shell_execute="deny").shell_execute
    'deny'
    """

    mode: Literal["auto", "bypass"] | None = None
    file_write: Level | None = None
    shell_execute: Level | None = None
    network_access: Level | None = None
    writable_paths: tuple[str, ...] | None = None


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one run, for any agent. None means "not given"; an empty tool list means "no tools".

    `resume` is the token of an earlier `done`; False makes an instance start a new session.
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
    """Merge a call's options into an instance's defaults; `stored` is the token of its last run.

    Permissions are merged field by field; a tool list replaces the default, even if it is empty.

    >>> merge_options(AgentOptions(model="pro", allowed_tools=("glob",)), AgentOptions(allowed_tools=())).allowed_tools
    ()
    """
    call = call or AgentOptions()
    fields = _merge(defaults, call)
    if defaults.permissions is not None and call.permissions is not None:
        fields["permissions"] = PermissionPolicy(**_merge(defaults.permissions, call.permissions))
    fields["resume"] = stored if call.resume is None else (call.resume if call.resume is not False else None)
    return AgentOptions(**fields)


def _merge(defaults: msgspec.Struct, call: msgspec.Struct) -> dict[str, Any]:
    given = {name: getattr(call, name) for name in call.__struct_fields__}
    return {name: getattr(defaults, name) if value is None else value for name, value in given.items()}
