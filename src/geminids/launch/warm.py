"""Options become a plan for the warm lane: which ACP process serves them, and how a session in it begins."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from geminids.config.places import Places
from geminids.gateway.route import Route
from geminids.launch.auth import Auth
from geminids.launch.ground import Connect, Ground, Warmth, make_ground, placeholder
from geminids.launch.permissions import Verdicts
from geminids.launch.plan import folder_flags, policy_flags
from geminids.launch.refused import Refused
from geminids.launch.workspace import Found
from geminids.options import Approval, Options
from geminids.toolchain import Gemini, Release

__all__ = ["WarmPlan", "make_warm_plan", "too_cold"]

_TRUST = "GEMINI_CLI_TRUST_WORKSPACE"
_SKIP = "--skip-trust"
# Of one terminal or of one moment: a process that outlives both must not differ by them.
_FLEETING = (
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
Key = tuple[tuple[str, ...], frozenset[tuple[str, str]]]


class WarmPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an ACP process needs (`argv`, `env`), and what a session in it needs (`cwd`, `approval`, `model`)."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    approval: Approval
    mode: str
    """How a session is told its approval: `auto_edit` is `default` with rules, since `autoEdit` asks nobody."""
    model: str | None
    gemini: Gemini
    auth: Auth
    route: Route
    secrets: frozenset[str]
    verdicts: Verdicts
    trusted: bool
    """Whether the CLI takes the folder for a trusted one: only where nothing lies in it that would have power then."""
    neutralised: tuple[Found, ...] = ()

    @property
    def release(self) -> Release:
        return self.gemini.release

    @property
    def signs_in_sessions(self) -> bool:
        """Whether each session brings a token of its own in place of the key."""
        return self.route.signs_in_by_session

    @property
    def key(self) -> Key:
        """What a process fixes: sessions with the same key can share one."""
        return (self.argv, frozenset(self.env.items()))


def make_warm_plan(
    options: Options,
    *,
    asks: bool,
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    connect: Connect = placeholder,
    budget: bool = False,
) -> WarmPlan:
    """Plan a session and write out the home that its process needs; raises `Refused` where it cannot work.

    `asks` where somebody answers when the agent asks.
    """
    environ = os.environ if environ is None else environ
    places = Places.of(environ) if places is None else places
    ground = make_ground(options, environ, places, connect, warm=Warmth(asks), budget=budget)
    trusted, env = _trust(ground, options)
    return WarmPlan(
        argv=(
            *ground.gemini.command(places, lasting=True),
            "--acp",
            "--approval-mode=default",
            *folder_flags(options),
            *policy_flags(ground.terms, env),
            *(flag for flag in ground.terms.flags if flag != _SKIP),
        ),
        env=env,
        cwd=ground.cwd,
        approval=options.approval,
        mode=ground.terms.mode,
        model=options.model,
        gemini=ground.gemini,
        auth=ground.auth,
        route=ground.route,
        secrets=ground.secrets,
        verdicts=ground.terms.verdicts,
        trusted=trusted,
        neutralised=ground.terms.neutralised,
    )


def too_cold(options: Options) -> str | None:
    """Why a single run with these options cannot take the warm lane, in one sentence; None where it can."""
    if options.resume is not None:
        return "a stored session cannot be loaded there without harm"
    if options.session_id is not None:
        return "the id of a new session cannot be chosen there"
    if options.telemetry is not None:
        return "telemetry is written by a process, not by a run"
    return None


def _trust(ground: Ground, options: Options) -> tuple[bool, dict[str, str]]:
    """Whether the folder may be called trusted, and the environment that says so.

    Every session/new loads the settings of its folder, and with the trust that headless runs get by
    `--skip-trust` it would load the repository's too (acpSessionManager.ts). So a folder is called trusted only
    where there is nothing in it to fear. An untrusted one has no approval mode but `default`.
    """
    env = {name: value for name, value in ground.env.items() if name not in _FLEETING}
    if options.trust_workspace:
        return env.get(_TRUST) == "true", env
    if not any(_has_power(one) for one in ground.terms.neutralised):
        return True, {**env, _TRUST: "true"}
    if options.approval != "default":
        raise Refused(
            "untrusted_folder",
            f"approval={options.approval} needs a folder without settings of its own on the warm lane",
            "Run it headless, trust the folder with trust_workspace, or use approval='default'.",
            headless_can=True,
        )
    return False, env


def _has_power(found: Found) -> bool:
    # `.env` is kept out by a setting and by variables that are there already; `.gemini/.env` by nothing.
    return found.kind != "env file" or ".gemini" in found.file
