"""Build the policy rules of a warm process.

A warm process asks for permission before every call that a headless run would deny. The CLI treats
ACP as interactive, so in most cases it asks by itself. These rules cover the cases in which the CLI
would not ask or could not ask (0.61.0):

- The CLI runs shell commands that it considers harmless (`echo`, `ls`) without asking. It asks only
  if the rule for shell commands has a pattern for the arguments (policy-engine.ts,
  applyShellHeuristics). Our rule has such a pattern.
- In the mode `auto_edit`, the file tools and web_fetch check no rule at all, not even a rule that
  denies certain arguments (tools.ts, respectsAutoEdit). Our sessions use the mode `default`, with
  additional rules that allow what `auto_edit` allows.
- The CLI never asks before it calls a tool of a trusted MCP server. If `mcp` is `ask`, we set all
  servers to untrusted.
- The CLI never asks before it uses a built-in skill. Our rules deny these skills.
- The permission request of a subagent reaches nobody, so the turn would never end. Our rules deny
  subagents that could ask.

If a permission is `ask`, our rule for it has a higher priority than the user's policies, so that no
allow rule of the user wins over our rule. But a deny rule of the user must still win. So we repeat
the user's rules for the same tools before our rule, and change each `allow` in them to `ask_user`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from geminids.gemini.settings_file import Settings, SettingsProblem, read_settings
from geminids.gemini.tools import AGENTS, SHELL, tools_with
from geminids.launch.home import SourceHome
from geminids.launch.permissions.commands import build_file_pattern
from geminids.launch.permissions.policy import ASK, DENY, REST, Rule, banned, our_rules
from geminids.launch.permissions.user_policies import Table, UserPolicies, as_text, is_whole, names_of
from geminids.launch.permissions.verdicts import READING_AGENTS, allowable_modes, is_asking, without_asks
from geminids.options import CAPABILITIES, Approval, Capability, Permissions

__all__ = ["agents_in", "as_warm", "find_tool_hooks", "warm_rules"]

_ANY = r"^\{"
_BUILT_IN_SKILLS = r'"name":"(?:antigravity-support|skill-creator)"'
# In these modes, the CLI asks before it runs a shell command. Plan mode denies shell commands.
_ASKING: tuple[Approval, ...] = ("default", "auto_edit")
_NOT_YOLO: tuple[Approval, ...] = (*_ASKING, "plan")
_AUTO_EDIT = ("write_file", "replace", "web_fetch")
_NAME = re.compile(r"^name:\s*[\"']?([\w-]+)", re.MULTILINE)
_EXCLUDED = re.compile(r"(\w+)\((.+)\)")


def warm_rules(
    permissions: Permissions,
    approval: Approval,
    user_rules: UserPolicies,
    agents: Sequence[str] = (),
    *,
    asks: bool,
) -> list[Table]:
    """Return all our policy rules for a warm process, as TOML tables.

    `agents` are the names of the user's own subagents. `asks` is True if the program that uses
    geminids answers permission requests.

    Each rule contains the modes in which it applies, so that a session can change its mode. No rule
    contains the mode `auto_edit`, because no session uses it.
    """
    effective = without_asks(permissions) if asks else permissions
    may_ask = is_asking(permissions, asks) or any(rule["decision"] == "ask_user" for rule in user_rules.rules)
    rules = [
        *our_rules(effective, "default", warm=True),
        *_deny_agents(agents, may_ask=may_ask),
    ]
    if approval == "auto_edit":
        rules = [*_as_auto_edit(rules, permissions), *_auto_edit()]
    elif permissions.file_write == "ask":
        rules = [msgspec.structs.replace(rule, redirection=False) for rule in rules]
    asked = _asked(permissions) if asks else []
    return [
        *(rule.fields() for rule in rules),
        *_repeated_user_rules(asked, user_rules),
        *(rule.fields() for rule in _asks(asked)),
        *(rule.fields() for rule in _rest()),
    ]


def _asked(permissions: Permissions) -> list[Capability]:
    return [capability for capability in CAPABILITIES if getattr(permissions, capability) == "ask"]


def _as_auto_edit(rules: Sequence[Rule], permissions: Permissions) -> Iterator[Rule]:
    """Change `rules`, so that they have in `default` the effect that they have in `auto_edit`.

    Rules that do not apply in auto_edit are omitted. The CLI does not check redirections in
    auto_edit, so allow rules for the shell also allow redirections, unless `file_write` is `ask`.
    """
    for rule in rules:
        if not rule.modes or "auto_edit" in rule.modes:
            shell = SHELL in rule.tools and rule.decision == "allow"
            modes = _ASKING if rule.modes else ()
            redirection = shell and permissions.file_write != "ask"
            yield msgspec.structs.replace(rule, modes=modes, redirection=redirection)


def _auto_edit() -> Iterator[Rule]:
    yield Rule(tools=_AUTO_EDIT, decision="allow", priority=REST, modes=_ASKING)


def _deny_agents(agents: Sequence[str], *, may_ask: bool) -> Iterator[Rule]:
    names = [name for name in dict.fromkeys((*AGENTS, *agents)) if name not in READING_AGENTS]
    why = "a subagent cannot ask for permission"
    modes = () if may_ask else _NOT_YOLO
    yield Rule(tools=tuple(names), decision="deny", priority=DENY, modes=modes, message=why)
    for name in () if may_ask else names:
        yield Rule(
            tools=("write_file", "replace"),
            arguments=build_file_pattern(),
            agent=name,
            decision="deny",
            priority=DENY,
            message=f"build files need permission, but {why}",
        )


def _asks(asked: Sequence[Capability]) -> Iterator[Rule]:
    for capability in asked:
        modes = allowable_modes(capability)
        tools = [tool for tool in tools_with(capability) if tool != SHELL]
        if capability == "skills":
            yield _no_built_in_skills(ASK)
        if tools:
            yield Rule(tools=tuple(tools), decision="ask_user", priority=ASK, modes=modes)
        if capability == "shell":
            yield Rule(tools=(SHELL,), arguments=_ANY, decision="ask_user", priority=ASK, modes=modes)
        if capability == "mcp":
            yield Rule(tools=("*",), server="*", decision="ask_user", priority=ASK, modes=modes)
        if "plan" not in modes:
            # Plan mode allows no shell and no file writes, not even for its own plans. So deny
            # these calls in plan mode instead of asking.
            tools_of_capability = tuple(tools_with(capability))
            yield Rule(tools=tools_of_capability, decision="deny", priority=DENY, modes=("plan",))


def _rest() -> Iterator[Rule]:
    """Yield rules of the lowest priority, for calls that the CLI would allow without asking.

    With these rules, the CLI asks before every shell command that no other rule covers. The CLI
    cannot ask before it uses a built-in skill, so these skills are denied.
    """
    yield Rule(tools=(SHELL,), arguments=_ANY, decision="ask_user", priority=REST, modes=_ASKING)
    yield _no_built_in_skills(REST, _NOT_YOLO)


def _no_built_in_skills(priority: int, modes: tuple[Approval, ...] = ()) -> Rule:
    why = "the CLI cannot ask for permission to use a built-in skill"
    return Rule(
        tools=("activate_skill",),
        arguments=_BUILT_IN_SKILLS,
        decision="deny",
        priority=priority,
        modes=modes,
        message=why,
    )


def _repeated_user_rules(asked: Sequence[Capability], user_rules: UserPolicies) -> Iterator[Table]:
    """Yield copies of the user's rules for the tools of the capabilities in `asked`.

    `asked` are the capabilities that are set to `ask`. The copies have the same priority as our
    rules that ask, and come before them, so that a deny rule of the user wins.
    """
    if not asked:
        return
    tools = {tool for capability in asked for tool in tools_with(capability)}
    for name in user_rules.excluded:
        match = _EXCLUDED.fullmatch(name)
        if name in tools:
            yield Rule(tools=(name,), decision="deny", priority=ASK).fields()
        elif match and match[1] == SHELL and SHELL in tools:
            yield Rule(tools=(SHELL,), arguments=banned(match[2]), decision="deny", priority=ASK).fields()
    for rule in user_rules.rules:
        for narrowed in _narrowed(rule, tools, "mcp" in asked):
            yield {**narrowed, "priority": ASK}


def _narrowed(rule: Table, tools: set[str], mcp: bool) -> Iterator[Table]:
    """Restrict a rule of the user to `tools`, and change its decision `allow` to `ask_user`.

    Yields one table for each tool. If `mcp` is True, the parts of the rule for tools of MCP servers
    are kept too; otherwise they are omitted.
    """
    if rule["decision"] == "allow":
        rule = {key: value for key, value in rule.items() if key != "allowRedirection"}
        rule["decision"] = "ask_user"
    if "mcpName" in rule:
        yield from [rule] if mcp else []
        return
    tool_name = rule["toolName"]
    names = [tool_name] if isinstance(tool_name, str) else list(tool_name)
    for name in names:
        if name == "*" and mcp:
            yield {**rule, "toolName": "*", "mcpName": "*"}
        for tool in sorted(tools) if name == "*" else [name]:
            if tool in tools or (mcp and tool.startswith("mcp_")):
                yield _with_pattern({**rule, "toolName": tool})


def _with_pattern(rule: Table) -> Table:
    """Return the rule. If it asks before every shell command, a pattern for arguments is added.

    The pattern matches all arguments. Without a pattern, the CLI does not ask before commands that
    it considers harmless.
    """
    plain = rule["toolName"] == SHELL and rule["decision"] == "ask_user" and is_whole(rule)
    return {**rule, "argsPattern": _ANY} if plain else rule


def _headless_rules(user_rules: UserPolicies, approval: Approval) -> tuple[list[Table], list[Table]]:
    """Return the user's rules and checkers as a headless run would apply them.

    A checker is a `safety_checker` table of a policy file. `approval` is the mode of the run.
    """
    rules = [_as_headless(rule, approval) for rule in user_rules.rules]
    checkers = [_as_headless(checker, approval) for checker in user_rules.checkers]
    return [rule for rule in rules if rule], [checker for checker in checkers if checker]


def _as_headless(rule: Table, approval: Approval) -> Table | None:
    """Return the rule as a headless run in the mode `approval` would apply it.

    Return None if such a run would not apply the rule. An example is a rule that allows calls only
    in an interactive CLI.
    """
    if rule.get("interactive") is True and rule.get("decision") == "allow":
        return None
    rule = {key: value for key, value in rule.items() if key != "interactive"}
    modes: Any = rule.get("modes")
    if approval == "auto_edit" and isinstance(modes, list) and modes:
        return {**rule, "modes": ["default", "autoEdit"]} if "autoEdit" in modes else None
    return rule


def as_warm(user_rules: UserPolicies, approval: Approval) -> UserPolicies:
    """Convert the user's policies for a warm process.

    In a warm process, the result has the same effect as the policies in a headless run. If no rule
    must change, the result refers to the user's files; otherwise it contains a new text.
    """
    rules, checkers = _headless_rules(user_rules, approval)
    whole = (
        name for rule in rules if rule["decision"] == "deny" and is_whole(rule) for name in names_of(rule)
    )
    user_rules = msgspec.structs.replace(user_rules, denied=(*user_rules.excluded, *whole))
    if (rules, checkers) == (list(user_rules.rules), list(user_rules.checkers)):
        return user_rules
    return msgspec.structs.replace(
        user_rules, paths=(), text=as_text(rules, checkers), rules=tuple(rules), checkers=tuple(checkers)
    )


def agents_in(folders: Sequence[Path]) -> tuple[str, ...]:
    """Return the names of the subagents that are defined in these folders."""
    names: list[str] = []
    for folder in folders:
        for file in sorted(folder.glob("*.md")):
            try:
                match = _NAME.search(file.read_text("utf-8", errors="replace"))
            except OSError:
                continue
            names += [match[1]] if match else []
    return tuple(dict.fromkeys(names))


def find_tool_hooks(source: SourceHome, workspace: Path | None = None) -> str | None:
    """Return a text that names the file or folder with BeforeTool hooks; None if there are none.

    The user's settings, the user's extensions and the folder `workspace` are searched. `workspace`
    is None if the folder is not trusted.
    """
    if _off(source.settings):
        return None
    if _has_hooks(source.settings):
        return f"the settings in {source.gemini}"
    return next((str(file) for file in _files(source, workspace) if _has_hooks(_read(file))), None)


def _files(source: SourceHome, workspace: Path | None) -> Iterator[Path]:
    yield from source.gemini.glob("extensions/*/hooks/hooks.json")
    if workspace is not None:
        yield workspace / ".gemini" / "settings.json"


def _read(file: Path) -> Settings:
    try:
        return read_settings(file.read_text("utf-8"), str(file))
    except (OSError, UnicodeDecodeError, SettingsProblem):
        return {}  # the CLI cannot read this file either


def _off(settings: Settings) -> bool:
    config = settings.get("hooksConfig")
    return isinstance(config, dict) and config.get("enabled") is False


def _has_hooks(settings: Settings) -> bool:
    hooks = settings.get("hooks")
    return isinstance(hooks, dict) and bool(hooks.get("BeforeTool"))
