"""Whether options can be: every problem at once, before anything is started."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from geminids.errors import OptionsError
from geminids.ids import is_session_id
from geminids.options.model import Approval, Effort, Leftovers, McpServer, Options, WhenBusy
from geminids.options.permissions import CAPABILITIES, Permissions, Power
from geminids.redact import Redactor, secrets_of

__all__ = ["make_options"]

_LONGEST = 200
_BIGGEST_BUDGET = 1_000_000

Check = Callable[[Any], str | None]


def make_options(options: Options | None = None, /, **fields: Any) -> Options:
    """Merge `fields` over `options` and check all of it; raises one `OptionsError` with every problem.

    >>> make_options(Options(model="pro"), timeout=5).timeout
    5
    """
    problems: list[tuple[str, str]] = []
    if options is not None and not isinstance(options, Options):
        raise OptionsError([("options", f"is {_kind(options)}, not an Options")])
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
    if options.variables and options.template is None:
        found.append(("variables", "there is no template that they could be put into"))
    if not found or "cwd" not in dict(found):
        found += _cwd_problems(options)
    return found


def _cwd_problems(options: Options) -> list[tuple[str, str]]:
    if os.path.isdir(options.cwd):
        return []
    if os.path.exists(options.cwd):
        return [("cwd", f"{options.cwd} is not a folder")]
    if options.make_cwd:
        return []
    return [("cwd", f"{options.cwd} does not exist (make_cwd=True makes it)")]


def _no_such_option(name: str) -> str:
    import difflib  # imported late: only for a mistake

    near = difflib.get_close_matches(name, _CHECKS, n=1)
    return f"there is no such option; did you mean {near[0]}?" if near else "there is no such option"


def _kind(value: object) -> str:
    """What a value is, where the value itself may be a secret."""
    return f"of type {type(value).__name__}"


def _shown(value: object) -> str:
    """The value as it was given; what is told of it is redacted and cut later, in one place."""
    return repr(value)


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _text(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"is {_shown(value)}, not text"
    if not value.strip():
        return "is empty"
    return _odd_characters(value)


def _odd_characters(value: str) -> str | None:
    if "\0" in value:
        return "holds a NUL character"
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return "holds half a character (a lone surrogate)"
    return None


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else f"is {_shown(value)}, not True or False"


def _one_of(*choices: str) -> Check:
    def check(value: Any) -> str | None:
        return None if value in choices else f"is {_shown(value)}, not one of {', '.join(choices)}"

    return check


def _seconds(*, zero: bool) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"is {_shown(value)}, not a number of seconds"
        if not (0 <= value < 10**9) or (value == 0 and not zero):
            return f"is {value}: it must be {'0 or more' if zero else 'above 0'} seconds"
        return None

    return check


def _whole(low: int, high: int) -> Check:
    def check(value: Any) -> str | None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            return f"is {_shown(value)}, not a whole number from {low} to {high}"
        return None

    return check


def _model(value: Any) -> str | None:
    what = _text(value)
    if what is None and (value.startswith("-") or any(c.isspace() for c in value)):
        return f"is {_shown(value)}: a model has no blanks and no leading dash"
    return what


def _session(value: Any) -> str | None:
    if isinstance(value, str) and is_session_id(value):
        return None
    return f"is {_shown(value)}: a session id has letters, digits, - and _ only"


def _variables(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"is {_kind(value)}, not a mapping of names to values"
    for name, text in value.items():
        if not isinstance(name, str) or not name or "\0" in name:
            return f"has {_shown(name)}, which cannot be a variable's name"
        if "=" in name:
            return f"has a name with = in it, which begins with {_shown(name.partition('=')[0])}"
        if not isinstance(text, str):
            # The value itself is not shown: it may be a secret.
            return f"has a value for {name} that is not text"
        if what := _odd_characters(text) or _odd_characters(name):
            return f"{what}, in {name!r}"
    return None


def _file(value: Any) -> str | None:
    what = _text(value)
    if what is not None:
        return what
    if not os.path.exists(value):
        return f"{_shown(value)} does not exist"
    if os.path.isdir(value):
        return f"{_shown(value)} is a folder, not a file"
    if not os.path.isfile(value):
        return f"{_shown(value)} is no regular file"
    return None if os.access(value, os.R_OK) else f"{_shown(value)} cannot be read"


def _folder(value: Any) -> str | None:
    what = _text(value)
    if what is not None:
        return what
    if not os.path.exists(value):
        return f"{_shown(value)} does not exist"
    if not os.path.isdir(value):
        return f"{_shown(value)} is not a folder"
    return None if os.access(value, os.R_OK | os.X_OK) else f"{_shown(value)} cannot be read"


def _each(check: Check) -> Check:
    def all_of(value: Any) -> str | None:
        if not isinstance(value, tuple):
            return f"is {_shown(value)}, not a list"
        return next((what for one in value if (what := check(one))), None)

    return all_of


def _name(value: Any) -> str | None:
    what = _text(value)
    return f"has {_shown(value)}, which {what}" if what else None


def _variable_name(value: Any) -> str | None:
    return _variables({value: ""}) if isinstance(value, str) else f"has {_shown(value)}, not text"


def _effort(value: Any) -> str | None:
    if value in get_args(Effort):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _BIGGEST_BUDGET:
        return None
    return f"is {_shown(value)}, not one of {', '.join(get_args(Effort))} or a number of tokens"


def _template_values(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"is {_kind(value)}, not a mapping of names to values"
    for name, text in value.items():
        if not isinstance(name, str) or not name.strip():
            return f"has {_shown(name)}, which cannot be a name"
        if not isinstance(text, str):
            return f"has a value for {name} that is not text"
    return None


def _permissions(value: Any) -> str | None:
    if not isinstance(value, Permissions):
        return f"is {_kind(value)}, not Permissions"
    for name in value.__struct_fields__:
        given = getattr(value, name)
        what = _optional(_one_of(*get_args(Power)))(given) if name in CAPABILITIES else _each(_name)(given)
        if what:
            return f"{name} {what}"
    return None


def _servers(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"is {_kind(value)}, not a mapping of names to servers"
    for name, server in value.items():
        what = _name(name) or _server(server)
        if what is None and not all(c.isalnum() or c in "-_." for c in name):
            what = "a server's name has letters, digits, -, _ and . only"
        if what:
            return f"{_shown(name)}: {what}"
    return None


def _server(server: Any) -> str | None:
    if not isinstance(server, McpServer):
        return f"is {_kind(server)}, not an McpServer"
    if (server.command is None) == (server.url is None):
        return "needs either a command or a url"
    for name, check in _SERVER_CHECKS.items():
        if what := check(getattr(server, name)):
            return f"its {name} {what}"
    return None


def _url(value: Any) -> str | None:
    if what := _text(value):
        return what
    return (
        None if value.startswith(("http://", "https://")) else "begins neither with http:// nor with https://"
    )


def _argument(value: Any) -> str | None:
    """Like a text, but it may be empty."""
    return f"has {_shown(value)}, not text" if not isinstance(value, str) else _odd_characters(value)


_SERVER_CHECKS: dict[str, Check] = {
    "command": _optional(_text),
    "args": _each(_argument),
    "env": _variables,
    "cwd": _optional(_text),
    "url": _optional(_url),
    "headers": _variables,
    "timeout": _optional(_seconds(zero=False)),
    "include_tools": _each(_name),
    "exclude_tools": _each(_name),
}


_CHECKS: dict[str, Check] = {
    "cwd": _text,
    "make_cwd": _flag,
    "model": _optional(_model),
    "effort": _optional(_effort),
    "approval": _one_of(*get_args(Approval)),
    "permissions": _permissions,
    "trust_workspace": _flag,
    "resume": _optional(_session),
    "session_id": _optional(_session),
    "fresh": _flag,
    "when_busy": _one_of(*get_args(WhenBusy)),
    "template": _optional(_text),
    "variables": _template_values,
    "instructions": _optional(_file),
    "images": _each(_file),
    "videos": _each(_file),
    "files": _each(_file),
    "include_dirs": _each(_folder),
    "skills": _each(_folder),
    "mcp_servers": _servers,
    "system_prompt": _optional(_file),
    "max_turns": _optional(_whole(1, 100_000)),
    "max_attempts": _optional(_whole(1, 10)),
    "timeout": _optional(_seconds(zero=False)),
    "idle_timeout": _optional(_seconds(zero=False)),
    "start_timeout": _optional(_seconds(zero=False)),
    "grace": _seconds(zero=True),
    "leftovers": _one_of(*get_args(Leftovers)),
    "home": _text,
    "gemini": _optional(_text),
    "env": _variables,
    "env_file": _optional(_file),
    "env_only": _optional(_each(_variable_name)),
    "telemetry": _flag,
    "offline": _flag,
    "literal": _flag,
    "line_limit": _whole(1024, 2**40),
}
