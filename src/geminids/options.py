"""What a user wants of a run: pure data that can be stored, sent and checked, with no callbacks in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

from geminids.errors import OptionsError
from geminids.ids import is_session_id
from geminids.redact import Redactor, secrets_of

__all__ = ["Approval", "Leftovers", "Options", "make_options"]

Approval = Literal["default", "auto_edit", "yolo", "plan"]
Leftovers = Literal["end", "keep"]

MEGABYTE = 1024 * 1024
_LONGEST = 200


class Options(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Everything about a run but its prompt. Seconds are floats, `None` means no limit.

    >>> Options(model="flash", timeout=60).model
    'flash'
    """

    cwd: str = "."
    """The folder that the agent works in."""
    make_cwd: bool = False
    """Make `cwd` where it is absent."""
    model: str | None = None
    """An alias (`auto`, `pro`, `flash`, `flash-lite`) or an id; None leaves it to the CLI."""
    approval: Approval = "default"
    """`default` reads only, `auto_edit` may edit files, `yolo` may do anything, `plan` only plans."""
    resume: str | None = None
    """A session id of this `cwd`, or `latest`."""
    session_id: str | None = None
    """The id for a new session (0.41 and newer); None leaves it to the CLI, which is faster."""
    max_turns: int | None = None
    """How many model turns a run may take."""
    max_attempts: int | None = None
    """How often the CLI itself tries a failing request (1 to 10; its own default, 10, takes minutes)."""
    timeout: float | None = None
    """Ends the run after this many seconds, whatever it does."""
    idle_timeout: float | None = 600.0
    """Ends the run after this many seconds of silence in which no tool runs, once it has begun to speak."""
    start_timeout: float | None = 120.0
    """Ends the run where the CLI has said nothing for this many seconds after its start."""
    grace: float = 5.0
    """Seconds between the request to end and the kill."""
    leftovers: Leftovers = "end"
    """What becomes of background processes that a successful run leaves."""
    home: str = "user"
    """`user`, `isolated`, or a folder that stands for the user's home."""
    gemini: str | None = None
    """A managed release (`0.61.0`) or the path of a CLI; None takes the first that is found."""
    env: dict[str, str] = {}
    """Variables for the CLI, over those of this process."""
    env_file: str | None = None
    """A file of NAME=value lines, under `env`."""
    offline: bool = False
    """Talk to the built-in scripted model: no key, no network."""
    literal: bool = False
    """Take the prompt as text alone: a leading `/` is no command, `@path` puts no file in."""
    line_limit: int = 256 * MEGABYTE
    """The longest line of the CLI's output, in bytes, that is read; a longer one becomes a notice."""


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
            known[name] = os.fspath(value) if isinstance(value, os.PathLike) else value
        else:
            problems.append((name, _no_such_option(name)))
    if known:
        merged = msgspec.structs.replace(merged, **known)
    problems += _problems(merged)
    if problems:
        raise OptionsError(_tellable(problems, merged))
    return merged


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


def _readable(value: Any) -> str | None:
    what = _text(value)
    if what is None and not os.access(value, os.R_OK):
        return f"{value} cannot be read"
    return what


_CHECKS: dict[str, Check] = {
    "cwd": _text,
    "make_cwd": _flag,
    "model": _optional(_model),
    "approval": _one_of(*get_args(Approval)),
    "resume": _optional(_session),
    "session_id": _optional(_session),
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
    "env_file": _optional(_readable),
    "offline": _flag,
    "literal": _flag,
    "line_limit": _whole(1024, 2**40),
}
