"""Describe the tool calls of the CLI: the kind of the tool, a title in one line, the paths, and the
status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

__all__ = ["NOT_REGISTERED", "acp_title", "denial_text", "kind_of", "paths_of", "status_of", "title_of"]

Kind = Literal[
    "read", "edit", "write", "delete", "move", "search", "execute", "fetch", "think", "plan", "agent", "other"
]

# All built-in tools since 0.11. A renamed tool is listed with its old and its new name.
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
# For some tools, the CLI's title is a whole sentence. These patterns find the part of it that says
# what the tool works on (core/src/tools/).
_SUBJECT_IN_TITLE = {
    "read_many_files": re.compile(r"using patterns:\s*(.+?)\s*\(within target directory", re.DOTALL),
    "web_fetch": re.compile(r'^Processing URLs and instructions from prompt: "(.+)"$', re.DOTALL),
    "google_web_search": re.compile(r'^Searching the web for: "(.+)"$', re.DOTALL),
}
# Errors which mean that a call was not allowed, not that it failed (core/src/tools/tool-error.ts).
_DENIED_TYPES = {"policy_violation"}
_DENIED_TEXTS = (
    "requires user confirmation, which is not supported in non-interactive mode",
    "denied by policy",
)

# The CLI's error type if the model calls a tool that geminids has denied. The CLI does not register
# a denied tool, so it reports the tool as missing.
NOT_REGISTERED = ("tool_not_registered",)


def denial_text(why: str, message: str | None) -> str:
    """Return a text that explains why a tool call was denied.

    `why` is the reason why geminids denied the call. `message` is the error message of the CLI, or
    None if there is none.

    >>> denial_text("shell is denied", 'Tool "run_shell_command" not found.')
    'shell is denied (Gemini CLI: Tool "run_shell_command" not found.)'
    """
    return f"{why} (Gemini CLI: {message})" if message else why


def kind_of(name: str) -> Kind:
    """Return the kind of the tool with this name, such as `read` or `edit`. It is `other` if the
    tool is unknown.
    """
    if name.startswith("tracker_"):
        return "plan"
    return _KINDS.get(name, "other")


def paths_of(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths in the parameters of a tool call.

    The name of the parameter that contains a path differs between tools and CLI releases. All
    parameters with a known name are read. An empty path and "." are left out.
    """
    return tuple(
        value
        for key in _PATH_KEYS
        if isinstance(value := parameters.get(key), str) and value not in ("", ".")
    )


def title_of(name: str, parameters: Mapping[str, Any]) -> str:
    """Return a description of a tool call in one line of about 120 characters at most. `name` is
    the name of the tool.

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
    """Return a description in one line of a tool call that was reported over ACP (the CLI's
    JSON-RPC protocol).

    `title` is the CLI's title of the call, because ACP does not report the parameters of a call.
    `paths` are the paths that the call uses. If there is exactly one path and the tool is not the
    shell, the description is made from this path, relative to `cwd`. In all other cases, it is made
    from `title`.

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
    """Return the status of a finished tool call, from the status, the error and the output that the
    CLI reported.

    Special case: if the CLI blocks a command because of a command substitution, it reports a
    success although the command did not run. Then the status is "denied".
    """
    if error_type in _DENIED_TYPES or any(text in (error_message or "") for text in _DENIED_TEXTS):
        return "denied"
    if status == "success":
        return "denied" if (output or "").startswith("Blocked: command substitution") else "ok"
    if status == "cancelled":
        return "cancelled"
    return "failed"
