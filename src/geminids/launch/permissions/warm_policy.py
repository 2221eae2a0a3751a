"""The rules of a warm process: who is asked there, and that nothing runs unasked which a headless run would deny.

ACP is interactive to the CLI: where a headless run ends in a deny, it asks. These rules close the ways around the
question (0.61.0):

- a shell command that the CLI takes for harmless (`echo`, `ls`) is run unasked, unless the rule for it looks at its
  arguments (policy-engine.ts, applyShellHeuristics): ours do;
- in autoEdit the file tools and web_fetch ask no rule at all, denies for some arguments included (tools.ts,
  respectsAutoEdit): a session of ours is in `default`, and rules allow what auto_edit allows;
- a tool of a trusted MCP server, and a built-in skill, are never asked for: no server is trusted where `mcp` must be
  asked for, and the built-in skills are denied;
- a question of a subagent reaches nobody, and the turn never ends: subagents that could ask are denied.

An `ask` stands above the user's own policies, since one that allows would win. So that it does not win over one that
denies, the user's rules for the tools in question are said again before it, their allows as questions.
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

__all__ = ["agents_in", "as_warm", "passed_over", "warm_rules"]

_ANY = r"^\{"
_BUILT_IN_SKILLS = r'"name":"(?:antigravity-support|skill-creator)"'
# The modes in which a shell is not allowed, and the CLI asks; plan mode denies it.
_ASKING: tuple[Approval, ...] = ("default", "auto_edit")
_NOT_YOLO: tuple[Approval, ...] = (*_ASKING, "plan")
_AUTO_EDIT = ("write_file", "replace", "web_fetch")
_NAME = re.compile(r"^name:\s*[\"']?([\w-]+)", re.MULTILINE)
_EXCLUDED = re.compile(r"(\w+)\((.+)\)")


def warm_rules(
    permissions: Permissions,
    approval: Approval,
    theirs: UserPolicies,
    agents: Sequence[str] = (),
    *,
    asks: bool,
) -> list[Table]:
    """All rules of ours for a warm process, as tables; `agents` are the user's own subagents.

    Each says in which modes it holds, so that a session can go from one to another; but for `auto_edit`, which is
    no mode of a session here.
    """
    said = without_asks(permissions) if asks else permissions
    questions = is_asking(permissions, asks) or any(rule["decision"] == "ask_user" for rule in theirs.rules)
    rules = [
        *our_rules(said, "default", warm=True),
        *_without_agents(agents, questions=questions),
    ]
    if approval == "auto_edit":
        rules = [*_as_auto_edit(rules, permissions), *_auto_edit()]
    elif permissions.file_write == "ask":
        rules = [msgspec.structs.replace(rule, redirection=False) for rule in rules]
    asked = _asked(permissions) if asks else []
    return [
        *(rule.fields() for rule in rules),
        *_theirs_again(asked, theirs),
        *(rule.fields() for rule in _asks(asked)),
        *(rule.fields() for rule in _rest()),
    ]


def _asked(permissions: Permissions) -> list[Capability]:
    return [capability for capability in CAPABILITIES if getattr(permissions, capability) == "ask"]


def _as_auto_edit(rules: Sequence[Rule], permissions: Permissions) -> Iterator[Rule]:
    """What is for auto_edit, for the `default` that it is run in; redirections are not looked at in auto_edit."""
    for rule in rules:
        if not rule.modes or "auto_edit" in rule.modes:
            shell = SHELL in rule.tools and rule.decision == "allow"
            modes = _ASKING if rule.modes else ()
            redirection = shell and permissions.file_write != "ask"
            yield msgspec.structs.replace(rule, modes=modes, redirection=redirection)


def _auto_edit() -> Iterator[Rule]:
    yield Rule(tools=_AUTO_EDIT, decision="allow", priority=REST, modes=_ASKING)


def _without_agents(agents: Sequence[str], *, questions: bool) -> Iterator[Rule]:
    names = [name for name in dict.fromkeys((*AGENTS, *agents)) if name not in READING_AGENTS]
    why = "a subagent cannot ask"
    modes = () if questions else _NOT_YOLO
    yield Rule(tools=tuple(names), decision="deny", priority=DENY, modes=modes, message=why)
    for name in () if questions else names:
        yield Rule(
            tools=("write_file", "replace"),
            arguments=build_file_pattern(),
            agent=name,
            decision="deny",
            priority=DENY,
            message=f"build files must be asked for, and {why}",
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
            # Plan mode has no files and no shells, its own plans included: what could be asked for there is denied.
            every = tuple(tools_with(capability))
            yield Rule(tools=every, decision="deny", priority=DENY, modes=("plan",))


def _rest() -> Iterator[Rule]:
    """Below all others: what no rule has allowed, where the CLI itself would not ask."""
    yield Rule(tools=(SHELL,), arguments=_ANY, decision="ask_user", priority=REST, modes=_ASKING)
    yield _no_built_in_skills(REST, _NOT_YOLO)


def _no_built_in_skills(priority: int, modes: tuple[Approval, ...] = ()) -> Rule:
    why = "a built-in skill cannot be asked for"
    return Rule(
        tools=("activate_skill",),
        arguments=_BUILT_IN_SKILLS,
        decision="deny",
        priority=priority,
        modes=modes,
        message=why,
    )


def _theirs_again(asked: Sequence[Capability], theirs: UserPolicies) -> Iterator[Table]:
    """The user's denies of what must be asked for, where they outrank the question."""
    if not asked:
        return
    tools = {tool for capability in asked for tool in tools_with(capability)}
    for name in theirs.excluded:
        found = _EXCLUDED.fullmatch(name)
        if name in tools:
            yield Rule(tools=(name,), decision="deny", priority=ASK).fields()
        elif found and found[1] == SHELL and SHELL in tools:
            yield Rule(tools=(SHELL,), arguments=banned(found[2]), decision="deny", priority=ASK).fields()
    for rule in theirs.rules:
        for narrowed in _narrowed(rule, tools, "mcp" in asked):
            yield {**narrowed, "priority": ASK}


def _narrowed(rule: Table, tools: set[str], mcp: bool) -> Iterator[Table]:
    """A rule of theirs, for no other tools than these; one that allows asks."""
    if rule["decision"] == "allow":
        rule = {key: value for key, value in rule.items() if key != "allowRedirection"}
        rule["decision"] = "ask_user"
    if "mcpName" in rule:
        yield from [rule] if mcp else []
        return
    given = rule["toolName"]
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        if name == "*" and mcp:
            yield {**rule, "toolName": "*", "mcpName": "*"}
        for tool in sorted(tools) if name == "*" else [name]:
            if tool in tools or (mcp and tool.startswith("mcp_")):
                yield _looking({**rule, "toolName": tool})


def _looking(rule: Table) -> Table:
    """A question about shell commands that looks at them, so that none is taken for harmless."""
    plain = rule["toolName"] == SHELL and rule["decision"] == "ask_user" and is_whole(rule)
    return {**rule, "argsPattern": _ANY} if plain else rule


def _their_rules(theirs: UserPolicies, approval: Approval) -> tuple[list[Table], list[Table]]:
    """The user's own rules and checkers, as a headless run in this mode sees them."""
    rules = [_as_headless(rule, approval) for rule in theirs.rules]
    checkers = [_as_headless(checker, approval) for checker in theirs.checkers]
    return [rule for rule in rules if rule], [checker for checker in checkers if checker]


def _as_headless(rule: Table, approval: Approval) -> Table | None:
    """Nobody sits before a warm process: what is said for headless runs holds, an allow for a terminal does not."""
    if rule.get("interactive") is True and rule.get("decision") == "allow":
        return None
    rule = {key: value for key, value in rule.items() if key != "interactive"}
    modes: Any = rule.get("modes")
    if approval == "auto_edit" and isinstance(modes, list) and modes:
        return {**rule, "modes": ["default", "autoEdit"]} if "autoEdit" in modes else None
    return rule


def as_warm(theirs: UserPolicies, approval: Approval) -> UserPolicies:
    """The user's policies as a warm process shall read them: the files where they are fit, else a text for them."""
    rules, checkers = _their_rules(theirs, approval)
    whole = (
        name for rule in rules if rule["decision"] == "deny" and is_whole(rule) for name in names_of(rule)
    )
    theirs = msgspec.structs.replace(theirs, denied=(*theirs.excluded, *whole))
    if (rules, checkers) == (list(theirs.rules), list(theirs.checkers)):
        return theirs
    return msgspec.structs.replace(
        theirs, paths=(), text=as_text(rules, checkers), rules=tuple(rules), checkers=tuple(checkers)
    )


def agents_in(folders: Sequence[Path]) -> tuple[str, ...]:
    """The names of the subagents whose files are in these folders."""
    names: list[str] = []
    for folder in folders:
        for file in sorted(folder.glob("*.md")):
            try:
                found = _NAME.search(file.read_text("utf-8", errors="replace"))
            except OSError:
                continue
            names += [found[1]] if found else []
    return tuple(dict.fromkeys(names))


def passed_over(source: SourceHome, workspace: Path | None = None) -> str | None:
    """Where such a hook stands, in the user's settings, in an extension, or in a folder that is trusted."""
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
        return {}  # nor does the CLI run what it cannot read


def _off(settings: Settings) -> bool:
    config = settings.get("hooksConfig")
    return isinstance(config, dict) and config.get("enabled") is False


def _has_hooks(settings: Settings) -> bool:
    hooks = settings.get("hooks")
    return isinstance(hooks, dict) and bool(hooks.get("BeforeTool"))
