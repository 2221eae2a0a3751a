"""What a run of an older release may do, cell by cell; the columns are those of `permission_table`."""

from __future__ import annotations

__all__ = ["TABLE_0_24", "TABLE_0_41"]

Table = tuple[tuple[str, str, str, str, str], ...]

# As 0.61.0, but for build files: they can be written.
# fmt: off
TABLE_0_41: Table = (
    ("default",   "nothing",          "read",       "ok",     ""),
    ("default",   "nothing",          "write",      "denied", "approval=default does not let write_file"),
    ("default",   "nothing",          "shell",      "denied", "approval=default does not let run_shell_command"),
    ("default",   "nothing",          "search",     "ok",     ""),
    ("default",   "nothing",          "fetch",      "denied", "approval=default does not let web_fetch"),
    ("default",   "nothing",          "mcp",        "denied", "approval=default does not let mcp_lab_mark"),
    ("default",   "nothing",          "skill",      "denied", "approval=default does not let activate_skill"),

    ("auto_edit", "nothing",          "write",      "ok",     ""),
    ("auto_edit", "nothing",          "replace",    "ok",     ""),
    ("auto_edit", "nothing",          "build file", "ok",     ""),
    ("auto_edit", "nothing",          "fetch",      "ok",     ""),
    ("auto_edit", "nothing",          "shell",      "denied", "approval=auto_edit does not let run_shell_command"),

    ("yolo",      "nothing",          "write",      "ok",     ""),
    ("yolo",      "nothing",          "build file", "ok",     ""),
    ("yolo",      "nothing",          "shell >",    "ok",     ""),
    ("yolo",      "nothing",          "shell $()",  "denied", "Blocked: command substitution"),
    ("yolo",      "nothing",          "mcp",        "ok",     ""),

    ("default",   "allow",            "write",      "ok",     ""),
    ("default",   "allow",            "build file", "ok",     ""),
    ("default",   "allow",            "shell",      "ok",     ""),
    ("default",   "allow",            "shell >",    "ok",     ""),
    ("default",   "allow",            "shell |",    "ok",     ""),
    ("default",   "allow",            "fetch",      "ok",     ""),
    ("default",   "allow",            "mcp",        "ok",     ""),
    ("default",   "allow",            "skill",      "ok",     ""),

    ("yolo",      "deny",             "read",       "ok",     ""),
    ("yolo",      "deny",             "write",      "denied", "file_write is denied by the permissions"),
    ("yolo",      "deny",             "shell",      "denied", "shell is denied by the permissions"),
    ("yolo",      "deny",             "search",     "denied", "network is denied by the permissions"),
    ("yolo",      "deny",             "fetch",      "denied", "network is denied by the permissions"),
    ("yolo",      "deny",             "mcp",        "denied", "mcp is denied by the permissions"),
    ("yolo",      "deny",             "skill",      "denied", "skills is denied by the permissions"),

    ("yolo",      "only write_file",  "write",      "ok",     ""),
    ("yolo",      "only write_file",  "replace",    "denied", "replace is not in only_tools"),
    ("yolo",      "only write_file",  "shell",      "denied", "run_shell_command is not in only_tools"),
    ("yolo",      "only write_file",  "mcp",        "denied", "mcp_lab_mark is not in only_tools"),

    ("plan",      "nothing",          "read",       "ok",     ""),
    ("plan",      "nothing",          "write",      "denied", "approval=plan does not let write_file"),
    ("plan",      "nothing",          "shell",      "denied", "approval=plan does not let run_shell_command"),
    ("plan",      "nothing",          "search",     "ok",     ""),

    ("plan",      "allow",            "write",      "denied", "approval=plan does not let write_file"),
    ("plan",      "allow",            "shell",      "denied", "approval=plan does not let run_shell_command"),
    ("plan",      "allow",            "fetch",      "ok",     ""),
    ("plan",      "allow",            "mcp",        "ok",     ""),
)

# As well: `$()` is run, `>` in an allowed command is not, and auto_edit does not approve web_fetch.
TABLE_0_24: Table = (
    ("default",   "nothing",          "read",       "ok",     ""),
    ("default",   "nothing",          "write",      "denied", "approval=default does not let write_file"),
    ("default",   "nothing",          "shell",      "denied", "approval=default does not let run_shell_command"),
    ("default",   "nothing",          "search",     "ok",     ""),
    ("default",   "nothing",          "fetch",      "denied", "approval=default does not let web_fetch"),
    ("default",   "nothing",          "mcp",        "denied", "denied by policy"),
    ("default",   "nothing",          "skill",      "denied", "approval=default does not let activate_skill"),

    ("auto_edit", "nothing",          "write",      "ok",     ""),
    ("auto_edit", "nothing",          "replace",    "ok",     ""),
    ("auto_edit", "nothing",          "build file", "ok",     ""),
    ("auto_edit", "nothing",          "fetch",      "denied", "approval=auto_edit does not let web_fetch"),
    ("auto_edit", "nothing",          "shell",      "denied", "approval=auto_edit does not let run_shell_command"),

    ("yolo",      "nothing",          "write",      "ok",     ""),
    ("yolo",      "nothing",          "build file", "ok",     ""),
    ("yolo",      "nothing",          "shell >",    "ok",     ""),
    ("yolo",      "nothing",          "shell $()",  "ok",     ""),
    ("yolo",      "nothing",          "mcp",        "ok",     ""),

    ("default",   "allow",            "write",      "ok",     ""),
    ("default",   "allow",            "build file", "ok",     ""),
    ("default",   "allow",            "shell",      "ok",     ""),
    ("default",   "allow",            "shell >",    "denied", "the command redirects, which this release"),
    ("default",   "allow",            "shell |",    "ok",     ""),
    ("default",   "allow",            "fetch",      "ok",     ""),
    ("default",   "allow",            "mcp",        "ok",     ""),
    ("default",   "allow",            "skill",      "ok",     ""),

    ("yolo",      "deny",             "read",       "ok",     ""),
    ("yolo",      "deny",             "write",      "denied", "file_write is denied by the permissions"),
    ("yolo",      "deny",             "shell",      "denied", "shell is denied by the permissions"),
    ("yolo",      "deny",             "search",     "denied", "network is denied by the permissions"),
    ("yolo",      "deny",             "fetch",      "denied", "network is denied by the permissions"),
    ("yolo",      "deny",             "mcp",        "denied", "mcp is denied by the permissions"),
    ("yolo",      "deny",             "skill",      "denied", "skills is denied by the permissions"),

    ("yolo",      "only write_file",  "write",      "ok",     ""),
    ("yolo",      "only write_file",  "replace",    "denied", "replace is not in only_tools"),
    ("yolo",      "only write_file",  "shell",      "denied", "run_shell_command is not in only_tools"),
    ("yolo",      "only write_file",  "mcp",        "denied", "mark is not in only_tools"),
)
# fmt: on
