"""The CLI's tool calls as Untether names them: what kind of action, under which title, on which file."""

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
    # The document's: most of them never were in the CLI.
    "edit_file": "edit",
    "web_search": "websearch",
    "list_dir": "ls",
    "find_files": "glob",
    "search_files": "grep",
    # The CLI's own, of every release.
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
# The document's three first, then what the CLI has called it.
_PATH_KEYS = ("file_path", "path", "filePath", "absolute_path", "dir_path")


def kind_and_title(
    name: str, given: Args, cwd: str, *, paths: Sequence[str] = (), told: str = ""
) -> tuple[Kind, str]:
    """Kind and title of a call.

    `paths` and `told` (the call in one line) stand in for arguments that are not known yet, as on the warm lane.

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
    path = path_in(given) or (paths[0] if paths else None)
    title = make(given, _from_here(path, cwd) if path else None)
    if title is None:
        title = (told if not given else "") or _BARE.get(usual, name)
    return kind, title.replace(f"{cwd}/", "") if kind == "command" and cwd else title


def path_in(given: Args) -> str | None:
    """The file that a call names."""
    return next((path for key in _PATH_KEYS if isinstance(path := given.get(key), str) and path), None)


def _from_here(path: str, cwd: str) -> str:
    if path == cwd:
        return "."
    return path.removeprefix(cwd if cwd.endswith("/") else f"{cwd}/") if cwd else path


def _text(given: Args, *keys: str) -> str | None:
    return next((str(value) for key in keys if (value := given.get(key))), None)


def _with(verb: str, quoted: bool, *keys: str) -> Callable[[Args, str | None], str | None]:
    """A title like ``read: `a.py` ``: of the path where no keys are given."""

    def title(given: Args, path: str | None) -> str | None:
        subject = _text(given, *keys) if keys else path
        if subject is None:
            return None
        return f"{verb}: `{subject}`" if quoted else f"{verb}: {subject}"

    return title


def _fetched(given: Args, _: str | None) -> str | None:
    """The CLI's own tool has the address in its prompt."""
    return _text(claude_tool("web_fetch", given)[1], "url")


def _path(_: Args, path: str | None) -> str | None:
    return path


def _command(given: Args, _: str | None) -> str | None:
    return _text(given, "command")


def _todo(words: str) -> Callable[[Args, str | None], str | None]:
    return lambda _, __: words


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
    "websearch": lambda given, _: _text(given, "query"),
    "webfetch": _fetched,
    "todowrite": _todo("update todos"),
    "todoread": _todo("read todos"),
    "askuserquestion": _todo("ask user"),
    "task": lambda given, _: _text(given, "description", "prompt"),
    "agent": lambda given, _: _text(given, "description", "prompt"),
}
# Where a title has no subject, the name of the call stands alone.
_BARE = {
    "read": "read",
    "ls": "ls",
    "glob": "glob",
    "grep": "grep",
    "find": "find",
    "websearch": "search",
    "webfetch": "fetch",
}
