"""SubLang's options of a run, and its permission policy."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from geminids.adapters.sublang.feed import AbortSignal

__all__ = ["AgentOptions", "PermissionPolicy", "merge_options"]

Level = Literal["allow", "ask", "deny"]
Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]


class PermissionPolicy(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True
):
    """What the agent may do: change files, run shell commands, use the network.

    If a capability is not set, its level is `ask`. `writable_paths` are the only folders in which
    the agent may change files, relative to the working folder. If `mode` is set, the other fields
    are ignored: both `auto` and `bypass` allow everything that `allowed_tools` and
    `disallowed_tools` of `AgentOptions` do not forbid. Stored JSON with an unknown field is
    refused.

    >>> PermissionPolicy(shell_execute="deny").shell_execute
    'deny'
    """

    mode: Literal["auto", "bypass"] | None = None
    file_write: Level | None = None
    shell_execute: Level | None = None
    network_access: Level | None = None
    writable_paths: tuple[str, ...] | None = None


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one run of any agent. None means "not set".

    `allowed_tools` restricts the agent to these tools; `()` means no tool at all. The agent uses
    these tools without asking, except those whose level in `permissions` is `ask`. `resume` is the
    `resume_token` of an earlier `done` event; False makes an `AgentInstance` start a new session.
    The run is stopped when `abort_signal.is_set()` returns true.
    """

    cwd: str | None = None
    model: str | None = None
    permissions: PermissionPolicy | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    effort: Effort | None = None
    resume: str | Literal[False] | None = None
    abort_signal: AbortSignal | None = None
    allowed_tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] | None = None


def merge_options(
    defaults: AgentOptions, call: AgentOptions | None, stored: str | None = None
) -> AgentOptions:
    """Merge the options of a call into the defaults of an instance. Options that the call does not
    set keep their default.

    `stored` is the token that resumes the instance's previous run. If the call does not set
    `resume`, this token is used. Permissions are merged field by field. A tool list of the call
    replaces the default list, even if the call's list is empty:

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
    values = {name: getattr(call, name) for name in call.__struct_fields__}
    return {name: getattr(defaults, name) if value is None else value for name, value in values.items()}
