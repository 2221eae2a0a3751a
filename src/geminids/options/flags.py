"""List all options as fields, for forms, flags, environment variables and the reference page.

The names, types, defaults and descriptions come from the annotations of `Options`. The table in
this module adds each field's group and flag, and whether a project's `geminids.toml` may set it.
"""

from __future__ import annotations

from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from geminids.options import CAPABILITIES, McpServer, Options, Permissions

__all__ = ["GROUPS", "Field", "Kind", "Reach", "fields", "server_fields"]

Kind = Literal["text", "path", "number", "choice", "flag", "list", "mapping"]

Reach = Literal["free", "inside", "narrows", "power"]
"""Whether the `geminids.toml` of an untrusted project may set a field.

- `free`: always
- `inside`: only to a path inside the project
- `narrows`: only to a value that allows the agent less
- `power`: never
"""

GROUPS = ("Model", "Prompt", "Folder and session", "Permissions", "Tools", "Limits", "CLI and environment")


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """The description of one option, for forms, flags and files. The name of a permission is, for
    example, `permissions.shell`.

    If the option is a number, its value must be at least `low`, at most `high` and greater than
    `above`, as far as these limits are set. If `commas` is true, a text with commas is split into
    the items of a list.
    """

    name: str
    label: str
    group: str
    kind: Kind
    reach: Reach
    description: str
    default: Any
    flag: str | None = None
    short: str | None = None
    placeholder: str | None = None
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    above: float | None = None
    nullable: bool = False
    whole: bool = False
    paths: bool = False
    commas: bool = False
    secret: bool = False

    @property
    def env(self) -> str | None:
        """The name of the environment variable that sets this option; None for a mapping."""
        if self.kind == "mapping":
            return None
        # GEMINIDS_HOME is already the variable for the folder where geminids stores its files.
        own = "RUN_HOME" if self.name == "home" else self.name.replace(".", "_").upper()
        return f"GEMINIDS_{own}"


def _row(group: str, name: str, reach: Reach, flag: str | None, shown: str | None = None, **more: Any) -> Any:
    return name, {"group": group, "reach": reach, "flag": flag, "placeholder": shown, **more}


_MODEL, _PROMPT, _FOLDER, _MAY, _TOOLS, _LIMITS, _CLI = GROUPS

_TABLE: dict[str, dict[str, Any]] = dict(
    (
        _row(
            _MODEL,
            "model",
            "free",
            "--model",
            "NAME",
            short="-m",
            choices=("auto", "pro", "flash", "flash-lite"),
        ),
        _row(_MODEL, "effort", "free", "--effort", "LEVEL"),
        # `power`: a template is part of the prompt and can include any file with `@path`. Variables
        # work only with a template.
        _row(_PROMPT, "template", "power", "--template", "TEXT|@FILE"),
        _row(_PROMPT, "variables", "power", "--var", "NAME=VALUE"),
        _row(_PROMPT, "instructions", "inside", "--instructions", "FILE", paths=True),
        _row(_PROMPT, "images", "inside", "--image", "FILE", paths=True),
        _row(_PROMPT, "videos", "inside", "--video", "FILE", paths=True),
        _row(_PROMPT, "files", "inside", "--file", "FILE", paths=True),
        _row(_PROMPT, "system_prompt", "power", "--system-prompt", "FILE", paths=True),
        _row(_PROMPT, "literal", "narrows", "--literal"),
        _row(_FOLDER, "cwd", "power", "--cwd", "DIR", paths=True, label="Working folder"),
        _row(_FOLDER, "make_cwd", "power", "--make-cwd", label="Create the folder"),
        _row(_FOLDER, "include_dirs", "power", "--include-dir", "DIR", paths=True, label="Further folders"),
        _row(_FOLDER, "resume", "power", "--resume", "ID|latest"),
        _row(_FOLDER, "session_id", "power", "--session-id", "ID", label="Session id"),
        _row(_FOLDER, "fresh", "power", "--fresh"),
        _row(_FOLDER, "when_busy", "free", "--when-busy", "WHAT"),
        _row(_MAY, "approval", "narrows", "--approval", "MODE"),
        *(_row(_MAY, f"permissions.{capability}", "narrows", None) for capability in CAPABILITIES),
        _row(_MAY, "permissions.allow_tools", "narrows", "--allow-tool", "TOOL", commas=True),
        _row(_MAY, "permissions.only_tools", "narrows", "--only-tool", "TOOL", commas=True),
        _row(_MAY, "permissions.deny_tools", "narrows", "--deny-tool", "TOOL", commas=True),
        _row(_MAY, "permissions.allow_commands", "narrows", "--allow-command", "WORDS"),
        _row(_MAY, "permissions.deny_commands", "narrows", "--deny-command", "WORDS"),
        _row(_MAY, "permissions.allow_servers", "narrows", "--allow-server", "NAME", commas=True),
        _row(_MAY, "permissions.deny_servers", "narrows", "--deny-server", "NAME", commas=True),
        _row(_MAY, "trust_workspace", "narrows", "--trust-workspace"),
        _row(
            _TOOLS,
            "mcp_servers",
            "power",
            "--mcp",
            "NAME=COMMAND|JSON|FILE",
            label="MCP servers",
            secret=True,
        ),
        _row(_TOOLS, "skills", "power", "--skill", "DIR", paths=True),
        _row(_LIMITS, "max_turns", "narrows", "--max-turns", "N"),
        _row(_LIMITS, "max_attempts", "narrows", "--max-attempts", "N"),
        _row(_LIMITS, "retries", "narrows", "--retries", "N"),
        _row(_MODEL, "fallback_models", "free", "--fallback-model", "NAME", commas=True),
        _row(_PROMPT, "schema", "power", "--schema", "JSON|@FILE"),
        _row(_PROMPT, "schema_tries", "narrows", "--schema-tries", "N"),
        _row(_LIMITS, "max_budget", "narrows", "--max-budget", "DOLLARS"),
        _row(_LIMITS, "max_tokens", "narrows", "--max-tokens", "N"),
        _row(_LIMITS, "max_requests", "narrows", "--max-requests", "N"),
        _row(_LIMITS, "day_budget", "narrows", "--day-budget", "DOLLARS"),
        _row(_LIMITS, "day_tokens", "narrows", "--day-tokens", "N"),
        _row(_LIMITS, "day_requests", "narrows", "--day-requests", "N"),
        # `power`: with lower prices, a project could spend more than the user's budget.
        _row(_LIMITS, "prices", "power", "--prices", "FILE", paths=True),
        _row(_LIMITS, "requests_per_minute", "narrows", "--requests-per-minute", "N"),
        _row(_LIMITS, "only_models", "power", "--only-model", "MODEL", commas=True),
        _row(_LIMITS, "timeout", "narrows", "--timeout", "SECONDS"),
        _row(_LIMITS, "idle_timeout", "narrows", "--idle-timeout", "SECONDS"),
        _row(_LIMITS, "start_timeout", "narrows", "--start-timeout", "SECONDS"),
        _row(_LIMITS, "stall_after", "free", "--stall-after", "SECONDS"),
        _row(_LIMITS, "permission_timeout", "narrows", "--permission-timeout", "SECONDS"),
        _row(_LIMITS, "grace", "narrows", "--grace", "SECONDS"),
        _row(_LIMITS, "leftovers", "narrows", "--leftovers", "WHAT"),
        _row(_LIMITS, "line_limit", "narrows", None),
        _row(
            _CLI, "gemini", "power", "--gemini", "RELEASE|PATH", paths=True, kind="text", label="Gemini CLI"
        ),
        _row(
            _CLI,
            "home",
            "power",
            "--home",
            "user|isolated|DIR",
            paths=True,
            kind="text",
            choices=("user", "isolated"),
        ),
        _row(_CLI, "env", "power", "--env", "NAME=VALUE", label="Variables of the CLI", secret=True),
        _row(_CLI, "env_file", "power", "--env-file", "FILE", paths=True),
        # `power`: a project could remove a variable that configures the sandbox, the proxy or the
        # gateway.
        _row(_CLI, "env_only", "power", "--env-only", "NAME", commas=True),
        _row(_CLI, "gateway", "power", "--gateway", "WHEN"),
        _row(_CLI, "key_from", "power", "--key-from", "file:PATH|keyring:SERVICE/USER"),
        _row(_CLI, "record", "power", "--record", "FILE", paths=True),
        _row(_CLI, "overwrite", "power", "--force"),
        _row(_CLI, "replay", "power", "--replay", "FILE", paths=True),
        _row(_CLI, "script", "power", "--script", "FILE", paths=True),
        _row(_CLI, "offline", "narrows", "--offline"),
        _row(_CLI, "telemetry", "power", "--telemetry", "FILE", paths=True),
    )
)


@cache
def fields() -> tuple[Field, ...]:
    """Return the fields of all options, in the order of the table in this module. Each permission
    is a field of its own.
    """
    hints = {name: hint for name, hint in _hints(Options).items() if name != "permissions"}
    hints |= {f"permissions.{name}": hint for name, hint in _hints(Permissions).items()}
    options = Options()
    result = []
    for name, row in _TABLE.items():
        owner, own = (options.permissions, name[12:]) if name.startswith("permissions.") else (options, name)
        result.append(_field(name, hints[name], getattr(owner, own), row))
    return tuple(result)


@cache
def server_fields() -> tuple[Field, ...]:
    """Return the fields of `McpServer`, which describe one entry of `mcp_servers`."""
    empty = McpServer()
    more = {"headers": {"secret": True}, "env": {"secret": True}, "cwd": {"paths": True}}
    return tuple(
        _field(name, hint, getattr(empty, name), {"group": _TOOLS, "reach": "power", **more.get(name, {})})
        for name, hint in _hints(McpServer).items()
    )


def _hints(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(struct, include_extras=True)


def _field(name: str, hint: Any, default: Any, row: dict[str, Any]) -> Field:
    shape = _shape(hint)
    if row.get("paths") and shape["kind"] == "text":
        shape["kind"] = "path"
    label = name.rpartition(".")[2].replace("_", " ").capitalize()
    return Field(**{"name": name, "label": label, "default": default, **shape, **row})


def _shape(hint: Any) -> dict[str, Any]:
    """Return the kind, choices, limits and description of a field from its type annotation."""
    kind, *metas = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    shape: dict[str, Any] = {"description": "", "kind": "text"}
    for meta in metas:
        shape |= _limits(meta)
    parts = [kind] if get_origin(kind) in (None, tuple, dict, Literal) else list(get_args(kind))
    for part in parts:
        if part is NoneType:
            shape["nullable"] = True
        elif get_origin(part) is Annotated:
            number, *inner = get_args(part)
            shape |= {"kind": "number", "whole": number is int}
            for meta in inner:
                shape |= _limits(meta)
        elif get_origin(part) is Literal:
            shape |= {"kind": "choice", "choices": get_args(part)}
        elif get_origin(part) in (tuple, dict):
            shape["kind"] = "list" if get_origin(part) is tuple else "mapping"
        elif part in (bool, int, float):
            shape |= {"kind": "flag" if part is bool else "number", "whole": part is int}
    if shape.get("choices") and shape["kind"] == "number":
        shape["kind"] = "text"  # `effort` is a level or a number: forms show a text field with suggestions
    return shape


def _limits(meta: Meta) -> dict[str, Any]:
    limits = {
        "description": meta.description,
        "low": meta.ge,
        "high": meta.le,
        "above": meta.gt,
    }
    return {name: value for name, value in limits.items() if value is not None}
