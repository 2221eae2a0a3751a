"""`test_environment(config)`: the checks of `doctor` with the adapter's codes, and a live probe."""

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
_MAX_LENGTH = 240
_LEVELS: dict[str, Level] = {"warning": "warn", "error": "error"}
# Checks that get their own code in `_specified_checks`.
_SPECIFIED = {"cwd", "cli", "auth", "plan", "live", "node"}
_FIELD_CODES = {
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
    # The values of a template come with a run; there are none here.
    options = msgspec.structs.replace(options, template=None)
    findings = {check.code: check for check in await check_environment(options)}
    if any(problem.code == "gemini_cwd_invalid" for problem in problems):
        findings.pop("cwd", None)  # already in `problems`; this check is of the substitute folder
    checks = [*problems, *_specified_checks(findings, options), *_other_checks(findings.values())]
    if probe and _is_ready(checks, findings):
        checks.append(await _probe(probe_options(options, limit)))
    return _result(checks)


# pytest would collect a function of this name as a test.
test_environment.__test__ = False  # type: ignore[attr-defined]


def _options(config: Config | GeminiLocalConfig) -> tuple[Options, float, list[AdapterCheck]]:
    """Return options, the probe's time limit and problems. Invalid fields are dropped, to check the rest."""
    given: Config = msgspec.to_builtins(config) if isinstance(config, GeminiLocalConfig) else config
    try:
        return options_of(given), build_config(given).hello_probe_timeout_sec, []
    except OptionsError as error:
        problems = [_problem(name, text) for name, text in error.problems]
        invalid = {name for name, _ in error.problems}
        kept = {"cwd": ".", **(_without(given, invalid) if isinstance(given, Mapping) else {})}
    try:
        return options_of(kept), 0.0, problems
    except OptionsError:
        return options_of({"cwd": "."}), 0.0, problems


def _without(given: Config, names: set[str]) -> dict[str, object]:
    return {
        name: _without(value, names) if name == "options" and isinstance(value, Mapping) else value
        for name, value in given.items()
        if name not in names
    }


def _result(checks: list[AdapterCheck]) -> AdapterEnvironmentTestResult:
    levels = {check.level for check in checks}
    return AdapterEnvironmentTestResult(
        adapter_type=TYPE,
        status="fail" if "error" in levels else "warn" if "warn" in levels else "pass",
        checks=tuple(checks),
        tested_at=iso_time(int(time.time() * 1000)),
    )


def _problem(name: str, text: str) -> AdapterCheck:
    code = _FIELD_CODES.get(name, "gemini_config_invalid")
    return AdapterCheck(code=code, level="error", message=f"{name}: {text}", hint="Fix this field.")


def _specified_checks(findings: dict[str, Check], options: Options) -> list[AdapterCheck]:
    """Convert the checks that have codes in the specification: folder, instructions, CLI and sign-in."""
    cwd, cli, auth = findings.get("cwd"), findings.get("cli"), findings.get("auth")
    converted = []
    if cwd is not None:
        valid = cwd.level != "error"
        converted.append(
            _convert(cwd, "gemini_cwd_valid" if valid else "gemini_cwd_invalid", "info" if valid else "error")
        )
    if options.instructions is not None:
        converted.append(
            AdapterCheck(code="gemini_instructions_valid", level="info", message=options.instructions)
        )
    if cli is not None and cli.level == "ok":
        converted.append(_convert(cli, "gemini_command_resolvable", "info"))
    else:
        cause = findings.get("node") if cli is None or cli.level == "skipped" else cli
        converted.append(_convert(cause or cli, "gemini_command_unresolvable", "error"))
    if auth is not None and auth.level != "skipped":
        present = auth.level in ("ok", "info")
        converted.append(
            _convert(auth, "gemini_api_key_present" if present else "gemini_api_key_missing", "info")
        )
    return converted


def _other_checks(findings: Iterable[Check]) -> list[AdapterCheck]:
    """Convert other warnings and errors, with our own codes. A failed plan says why a run would fail."""
    converted = []
    for check in findings:
        if check.code == "plan" and check.level == "error":
            converted.append(_convert(check, "gemini_run_refused", "error"))
        elif check.code not in _SPECIFIED and check.level in _LEVELS:
            converted.append(_convert(check, f"gemini_{check.code}", _LEVELS[check.level]))
    return converted


def _is_ready(checks: list[AdapterCheck], findings: dict[str, Check]) -> bool:
    plan = findings.get("plan")
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
    return _judge_probe(run.result)


def _judge_probe(result: Result) -> AdapterCheck:
    """Return the finding for the probe: check quota first, then timeout, answer, sign-in, other failures."""
    kind = result.failure.kind if result.failure else None
    took = f"{result.duration_ms / 1000:.1f} s"
    if kind in ("quota_minute", "quota_day"):
        return _probe_check(result, "quota_exhausted", "warn", "The API's quota is used up.")
    if result.outcome == "timed_out":
        return _probe_check(
            result,
            "timed_out",
            "warn",
            f"No answer in {took}.",
            "Try again, or increase helloProbeTimeoutSec.",
        )
    if result.ok and _HELLO.search(result.answer):
        return _probe_check(result, "passed", "info", f"The agent said hello in {took}.")
    if result.ok:
        return _probe_check(result, "unexpected_output", "warn", "The agent answered, but did not say hello.")
    if kind in ("auth", "tier_retired"):
        return _probe_check(result, "auth_required", "warn", "The CLI is installed, but not signed in.")
    return _probe_check(result, "failed", "error", "The probe failed.")


def _probe_check(
    result: Result, code: str, level: Level, message: str, hint: str | None = None
) -> AdapterCheck:
    text = result.answer if result.ok else result.failure.message if result.failure else result.reason
    return AdapterCheck(
        code=f"gemini_hello_probe_{code}",
        level=level,
        message=message,
        detail=_line(text),
        hint=result.failure.hint if result.failure else hint,
    )


def _convert(check: Check | None, code: str, level: Level) -> AdapterCheck:
    if check is None:
        return AdapterCheck(code=code, level=level, message="this was not checked")
    message = _line(check.detail) or check.code
    return AdapterCheck(code=code, level=level, message=message, hint=check.hint)


def _line(text: str | None) -> str | None:
    """Return the text on one line, cut to 240 characters."""
    line = " ".join((text or "").split())
    return (line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 1] + "…") or None
