"""Build the settings, policies, flags and variables of a run from its options and its folder.

The functions read files, but write none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from geminids.gemini import Release
from geminids.gemini.settings_file import Settings, SettingsProblem, merge
from geminids.gemini.skills.find import Skill
from geminids.launch import workspace
from geminids.launch.errors import Refused, WorkspaceProblem
from geminids.launch.home import SourceHome
from geminids.launch.permissions import policy
from geminids.launch.permissions.user_policies import Table, UserPolicies, user_policies
from geminids.launch.permissions.verdicts import (
    Verdicts,
    contradictions,
    is_denied,
    misspelled_tools,
    session_mode,
    unknown_servers,
    without_asks,
)
from geminids.launch.permissions.warm_policy import agents_in, as_warm, find_tool_hooks, warm_rules
from geminids.launch.prompt.context_files import context_file_names
from geminids.launch.settings.mcp_servers import (
    server_names,
    server_settings,
    thinking_settings,
    untrusted_servers,
)
from geminids.options import Options

__all__ = [
    "POLICY",
    "USERS_POLICY",
    "RunSettings",
    "configured_model",
    "our_settings",
    "read_run_settings",
]

POLICY, USERS_POLICY = "policy/geminids.toml", "policy/users.toml"


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, policies, flags and variables of a run.

    `settings` are the settings to add to the user's. `files` are files of the private home (path →
    text). `flags` are flags for the CLI. `drop` are environment variables to remove, and `env`
    variables to set.
    """

    settings: Settings
    files: dict[str, str] = {}
    policies: tuple[str, ...] = ()
    """The paths of the user's policy files, which are passed to the CLI together with ours."""
    flags: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    env: dict[str, str] = {}
    blank: tuple[str, ...] = ()
    """Variables to set to "" if they are not set."""
    neutralised: tuple[workspace.WorkspaceItem, ...] = ()
    """Items of the run's folder, such as hooks. They are ignored: the folder is not trusted."""
    commands: tuple[str, ...] = ()
    """Names of slash commands that an untrusted folder defines. A prompt must not call them."""
    verdicts: Verdicts
    mode: str = ""
    """The approval mode of a warm session, as ACP names it; "" for a headless run."""


def read_run_settings(
    options: Options,
    release: Release,
    source: SourceHome,
    cwd: str,
    environ: Mapping[str, str],
    auth_type: str | None,
    untrusted_skills: Sequence[Skill] = (),
    *,
    warm: bool = False,
    asks: bool = False,
) -> RunSettings:
    """Build the settings of a run from its options and the contents of its folder.

    `release` is the release of the CLI, and `source` the home whose settings the run uses.
    `environ` is the environment of the run, without the variables of the gateway. `auth_type` is
    the value for the setting `security.auth.selectedType`; None leaves the setting unchanged.
    `untrusted_skills` are the skills of the folder that are not trusted. `warm` is True for a warm
    process. `asks` is True if the program that uses geminids answers the permission requests of
    that process.

    Raises `Refused` if the permissions are not valid, or if something in the folder, the user's
    policies or the user's hooks makes the run impossible or unsafe.
    """
    user_rules = _user_policies(source, cwd, environ)
    # If the caller answers permission requests, rules and settings must not deny the calls for
    # which a permission is `ask`.
    permissions = without_asks(options.permissions) if warm and asks else options.permissions
    effective = msgspec.structs.replace(options, permissions=permissions)
    if warm:
        user_rules = _for_warm(options, release, source, cwd, user_rules)
    _check(effective, source)
    users = source.settings
    settings = merge(our_settings(options, auth_type), server_settings(effective, users))
    if options.effort is not None:
        settings = merge(
            settings, thinking_settings(options.effort, configured_model(options, environ, users))
        )
    if warm and asks and options.permissions.mcp == "ask":
        settings = merge(settings, untrusted_servers(users))
    # If the name of an untrusted skill is uncertain, it cannot be disabled by name: disable all
    # skills.
    if is_denied(permissions, "skills") or not all(skill.sure for skill in untrusted_skills):
        settings = merge(settings, {"skills": {"enabled": False}})
    if warm:
        tables = _warm_rules(options, source, cwd, user_rules, asks=asks)
    else:
        tables = [rule.fields() for rule in policy.our_rules(permissions, options.approval)]
    files = _policy_files(tables, user_rules)
    folder, overrides = _workspace(
        options, release, source, merge(users, settings), cwd, environ, untrusted_skills
    )
    servers = server_names(options, users)
    return RunSettings(
        settings=merge(settings, overrides.settings),
        files=files,
        policies=user_rules.paths if files else (),
        flags=overrides.flags,
        drop=overrides.drop,
        env={**overrides.env, **_variables(options)},
        blank=overrides.blank,
        neutralised=folder.items,
        commands=folder.commands,
        verdicts=Verdicts.of(options, servers, user_rules.denied, warm=warm, asks=warm and asks),
        mode=session_mode(options.approval) if warm else "",
    )


def our_settings(options: Options, auth_type: str | None) -> Settings:
    """Return the settings that every run gets, and the settings for some options of this run.

    The settings that every run gets make the start faster, and keep the CLI from deleting sessions.
    """
    general: Settings = {
        # Without this setting, the CLI's cleanup at its start can delete sessions that are in use
        # (GEMINI_CLI.md, the data-loss bug).
        "sessionRetention": {"enabled": False},
        # Without this setting, the model calls the tool update_topic in each turn. Nobody needs
        # these calls.
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
    options: Options, release: Release, source: SourceHome, cwd: str, user_rules: UserPolicies
) -> UserPolicies:
    """Convert the user's policies for a warm process.

    Raises `Refused` if the user has BeforeTool hooks, because a warm process would ignore them.
    """
    if place := find_tool_hooks(source, Path(cwd) if options.trust_workspace else None):
        message = f"{release.name} ignores BeforeTool hooks in a warm process, and there are hooks in {place}"
        hint = "Use a headless run, or turn hooks off with the setting `hooksConfig.enabled`."
        raise Refused("cli_unsupported", message, hint, headless_can=True)
    return as_warm(user_rules, options.approval)


def _warm_rules(
    options: Options, source: SourceHome, cwd: str, user_rules: UserPolicies, *, asks: bool
) -> list[Table]:
    # These folders contain the subagents of the user, of the user's extensions and of a trusted
    # folder.
    folders = [source.gemini / "agents", *source.gemini.glob("extensions/*/agents")]
    if options.trust_workspace:
        folders.append(Path(cwd, ".gemini", "agents"))
    agents = agents_in(folders)
    return warm_rules(options.permissions, options.approval, user_rules, agents, asks=asks)


def _has_extensions(source: SourceHome) -> bool:
    """Whether the user has extensions, which can define MCP servers whose names we do not know."""
    try:
        return bool(os.listdir(source.gemini / "extensions"))
    except OSError:
        return False


def _check(options: Options, source: SourceHome) -> None:
    permissions = options.permissions
    problems = [
        *contradictions(permissions),
        *misspelled_tools(permissions),
        *policy.too_long(permissions),
    ]
    if not _has_extensions(source):
        problems += unknown_servers(permissions, server_names(options, source.settings))
    if problems:
        hint = "Fix the spelling; if two permissions contradict each other, remove one."
        raise Refused("bad_option", f"permissions: {'; '.join(problems)}", hint)


def _user_policies(source: SourceHome, cwd: str, environ: Mapping[str, str]) -> UserPolicies:
    try:
        return user_policies(source, cwd, environ)
    except SettingsProblem as problem:
        raise Refused("config", str(problem), "Fix the file, or run with `home='isolated'`.") from None


def _policy_files(tables: Sequence[Table], user_rules: UserPolicies) -> dict[str, str]:
    if not tables:
        return {}
    files = {POLICY: policy.policy_text(tables)}
    return files if user_rules.text is None else {**files, USERS_POLICY: user_rules.text}


def _workspace(
    options: Options,
    release: Release,
    source: SourceHome,
    settings: Settings,
    cwd: str,
    environ: Mapping[str, str],
    untrusted_skills: Sequence[Skill],
) -> tuple[workspace.Workspace, workspace.WorkspaceOverrides]:
    if options.trust_workspace:
        # Without this variable, the CLI exits with code 55. Keep a "false" that the user has set.
        trust = environ.get("GEMINI_CLI_TRUST_WORKSPACE") or "true"
        return workspace.Workspace(cwd=Path(cwd)), workspace.WorkspaceOverrides(
            env={"GEMINI_CLI_TRUST_WORKSPACE": trust}
        )
    skills = tuple(
        workspace.WorkspaceItem("skill", skill.name, os.path.relpath(skill.file, cwd))
        for skill in untrusted_skills
    )
    try:
        folder = workspace.read_workspace(
            cwd, source.path, skills, context_file_names(settings), further=options.include_dirs
        )
        return folder, workspace.ignore_workspace(folder, release, settings, environ)
    except WorkspaceProblem as problem:
        raise Refused("config", str(problem), problem.hint) from None


def configured_model(options: Options, environ: Mapping[str, str], users: Settings) -> str | None:
    """Return the model name from the options, else the environment, else the user's settings.

    Return None if none of them sets a model.
    """
    model = users.get("model")
    name = model.get("name") if isinstance(model, dict) else None
    return options.model or environ.get("GEMINI_MODEL") or (name if isinstance(name, str) else None)


def _variables(options: Options) -> dict[str, str]:
    if options.system_prompt is None:
        return {}
    return {"GEMINI_SYSTEM_MD": os.path.abspath(Path(options.system_prompt))}
