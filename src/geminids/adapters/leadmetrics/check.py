"""`test_environment(config)`: run the checks of `geminids doctor`, then ask the model for a reply."""

from __future__ import annotations

import os
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
from geminids.doctor.checks import Check, CheckContext
from geminids.errors import OptionsError
from geminids.gemini import is_available
from geminids.log import get_logger
from geminids.options import Options
from geminids.redact import Redactor, secrets_of
from geminids.run.result import Result

__all__ = ["AdapterCheck", "AdapterEnvironmentTestResult", "test_environment"]

_log = get_logger("adapters")

Level = Literal["info", "warn", "error"]

_PROMPT = "Respond with: hello"
_HELLO = re.compile(r"\bhello\b", re.IGNORECASE)
_MAX_LENGTH = 240
# Seconds for `gemini --version`. It takes one second, and much longer on a loaded machine.
_VERSION_TIMEOUT = 30.0
_LEVELS: dict[str, Level] = {"warning": "warn", "error": "error"}
# Checks that get their own code in `_specified_checks`.
_SPECIFIED = {"cwd", "cli", "auth", "plan", "live", "node"}
_NO_KEY = "gemini_api_key_missing"
_FIELD_CODES = {
    "cwd": "gemini_cwd_invalid",
    "instructionsFilePath": "gemini_instructions_invalid",
    "command": "gemini_command_unresolvable",
}


class AdapterCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one check. `code` identifies the check and the outcome of the check."""

    code: str
    level: Level
    message: str
    detail: str | None = None
    hint: str | None = None


class AdapterEnvironmentTestResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of `test_environment`: every check that was made.

    `status` is `fail` if a check is an error, else `warn` if a check is a warning, else `pass`.
    """

    adapter_type: str
    status: Literal["pass", "warn", "fail"]
    checks: tuple[AdapterCheck, ...]
    tested_at: str


async def test_environment(
    config: Config | GeminiLocalConfig, *, probe: bool = True
) -> AdapterEnvironmentTestResult:
    """Check everything that a run with this configuration needs, then ask the model to say hello.

    This function does not raise. The result contains no secrets. The model is not asked if `probe`
    is False, or if the checks found a problem that prevents a run. A missing sign-in is not such a
    problem, because the CLI may have a key in the keychain, where geminids cannot see it. The model
    must answer within the configuration's `helloProbeTimeoutSec`.
    """
    options, limit, problems = _options(config)
    # The values for the template are known only in a run, so check without the template.
    options = msgspec.structs.replace(options, template=None)
    findings = {check.code: check for check in await check_environment(options)}
    cli, version = findings.get("cli"), findings.get("cli_version")
    if cli is not None and cli.level == "ok" and (version is None or version.level != "error"):
        findings["cli"] = await _start_cli(cli, options)
    if any(problem.code == "gemini_cwd_invalid" for problem in problems):
        # `problems` already contains this error. The check used the folder "." instead.
        findings.pop("cwd", None)
    checks = [*problems, *_specified_checks(findings, options), *_other_checks(findings.values())]
    if probe and _is_ready(checks, findings):
        probed = await _probe(probe_options(options, limit))
        if probed.code == "gemini_hello_probe_passed":
            checks = [_signed_in(check) for check in checks]
        checks.append(probed)
    return _result(checks)


async def _start_cli(found: Check, options: Options) -> Check:
    """Start the CLI with `--version`. If it starts, return `found`, the check that found the CLI.
    Otherwise return a check with an error."""
    # Imported late: `execute` imports this package, and starts the CLI before it imports anyio.
    import anyio

    def start() -> Check:
        context = CheckContext(options, dict(os.environ))
        available = is_available(
            options.gemini, environ=context.env, places=context.places, timeout=_VERSION_TIMEOUT
        )
        if available.ok:
            return found
        reason = Redactor(secrets_of(context.env)).text(available.reason)
        hint = "Set `command` to the path of a Gemini CLI, or run `geminids install`."
        return Check("cli", "error", reason, hint)

    try:
        return await anyio.to_thread.run_sync(start)
    except OSError as error:
        return Check("cli", "error", f"the CLI cannot be started: {error.strerror}")


# pytest would collect a function of this name as a test.
test_environment.__test__ = False  # type: ignore[attr-defined]


def _options(config: Config | GeminiLocalConfig) -> tuple[Options, float, list[AdapterCheck]]:
    """Return three values: the options of a run, the time limit of the probe (a short test run),
    and the problems of the configuration.

    Invalid fields are left out of the options, so that the other checks can still be made.
    """
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
    """Convert the checks of the folder, the instructions file, the CLI and the sign-in to adapter
    checks.

    Leadmetrics and Paperclip define the codes of these adapter checks.
    """
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
        code = "gemini_api_key_present" if auth.level in ("ok", "info") else _NO_KEY
        converted.append(_convert(auth, code, "error" if auth.level == "error" else "info"))
    return converted


def _other_checks(findings: Iterable[Check]) -> list[AdapterCheck]:
    """Convert the warnings and errors of `geminids doctor` that `_specified_checks` does not
    handle. Each gets a code that geminids defines.

    The check `plan` is an error if geminids would refuse to start a run.
    """
    converted = []
    for check in findings:
        if check.code == "plan" and check.level == "error":
            converted.append(_convert(check, "gemini_run_refused", "error"))
        elif check.code not in _SPECIFIED and check.level in _LEVELS:
            converted.append(_convert(check, f"gemini_{check.code}", _LEVELS[check.level]))
    return converted


def _is_ready(checks: list[AdapterCheck], findings: dict[str, Check]) -> bool:
    plan = findings.get("plan")
    blocked = any(check.level == "error" and check.code != _NO_KEY for check in checks)
    return not blocked and plan is not None and plan.level == "ok"


def _signed_in(check: AdapterCheck) -> AdapterCheck:
    """If `check` is the error that a sign-in is missing, return it with the level `info`. Return
    any other check unchanged.

    Call this only after a test run could sign in, because this shows that the error was wrong.
    """
    if check.code != _NO_KEY or check.level != "error":
        return check
    return AdapterCheck(
        code=check.code, level="info", message=f"{check.message}; but a test run could sign in"
    )


async def _probe(options: Options) -> AdapterCheck:
    try:
        # The instructions are for the agent's runs, not for the probe.
        async with open_run(_PROMPT, options, instructions=None) as run:
            while await run.next_batch() is not None:
                pass
    except Exception as error:
        _log.warning("the test run (a prompt that asks the model to say hello) failed", error=error)
        return AdapterCheck(
            code="gemini_hello_probe_failed",
            level="error",
            message=f"The test run failed with an unexpected error: {type(error).__name__}",
        )
    return _judge_probe(run.result)


def _judge_probe(result: Result) -> AdapterCheck:
    """Return the check that describes the result of a probe (a short test run).

    The first of these that applies is reported: used-up quota, time-out, an answer, failed sign-in,
    any other failure.
    """
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
        return _probe_check(result, "passed", "info", f"The agent answered in {took}.")
    if result.ok:
        return _probe_check(result, "unexpected_output", "warn", "The agent answered, but did not say hello.")
    if kind in ("auth", "tier_retired"):
        return _probe_check(result, "auth_required", "error", "The CLI is installed, but it cannot sign in.")
    return _probe_check(result, "failed", "error", "The test run failed.")


def _probe_check(
    result: Result, code: str, level: Level, message: str, hint: str | None = None
) -> AdapterCheck:
    text = result.answer if result.ok else result.failure.message if result.failure else result.reason
    return AdapterCheck(
        code=f"gemini_hello_probe_{code}",
        level=level,
        message=message,
        detail=_line(text),
        hint=hint or (result.failure.hint if result.failure else None),
    )


def _convert(check: Check | None, code: str, level: Level) -> AdapterCheck:
    if check is None:
        return AdapterCheck(code=code, level=level, message="not checked")
    message = _line(check.detail) or check.code
    return AdapterCheck(code=code, level=level, message=message, hint=check.hint)


def _line(text: str | None) -> str | None:
    """Return the text on one line, cut to 240 characters. Return None if there is no text."""
    line = " ".join((text or "").split())
    return (line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 1] + "…") or None
