"""The user's own policies, which `--policy` replaces: they go in beside ours, in their own order, and keep their force.

Gemini CLI passes over a policy file that it cannot read, and over the denies in it. Here such a file ends the run
before it begins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from geminids.gemini.settings_file import SettingsProblem
from geminids.launch.home import SourceHome
from geminids.launch.permissions.policy import policy_text

__all__ = ["Table", "UserPolicies", "as_text", "is_whole", "names_of", "user_policies"]

# What is left for the user's own rules, between our denies and our allows.
_LOWEST, _HIGHEST = 3, 997
_DECISIONS = ("allow", "deny", "ask_user")
# As the CLI finds them in its settings (cli/src/utils/envVarResolver.ts).
_VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]+?)(?::-([^}]*))?\})")

Table = dict[str, Any]


class UserPolicies(msgspec.Struct, frozen=True):
    """Files to name beside ours, or a text that stands for them; and what they deny."""

    paths: tuple[str, ...] = ()
    text: str | None = None
    """Needed where a rule of theirs has a priority that we need for ours."""
    denied: tuple[str, ...] = ()
    """Tools, with `*` at the end for several."""
    rules: tuple[Table, ...] = ()
    """As they stand in the files, the strongest first."""
    checkers: tuple[Table, ...] = ()
    excluded: tuple[str, ...] = ()
    """Tools that the settings take away; `run_shell_command(rm)` takes away a command."""


def user_policies(source: SourceHome, cwd: str, environ: Mapping[str, str]) -> UserPolicies:
    """Read them; raises `SettingsProblem` for a file that the CLI would pass over."""
    files = [file for path in _places(source, cwd, environ) for file in _toml_files(path)]
    rules: list[Table] = []
    checkers: list[Table] = []
    for file in files:
        content = _read(file)
        rules += _tables(file, content, "rule")
        checkers += _tables(file, content, "safety_checker")
    denies = [rule for rule in rules if rule["decision"] != "allow"]
    excluded = tuple(_excluded(source))
    found = UserPolicies(
        paths=tuple(map(str, files)),
        denied=(*excluded, *(name for rule in denies if is_whole(rule) for name in names_of(rule))),
        rules=tuple(sorted(rules, key=_priority, reverse=True)),
        checkers=tuple(sorted(checkers, key=_priority, reverse=True)),
        excluded=excluded,
    )
    fits_in = all(_LOWEST <= _priority(rule) <= _HIGHEST for rule in (*rules, *checkers))
    return found if fits_in else msgspec.structs.replace(found, paths=(), text=as_text(rules, checkers))


def as_text(rules: Sequence[Table], checkers: Sequence[Table]) -> str:
    """These rules as one policy, between our denies and our allows."""
    return policy_text(_in_order(rules), _in_order(checkers))


def _places(source: SourceHome, cwd: str, environ: Mapping[str, str]) -> list[Path]:
    named = source.settings.get("policyPaths")
    paths = [path for path in named if isinstance(path, str) and path] if isinstance(named, list) else []
    return [_place(path, source, cwd, environ) for path in paths] or [source.gemini / "policies"]


def _place(path: str, source: SourceHome, cwd: str, environ: Mapping[str, str]) -> Path:
    def value(found: re.Match[str]) -> str:
        return environ.get(found[1] or found[2], found[3] or found[0])

    path = _VARIABLE.sub(value, path)
    if path == "~" or path.startswith("~/"):
        path = f"{source.path}{path[1:]}"
    return Path(os.path.normpath(os.path.join(cwd, path)))


def _toml_files(path: Path) -> list[Path]:
    try:
        found = sorted(path.iterdir()) if path.is_dir() else [path]
        return [file for file in found if file.suffix == ".toml" and file.is_file()]
    except OSError as error:
        raise SettingsProblem(f"the policies in {path} cannot be read: {error.strerror}") from None


def _read(file: Path) -> Table:
    import tomllib  # imported late: most users have no policies

    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsProblem(f"the policy {file} cannot be read: {error}") from None


def _tables(file: Path, content: Table, name: str) -> list[Table]:
    tables = content.get(name, [])
    if not isinstance(tables, list):
        raise SettingsProblem(f"the policy {file} has a {name!r} that is no [[{name}]]")
    for number, table in enumerate(tables, 1):
        what = _wrong(table, name) if isinstance(table, dict) else "is no table"
        if what:
            raise SettingsProblem(f"the policy {file} is not valid: its {name} {number} {what}")
    return tables


def _wrong(table: Table, name: str) -> str | None:
    """What makes the CLI pass over the whole file (core/src/policy/toml-loader.ts)."""
    tools = table.get("toolName", [])
    if not isinstance(tools, str) and not (
        isinstance(tools, list) and all(isinstance(tool, str) for tool in tools)
    ):
        return "has a toolName that is neither a text nor a list of texts"
    if name == "rule" and table.get("decision") not in _DECISIONS:
        return f"has a decision that is none of {', '.join(_DECISIONS)}"
    priority = table.get("priority", 0 if name == "safety_checker" else None)
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 999:
        return "has a priority that is no whole number from 0 to 999"
    if "toolName" not in table and "mcpName" not in table and name == "rule":
        return "has no toolName"
    return None


def is_whole(rule: Table) -> bool:
    """Whether a rule is for every call of its tools, whatever their arguments are."""
    return rule.keys().isdisjoint(("argsPattern", "commandPrefix", "commandRegex"))


def names_of(rule: Table) -> list[str]:
    """The tools that a rule is for, `*` at the end included."""
    tools = rule.get("toolName", "*")
    names = [tools] if isinstance(tools, str) else list(tools)
    server = rule.get("mcpName")
    if isinstance(server, str):
        return ["mcp_*"] if server == "*" else [f"mcp_{server}_{name}" for name in names]
    return names


def _excluded(source: SourceHome) -> list[str]:
    tools = source.settings.get("tools")
    excluded = tools.get("exclude") if isinstance(tools, dict) else None
    return [tool for tool in excluded if isinstance(tool, str)] if isinstance(excluded, list) else []


def _in_order(rules: Sequence[Table]) -> list[Table]:
    """The engine sorts by priority and keeps the order of equals: sorted here, equals may be made."""
    ordered = sorted(rules, key=_priority, reverse=True)
    return [{**rule, "priority": min(max(_priority(rule), _LOWEST), _HIGHEST)} for rule in ordered]


def _priority(rule: Table) -> int:
    priority: int = rule.get("priority", 0)
    return priority
