"""Whether options can be: every problem at once, before anything is started."""

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

__all__ = ["LIMITS", "NEED_GATEWAY", "make_options"]

# Limits that the gateway enforces before a request is sent.
LIMITS = ("max_budget", "max_tokens", "max_requests", "day_budget", "day_tokens", "day_requests")
# The other options that only the gateway can honour.
NEED_GATEWAY = ("requests_per_minute", "only_models", "key_from", "record")

_LONGEST = 200


def make_options(options: Options | None = None, /, **fields: Any) -> Options:
    """Merge `fields` over `options` and check all of it; raises one `OptionsError` with every problem.

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
        raise OptionsError(_tellable(problems, merged))
    return merged


def _plain(value: Any) -> Any:
    """A path as text, a list as the tuple that it is stored as."""
    if isinstance(value, (list, tuple)):
        return tuple(_plain(one) for one in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _tellable(problems: list[tuple[str, str]], options: Options) -> list[tuple[str, str]]:
    """The problems without secrets, and then cut: half a secret would no longer be known for one."""
    env = options.env if isinstance(options.env, Mapping) else {}
    own = {str(name): value for name, value in env.items() if isinstance(value, str)}
    redactor = Redactor(secrets_of({**os.environ, **own}))
    return [(name, _cut(redactor.text(what))) for name, what in problems]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 2 :]}"


def _problems(options: Options) -> list[tuple[str, str]]:
    found = []
    for name, check in _CHECKS.items():
        what = check(getattr(options, name))
        if what:
            found.append((name, what))
    if options.resume is not None and options.session_id is not None:
        found.append(("session_id", "cannot be given together with resume: a resumed session has its id"))
    found += _gateway_problems(options)
    if options.variables and options.template is None:
        found.append(("variables", "there is no template that they could be put into"))
    if not found or "cwd" not in dict(found):
        found += _cwd_problems(options)
    return found


def _gateway_problems(options: Options) -> list[tuple[str, str]]:
    """Options of the gateway that contradict each other."""
    modes = [name for name in ("offline", "record", "replay") if getattr(options, name)]
    found = []
    if len(modes) > 1:
        found.append((modes[1], f"cannot be given together with {modes[0]}"))
    if options.gateway == "off":
        needy = [name for name in (*LIMITS, *NEED_GATEWAY, "replay") if getattr(options, name)]
        found += [(name, "needs the gateway; leave gateway='on'") for name in needy]
    return found


def _cwd_problems(options: Options) -> list[tuple[str, str]]:
    if os.path.isdir(options.cwd):
        usable = os.access(options.cwd, os.R_OK | os.X_OK)
        return [] if usable else [("cwd", f"{options.cwd} cannot be read and entered")]
    if os.path.exists(options.cwd):
        return [("cwd", f"{options.cwd} is not a folder")]
    if options.make_cwd:
        return []
    return [("cwd", f"{options.cwd} does not exist (make_cwd makes it)")]


def _no_such_option(name: str) -> str:
    import difflib  # imported late: only for a mistake

    near = difflib.get_close_matches(name, _CHECKS, n=1)
    return f"there is no such option; did you mean {near[0]}?" if near else "there is no such option"


def _permissions(value: Any) -> str | None:
    if not isinstance(value, Permissions):
        return f"is {values.kind(value)}, not Permissions"
    for name in value.__struct_fields__:
        given = getattr(value, name)
        what = (
            values.optional(values.one_of(*get_args(Power)))(given)
            if name in CAPABILITIES
            else values.each(values.name)(given)
        )
        if what:
            return f"{name} {what}"
    return None


def _servers(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"is {values.kind(value)}, not a mapping of names to servers"
    for name, server in value.items():
        what = values.name(name) or _server(server)
        if what is None and not all(c.isalnum() or c in "-_." for c in name):
            what = "a server's name has letters, digits, -, _ and . only"
        if what:
            return f"{values.shown(name)}: {what}"
    return None


def _server(server: Any) -> str | None:
    if not isinstance(server, McpServer):
        return f"is {values.kind(server)}, not an McpServer"
    if (server.command is None) == (server.url is None):
        return "needs either a command or a url"
    for name, check in _SERVER_CHECKS.items():
        if what := check(getattr(server, name)):
            return f"its {name} {what}"
    return None


def _url(value: Any) -> str | None:
    if what := values.text(value):
        return what
    return (
        None if value.startswith(("http://", "https://")) else "begins neither with http:// nor with https://"
    )


def _argument(value: Any) -> str | None:
    """Like a text, but it may be empty."""
    return (
        f"has {values.shown(value)}, not text" if not isinstance(value, str) else values.odd_characters(value)
    )


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
    "key_from": values.optional(values.key_place),
    "record": values.optional(values.text),
    "replay": values.optional(values.file),
    "literal": values.flag,
    "line_limit": values.whole(1024, 2**40),
}
