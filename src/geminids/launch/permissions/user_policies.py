"""Read the user's own policy files.

We pass our rules to the CLI with the flag `--policy`. This flag replaces the user's policies, so we
pass the user's policies too, in the same order and with the same effect.

If Gemini CLI cannot read a policy file, it ignores all rules in the file, including deny rules. In
that case we refuse the run.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from geminids.gemini.settings_file import SettingsProblem
from geminids.launch.home import SourceHome
from geminids.launch.permissions.policy import policy_text

__all__ = ["Table", "UserPolicies", "as_text", "is_whole", "names_of", "user_policies"]

# The priorities of the user's rules are between those of our deny rules and of our allow rules.
_LOWEST, _HIGHEST = 3, 997
_DECISIONS = ("allow", "deny", "ask_user")
# The same pattern for variables in settings as in the CLI (cli/src/utils/envVarResolver.ts).
_VARIABLE = re.compile(r"\$(?:(\w+)|\{([^}]+?)(?::-([^}]*))?\})")

Table = dict[str, Any]


class UserPolicies(msgspec.Struct, frozen=True):
    """The user's policy files, and what they deny.

    The CLI gets the files in `paths` or, if `text` is set, only one policy file with this text.
    """

    paths: tuple[str, ...] = ()
    text: str | None = None
    """The text of one policy that replaces the files in `paths`; None if the files are used
    unchanged.

    A text is needed if a rule in the files has a priority that we reserve for our rules, or if a
    warm process needs the rules in another form.
    """
    denied: tuple[str, ...] = ()
    """Names of the tools for which every call is denied.

    A `*` at the end of a name matches several tools.
    """
    rules: tuple[Table, ...] = ()
    """The rules of all files, sorted by priority, the highest first."""
    checkers: tuple[Table, ...] = ()
    excluded: tuple[str, ...] = ()
    """Tools that the user's settings exclude.

    An entry such as `run_shell_command(rm)` excludes only one command of the shell tool.
    """


def user_policies(source: SourceHome, cwd: str, environ: Mapping[str, str]) -> UserPolicies:
    """Read the user's policies.

    Raises `SettingsProblem` if a policy file cannot be read or is not valid: the CLI would ignore
    that file.
    """
    files = [file for path in _places(source, cwd, environ) for file in _toml_files(path)]
    rules: list[Table] = []
    checkers: list[Table] = []
    for file in files:
        content = _read(file)
        rules += _tables(file, content, "rule")
        checkers += _tables(file, content, "safety_checker")
    denies = [rule for rule in rules if rule["decision"] != "allow"]
    excluded = tuple(_excluded(source))
    policies = UserPolicies(
        paths=tuple(map(str, files)),
        denied=(*excluded, *(name for rule in denies if is_whole(rule) for name in names_of(rule))),
        rules=tuple(sorted(rules, key=_priority, reverse=True)),
        checkers=tuple(sorted(checkers, key=_priority, reverse=True)),
        excluded=excluded,
    )
    fits_in = all(_LOWEST <= _priority(rule) <= _HIGHEST for rule in (*rules, *checkers))
    return policies if fits_in else msgspec.structs.replace(policies, paths=(), text=as_text(rules, checkers))


def as_text(rules: Sequence[Table], checkers: Sequence[Table]) -> str:
    """Return the text of one policy file with these rules and safety checkers.

    A priority that is reserved for our rules is changed to the nearest priority that is not
    reserved. The order in which the rules and the checkers apply stays the same.
    """
    return policy_text(_in_order(rules), _in_order(checkers))


def _places(source: SourceHome, cwd: str, environ: Mapping[str, str]) -> list[Path]:
    setting = source.settings.get("policyPaths")
    paths = [path for path in setting if isinstance(path, str) and path] if isinstance(setting, list) else []
    return [_resolved(path, source, cwd, environ) for path in paths] or [source.gemini / "policies"]


def _resolved(path: str, source: SourceHome, cwd: str, environ: Mapping[str, str]) -> Path:
    def value(match: re.Match[str]) -> str:
        return environ.get(match[1] or match[2], match[3] or match[0])

    path = _VARIABLE.sub(value, path)
    if path == "~" or path.startswith("~/"):
        path = f"{source.path}{path[1:]}"
    return Path(os.path.normpath(os.path.join(cwd, path)))


def _toml_files(path: Path) -> list[Path]:
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        return [file for file in files if file.suffix == ".toml" and file.is_file()]
    except OSError as error:
        raise SettingsProblem(f"the policies in {path} cannot be read: {error.strerror}") from None


def _read(file: Path) -> Table:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsProblem(f"the policy {file} cannot be read: {error}") from None


def _tables(file: Path, content: Table, name: str) -> list[Table]:
    tables = content.get(name, [])
    if not isinstance(tables, list):
        raise SettingsProblem(f"the policy {file} is not valid: its {name!r} is not a [[{name}]] table")
    for number, table in enumerate(tables, 1):
        problem = _problem(table, name) if isinstance(table, dict) else "is not a table"
        if problem:
            raise SettingsProblem(f"the policy {file} is not valid: {name} number {number} {problem}")
    return tables


def _problem(table: Table, name: str) -> str | None:
    """Return why the CLI would ignore the file with this table, or None if the table is valid.

    The checks are those of Gemini CLI (core/src/policy/toml-loader.ts).
    """
    tools = table.get("toolName", [])
    if not isinstance(tools, str) and not (
        isinstance(tools, list) and all(isinstance(tool, str) for tool in tools)
    ):
        return "has a toolName that is not a text or a list of texts"
    if name == "rule" and table.get("decision") not in _DECISIONS:
        return f"has a decision that is not one of {', '.join(_DECISIONS)}"
    priority = table.get("priority", 0 if name == "safety_checker" else None)
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 999:
        return "has a priority that is not a whole number from 0 to 999"
    if "toolName" not in table and "mcpName" not in table and name == "rule":
        return "has no toolName"
    return None


def is_whole(rule: Table) -> bool:
    """Whether a rule applies to every call of its tools, with any arguments."""
    return rule.keys().isdisjoint(("argsPattern", "commandPrefix", "commandRegex"))


def names_of(rule: Table) -> list[str]:
    """Return the names of the tools to which a rule applies.

    A `*` at the end of a name matches several tools.
    """
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
    """Sort rules by priority. Then change each priority that is reserved for our own rules.

    The change can give the same priority to two rules that had different priorities. The policy
    engine then applies them in the order of the list, so their order stays the same.
    """
    ordered = sorted(rules, key=_priority, reverse=True)
    return [{**rule, "priority": min(max(_priority(rule), _LOWEST), _HIGHEST)} for rule in ordered]


def _priority(rule: Table) -> int:
    priority: int = rule.get("priority", 0)
    return priority
