"""Maps the CLI's tool calls to Untether's actions: kind, title and file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from geminids.dialects.claude.tools import claude_tool

__all__ = ["Kind", "kind_and_title", "path_in"]

Kind = Literal[
    "command", "tool", "file_change", "web_search", "subagent", "note", "turn", "warning", "telemetry"
]
Args = Mapping[str, Any]

_NAMES = {
    # Names in Untether's documentation; the CLI never had most of them.
    "edit_file": "edit",
    "web_search": "websearch",
    "list_dir": "ls",
    "find_files": "glob",
    "search_files": "grep",
    # Names of the CLI, of every release.
    "read_file": "read",
    "read_many_files": "read",
    "write_file": "write",
    "replace": "edit",
    "run_shell_command": "bash",
    "list_directory": "ls",
    "grep_search": "grep",
    "search_file_content": "grep",
    "google_web_search": "websearch",
    "web_fetch": "webfetch",
    "write_todos": "todowrite",
    "ask_user": "askuserquestion",
    "invoke_agent": "task",
    "delegate_to_agent": "task",
}
# The three names of Untether's documentation, then those of the CLI.
_PATH_KEYS = ("file_path", "path", "filePath", "absolute_path", "dir_path")


def kind_and_title(
    name: str, args: Args, cwd: str, *, paths: Sequence[str] = (), title: str = ""
) -> tuple[Kind, str]:
    """Kind and title of a call.

    `paths` and `title` (the call in one line) are used while the arguments are unknown, as on the
    warm transport.

    >>> kind_and_title("write_file", {"file_path": "/repo/src/a.py"}, "/repo")
    ('file_change', 'src/a.py')
    >>> kind_and_title("run_shell_command", {"command": "cat /repo/a.py"}, "/repo")
    ('command', 'cat a.py')
    """
    usual = _NAMES.get(name, name.lower())
    kind = _KINDS.get(usual, "tool")
    make = _TITLES.get(usual)
    if make is None:
        return kind, name
    path = path_in(args) or (paths[0] if paths else None)
    made = make(args, _relative(path, cwd) if path else None)
    if made is None:
        made = (title if not args else "") or _BARE.get(usual, name)
    return kind, made.replace(f"{cwd}/", "") if kind == "command" and cwd else made


def path_in(args: Args) -> str | None:
    """The file in the arguments of a call."""
    return next((path for key in _PATH_KEYS if isinstance(path := args.get(key), str) and path), None)


def _relative(path: str, cwd: str) -> str:
    if path == cwd:
        return "."
    return path.removeprefix(cwd if cwd.endswith("/") else f"{cwd}/") if cwd else path


def _text(args: Args, *keys: str) -> str | None:
    return next((str(value) for key in keys if (value := args.get(key))), None)


def _with(verb: str, quoted: bool, *keys: str) -> Callable[[Args, str | None], str | None]:
    """A title like ``read: `a.py` ``: from these keys, or from the path without keys."""

    def title(args: Args, path: str | None) -> str | None:
        subject = _text(args, *keys) if keys else path
        if subject is None:
            return None
        return f"{verb}: `{subject}`" if quoted else f"{verb}: {subject}"

    return title


def _fetched(args: Args, _: str | None) -> str | None:
    """The CLI's tool has the URL in its prompt."""
    return _text(claude_tool("web_fetch", args)[1], "url")


def _path(_: Args, path: str | None) -> str | None:
    return path


def _command(args: Args, _: str | None) -> str | None:
    return _text(args, "command")


def _fixed(title: str) -> Callable[[Args, str | None], str | None]:
    return lambda _, __: title


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("bash", "shell", "killshell"), "command"),
    **dict.fromkeys(("edit", "write", "multiedit", "notebookedit"), "file_change"),
    **dict.fromkeys(("websearch", "webfetch"), "web_search"),
    **dict.fromkeys(("todowrite", "todoread", "askuserquestion"), "note"),
}
_TITLES: dict[str, Callable[[Args, str | None], str | None]] = {
    **dict.fromkeys(("bash", "shell", "killshell"), _command),
    **dict.fromkeys(("edit", "write", "multiedit", "notebookedit"), _path),
    "read": _with("read", True),
    "ls": _with("ls", True),
    "glob": _with("glob", True, "pattern"),
    "grep": _with("grep", False, "pattern"),
    "find": _with("find", False, "pattern"),
    "websearch": lambda args, _: _text(args, "query"),
    "webfetch": _fetched,
    "todowrite": _fixed("update todos"),
    "todoread": _fixed("read todos"),
    "askuserquestion": _fixed("ask user"),
    "task": lambda args, _: _text(args, "description", "prompt"),
    "agent": lambda args, _: _text(args, "description", "prompt"),
}
# Titles without a subject.
_BARE = {
    "read": "read",
    "ls": "ls",
    "glob": "glob",
    "grep": "grep",
    "find": "find",
    "websearch": "search",
    "webfetch": "fetch",
}
