"""Convert an agent's configuration, with field names of Leadmetrics and Paperclip, to `Options`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from geminids.config.form import Problem
from geminids.config.form import build_config as options_from_form
from geminids.errors import OptionsError
from geminids.launch.prompt.compose import names_in
from geminids.options import Options
from geminids.options.values import kind

__all__ = [
    "DOCUMENTED",
    "GRACE",
    "PROBE_TIMEOUT",
    "TEMPLATE_NAMES",
    "TIMEOUT",
    "Config",
    "GeminiLocalConfig",
    "build_config",
    "config_name",
    "options_of",
    "validate_config",
]

TIMEOUT = 120.0
GRACE = 5.0
PROBE_TIMEOUT = 60.0

# Maps the field names in Leadmetrics' documentation to the names of our options.
DOCUMENTED = {
    "cwd": "cwd",
    "model": "model",
    "promptTemplate": "template",
    "instructionsFilePath": "instructions",
    "env": "env",
    "timeoutSec": "timeout",
    "graceSec": "grace",
    "yolo": "approval",
    "command": "gemini",
}
_THEIR_NAMES = {ours: theirs for theirs, ours in DOCUMENTED.items()}
# The orchestrator sets these for each run, in `runtime` and `context`; `make_cwd` is always on.
_RUN_FIELDS = {"resume", "session_id", "fresh", "variables", "make_cwd"}
# Fields of Paperclip that we do not support. The listed values are accepted, because they would
# change nothing.
_IGNORED: dict[str, tuple[object, ...]] = {
    "extraArgs": ([],),
    "args": ([],),
    "sandbox": (False,),
    "engine": ("auto", "cli"),
    "agentCommand": (),
    "mode": ("oneshot",),
    "nonInteractivePermissions": ("deny",),
    "stateDir": (),
    "warmHandleIdleMs": (0,),
    "bootstrapPromptTemplate": (),
}
# The names that a template can contain in addition to `context.NAME`.
TEMPLATE_NAMES = (
    "agentId",
    "agent.id",
    "agent.name",
    "agent.companyId",
    "tenantId",
    "tenant.name",
    "companyId",
    "company.id",
    "runId",
    "run.id",
)
_TEMPLATE = ("prompt_template", "template")
_PROBE = "helloProbeTimeoutSec"
_ABSENT: tuple[object, ...] = (None, "")
_TWICE = "is set twice, with different values"

Config = Mapping[str, object]


class GeminiLocalConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The stored configuration of an agent.

    `options` contains options of geminids that have no field here, for example `{"maxTurns": 5}`.
    """

    cwd: str
    model: str | None = None
    prompt_template: str | None = None
    instructions_file_path: str | None = None
    env: dict[str, str] = {}
    timeout_sec: float = TIMEOUT
    """The time limit of a run in seconds; 0 means no limit."""
    grace_sec: float = GRACE
    yolo: bool = False
    command: str | None = None
    """The path of a Gemini CLI, or a version that `geminids install` installed. With None, geminids
    uses the first CLI that it finds."""
    hello_probe_timeout_sec: float = PROBE_TIMEOUT
    options: dict[str, Any] = {}

    def __repr__(self) -> str:
        # Do not show `env` and `options`: they may contain secrets.
        return f"GeminiLocalConfig(cwd={self.cwd!r}, model={self.model!r}, yolo={self.yolo})"


def build_config(form: Config) -> GeminiLocalConfig:
    """Build a configuration from the values of a form, or from a stored object.

    If values are invalid, raises one `OptionsError` with all problems. Numbers and switches may be
    text. Empty text means that the field is not set. Any option of geminids may be a field, for
    example `maxTurns` or `max_turns`.

    >>> build_config({"cwd": ".", "timeoutSec": "60", "yolo": "on", "model": ""}).timeout_sec
    60.0
    """
    options, probe = _read(form)
    # "none" turns a limit off; an empty value would mean "not set".
    rest = {name: "none" if value is None else value for name, value in msgspec.to_builtins(options).items()}
    for name in (*DOCUMENTED.values(), *_RUN_FIELDS):
        if name != "approval" or options.approval == "yolo":
            rest.pop(name, None)
    return GeminiLocalConfig(
        cwd=options.cwd,
        model=options.model,
        prompt_template=options.template,
        instructions_file_path=options.instructions,
        env=options.env,
        timeout_sec=options.timeout or 0.0,
        grace_sec=options.grace,
        yolo=options.approval == "yolo",
        command=options.gemini,
        hello_probe_timeout_sec=probe,
        options=rest,
    )


def validate_config(config: Config | GeminiLocalConfig) -> tuple[Problem, ...]:
    """Return every problem of a configuration, each with the name of its field. The result is empty
    if the configuration is valid.

    >>> [problem.name for problem in validate_config({"timeoutSec": "soon", "modle": "pro"})]
    ['cwd', 'modle', 'timeoutSec']
    """
    try:
        _read(config)
    except OptionsError as error:
        return tuple(Problem(name, message) for name, message in error.problems)
    return ()


def options_of(config: Config | GeminiLocalConfig) -> Options:
    """Return the options of geminids for a configuration. With these options, a run creates the
    folder `cwd` if it does not exist.

    Raises `OptionsError` if the configuration is invalid.
    """
    return _read(config)[0]


def config_name(option: str) -> str:
    """Return the name of the configuration field for an option of geminids.

    >>> config_name("timeout"), config_name("max_turns")
    ('timeoutSec', 'maxTurns')
    """
    head, *rest = option.split("_")
    return _THEIR_NAMES.get(option, head + "".join(word.capitalize() for word in rest))


def _read(config: Config | GeminiLocalConfig) -> tuple[Options, float]:
    given, problems = _flat(config)
    if given.get("cwd") in _ABSENT:
        problems.insert(0, ("cwd", "is required"))
    problems += _unsupported(given)
    form: dict[str, object] = {"make_cwd": True}
    probe = PROBE_TIMEOUT
    for name, value in given.items():
        if value in _ABSENT or name in _IGNORED:
            continue
        if _snake(name) in _RUN_FIELDS:
            problems.append((name, "is set by the orchestrator for each run; leave it out"))
        elif name == _PROBE:
            probe = _seconds(value, problems)
        elif name not in ("command", "gemini"):
            form[name] = value
        elif form.setdefault("gemini", value) != value:
            problems.append((name, _TWICE))
    if form.get("gemini") == "gemini":
        del form["gemini"]
    _set_timeout(form, problems)
    try:
        options = options_from_form(form)
    except OptionsError as error:
        problems += ((_their_name(name, given), text) for name, text in error.problems)
    problems += _template_problems(form)
    if problems:
        raise OptionsError(problems)
    return options, probe


def _flat(config: Config | GeminiLocalConfig) -> tuple[dict[str, object], list[tuple[str, str]]]:
    """Return two values: a dict with all fields of a configuration, and the problems of its field
    `options`. The dict also contains the fields that are inside `options`.

    Raises `OptionsError` if the configuration is not an object.
    """
    given: Any = msgspec.to_builtins(config) if isinstance(config, GeminiLocalConfig) else config
    if not isinstance(given, Mapping):
        raise OptionsError(
            [("config", f"is {kind(given)}, not an object: use a dict with the fields of the configuration")]
        )
    flat = {str(name): value for name, value in given.items() if name != "options"}
    further = given.get("options")
    if not isinstance(further, Mapping):
        problems = (
            [] if further in _ABSENT else [("options", f"is {kind(further)}, not an object with options")]
        )
        return flat, problems
    more = {str(name): value for name, value in further.items()}
    twice = [(name, _TWICE) for name, value in more.items() if name in flat and flat[name] != value]
    return flat | more, twice


def _unsupported(given: Config) -> list[tuple[str, str]]:
    """Return a problem for each field of Paperclip whose value geminids does not support."""
    return [
        (name, "is not supported; leave it out")
        for name, harmless in _IGNORED.items()
        if (value := given.get(name)) not in _ABSENT and value not in harmless
    ]


def _template_problems(form: Config) -> list[tuple[str, str]]:
    """Return a list with one problem if the template contains names that have no value in any run;
    otherwise return an empty list."""
    field, template = next(
        ((name, value) for name, value in form.items() if _snake(name) in _TEMPLATE), ("", None)
    )
    names = names_in(template) if isinstance(template, str) else ()
    unknown = [name for name in names if name not in TEMPLATE_NAMES and not name.startswith("context.")]
    if not unknown:
        return []
    known = ", ".join(("prompt", *TEMPLATE_NAMES, "context.NAME"))
    written = ", ".join(f"{{{{{name}}}}}" for name in unknown)
    return [(field, f"unknown names: {written}; the known names are {known}")]


def _set_timeout(form: dict[str, object], problems: list[tuple[str, str]]) -> None:
    """Set the default timeout (120 s) and the default grace period (5 s) in `form` if they are
    missing.

    A timeout of 0 means no limit. A timeout below 0 is added to `problems`.
    """
    if not any(_snake(name) in ("grace_sec", "grace") for name in form):
        form["grace"] = GRACE
    names = [name for name in form if _snake(name) in ("timeout_sec", "timeout")]
    if not names:
        form["timeout"] = TIMEOUT
    for name in names:
        value = form[name]
        if _is_negative(value):
            problems.append((name, f"is {value} seconds; it must be 0 (no limit) or more"))
            form[name] = "none"
        if (value == 0 and not isinstance(value, bool)) or (isinstance(value, str) and value.strip() == "0"):
            form[name] = "none"


def _is_negative(value: object) -> bool:
    try:
        return isinstance(value, (int, float, str)) and float(value) < 0
    except (ValueError, OverflowError):
        return False


def _seconds(value: object, problems: list[tuple[str, str]]) -> float:
    try:
        seconds = (
            float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else 0.0
        )
    except (ValueError, OverflowError):
        seconds = 0.0
    if not 0 < seconds < 10**9:
        problems.append((_PROBE, "is not a number of seconds above 0"))
    return seconds


def _their_name(option: str, given: Config) -> str:
    return option if option in given else config_name(option)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name)
