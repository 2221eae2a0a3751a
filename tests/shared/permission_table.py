"""The permission table: for each approval mode, permissions and call, whether the call is allowed.

A row is (approval, name of the permissions, name of the call, outcome, part of the reason)."""

from __future__ import annotations

from geminids.options import Permissions

__all__ = ["AS_PERMISSIONS", "TABLE", "TABLE_0_54"]

Table = tuple[tuple[str, str, str, str, str], ...]

AS_PERMISSIONS: dict[str, Permissions] = {
    "nothing": Permissions(),
    "allow": Permissions(file_write="allow", shell="allow", network="allow", mcp="allow", skills="allow"),
    "deny": Permissions(file_write="deny", shell="deny", network="deny", mcp="deny", skills="deny"),
    "ask": Permissions(file_write="ask", shell="ask", network="ask", mcp="ask", skills="ask"),
    "allow shell": Permissions(shell="allow"),
    "allow file_write": Permissions(file_write="allow"),
    "allow network": Permissions(network="allow"),
    "only write_file": Permissions(only_tools=("write_file",)),
    "only others": Permissions(
        only_tools=("run_shell_command", "grep_search", "web_fetch", "activate_skill", "mcp_lab_mark")
    ),
    "deny tools": Permissions(
        deny_tools=(
            "write_file",
            "replace",
            "run_shell_command",
            "google_web_search",
            "web_fetch",
            "activate_skill",
            "mcp_lab_mark",
        )
    ),
}

# The table of CLI 0.61.0. The names of the calls are the keys of `tool_actions.TOOL_ACTIONS`.
# fmt: off
TABLE: Table = (
    ("default",   "nothing",          "read",       "ok",     ""),
    ("default",   "nothing",          "write",      "denied", "approval='default'` does not allow write_file"),
    ("default",   "nothing",          "replace",    "denied", "approval='default'` does not allow replace"),
    ("default",   "nothing",          "build file", "denied", "approval='default'` does not allow write_file"),
    ("default",   "nothing",          "shell",      "denied", "approval='default'` does not allow run_shell_command"),
    ("default",   "nothing",          "shell >",    "denied", "approval='default'` does not allow run_shell_command"),
    ("default",   "nothing",          "shell |",    "denied", "approval='default'` does not allow run_shell_command"),
    ("default",   "nothing",          "shell $()",  "denied", "approval='default'` does not allow run_shell_command"),
    ("default",   "nothing",          "search",     "ok",     ""),
    ("default",   "nothing",          "fetch",      "denied", "approval='default'` does not allow web_fetch"),
    ("default",   "nothing",          "mcp",        "denied", "approval='default'` does not allow mcp_lab_mark"),
    ("default",   "nothing",          "skill",      "denied", "approval='default'` does not allow activate_skill"),

    ("auto_edit", "nothing",          "read",       "ok",     ""),
    ("auto_edit", "nothing",          "write",      "ok",     ""),
    ("auto_edit", "nothing",          "replace",    "ok",     ""),
    ("auto_edit", "nothing",          "build file", "denied", "build configuration files"),
    ("auto_edit", "nothing",          "shell",      "denied", "approval='auto_edit'` does not allow run_shell_command"),
    ("auto_edit", "nothing",          "shell >",    "denied", "approval='auto_edit'` does not allow run_shell_command"),
    ("auto_edit", "nothing",          "shell |",    "denied", "approval='auto_edit'` does not allow run_shell_command"),
    ("auto_edit", "nothing",          "shell $()",  "denied", "approval='auto_edit'` does not allow run_shell_command"),
    ("auto_edit", "nothing",          "search",     "ok",     ""),
    ("auto_edit", "nothing",          "fetch",      "ok",     ""),
    ("auto_edit", "nothing",          "mcp",        "denied", "approval='auto_edit'` does not allow mcp_lab_mark"),
    ("auto_edit", "nothing",          "skill",      "denied", "approval='auto_edit'` does not allow activate_skill"),

    ("yolo",      "nothing",          "read",       "ok",     ""),
    ("yolo",      "nothing",          "write",      "ok",     ""),
    ("yolo",      "nothing",          "replace",    "ok",     ""),
    ("yolo",      "nothing",          "build file", "denied", "build configuration files"),
    ("yolo",      "nothing",          "shell",      "ok",     ""),
    ("yolo",      "nothing",          "shell >",    "ok",     ""),
    ("yolo",      "nothing",          "shell |",    "ok",     ""),
    ("yolo",      "nothing",          "shell $()",  "denied", "Blocked: command substitution"),
    ("yolo",      "nothing",          "search",     "ok",     ""),
    ("yolo",      "nothing",          "fetch",      "ok",     ""),
    ("yolo",      "nothing",          "mcp",        "ok",     ""),
    ("yolo",      "nothing",          "skill",      "ok",     ""),

    ("plan",      "nothing",          "read",       "ok",     ""),
    ("plan",      "nothing",          "write",      "denied", "approval='plan'` does not allow write_file"),
    ("plan",      "nothing",          "replace",    "denied", "approval='plan'` does not allow replace"),
    ("plan",      "nothing",          "build file", "denied", "approval='plan'` does not allow write_file"),
    ("plan",      "nothing",          "shell",      "denied", "approval='plan'` does not allow run_shell_command"),
    ("plan",      "nothing",          "shell >",    "denied", "approval='plan'` does not allow run_shell_command"),
    ("plan",      "nothing",          "shell |",    "denied", "approval='plan'` does not allow run_shell_command"),
    ("plan",      "nothing",          "shell $()",  "denied", "approval='plan'` does not allow run_shell_command"),
    ("plan",      "nothing",          "search",     "ok",     ""),
    ("plan",      "nothing",          "fetch",      "denied", "approval='plan'` does not allow web_fetch"),
    ("plan",      "nothing",          "mcp",        "denied", "approval='plan'` does not allow mcp_lab_mark"),
    ("plan",      "nothing",          "skill",      "denied", "approval='plan'` does not allow activate_skill"),

    ("default",   "allow",            "read",       "ok",     ""),
    ("default",   "allow",            "write",      "ok",     ""),
    ("default",   "allow",            "replace",    "ok",     ""),
    ("default",   "allow",            "build file", "denied", "build configuration files"),
    ("default",   "allow",            "shell",      "ok",     ""),
    ("default",   "allow",            "shell >",    "ok",     ""),
    ("default",   "allow",            "shell |",    "ok",     ""),
    ("default",   "allow",            "shell $()",  "denied", "Blocked: command substitution"),
    ("default",   "allow",            "search",     "ok",     ""),
    ("default",   "allow",            "fetch",      "ok",     ""),
    ("default",   "allow",            "mcp",        "ok",     ""),
    ("default",   "allow",            "skill",      "ok",     ""),

    ("auto_edit", "allow",            "write",      "ok",     ""),
    ("auto_edit", "allow",            "build file", "denied", "build configuration files"),
    ("auto_edit", "allow",            "shell",      "ok",     ""),
    ("auto_edit", "allow",            "shell >",    "ok",     ""),
    ("auto_edit", "allow",            "mcp",        "ok",     ""),
    ("auto_edit", "allow",            "skill",      "ok",     ""),

    ("yolo",      "allow",            "write",      "ok",     ""),
    ("yolo",      "allow",            "build file", "denied", "build configuration files"),
    ("yolo",      "allow",            "shell >",    "ok",     ""),
    ("yolo",      "allow",            "shell $()",  "denied", "Blocked: command substitution"),
    ("yolo",      "allow",            "mcp",        "ok",     ""),

    ("plan",      "allow",            "write",      "denied", "approval='plan'` does not allow write_file"),
    ("plan",      "allow",            "build file", "denied", "approval='plan'` does not allow write_file"),
    ("plan",      "allow",            "shell",      "denied", "approval='plan'` does not allow run_shell_command"),
    ("plan",      "allow",            "shell >",    "denied", "approval='plan'` does not allow run_shell_command"),
    ("plan",      "allow",            "search",     "ok",     ""),
    ("plan",      "allow",            "fetch",      "ok",     ""),
    ("plan",      "allow",            "mcp",        "ok",     ""),
    ("plan",      "allow",            "skill",      "ok",     ""),

    ("default",   "deny",             "read",       "ok",     ""),
    ("default",   "deny",             "write",      "denied", "file_write is denied by the permissions"),
    ("default",   "deny",             "search",     "denied", "network is denied by the permissions"),
    ("default",   "deny",             "mcp",        "denied", "mcp is denied by the permissions"),

    ("auto_edit", "deny",             "write",      "denied", "file_write is denied by the permissions"),
    ("auto_edit", "deny",             "replace",    "denied", "file_write is denied by the permissions"),
    ("auto_edit", "deny",             "fetch",      "denied", "network is denied by the permissions"),
    ("auto_edit", "deny",             "search",     "denied", "network is denied by the permissions"),

    ("yolo",      "deny",             "read",       "ok",     ""),
    ("yolo",      "deny",             "write",      "denied", "file_write is denied by the permissions"),
    ("yolo",      "deny",             "replace",    "denied", "file_write is denied by the permissions"),
    ("yolo",      "deny",             "build file", "denied", "file_write is denied by the permissions"),
    ("yolo",      "deny",             "shell",      "denied", "shell is denied by the permissions"),
    ("yolo",      "deny",             "shell >",    "denied", "shell is denied by the permissions"),
    ("yolo",      "deny",             "shell |",    "denied", "shell is denied by the permissions"),
    ("yolo",      "deny",             "shell $()",  "denied", "shell is denied by the permissions"),
    ("yolo",      "deny",             "search",     "denied", "network is denied by the permissions"),
    ("yolo",      "deny",             "fetch",      "denied", "network is denied by the permissions"),
    ("yolo",      "deny",             "mcp",        "denied", "mcp is denied by the permissions"),
    ("yolo",      "deny",             "skill",      "denied", "skills is denied by the permissions"),

    ("plan",      "deny",             "read",       "ok",     ""),
    ("plan",      "deny",             "search",     "denied", "network is denied by the permissions"),
    ("plan",      "deny",             "fetch",      "denied", "network is denied by the permissions"),
    ("plan",      "deny",             "skill",      "denied", "skills is denied by the permissions"),

    ("yolo",      "ask",              "write",      "denied", "file_write needs permission, but a headless run"),
    ("yolo",      "ask",              "shell",      "denied", "shell needs permission, but a headless run"),
    ("yolo",      "ask",              "search",     "denied", "network needs permission, but a headless run"),
    ("yolo",      "ask",              "mcp",        "denied", "mcp needs permission, but a headless run"),
    ("yolo",      "ask",              "skill",      "denied", "skills needs permission, but a headless run"),

    ("default",   "allow shell",      "shell",      "ok",     ""),
    ("default",   "allow shell",      "shell >",    "ok",     ""),
    ("default",   "allow shell",      "shell |",    "ok",     ""),
    ("default",   "allow shell",      "write",      "denied", "approval='default'` does not allow write_file"),
    ("default",   "allow shell",      "fetch",      "denied", "approval='default'` does not allow web_fetch"),
    ("default",   "allow shell",      "mcp",        "denied", "approval='default'` does not allow mcp_lab_mark"),
    ("default",   "allow shell",      "skill",      "denied", "approval='default'` does not allow activate_skill"),

    ("default",   "allow file_write", "write",      "ok",     ""),
    ("default",   "allow file_write", "replace",    "ok",     ""),
    ("default",   "allow file_write", "build file", "denied", "build configuration files"),
    ("default",   "allow file_write", "shell",      "denied", "approval='default'` does not allow run_shell_command"),
    ("default",   "allow file_write", "shell >",    "denied", "approval='default'` does not allow run_shell_command"),
    ("default",   "allow file_write", "fetch",      "denied", "approval='default'` does not allow web_fetch"),

    ("default",   "allow network",    "search",     "ok",     ""),
    ("default",   "allow network",    "fetch",      "ok",     ""),
    ("default",   "allow network",    "write",      "denied", "approval='default'` does not allow write_file"),
    ("default",   "allow network",    "shell",      "denied", "approval='default'` does not allow run_shell_command"),

    ("default",   "only write_file",  "write",      "denied", "approval='default'` does not allow write_file"),
    ("default",   "only write_file",  "read",       "denied", "read_file is not in `only_tools`"),
    ("default",   "only write_file",  "search",     "denied", "google_web_search is not in `only_tools`"),

    ("auto_edit", "only write_file",  "write",      "ok",     ""),
    ("auto_edit", "only write_file",  "replace",    "denied", "replace is not in `only_tools`"),
    ("auto_edit", "only write_file",  "fetch",      "denied", "web_fetch is not in `only_tools`"),
    ("auto_edit", "only write_file",  "read",       "denied", "read_file is not in `only_tools`"),

    ("yolo",      "only write_file",  "write",      "ok",     ""),
    ("yolo",      "only write_file",  "build file", "denied", "build configuration files"),
    ("yolo",      "only write_file",  "replace",    "denied", "replace is not in `only_tools`"),
    ("yolo",      "only write_file",  "shell",      "denied", "run_shell_command is not in `only_tools`"),
    ("yolo",      "only write_file",  "mcp",        "denied", "mcp_lab_mark is not in `only_tools`"),
    ("yolo",      "only write_file",  "skill",      "denied", "activate_skill is not in `only_tools`"),

    ("plan",      "only write_file",  "write",      "denied", "approval='plan'` does not allow write_file"),
    ("plan",      "only write_file",  "read",       "denied", "read_file is not in `only_tools`"),

    ("yolo",      "only others",      "shell",      "ok",     ""),
    ("yolo",      "only others",      "shell >",    "ok",     ""),
    ("yolo",      "only others",      "fetch",      "ok",     ""),
    ("yolo",      "only others",      "mcp",        "ok",     ""),
    ("yolo",      "only others",      "skill",      "ok",     ""),
    ("yolo",      "only others",      "write",      "denied", "write_file is not in `only_tools`"),
    ("yolo",      "only others",      "read",       "denied", "read_file is not in `only_tools`"),
    ("yolo",      "only others",      "search",     "denied", "google_web_search is not in `only_tools`"),

    ("default",   "only others",      "shell",      "denied", "approval='default'` does not allow run_shell_command"),
    ("default",   "only others",      "fetch",      "denied", "approval='default'` does not allow web_fetch"),
    ("default",   "only others",      "mcp",        "denied", "approval='default'` does not allow mcp_lab_mark"),
    ("default",   "only others",      "skill",      "denied", "approval='default'` does not allow activate_skill"),
    ("default",   "only others",      "write",      "denied", "write_file is not in `only_tools`"),

    ("yolo",      "deny tools",       "read",       "ok",     ""),
    ("yolo",      "deny tools",       "write",      "denied", "write_file is in `deny_tools`"),
    ("yolo",      "deny tools",       "replace",    "denied", "replace is in `deny_tools`"),
    ("yolo",      "deny tools",       "shell",      "denied", "run_shell_command is in `deny_tools`"),
    ("yolo",      "deny tools",       "shell |",    "denied", "run_shell_command is in `deny_tools`"),
    ("yolo",      "deny tools",       "search",     "denied", "google_web_search is in `deny_tools`"),
    ("yolo",      "deny tools",       "fetch",      "denied", "web_fetch is in `deny_tools`"),
    ("yolo",      "deny tools",       "mcp",        "denied", "mcp_lab_mark is in `deny_tools`"),
    ("yolo",      "deny tools",       "skill",      "denied", "activate_skill is in `deny_tools`"),

    ("auto_edit", "deny tools",       "read",       "ok",     ""),
    ("auto_edit", "deny tools",       "write",      "denied", "write_file is in `deny_tools`"),
    ("auto_edit", "deny tools",       "fetch",      "denied", "web_fetch is in `deny_tools`"),
)
# fmt: on

# Before 0.61 a run can write a build file whenever it can write other files. This table has only
# the combinations of approval and permissions for which that makes a difference.
_PROTECTED = "build configuration files"
_CHANGED = {row[:2] for row in TABLE if row[4] == _PROTECTED}
TABLE_0_54: Table = tuple(
    (*row[:3], "ok", "") if row[4] == _PROTECTED else row for row in TABLE if row[:2] in _CHANGED
)
