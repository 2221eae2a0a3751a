"""`test_environment(config)`: the checks of `doctor` under the codes of the adapters, and a live probe."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from geminids.adapters.leadmetrics.config import Config, GeminiLocalConfig, build_config, options_of
from geminids.adapters.leadmetrics.identity import TYPE
from geminids.client import open_run
from geminids.dialects.leadmetrics.transcript import iso_time
from geminids.doctor import check_environment, probe_options
from geminids.doctor.checks import Check
from geminids.errors import OptionsError
from geminids.log import get_logger
from geminids.options import Options
from geminids.run.result import Result

__all__ = ["AdapterCheck", "AdapterEnvironmentTestResult", "test_environment"]

_log = get_logger("adapters")

Level = Literal["info", "warn", "error"]

_PROMPT = "Respond with: hello"
_HELLO = re.compile(r"\bhello\b", re.IGNORECASE)
_LONGEST = 240
_LEVELS: dict[str, Level] = {"warning": "warn", "error": "error"}
# Checks that get their own code in `_named`.
_NAMED = {"cwd", "cli", "auth", "plan", "live", "node"}
_OF_FIELD = {
    "cwd": "gemini_cwd_invalid",
    "instructionsFilePath": "gemini_instructions_invalid",
    "command": "gemini_command_unresolvable",
}


class AdapterCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finding."""

    code: str
    level: Level
    message: str
    detail: str | None = None
    hint: str | None = None


class AdapterEnvironmentTestResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All findings. `status` is `fail` if one is an error, else `warn` if one is a warning, else `pass`."""

    adapter_type: str
    status: Literal["pass", "warn", "fail"]
    checks: tuple[AdapterCheck, ...]
    tested_at: str


async def test_environment(
    config: Config | GeminiLocalConfig, *, probe: bool = True
) -> AdapterEnvironmentTestResult:
    """Check everything that a run with this configuration needs, then ask the model to say hello. Never raises.

    The probe runs if the checks found no error; `helloProbeTimeoutSec` is its limit. Findings contain no secret.
    """
    options, limit, problems = _options(config)
    # A template gets its values with a run: there are none here.
    options = msgspec.structs.replace(options, template=None)
    found = {check.code: check for check in await check_environment(options)}
    if any(problem.code == "gemini_cwd_invalid" for problem in problems):
        found.pop("cwd", None)  # reported as a problem; this one is of a replacement
    checks = [*problems, *_named(found, options), *_others(found.values())]
    if probe and _is_ready(checks, found):
        checks.append(await _probe(probe_options(options, limit)))
    return _tested(checks)


# pytest would collect a function of this name as a test.
test_environment.__test__ = False  # type: ignore[attr-defined]


def _options(config: Config | GeminiLocalConfig) -> tuple[Options, float, list[AdapterCheck]]:
    """The options, the probe's limit and the problems; wrong fields are left out, so that the rest is checked too."""
    given: Config = msgspec.to_builtins(config) if isinstance(config, GeminiLocalConfig) else config
    try:
        return options_of(given), build_config(given).hello_probe_timeout_sec, []
    except OptionsError as error:
        problems = [_problem(name, what) for name, what in error.problems]
        wrong = {name for name, _ in error.problems}
        kept = {"cwd": ".", **(_without(given, wrong) if isinstance(given, Mapping) else {})}
    try:
        return options_of(kept), 0.0, problems
    except OptionsError:
        return options_of({"cwd": "."}), 0.0, problems


def _without(given: Config, wrong: set[str]) -> dict[str, object]:
    return {
        name: _without(value, wrong) if name == "options" and isinstance(value, Mapping) else value
        for name, value in given.items()
        if name not in wrong
    }


def _tested(checks: list[AdapterCheck]) -> AdapterEnvironmentTestResult:
    levels = {check.level for check in checks}
    return AdapterEnvironmentTestResult(
        adapter_type=TYPE,
        status="fail" if "error" in levels else "warn" if "warn" in levels else "pass",
        checks=tuple(checks),
        tested_at=iso_time(int(time.time() * 1000)),
    )


def _problem(name: str, what: str) -> AdapterCheck:
    code = _OF_FIELD.get(name, "gemini_config_invalid")
    return AdapterCheck(code=code, level="error", message=f"{name}: {what}", hint="Mend this field.")


def _named(found: dict[str, Check], options: Options) -> list[AdapterCheck]:
    """Folder, instructions, CLI and sign-in, which have codes in the specification."""
    cwd, cli, auth = found.get("cwd"), found.get("cli"), found.get("auth")
    made = []
    if cwd is not None:
        good = cwd.level != "error"
        made.append(
            _of(cwd, "gemini_cwd_valid" if good else "gemini_cwd_invalid", "info" if good else "error")
        )
    if options.instructions is not None:
        made.append(
            AdapterCheck(code="gemini_instructions_valid", level="info", message=options.instructions)
        )
    if cli is not None and cli.level == "ok":
        made.append(_of(cli, "gemini_command_resolvable", "info"))
    else:
        why = found.get("node") if cli is None or cli.level == "skipped" else cli
        made.append(_of(why or cli, "gemini_command_unresolvable", "error"))
    if auth is not None and auth.level != "skipped":
        there = auth.level in ("ok", "info")
        made.append(_of(auth, "gemini_api_key_present" if there else "gemini_api_key_missing", "info"))
    return made


def _others(found: Iterable[Check]) -> list[AdapterCheck]:
    """Other warnings and errors, under codes of ours; a refused plan gives the reason why a run would be refused."""
    made = []
    for check in found:
        if check.code == "plan" and check.level == "error":
            made.append(_of(check, "gemini_run_refused", "error"))
        elif check.code not in _NAMED and check.level in _LEVELS:
            made.append(_of(check, f"gemini_{check.code}", _LEVELS[check.level]))
    return made


def _is_ready(checks: list[AdapterCheck], found: dict[str, Check]) -> bool:
    plan = found.get("plan")
    return all(check.level != "error" for check in checks) and plan is not None and plan.level == "ok"


async def _probe(options: Options) -> AdapterCheck:
    try:
        # The instructions are for the agent's runs, not for the probe.
        async with open_run(_PROMPT, options, instructions=None) as run:
            while await run.next_batch() is not None:
                pass
    except Exception as error:
        _log.warning("the hello probe failed", error=error)
        return AdapterCheck(
            code="gemini_hello_probe_failed", level="error", message=f"{type(error).__name__}"
        )
    return _judged(run.result)


def _judged(result: Result) -> AdapterCheck:
    """The finding for the probe: quota first, then time, answer, sign-in, and any other failure."""
    kind = result.failure.kind if result.failure else None
    took = f"{result.duration_ms / 1000:.1f} s"
    if kind in ("quota_minute", "quota_day"):
        return _probed(result, "quota_exhausted", "warn", "The API's quota is used up.")
    if result.outcome == "timed_out":
        return _probed(
            result, "timed_out", "warn", f"No answer in {took}.", "Try again, or give it more time."
        )
    if result.ok and _HELLO.search(result.answer):
        return _probed(result, "passed", "info", f"The agent said hello in {took}.")
    if result.ok:
        return _probed(result, "unexpected_output", "warn", "The agent answered, and did not say hello.")
    if kind in ("auth", "tier_retired"):
        return _probed(result, "auth_required", "warn", "The CLI is there, but it is not signed in.")
    return _probed(result, "failed", "error", "The probe failed.")


def _probed(result: Result, what: str, level: Level, message: str, hint: str | None = None) -> AdapterCheck:
    text = result.answer if result.ok else result.failure.message if result.failure else result.reason
    return AdapterCheck(
        code=f"gemini_hello_probe_{what}",
        level=level,
        message=message,
        detail=_line(text),
        hint=result.failure.hint if result.failure else hint,
    )


def _of(check: Check | None, code: str, level: Level) -> AdapterCheck:
    if check is None:
        return AdapterCheck(code=code, level=level, message="this could not be found out")
    message = _line(check.detail) or check.code
    return AdapterCheck(code=code, level=level, message=message, hint=check.hint)


def _line(text: str | None) -> str | None:
    """The text on one line, cut to 240 characters."""
    line = " ".join((text or "").split())
    return (line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…") or None
