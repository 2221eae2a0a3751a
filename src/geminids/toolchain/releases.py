"""What one release of Gemini CLI can do: one table, asked by every other room."""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from geminids.toolchain.versions import Version

__all__ = ["ABILITIES", "NEWEST_TESTED", "OLDEST_TESTED", "Ability", "Release", "release_of"]

SessionStorage = Literal["sha256_json", "slug_json", "slug_journal"]

OLDEST_TESTED = "0.11.0"
NEWEST_TESTED = "0.61"

_T = TypeVar("_T")


class Ability(msgspec.Struct, frozen=True):
    """One row: `name` (a field of `Release`), the first release with it, the first without it again."""

    name: str
    since: str | None
    until: str | None
    what: str

    def held_by(self, version: Version) -> bool:
        return _reached(self.since, version) and not (self.until and _reached(self.until, version))


# A boundary is the first minor release that behaves so, give or take a patch (read in source or run).
# fmt: off
ABILITIES: tuple[Ability, ...] = (
    Ability("stream_json",               "0.11",   None,   "--output-format stream-json"),
    Ability("reports_api_errors",        "0.12",   None,   "an error result when the API refuses"),
    Ability("reports_empty_answer",      "0.42",   None,   "an error for an empty answer of the model"),
    Ability("stats_cached",              "0.22",   None,   "cached tokens in the stats"),
    Ability("stats_models",              "0.34",   None,   "tokens by model in the stats"),
    Ability("json_session_id",           "0.21",   None,   "the session id in --output-format json"),
    Ability("json_warnings",             "0.42",   None,   "warnings in --output-format json"),
    Ability("strips_ansi",               "0.27",   None,   "output without ANSI codes"),
    Ability("raw_output",                "0.27",   None,   "--raw-output"),
    Ability("private_home",              "0.25",   None,   "a home of its own by GEMINI_CLI_HOME"),
    Ability("system_settings",           None,     "0.60", "GEMINI_CLI_SYSTEM_SETTINGS_PATH for any file"),
    # 0.15 to 0.18 take no prompt on stdin with it, and --prompt puts a text of their own into the answer.
    Ability("resume",                    "0.19",   None,   "--resume for a prompt on stdin"),
    Ability("resume_latest_starts_fresh", "0.34",  None,   "a fresh start of --resume latest"),
    Ability("session_id_flag",           "0.41",   None,   "--session-id"),
    Ability("session_file_flag",         "0.43",   None,   "--session-file"),
    Ability("tool_results_as_messages",  "0.54",   None,   "tool results as user messages in its journal"),
    Ability("policy_engine",             "0.13",   None,   "policy files"),
    Ability("policy_files",              "0.30",   None,   "--policy"),
    Ability("policy_allows",             "0.34",   None,   "policies that allow a tool when headless"),
    Ability("admin_policy",              "0.35",   None,   "--admin-policy"),
    Ability("core_tools_restrict",       "0.40",   None,   "tools.core that also forbids all other tools"),
    Ability("ignores_local_env",         "0.61",   None,   "advanced.ignoreLocalEnv"),
    Ability("honours_no_proxy",          "0.47",   None,   "hosts that NO_PROXY keeps from the proxy"),
    Ability("model_configs",             "0.24",   None,   "modelConfigs for a thinking effort"),
    Ability("plan_mode",                 "0.26",   None,   "--approval-mode=plan"),
    Ability("needs_trust",               "0.39.1", None,   "headless runs in trusted folders only"),
    Ability("skip_trust_flag",           "0.39.1", None,   "--skip-trust"),
    Ability("restricted_mode",           "0.59",   None,   "GEMINI_RESTRICTED_MODE"),
    Ability("build_file_protection",     "0.61",   None,   "writes to build files refused when headless"),
    Ability("substitution_blocked",      "0.40",   None,   "$() blocked in shell commands"),
    Ability("acp",                       "0.2",    None,   "ACP"),
    Ability("acp_load_session",          "0.28",   None,   "session/load on ACP"),
    Ability("acp_set_mode",              "0.31",   None,   "session/set_mode on ACP"),
    Ability("acp_set_model",             "0.33",   None,   "session/set_model on ACP"),
    Ability("acp_quota",                 "0.36",   None,   "token counts in the answer of session/prompt"),
    Ability("warm",                      "0.54",   None,   "warm lane (ACP with tool results in its journal)"),
    Ability("single_process",            "0.6",    None,   "a run in one process by GEMINI_CLI_NO_RELAUNCH"),
    Ability("light_parent",              "0.39",   None,   "a parent process that swallows signals"),
    Ability("relaunch_loops_on_42",      "0.6",    "0.23", "an endless relaunch after exit 42"),
    Ability("signal_handlers",           "0.32",   None,   "a clean end on SIGTERM"),
    Ability("hooks",                     "0.13",   None,   "hooks"),
    Ability("skills",                    "0.24",   None,   "agent skills"),
    Ability("agents_skills_dir",         "0.28",   None,   "skills in .agents/skills"),
    Ability("include_directories_media", "0.32",   None,   "@files from --include-directories"),
    Ability("mcp_prefix",                "0.33",   None,   "MCP tools named mcp_<server>_<tool>"),
    Ability("topic_updates",             "0.37",   None,   "update_topic calls"),
    Ability("invoke_agent",              "0.39",   None,   "one invoke_agent tool for all subagents"),
    Ability("fake_responses",            "0.12",   None,   "--fake-responses"),
)

_STORAGE: tuple[tuple[str | None, SessionStorage], ...] = (
    (None, "sha256_json"), ("0.29", "slug_json"), ("0.39", "slug_journal"),
)
_ACP_FLAG: tuple[tuple[str | None, str | None], ...] = (
    (None, None), ("0.2", "--experimental-acp"), ("0.33", "--acp"),
)
# fmt: on

_ROWS = {row.name: row for row in ABILITIES}
_FUTURE = Version(999, 0)


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """What one release can do. `tested` is False where nobody tried: abilities are then a guess.

    >>> release_of("0.11.3").lacks("resume")
    'Gemini CLI 0.11.3 has no --resume for a prompt on stdin (needs 0.19 or newer)'
    """

    version: str | None
    tested: bool
    session_storage: SessionStorage
    acp_flag: str | None
    stream_json: bool
    reports_api_errors: bool
    reports_empty_answer: bool
    stats_cached: bool
    stats_models: bool
    json_session_id: bool
    json_warnings: bool
    strips_ansi: bool
    raw_output: bool
    private_home: bool
    system_settings: bool
    resume: bool
    resume_latest_starts_fresh: bool
    session_id_flag: bool
    session_file_flag: bool
    tool_results_as_messages: bool
    policy_engine: bool
    policy_files: bool
    policy_allows: bool
    admin_policy: bool
    core_tools_restrict: bool
    ignores_local_env: bool
    honours_no_proxy: bool
    model_configs: bool
    plan_mode: bool
    needs_trust: bool
    skip_trust_flag: bool
    restricted_mode: bool
    build_file_protection: bool
    substitution_blocked: bool
    acp: bool
    acp_load_session: bool
    acp_set_mode: bool
    acp_set_model: bool
    acp_quota: bool
    warm: bool
    single_process: bool
    light_parent: bool
    relaunch_loops_on_42: bool
    signal_handlers: bool
    hooks: bool
    skills: bool
    agents_skills_dir: bool
    include_directories_media: bool
    mcp_prefix: bool
    topic_updates: bool
    invoke_agent: bool
    fake_responses: bool

    @property
    def name(self) -> str:
        """How to call it in a message."""
        return f"Gemini CLI {self.version}" if self.version else "this Gemini CLI (version unknown)"

    def lacks(self, ability: str) -> str | None:
        """One sentence that says what this release has not, or None where it has it."""
        row = _ROWS[ability]
        if getattr(self, ability):
            return None
        version = Version.parse(self.version) or _FUTURE
        if row.until and _reached(row.until, version):
            return f"{self.name} has no {row.what} (gone since {row.until})"
        return f"{self.name} has no {row.what} (needs {row.since} or newer)"


def release_of(version: str | None) -> Release:
    """What `version` can do; an unknown or newer one is taken to do what the newest tested one does.

    >>> release_of("0.41.2").session_id_flag, release_of("0.40.1").session_id_flag
    (True, False)
    """
    parsed = Version.parse(version)
    asked = parsed or _FUTURE
    return Release(
        version=version,
        tested=parsed is not None and _is_tested(parsed),
        session_storage=_step(_STORAGE, asked),
        acp_flag=_step(_ACP_FLAG, asked),
        **{row.name: row.held_by(asked) for row in ABILITIES},
    )


def _is_tested(version: Version) -> bool:
    # A preview or nightly may have half of what its release has: nobody tried.
    newest = Version.parse(NEWEST_TESTED)
    assert newest is not None
    return version.final and _reached(OLDEST_TESTED, version) and version.core[:2] <= newest.core[:2]


def _step(steps: tuple[tuple[str | None, _T], ...], version: Version) -> _T:
    return [value for since, value in steps if _reached(since, version)][-1]


def _reached(since: str | None, version: Version) -> bool:
    boundary = Version.parse(since)
    return boundary is None or version.core >= boundary.core
