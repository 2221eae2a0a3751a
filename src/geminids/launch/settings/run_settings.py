"""The settings, policies, flags and variables that the options of a run and its folder come to. Reads only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from geminids.gemini import Release
from geminids.gemini.settings_file import Settings, SettingsProblem, merge
from geminids.launch import workspace
from geminids.launch.errors import Refused, WorkspaceProblem
from geminids.launch.home import SourceHome
from geminids.launch.permissions import policy
from geminids.launch.permissions.user_policies import Table, UserPolicies, user_policies
from geminids.launch.permissions.verdicts import (
    Verdicts,
    contradictions,
    is_denied,
    misspelt,
    session_mode,
    unknown_servers,
    without_asks,
)
from geminids.launch.prompt.context_files import text_names
from geminids.launch.settings.mcp_servers import (
    distrusted_servers,
    server_names,
    server_settings,
    thinking_settings,
)
from geminids.options import Options

if TYPE_CHECKING:
    from geminids.gemini.skills.find import Skill

__all__ = ["POLICY", "USERS_POLICY", "RunSettings", "our_settings", "read_run_settings"]

POLICY, USERS_POLICY = "policy/geminids.toml", "policy/users.toml"


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Our settings, the files of the private home, flags, variables, and what was found in the folder."""

    settings: Settings
    files: dict[str, str] = {}
    policies: tuple[str, ...] = ()
    """Policy files of the user's, to be named beside ours."""
    flags: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    env: dict[str, str] = {}
    blank: tuple[str, ...] = ()
    """Variables to set to nothing if they are unset."""
    neutralised: tuple[workspace.Found, ...] = ()
    commands: tuple[str, ...] = ()
    """Slash commands of the folder, which must not be called."""
    verdicts: Verdicts
    mode: str = ""
    """The approval mode to set in a session of a warm process, in the words of ACP."""


def read_run_settings(
    options: Options,
    release: Release,
    source: SourceHome,
    cwd: str,
    environ: Mapping[str, str],
    auth_type: str | None,
    strange: Sequence[Skill] = (),
    *,
    warm: bool = False,
    asks: bool = False,
) -> RunSettings:
    """What follows from the options and from the contents of the folder; raises `Refused`.

    `environ` is the environment of the run before the gateway's variables. `strange` are the skills of the folder that
    nobody vouches for. `warm`: for an ACP process; `asks`: permission questions are answered there.
    """
    theirs = _their_policies(source, cwd, environ)
    # What rules and settings are made of; where somebody can be asked, an `ask` takes nothing away.
    said = without_asks(options.permissions) if warm and asks else options.permissions
    settled = msgspec.structs.replace(options, permissions=said)
    if warm:
        theirs = _for_warm(options, release, source, cwd, theirs)
    _check(settled, source)
    users = source.settings
    settings = merge(our_settings(options, auth_type), server_settings(settled, users))
    if options.effort is not None:
        settings = merge(settings, thinking_settings(options.effort, _model(options, environ, users)))
    if warm and asks and options.permissions.mcp == "ask":
        settings = merge(settings, distrusted_servers(users))
    # A name that cannot be read for sure cannot be turned off: then no skill is on.
    if is_denied(said, "skills") or not all(skill.sure for skill in strange):
        settings = merge(settings, {"skills": {"enabled": False}})
    if warm:
        tables = _warm_rules(options, source, cwd, theirs, asks=asks)
    else:
        tables = [rule.fields() for rule in policy.our_rules(said, options.approval)]
    files = _policy_files(tables, theirs)
    seen, held = _workspace(options, release, source, merge(users, settings), cwd, environ, strange)
    servers = server_names(options, users)
    return RunSettings(
        settings=merge(settings, held.settings),
        files=files,
        policies=theirs.paths if files else (),
        flags=held.flags,
        drop=held.drop,
        env={**held.env, **_variables(options)},
        blank=held.blank,
        neutralised=seen.found,
        commands=seen.commands,
        verdicts=Verdicts.of(options, servers, theirs.denied, warm=warm, asks=warm and asks),
        mode=session_mode(options.approval) if warm else "",
    )


def our_settings(options: Options, auth_type: str | None) -> Settings:
    """What we set: lean starts, nothing deleted behind the user's back, and what the options ask for."""
    general: Settings = {
        # The CLI's start-up cleanup can delete live sessions (GEMINI_CLI.md, the data-loss bug).
        "sessionRetention": {"enabled": False},
        # Else each turn calls an update_topic tool that nobody asked for.
        "topicUpdateNarration": False,
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
    }
    ours: Settings = {
        "general": general,
        "privacy": {"usageStatisticsEnabled": False},
        "ui": {"showCompatibilityWarnings": False},
    }
    if options.max_attempts is not None:
        general["maxAttempts"] = options.max_attempts
    if options.max_turns is not None:
        ours["model"] = {"maxSessionTurns": options.max_turns}
    if auth_type is not None:
        ours["security"] = {"auth": {"selectedType": auth_type}}
    return ours


def _for_warm(
    options: Options, release: Release, source: SourceHome, cwd: str, theirs: UserPolicies
) -> UserPolicies:
    """The user's policies for a warm process, if it can be kept to what a headless run is kept to."""
    from geminids.launch.permissions.warm_policy import (
        as_warm,  # imported late: headless runs need none of it
        passed_over,
    )

    if place := passed_over(source, Path(cwd) if options.trust_workspace else None):
        why = f"{release.name} runs no BeforeTool hooks while warm, and there are some: {place}"
        hint = "Run it headless, or turn hooks off (hooksConfig.enabled)."
        raise Refused("cli_unsupported", why, hint, headless_can=True)
    return as_warm(theirs, options.approval)


def _warm_rules(
    options: Options, source: SourceHome, cwd: str, theirs: UserPolicies, *, asks: bool
) -> list[Table]:
    from geminids.launch.permissions.warm_policy import agents_in, warm_rules

    # The subagents that are the user's own, or of what the user has trusted.
    folders = [source.gemini / "agents", *source.gemini.glob("extensions/*/agents")]
    if options.trust_workspace:
        folders.append(Path(cwd, ".gemini", "agents"))
    agents = agents_in(folders)
    return warm_rules(options.permissions, options.approval, theirs, agents, asks=asks)


def _has_extensions(source: SourceHome) -> bool:
    """Extensions bring servers that we do not know by name."""
    try:
        return bool(os.listdir(source.gemini / "extensions"))
    except OSError:
        return False


def _check(options: Options, source: SourceHome) -> None:
    said = options.permissions
    wrong = [*contradictions(said), *misspelt(said), *policy.too_long(said)]
    if not _has_extensions(source):
        wrong += unknown_servers(said, server_names(options, source.settings))
    if wrong:
        hint = "Mend what is misspelt; of two that contradict each other, take one away."
        raise Refused("bad_option", f"permissions: {'; '.join(wrong)}", hint)


def _their_policies(source: SourceHome, cwd: str, environ: Mapping[str, str]) -> UserPolicies:
    try:
        return user_policies(source, cwd, environ)
    except SettingsProblem as problem:
        raise Refused("config", str(problem), "Mend that file, or run with home='isolated'.") from None


def _policy_files(tables: Sequence[Table], theirs: UserPolicies) -> dict[str, str]:
    if not tables:
        return {}
    files = {POLICY: policy.policy_text(tables)}
    return files if theirs.text is None else {**files, USERS_POLICY: theirs.text}


def _workspace(
    options: Options,
    release: Release,
    source: SourceHome,
    settings: Settings,
    cwd: str,
    environ: Mapping[str, str],
    strange: Sequence[Skill],
) -> tuple[workspace.Workspace, workspace.Distrust]:
    if options.trust_workspace:
        # Else the CLI ends with exit 55. Whoever has said "false" there is heard.
        trust = environ.get("GEMINI_CLI_TRUST_WORKSPACE") or "true"
        return workspace.Workspace(cwd=Path(cwd)), workspace.Distrust(
            env={"GEMINI_CLI_TRUST_WORKSPACE": trust}
        )
    skills = tuple(workspace.Found("skill", skill.name, _near(skill.file, cwd)) for skill in strange)
    try:
        seen = workspace.look_at(cwd, source.path, skills, text_names(settings), further=options.include_dirs)
        return seen, workspace.distrust(seen, release, settings, environ)
    except WorkspaceProblem as problem:
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
