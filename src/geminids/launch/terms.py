"""The terms of a run: what it may do and see, put together for one release and one folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from geminids.launch import distrust, policy, tool_lists, workspace
from geminids.launch.home import SourceHome
from geminids.launch.permissions import Verdicts, contradictions, is_denied, misspelt, unknown_servers
from geminids.launch.refused import Refused
from geminids.launch.servers import server_names, server_settings
from geminids.launch.settings import Settings, SettingsProblem, merge, our_settings
from geminids.launch.texts import text_names
from geminids.launch.thinking import thinking_settings
from geminids.launch.user_policies import UserPolicies, user_policies
from geminids.options import Options
from geminids.toolchain import Release

if TYPE_CHECKING:
    from geminids.skills.find import Skill

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
    commands: tuple[str, ...] = ()
    """Slash commands of the folder, which must not be called."""
    verdicts: Verdicts


def make_terms(
    options: Options,
    release: Release,
    source: SourceHome,
    cwd: str,
    environ: Mapping[str, str],
    auth_type: str | None,
    strange: Sequence[Skill] = (),
) -> Terms:
    """All that follows from the options and from what lies in the folder; raises `Refused`.

    `strange` are the skills of the folder that nobody vouches for.
    """
    theirs = _their_policies(source, cwd, environ)
    _check(options, release, source, theirs)
    users = source.settings
    settings = merge(our_settings(options, auth_type), server_settings(options, users, release))
    if options.effort is not None:
        settings = merge(settings, thinking_settings(options.effort, _model(options, environ, users)))
    # A name that cannot be read for sure cannot be turned off: then no skill is on.
    if release.skills and (
        is_denied(options.permissions, "skills") or not all(skill.sure for skill in strange)
    ):
        settings = merge(settings, {"skills": {"enabled": False}})
    files = _policy_files(options, release, theirs)
    if not release.policy_allows:
        settings = merge(
            settings,
            tool_lists.tool_lists(options.permissions, options.approval, release, users, theirs.denied),
        )
    # Of the run's own settings too: what a repository changes is set back to what the caller has said.
    seen, held = _workspace(options, release, source, merge(users, settings), cwd, environ, strange)
    return Terms(
        settings=settings if held.system else merge(settings, held.settings),
        system=held.settings if held.system else {},
        files=files,
        policies=theirs.paths if files else (),
        flags=held.flags,
        drop=held.drop,
        env={**held.env, **_variables(options)},
        neutralised=seen.found,
        commands=seen.commands,
        verdicts=Verdicts.of(options, server_names(options, users), theirs.denied, release),
    )


def _has_extensions(source: SourceHome) -> bool:
    """Extensions bring servers that we do not know by name."""
    try:
        return bool(os.listdir(source.gemini / "extensions"))
    except OSError:
        return False


def _check(options: Options, release: Release, source: SourceHome, theirs: UserPolicies) -> None:
    said = options.permissions
    wrong = [*contradictions(said), *misspelt(said), *policy.too_long(said)]
    if not _has_extensions(source):
        wrong += unknown_servers(said, server_names(options, source.settings))
    if wrong:
        hint = "Mend what is misspelt; of two that contradict each other, take one away."
        raise Refused("bad_option", f"permissions: {'; '.join(wrong)}", hint)
    if release.policy_allows:
        return
    lacking = list(tool_lists.cannot_say(options.permissions, release, theirs))
    if lacking:
        raise Refused(
            "cli_unsupported",
            f"{release.name} cannot express these permissions: {'; '.join(lacking)}",
            "Use Gemini CLI 0.34 or newer (`geminids install`), or do without.",
        )


def _their_policies(source: SourceHome, cwd: str, environ: Mapping[str, str]) -> UserPolicies:
    try:
        return user_policies(source, cwd, environ)
    except SettingsProblem as problem:
        raise Refused("config", str(problem), "Mend that file, or run with home='isolated'.") from None


def _policy_files(options: Options, release: Release, theirs: UserPolicies) -> dict[str, str]:
    if not release.policy_allows:
        return {}
    rules = policy.our_rules(options.permissions, options.approval, release)
    if not rules:
        return {}
    files = {POLICY: policy.policy_text([rule.fields() for rule in rules])}
    return files if theirs.text is None else {**files, USERS_POLICY: theirs.text}


def _workspace(
    options: Options,
    release: Release,
    source: SourceHome,
    settings: Settings,
    cwd: str,
    environ: Mapping[str, str],
    strange: Sequence[Skill],
) -> tuple[workspace.Workspace, distrust.Distrust]:
    if options.trust_workspace:
        # Else the CLI ends with exit 55. Whoever has said "false" there is heard.
        trust = environ.get("GEMINI_CLI_TRUST_WORKSPACE") or "true"
        return workspace.Workspace(cwd=Path(cwd)), distrust.Distrust(
            env={"GEMINI_CLI_TRUST_WORKSPACE": trust}
        )
    skills = tuple(workspace.Found("skill", skill.name, _near(skill.file, cwd)) for skill in strange)
    try:
        seen = workspace.look_at(
            cwd,
            source.path,
            skills,
            text_names(settings),
            further=options.include_dirs,
            # Releases that know no --skip-trust look for texts up to the root.
            all_above=not release.skip_trust_flag,
        )
        return seen, distrust.distrust(seen, release, settings, environ)
    except workspace.WorkspaceProblem as problem:
        raise Refused("config", str(problem), problem.hint) from None


def _near(file: Path | str, cwd: str) -> str:
    return os.path.relpath(file, cwd)


def _model(options: Options, environ: Mapping[str, str], users: Settings) -> str | None:
    """The model that the CLI will ask for, where anybody has named one."""
    theirs = users.get("model")
    name = theirs.get("name") if isinstance(theirs, dict) else None
    return options.model or environ.get("GEMINI_MODEL") or (name if isinstance(name, str) else None)


def _variables(options: Options) -> dict[str, str]:
    if options.system_prompt is None:
        return {}
    return {"GEMINI_SYSTEM_MD": os.path.abspath(Path(options.system_prompt))}
