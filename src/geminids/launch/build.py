"""Build the plan of a run: all values that are needed to start it.

The plan is built from a prepared context and the address of the gateway. The functions read no
files and open no sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from geminids.launch import environment, home
from geminids.launch.gateway_env import NO_KEY, Endpoint, bypass_proxies, gateway_environment
from geminids.launch.plan import Plan, WarmPlan, Writes
from geminids.launch.prepare import TRUST_WORKSPACE, Context, takes_effect_if_trusted
from geminids.options import Options
from geminids.redact import secrets_of

__all__ = ["build_headless", "build_warm"]

_SKIP_TRUST = "--skip-trust"
# Variables that describe one terminal or one moment. They are removed from the environment of a
# warm process. So runs from different terminals have equal environments and can share a process.
_TRANSIENT = (
    "_",
    "COLUMNS",
    "GEMINIDS_WARM",
    "GEMINIDS_WARM_FOR",
    "GNOME_TERMINAL_SCREEN",
    "INVOCATION_ID",
    "ITERM_SESSION_ID",
    "JOURNAL_STREAM",
    "KITTY_WINDOW_ID",
    "LINES",
    "OLDPWD",
    "PWD",
    "SHLVL",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "STY",
    "TERM_SESSION_ID",
    "TMUX",
    "TMUX_PANE",
    "WINDOW",
    "WINDOWID",
    "WT_SESSION",
)


def build_headless(context: Context, endpoint: Endpoint | None, *, resumed: Path | None = None) -> Plan:
    """Build the plan of a headless run: all values that are needed to start it.

    `endpoint` is None if the run does not use the gateway. `resumed` is the file of the session
    that the run resumes, or None.
    """
    message = context.message
    assert message is not None, "prepared without a prompt"
    env = _environment(context, endpoint)
    if context.telemetry is not None:
        env |= environment.telemetry_environment(context.telemetry)
    return Plan(
        argv=(
            *context.command,
            *_run_flags(context.options, context.session_id),
            *_folder_flags(context),
            *message.flags,
            *_policy_flags(context),
            *context.settings.flags,
        ),
        cwd=context.cwd,
        env=env,
        stdin=message.stdin,
        prompt=message.prompt,
        session_id=context.session_id,
        gemini=context.gemini,
        auth=context.auth,
        route=context.route,
        secrets=_secrets(context, endpoint),
        verdicts=context.settings.verdicts,
        writes=_writes(context),
        resumed=resumed,
        neutralised=context.settings.neutralised,
    )


def build_warm(context: Context, endpoint: Endpoint | None) -> WarmPlan:
    """Build the plan of a warm session, and of the process that serves it.

    The plan contains all values that are needed to start both. `endpoint` is None if the session
    does not use the gateway.
    """
    settings = context.settings
    env = {name: value for name, value in _environment(context, endpoint).items() if name not in _TRANSIENT}
    # Headless runs use `--skip-trust`. A warm process must not: with trust, every session/new also
    # loads the repository's settings (acpSessionManager.ts). So trust the folder only if it
    # contains nothing that would take effect. In an untrusted folder, the CLI allows only the
    # approval mode `default`: `prepare` refuses the other modes.
    if not context.options.trust_workspace and not any(map(takes_effect_if_trusted, settings.neutralised)):
        env[TRUST_WORKSPACE] = "true"
    return WarmPlan(
        argv=(
            *context.command,
            "--acp",
            "--approval-mode=default",
            *_folder_flags(context),
            *_policy_flags(context),
            *(flag for flag in settings.flags if flag != _SKIP_TRUST),
        ),
        env=env,
        cwd=context.cwd,
        mode=settings.mode,
        model=context.options.model,
        gemini=context.gemini,
        auth=context.auth,
        route=context.route,
        secrets=_secrets(context, endpoint),
        verdicts=settings.verdicts,
        writes=_writes(context),
        neutralised=settings.neutralised,
    )


def _environment(context: Context, endpoint: Endpoint | None) -> dict[str, str]:
    """Return the complete environment of the CLI."""
    env, settings = context.env, context.settings
    if endpoint is not None and context.route.kind == "gateway":
        env = gateway_environment(env, context.route, endpoint, blank=context.options.trust_workspace)
        env = bypass_proxies(env)
    blank = {name: "" for name in settings.blank if name not in env}
    kept = {name: value for name, value in env.items() if name not in settings.drop}
    homes = {"GEMINI_CLI_HOME": str(context.home.path), home.SOURCE: str(context.home.source.path)}
    return environment.headless_environment({**kept, **blank, **settings.env, **homes})


def _secrets(context: Context, endpoint: Endpoint | None) -> frozenset[str]:
    if endpoint is None or context.route.kind != "gateway":
        return context.secrets
    # A key that is too short to be a secret would mask ordinary text.
    keys = secrets_of({"GEMINI_API_KEY": context.route.key or "", "GOOGLE_API_KEY": endpoint.key or ""})
    return (context.secrets | keys | {endpoint.token}) - {NO_KEY, ""}


def _run_flags(options: Options, session_id: str | None) -> Sequence[str]:
    flags = ["--output-format=stream-json", f"--approval-mode={options.approval}"]
    if options.model is not None:
        flags.append(f"--model={options.model}")
    if options.resume is not None:
        flags.append(f"--resume={options.resume}")
    if session_id is not None:
        flags.append(f"--session-id={session_id}")
    return flags


def _folder_flags(context: Context) -> Sequence[str]:
    return [f"--include-directories={folder}" for folder in context.include_dirs]


def _policy_flags(context: Context) -> Sequence[str]:
    return [f"--policy={path}" for path in context.policies]


def _writes(context: Context) -> Writes:
    message = context.message
    return Writes(
        places=context.places,
        home=context.home,
        cwd=context.cwd if context.options.make_cwd else None,
        telemetry=context.options.telemetry if context.telemetry is not None else None,
        staged=message.staged if message is not None else None,
        preload="--require" in context.command,
    )
