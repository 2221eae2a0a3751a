"""Tool calls of the CLI: their kind, a one-line title, their paths, their status."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

__all__ = ["NOT_REGISTERED", "acp_title", "denial_text", "kind_of", "paths_of", "status_of", "title_of"]

Kind = Literal[
    "read", "edit", "write", "delete", "move", "search", "execute", "fetch", "think", "plan", "agent", "other"
]

# Every built-in tool since 0.11; renamed tools have both names (GEMINI_CLI.md, section 9).
_KINDS: dict[str, Kind] = {
    "read_file": "read",
    "read_many_files": "read",
    "read_mcp_resource": "read",
    "get_internal_docs": "read",
    "read_background_output": "read",
    "list_directory": "search",
    "list_mcp_resources": "search",
    "list_background_processes": "search",
    "glob": "search",
    "grep_search": "search",
    "search_file_content": "search",
    "write_file": "write",
    "replace": "edit",
    "run_shell_command": "execute",
    "web_fetch": "fetch",
    "google_web_search": "fetch",
    "save_memory": "think",
    "update_topic": "think",
    "write_todos": "plan",
    "enter_plan_mode": "plan",
    "exit_plan_mode": "plan",
    "invoke_agent": "agent",
    "delegate_to_agent": "agent",
    "codebase_investigator": "agent",
    "cli_help": "agent",
    "generalist": "agent",
}
_PATH_KEYS = ("file_path", "absolute_path", "dir_path", "path", "filePath", "directory")
_SUBJECT_KEYS = (
    "command",
    *_PATH_KEYS,
    "pattern",
    "query",
    "prompt",
    "agent_name",
    "name",
    "title",
    "fact",
)
_VERBS = {
    "read_file": "Read",
    "read_many_files": "Read",
    "list_directory": "List",
    "glob": "Find",
    "grep_search": "Search",
    "search_file_content": "Search",
    "write_file": "Write",
    "replace": "Edit",
    "web_fetch": "Fetch",
    "google_web_search": "Search the web:",
    "invoke_agent": "Agent",
    "activate_skill": "Skill",
}
# Find the subject in titles of the CLI that are whole sentences (core/src/tools/).
_SUBJECT_IN_TITLE = {
    "read_many_files": re.compile(r"using patterns:\s*(.+?)\s*\(within target directory", re.DOTALL),
    "web_fetch": re.compile(r'^Processing URLs and instructions from prompt: "(.+)"$', re.DOTALL),
    "google_web_search": re.compile(r'^Searching the web for: "(.+)"$', re.DOTALL),
}
# Errors that mean "not allowed" rather than "failed" (core/src/tools/tool-error.ts).
_DENIED_TYPES = {"policy_violation"}
_DENIED_TEXTS = (
    "requires user confirmation, which is not supported in non-interactive mode",
    "denied by policy",
)

# The CLI's error for a call of a tool that we denied: it does not offer such a tool to the model.
NOT_REGISTERED = ("tool_not_registered",)


def denial_text(why: str, message: str | None) -> str:
    """Join our reason for a denied call and the CLI's error message.

    >>> denial_text("shell is denied", 'Tool "run_shell_command" not found.')
    'shell is denied (Gemini CLI: Tool "run_shell_command" not found.)'
    """
    return f"{why} (Gemini CLI: {message})" if message else why


def kind_of(name: str) -> Kind:
    """Return the kind of a tool; `other` if the tool is unknown."""
    if name.startswith("tracker_"):
        return "plan"
    return _KINDS.get(name, "other")


def paths_of(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths in a call's parameters, whose names differ between releases."""
    return tuple(
        value
        for key in _PATH_KEYS
        if isinstance(value := parameters.get(key), str) and value not in ("", ".")
    )


def title_of(name: str, parameters: Mapping[str, Any]) -> str:
    """Describe a call in one line.

    >>> title_of("run_shell_command", {"command": "npm test"}), title_of("read_file", {"file_path": "a.py"})
    ('npm test', 'Read a.py')
    """
    subject = next(
        (value for key in _SUBJECT_KEYS if isinstance(value := parameters.get(key), str) and value), ""
    )
    subject = " ".join(subject[:400].split())
    subject = subject if len(subject) <= 120 else subject[:117] + "..."
    if name == "run_shell_command":
        return subject or "shell"
    return f"{_VERBS.get(name, name)} {subject}".strip()


def acp_title(name: str, title: str | None, paths: Sequence[str], cwd: str) -> str:
    """Describe an ACP call, whose parameters are unknown, by its path or by the CLI's title.

    >>> acp_title("write_file", "Writing to a.py", ["/repo/a.py"], "/repo")
    'Write a.py'
    >>> acp_title("read_many_files", "Will read using patterns:\\na`, `b\\n (within target directory: …", [], "/repo")
    'Read a, b'
    """
    subject = title or ""
    if name in _SUBJECT_IN_TITLE and (match := _SUBJECT_IN_TITLE[name].search(subject)):
        subject = match[1].replace("`, `", ", ")
    if name != "run_shell_command" and len(paths) == 1:
        subject = paths[0].removeprefix(f"{cwd}/")
    return title_of(name, {"command": subject})


def status_of(
    status: str, error_type: str | None, error_message: str | None, output: str | None
) -> Literal["ok", "failed", "denied", "cancelled"]:
    """Return the status of a call.

    The CLI reports a blocked command substitution as a success, but the command did not run.
    """
    if error_type in _DENIED_TYPES or any(text in (error_message or "") for text in _DENIED_TEXTS):
        return "denied"
    if status == "success":
        return "denied" if (output or "").startswith("Blocked: command substitution") else "ok"
    if status == "cancelled":
        return "cancelled"
    return "failed"
