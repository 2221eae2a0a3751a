"""Validate the options before a run starts, and report all problems in one error."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from geminids.errors import OptionsError
from geminids.options import values
from geminids.options.model import Approval, GatewayMode, Leftovers, McpServer, Options, WhenBusy
from geminids.options.permissions import CAPABILITIES, Permissions, Power
from geminids.redact import Redactor, secrets_of

__all__ = ["LIMITS", "NEED_GATEWAY", "invalid_entry", "make_options"]

# The limits that the gateway checks before it sends a request.
LIMITS = ("max_budget", "max_tokens", "max_requests", "day_budget", "day_tokens", "day_requests")
# Further options that work only with the gateway.
NEED_GATEWAY = ("requests_per_minute", "only_models", "key_from", "record")

_LONGEST = 200


def make_options(options: Options | None = None, /, **fields: Any) -> Options:
    """Set `fields` in a copy of `options`, validate all values, and return the copy.

    Without `options`, all other values are the defaults. If a value is not valid, raise one
    `OptionsError` with all problems.

    >>> make_options(Options(model="pro"), timeout=5).timeout
    5
    """
    problems: list[tuple[str, str]] = []
    if options is not None and not isinstance(options, Options):
        raise OptionsError([("options", f"is {values.kind(options)}, not an Options")])
    merged = options or Options()
    known: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _CHECKS:
            known[name] = _plain(value)
        else:
            problems.append((name, _no_such_option(name)))
    if known:
        merged = msgspec.structs.replace(merged, **known)
    problems += _problems(merged)
    if problems:
        raise OptionsError(_redacted(problems, merged))
    return merged


def invalid_entry(name: str, value: Any) -> str | None:
    """Return the key of the first invalid entry in the value of the option `name`.

    Return None if all entries are valid. Also return None if the value is neither a mapping nor a
    `Permissions`, because other values have no entries.

    >>> invalid_entry("env", {"LANG": "C", "A=B": "x"})
    'A=B'
    """
    entries: dict[str, Any] = {}
    if isinstance(value, Permissions):
        entries = {key: Permissions(**{key: getattr(value, key)}) for key in value.__struct_fields__}
    elif isinstance(value, Mapping):
        entries = {key: {key: item} for key, item in value.items()}
    return next((key for key, entry in entries.items() if _CHECKS[name](entry)), None)


def _plain(value: Any) -> Any:
    """Convert path objects to text and lists to tuples. `Options` contains only text and tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item) for item in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _redacted(problems: list[tuple[str, str]], options: Options) -> list[tuple[str, str]]:
    """Mask secrets in the messages of the problems, then shorten long messages.

    The secrets are masked first. If a message were shortened first, it could contain a part of a
    secret, and this part could not be recognized.
    """
    env = options.env if isinstance(options.env, Mapping) else {}
    own = {str(name): value for name, value in env.items() if isinstance(value, str)}
    redactor = Redactor(secrets_of({**os.environ, **own}))
    return [(name, _shortened(redactor.text(problem))) for name, problem in problems]


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def _problems(options: Options) -> list[tuple[str, str]]:
    problems = []
    for name, check in _CHECKS.items():
        problem = check(getattr(options, name))
        if problem:
            problems.append((name, problem))
    if options.resume is not None and options.session_id is not None:
        problems.append(("session_id", "cannot be used with `resume`: a resumed session keeps its id"))
    problems += _gateway_problems(options)
    if options.variables and options.template is None:
        problems.append(("variables", "can be used only with `template`"))
    if "cwd" not in dict(problems):
        problems += _cwd_problems(options)
    return problems


def _gateway_problems(options: Options) -> list[tuple[str, str]]:
    """Return the problems with options that need the gateway, and with options that cannot be used
    together. A problem is the name of an option and a text."""
    problems = []
    modes = [name for name in ("offline", "script", "replay") if getattr(options, name)]
    if options.replay is not None and options.record is not None:
        modes = ["record", "replay"]
    if len(modes) > 1:
        problems.append((modes[1], f"cannot be used with `{modes[0]}`"))
    if options.gateway == "off":
        names = [name for name in (*LIMITS, *NEED_GATEWAY, "script", "replay") if getattr(options, name)]
        problems += [(name, "needs the gateway; use `gateway='on'`") for name in names]
    return problems


def _cwd_problems(options: Options) -> list[tuple[str, str]]:
    if os.path.isdir(options.cwd):
        usable = os.access(options.cwd, os.R_OK | os.X_OK)
        return [] if usable else [("cwd", f"{options.cwd} cannot be opened: permission denied")]
    if os.path.exists(options.cwd):
        return [("cwd", f"{options.cwd} is not a folder")]
    if options.make_cwd:
        return []
    return [("cwd", f"{options.cwd} does not exist; use `make_cwd` to create it")]


def _no_such_option(name: str) -> str:
    similar = values.most_similar(name, _CHECKS)
    return f"there is no such option; did you mean {similar}?" if similar else "there is no such option"


def _permissions(value: Any) -> str | None:
    if not isinstance(value, Permissions):
        return f"is {values.kind(value)}, not Permissions"
    for name in value.__struct_fields__:
        field_value = getattr(value, name)
        problem = (
            values.optional(values.one_of(*get_args(Power)))(field_value)
            if name in CAPABILITIES
            else values.each(values.name)(field_value)
        )
        if problem:
            return f"{name} {problem}"
    return None


def _servers(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"is {values.kind(value)}, not a mapping of names to servers"
    for name, server in value.items():
        problem = values.name(name) or _server(server)
        if problem is None and not all(c.isalnum() or c in "-_." for c in name):
            problem = "the name of a server may contain only letters, digits, -, _ and ."
        if problem:
            return f"{values.shown(name)}: {problem}"
    return None


def _server(server: Any) -> str | None:
    if not isinstance(server, McpServer):
        return f"is {values.kind(server)}, not an McpServer"
    if (server.command is None) == (server.url is None):
        return "needs either a command or a url"
    for name, check in _SERVER_CHECKS.items():
        if problem := check(getattr(server, name)):
            return f"{name} {problem}"
    return None


def _url(value: Any) -> str | None:
    if problem := values.text(value):
        return problem
    return None if value.startswith(("http://", "https://")) else "must start with http:// or https://"


def _argument(value: Any) -> str | None:
    """Check one argument of the command that starts an MCP server. The argument must be text; the
    text may be empty."""
    if not isinstance(value, str):
        return f"has {values.shown(value)}, not text"
    return values.bad_characters(value)


_SERVER_CHECKS: dict[str, values.Check] = {
    "command": values.optional(values.text),
    "args": values.each(_argument),
    "env": values.variables,
    "cwd": values.optional(values.text),
    "url": values.optional(_url),
    "headers": values.variables,
    "timeout": values.optional(values.seconds(zero=False)),
    "include_tools": values.each(values.name),
    "exclude_tools": values.each(values.name),
}


_CHECKS: dict[str, values.Check] = {
    "cwd": values.text,
    "make_cwd": values.flag,
    "model": values.optional(values.model),
    "effort": values.optional(values.effort),
    "approval": values.one_of(*get_args(Approval)),
    "permissions": _permissions,
    "trust_workspace": values.flag,
    "resume": values.optional(values.session),
    "session_id": values.optional(values.session),
    "fresh": values.flag,
    "when_busy": values.one_of(*get_args(WhenBusy)),
    "template": values.optional(values.text),
    "variables": values.template_values,
    "instructions": values.optional(values.file),
    "images": values.each(values.file),
    "videos": values.each(values.file),
    "files": values.each(values.file),
    "include_dirs": values.each(values.folder),
    "skills": values.each(values.folder),
    "mcp_servers": _servers,
    "system_prompt": values.optional(values.file),
    "max_turns": values.optional(values.whole(1, 100_000)),
    "max_attempts": values.optional(values.whole(1, 10)),
    "retries": values.whole(0, 100),
    "fallback_models": values.each(values.model),
    "schema": values.optional(values.text),
    "schema_tries": values.whole(0, 100),
    "max_budget": values.optional(values.dollars),
    "max_tokens": values.optional(values.whole(1, 10**15)),
    "max_requests": values.optional(values.whole(1, 10**9)),
    "day_budget": values.optional(values.dollars),
    "day_tokens": values.optional(values.whole(1, 10**15)),
    "day_requests": values.optional(values.whole(1, 10**9)),
    "prices": values.optional(values.file),
    "requests_per_minute": values.optional(values.whole(1, 10**9)),
    "only_models": values.each(values.model),
    "timeout": values.optional(values.seconds(zero=False)),
    "idle_timeout": values.optional(values.seconds(zero=False)),
    "start_timeout": values.optional(values.seconds(zero=False)),
    "stall_after": values.optional(values.seconds(zero=False)),
    "permission_timeout": values.optional(values.seconds(zero=False)),
    "grace": values.seconds(zero=True),
    "leftovers": values.one_of(*get_args(Leftovers)),
    "home": values.text,
    "gemini": values.optional(values.text),
    "env": values.variables,
    "env_file": values.optional(values.file),
    "env_only": values.optional(values.each(values.variable_name)),
    "telemetry": values.optional(values.text),
    "offline": values.flag,
    "gateway": values.one_of(*get_args(GatewayMode)),
    "key_from": values.optional(values.key_source),
    "script": values.optional(values.file),
    "record": values.optional(values.text),
    "overwrite": values.flag,
    "replay": values.optional(values.file),
    "literal": values.flag,
    "line_limit": values.whole(1024, 2**40),
}
