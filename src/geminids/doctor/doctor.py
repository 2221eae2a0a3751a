"""Run all checks, to find out whether a run would work on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from geminids.client import open_run
from geminids.doctor import auth, checks
from geminids.doctor.checks import Check, CheckContext, Level
from geminids.errors import OptionsError
from geminids.events.model import Notice
from geminids.gemini import Gemini, models_of
from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.launch.errors import Refused
from geminids.launch.home import SourceHome, secrets_in_files
from geminids.log import get_logger
from geminids.options import Options
from geminids.redact import Redactor, secrets_of
from geminids.run.dry_run import plan_run
from geminids.run.result import Result

__all__ = ["Check", "Level", "check_environment", "probe_options", "would_work"]

_log = get_logger("doctor")

_PROMPT = "Reply with the one word OK. Use no tool."
# How often the CLI tries a failing request in the live check. If the API is unreachable, the run
# would time out with the CLI's default of ten tries. With two, it fails within seconds and reports
# the reason.
_ATTEMPTS = 2
_Checker = Callable[[CheckContext], Check | None]
_ALL: dict[str, _Checker] = {
    "options": checks.options,
    "node": checks.node,
    "cli": checks.cli,
    "cli_version": checks.cli_version,
    "settings": auth.settings,
    "auth": auth.auth,
    "gateway": auth.gateway,
    "cwd": checks.cwd,
    "trust": checks.trust,
    "ripgrep": checks.ripgrep,
    "homes": checks.homes,
    "sessions_home": checks.sessions_home,
    "orphans": checks.orphans,
}
# If one of these checks fails, the check `plan` is skipped: it would report the same error again.
_NEEDED_BY_PLAN = {"options", "node", "cli", "cli_version", "settings", "cwd", "homes", "sessions_home"}


async def check_environment(
    options: Options,
    *,
    live: bool = False,
    live_timeout: float = 60.0,
    problem: OptionsError | None = None,
) -> tuple[Check, ...]:
    """Check everything that a run with these options needs, and return the results of all checks.

    If `live` is true, also start a real run, for at most `live_timeout` seconds. A failed check
    does not stop the other checks. This function does not raise, and secrets in the results are
    masked. `problem` is the error with which the options could not be loaded: a run would report it
    and not start.
    """
    # Imported late (anyio): the Leadmetrics adapter imports this module before it starts the CLI.
    import anyio

    environ = dict(os.environ)
    results = await anyio.to_thread.run_sync(_run_checks, options, environ, problem)
    results.append(await _live(options, results, live_timeout) if live else _not_live())
    return tuple(_clean(_trust_live_run(results, options), _secrets(options, environ)))


def would_work(found: Iterable[Check]) -> bool:
    """Return whether a run would work. This is true if no check has the level `error`."""
    return all(check.level != "error" for check in found)


def _run_checks(
    options: Options, environ: Mapping[str, str], problem: OptionsError | None = None
) -> list[Check]:
    results: list[Check] = []
    try:
        context = CheckContext(options, environ)
    except Exception as error:
        return [_broken("options", error)]
    for code, checker in _ALL.items():
        try:
            check = checker(context)
        except Exception as error:
            check = _broken(code, error)
        if check is not None:
            results.append(check)
    _add_problem(results, problem)
    results.append(_plan(options, environ, results))
    return results


def _add_problem(results: list[Check], problem: OptionsError | None) -> None:
    """Add the error that a run would report when it loads its options, unless other checks report
    the same problems."""
    reported = {check.code for check in results if check.level == "error"}
    if problem is None or "options" in reported or reported.issuperset(dict(problem.problems)):
        return
    hint = "A run would not start with these options: correct them."
    results.insert(0, Check("options", "error", _text(problem), hint))


def _text(error: OptionsError) -> str:
    """Return the text of the error with the names of options in backticks, so that the terminal can
    show the flags instead. A problem can also be named by the path of a file."""
    names = [(f"`{name}`" if name.isidentifier() else name, problem) for name, problem in error.problems]
    return str(OptionsError(names))


def _plan(options: Options, environ: Mapping[str, str], results: Sequence[Check]) -> Check:
    """Check that a run can be prepared: build the launch plan (how to start the CLI) as a run does,
    but write no file."""
    failed = [check.code for check in results if check.level == "error" and check.code in _NEEDED_BY_PLAN]
    if failed:
        return Check("plan", "skipped", f"not checked, because these checks failed: {', '.join(failed)}")
    try:
        plan = plan_run(_PROMPT, options, environ)
    except Refused as refused:
        return Check("plan", "error", refused.failure.message, refused.failure.hint)
    except OptionsError as error:
        return Check("plan", "error", _text(error), error.hint)
    except Exception as error:
        return _broken("plan", error)
    return Check("plan", "ok", f"a run is ready to start: {plan.gemini.release.name}, home {options.home}")


def _not_live() -> Check:
    return Check("live", "skipped", "not requested; use --live to start a real run")


async def _live(options: Options, results: Sequence[Check], timeout: float) -> Check:
    """Check that a real run works: start one with a short prompt if the check `plan` is ok."""
    if any(check.code == "plan" and check.level != "ok" for check in results):
        return Check("live", "skipped", "a run cannot start; see the checks above")
    retry: Notice | None = None
    try:
        async with open_run(_PROMPT, probe_options(options, timeout)) as run:
            async for event in run:
                if isinstance(event, Notice) and event.code == "retry":
                    retry = event
    except Exception as error:
        return _broken("live", error)
    return _live_check(run.result, retry, offline=options.is_simulated)


def probe_options(options: Options, timeout: float) -> Options:
    """Return the options for a short test run that ends after `timeout` seconds at the latest."""
    return msgspec.structs.replace(
        options,
        model=options.model or _plain_model(CheckContext(options, os.environ)),
        timeout=timeout,
        approval="default",
        resume=None,
        session_id=None,
        record=None,
        leftovers="end",
        max_attempts=options.max_attempts or _ATTEMPTS,
    )


def _plain_model(context: CheckContext) -> str | None:
    """Return `flash` as the model for the test run. Return None if the user configured a model, or
    if the CLI does not know `flash`.

    With its default, `auto`, the CLI first asks a model which model to use. If the API is
    unreachable, the CLI repeats this request for more than a minute and ignores
    `general.maxAttempts` (seen on 0.61.0).
    """
    settings = context.source.settings if isinstance(context.source, SourceHome) else {}
    configured = settings.get("model")
    if context.env.get("GEMINI_MODEL") or (isinstance(configured, dict) and configured.get("name")):
        return None
    models = models_of(context.gemini.release) if isinstance(context.gemini, Gemini) else ()
    return "flash" if any(model.id == "flash" for model in models) else None


def _live_check(result: Result, retry: Notice | None, *, offline: bool) -> Check:
    took = f"{result.duration_ms / 1000:.1f} s"
    if result.ok:
        model = "the scripted model" if offline else "the model"
        return Check("live", "ok", f"a run succeeded in {took}: {model} answered")
    if result.failure is not None and result.outcome == "failed":
        detail = f"{result.outcome} ({result.failure.kind}) after {took}: {result.failure.message}"
        return Check("live", "error", detail, result.failure.hint)
    detail = f"{result.outcome} after {took}: {result.reason}"
    if retry is not None:
        status = retry.retry.http_status if retry.retry else None
        return Check(
            "live", "error", f"{detail}; {retry.message}", hint_for("server" if status else "network")
        )
    hint = "Give the live run more time with --live-timeout." if result.outcome == "timed_out" else None
    return Check("live", "error", detail, hint)


def _trust_live_run(results: Sequence[Check], options: Options) -> list[Check]:
    """If the live run (a real run with a short prompt) succeeded, change a failed `auth` check to
    the level `info`.

    The live run shows that the sign-in works. The check `auth` may have failed because the sign-in
    is in a keychain, which the check cannot read.
    """
    signed_in = (
        any(check.code == "live" and check.level == "ok" for check in results) and not options.is_simulated
    )
    return [
        Check("auth", "info", f"{check.detail}; but the live run could sign in")
        if signed_in and check.code == "auth" and check.level == "error"
        else check
        for check in results
    ]


def _broken(code: str, error: Exception) -> Check:
    _log.error("check %s failed", code, error=error)
    detail = f"the check failed because of an internal error: {type(error).__name__}: {error}"
    return Check(code, "error", detail, "Report this as a bug of geminids.")


def _secrets(options: Options, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the secrets to mask: those in the environment, the options and the run's env files."""
    try:
        context = CheckContext(options, environ)
        source = context.source
        if not isinstance(source, SourceHome):
            source = SourceHome("none", context.cwd, {})
        return secrets_of(context.env) | secrets_of(environ) | secrets_in_files(source, str(context.cwd))
    except Exception as error:
        _log.debug("cannot read the secrets in env files", error=error)
        return secrets_of(environ)


def _clean(results: Iterable[Check], secrets: frozenset[str]) -> list[Check]:
    redactor = Redactor(secrets)

    def clean(raw: str) -> str:
        # File names and messages may contain control characters and lone surrogates.
        return "".join(c if c.isprintable() or c == "\n" else "�" for c in redactor.text(raw))

    return [
        Check(check.code, check.level, clean(check.detail), clean(check.hint) if check.hint else None)
        for check in results
    ]
