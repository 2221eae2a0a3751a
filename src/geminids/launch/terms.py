"""The terms of a run: what it may do and see, put together for one release and one folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from geminids.launch import distrust, policy, tool_lists, workspace
from geminids.launch.home import SourceHome
from geminids.launch.permissions import Verdicts, contradictions, is_denied
from geminids.launch.refused import Refused
from geminids.launch.servers import server_names, server_settings
from geminids.launch.settings import Settings, SettingsProblem, merge, our_settings
from geminids.launch.thinking import thinking_settings
from geminids.options import Options
from geminids.toolchain import Release

__all__ = ["POLICY", "USERS_POLICY", "Terms", "make_terms"]

POLICY, USERS_POLICY = "policy/geminids.toml", "policy/users.toml"


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of ours, files for the private home, flags, variables, and what is to be told about the folder."""

    settings: Settings
    system: Settings = {}
    """Settings that must outrank the workspace's."""
    files: dict[str, str] = {}
    policies: tuple[str, ...] = ()
    """Policies of the user's that stand where they are."""
    flags: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    env: dict[str, str] = {}
    neutralised: tuple[workspace.Found, ...] = ()
    verdicts: Verdicts


def make_terms(
    options: Options,
    release: Release,
    source: SourceHome,
    cwd: str,
    environ: Mapping[str, str],
    auth_type: str | None,
    skills: tuple[workspace.Found, ...] = (),
) -> Terms:
    """All that follows from the options and from what lies in the folder; raises `Refused`."""
    _check(options, release)
    users = source.settings
    settings = merge(our_settings(options, auth_type), server_settings(options, users, release))
    if options.effort is not None:
        settings = merge(settings, thinking_settings(options.effort, options.model))
    if is_denied(options.permissions, "skills") and release.skills:
        settings = merge(settings, {"skills": {"enabled": False}})
    files, policies = _policies(options, release, source)
    if not release.policy_files:
        settings = merge(
            settings, tool_lists.tool_lists(options.permissions, options.approval, release, users)
        )
    seen, held = _workspace(options, release, source, cwd, environ, skills)
    return Terms(
        settings=settings if held.system else merge(settings, held.settings),
        system=held.settings if held.system else {},
        files=files,
        policies=policies,
        flags=held.flags,
        drop=held.drop,
        env={**held.env, **_variables(options)},
        neutralised=seen,
        verdicts=Verdicts.of(options, server_names(options, users)),
    )


def _check(options: Options, release: Release) -> None:
    wrong = list(contradictions(options.permissions))
    if wrong:
        raise Refused("bad_option", f"permissions: {'; '.join(wrong)}", "Take one of the two away.")
    if release.policy_files:
        return
    lacking = list(tool_lists.cannot_say(options.permissions, options.approval, release))
    if lacking:
        raise Refused(
            "cli_unsupported",
            f"{release.name} cannot express these permissions: {'; '.join(lacking)}",
            "Use Gemini CLI 0.30 or newer (`geminids install`), or do without.",
        )


def _policies(
    options: Options, release: Release, source: SourceHome
) -> tuple[dict[str, str], tuple[str, ...]]:
    if not release.policy_files:
        return {}, ()
    rules = policy.our_rules(options.permissions, options.approval, release)
    if not rules:
        return {}, ()
    try:
        paths, text = policy.user_policies(source.gemini, source.settings)
    except SettingsProblem as problem:
        raise Refused("config", str(problem), "Mend that file, or run with home='isolated'.") from None
    files = {POLICY: policy.policy_text([rule.fields() for rule in rules])}
    if text is not None:
        files[USERS_POLICY] = text
    return files, paths


def _workspace(
    options: Options,
    release: Release,
    source: SourceHome,
    cwd: str,
    environ: Mapping[str, str],
    skills: tuple[workspace.Found, ...],
) -> tuple[tuple[workspace.Found, ...], distrust.Distrust]:
    if options.trust_workspace:
        return (), distrust.Distrust(env={"GEMINI_CLI_TRUST_WORKSPACE": "true"})
    try:
        seen = workspace.look_at(cwd, source.path, skills)
        return seen.found, distrust.distrust(seen, release, source.settings, environ)
    except workspace.WorkspaceProblem as problem:
        raise Refused("config", str(problem), problem.hint) from None


def _variables(options: Options) -> dict[str, str]:
    if options.system_prompt is None:
        return {}
    return {"GEMINI_SYSTEM_MD": os.path.abspath(Path(options.system_prompt))}
