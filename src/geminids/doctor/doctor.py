"""Would a run work here? Coded checks, each with its level, the facts and what to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from geminids.client import open_run
from geminids.doctor import auth, checks
from geminids.doctor.checks import Check, Level, Scene
from geminids.events.model import Notice
from geminids.gemini import Gemini, models_of
from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.launch.build import build_headless
from geminids.launch.errors import Refused
from geminids.launch.gateway_env import PLACEHOLDER
from geminids.launch.home import SourceHome, secrets_in_files
from geminids.launch.prepare import prepare
from geminids.log import get_logger
from geminids.options import Options
from geminids.redact import Redactor, secrets_of
from geminids.run.result import Result

__all__ = ["Check", "Level", "check_environment", "probe_options", "would_work"]

_log = get_logger("doctor")

_PROMPT = "Reply with the one word OK. Use no tool."
# So that an API that cannot be reached fails in seconds with its reason, not after ten tries by the clock.
_ATTEMPTS = 2
_Checker = Callable[[Scene], Check | None]
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
# Whatever of these is wrong, a plan would only say it again.
_BEFORE_PLAN = {"options", "node", "cli", "cli_version", "settings", "cwd", "homes", "sessions_home"}


async def check_environment(
    options: Options, *, live: bool = False, live_timeout: float = 60.0
) -> tuple[Check, ...]:
    """Look at everything that a run with these options needs; with `live`, make one. Never raises.

    Every check stands for itself. No secret value is in any of them.
    """
    import anyio

    environ = dict(os.environ)
    found = await anyio.to_thread.run_sync(_look, options, environ)
    found.append(await _live(options, found, live_timeout) if live else _not_live())
    return tuple(_clean(_believe(found, options), _secrets(options, environ)))


def would_work(found: Iterable[Check]) -> bool:
    """Whether a run would work: nothing is an error."""
    return all(check.level != "error" for check in found)


def _look(options: Options, environ: Mapping[str, str]) -> list[Check]:
    found: list[Check] = []
    try:
        scene = Scene(options, environ)
    except Exception as error:
        return [_broken("options", error)]
    for code, look in _ALL.items():
        try:
            check = look(scene)
        except Exception as error:
            check = _broken(code, error)
        if check is not None:
            found.append(check)
    found.append(_plan(options, environ, found))
    return found


def _plan(options: Options, environ: Mapping[str, str], found: Sequence[Check]) -> Check:
    """Build the plan of a run, as `run` itself would, and write nothing."""
    wrong = [check.code for check in found if check.level == "error" and check.code in _BEFORE_PLAN]
    if wrong:
        return Check("plan", "skipped", f"first mend: {', '.join(wrong)}")
    try:
        context = prepare(options, transport="headless", prompt=_PROMPT, environ=environ)
        plan = build_headless(context, PLACEHOLDER)
    except Refused as refused:
        return Check("plan", "error", refused.failure.message, refused.failure.hint)
    except Exception as error:
        return _broken("plan", error)
    return Check("plan", "ok", f"a run is ready to start: {plan.gemini.release.name}, home {options.home}")


def _not_live() -> Check:
    return Check("live", "skipped", "not asked for: `--live` makes a real run")


async def _live(options: Options, found: Sequence[Check], timeout: float) -> Check:
    """One real run with a tiny prompt."""
    if any(check.code == "plan" and check.level != "ok" for check in found):
        return Check("live", "skipped", "a run cannot be started: see the checks above")
    retry: Notice | None = None
    try:
        async with open_run(_PROMPT, probe_options(options, timeout)) as run:
            async for event in run:
                if isinstance(event, Notice) and event.code == "retry":
                    retry = event
    except Exception as error:
        return _broken("live", error)
    return _told(run.result, retry, offline=options.offline)


def probe_options(options: Options, timeout: float) -> Options:
    """The same options for one tiny run, which fails soon where it must."""
    return msgspec.structs.replace(
        options,
        model=options.model or _plain_model(Scene(options, os.environ)),
        timeout=timeout,
        approval="default",
        resume=None,
        session_id=None,
        leftovers="end",
        max_attempts=options.max_attempts or _ATTEMPTS,
    )


def _plain_model(scene: Scene) -> str | None:
    """`flash` where nobody has named a model.

    `auto` asks the model router first, which tries an API that cannot be reached for more than a minute,
    whatever `general.maxAttempts` says (seen on 0.61.0).
    """
    settings = scene.source.settings if isinstance(scene.source, SourceHome) else {}
    chosen = settings.get("model")
    if scene.env.get("GEMINI_MODEL") or (isinstance(chosen, dict) and chosen.get("name")):
        return None
    known = models_of(scene.gemini.release) if isinstance(scene.gemini, Gemini) else ()
    return "flash" if any(model.id == "flash" for model in known) else None


def _told(result: Result, retry: Notice | None, *, offline: bool) -> Check:
    took = f"{result.duration_ms / 1000:.1f} s"
    if result.ok:
        model = "the scripted model" if offline else "the model"
        return Check("live", "ok", f"a run succeeded in {took}: {model} answered")
    if result.failure is not None:
        detail = f"{result.outcome} ({result.failure.kind}) after {took}: {result.failure.message}"
        return Check("live", "error", detail, result.failure.hint)
    detail = f"{result.outcome} after {took}: {result.reason}"
    if retry is not None:
        status = retry.retry.http_status if retry.retry else None
        return Check(
            "live", "error", f"{detail}; {retry.message}", hint_for("server" if status else "network")
        )
    hint = "Give it more time with --live-timeout." if result.outcome == "timed_out" else None
    return Check("live", "error", detail, hint)


def _believe(found: Sequence[Check], options: Options) -> list[Check]:
    """A live run that succeeded has signed in, wherever its key came from (a keychain, say)."""
    proven = any(check.code == "live" and check.level == "ok" for check in found) and not options.offline
    return [
        Check("auth", "info", f"{check.detail}; yet the live run did sign in")
        if proven and check.code == "auth" and check.level == "error"
        else check
        for check in found
    ]


def _broken(code: str, error: Exception) -> Check:
    _log.error("check %s failed", code, error=error)
    detail = f"the check itself failed: {type(error).__name__}: {error}"
    return Check(code, "error", detail, "Report this: the check is at fault, or the machine is very unusual.")


def _secrets(options: Options, environ: Mapping[str, str]) -> frozenset[str]:
    """The secrets of this process, of the options, and of the env files that a run would read."""
    try:
        scene = Scene(options, environ)
        source = scene.source
        if not isinstance(source, SourceHome):
            source = SourceHome("none", scene.cwd, {})
        return secrets_of(scene.env) | secrets_of(environ) | secrets_in_files(source, str(scene.cwd))
    except Exception as error:
        _log.debug("the secrets in env files cannot be read", error=error)
        return secrets_of(environ)


def _clean(found: Iterable[Check], secrets: frozenset[str]) -> list[Check]:
    hide = Redactor(secrets)

    def text(raw: str) -> str:
        # Odd file names and messages can hold control characters and halves of characters.
        return "".join(c if c.isprintable() or c == "\n" else "�" for c in hide.text(raw))

    return [
        Check(check.code, check.level, text(check.detail), text(check.hint) if check.hint else None)
        for check in found
    ]
