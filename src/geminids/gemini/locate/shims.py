"""Find the script that a shim starts, by reading the text of the shim.

A shim is a small script on PATH that npm, pnpm or yarn creates. The shim only starts the real
script with Node.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import TypeVar

__all__ = ["runs_on_node", "shim_target", "target_in_cmd", "target_in_ps1", "target_in_sh"]

_P = TypeVar("_P", bound=PurePath)

# npm's cmd-shim:  "%_prog%"  "%dp0%\node_modules\@google\gemini-cli\bundle\gemini.js" %*
_CMD = re.compile(r'"(%~?dp0%?\\?[^"%]*\.[cm]?js|[A-Za-z]:\\[^"%]*\.[cm]?js)"', re.IGNORECASE)
_CMD_HERE = re.compile(r"^%~?dp0%?\\?", re.IGNORECASE)
# npm's PowerShell shim:  & "$basedir/node$exe"  "$basedir/node_modules/…/gemini.js" $args
_PS1 = re.compile(r'"(?:\$basedir|\$PSScriptRoot)[/\\]([^"$]*\.[cm]?js)"', re.IGNORECASE)
# npm's and pnpm's sh shim:  exec node  "$basedir/../@google/gemini-cli/bundle/gemini.js" "$@"
_SH = re.compile(r'(?<!\S)"(?:(\$basedir|\$\{basedir\})[/\\]([^"$]*\.[cm]?js)|(/[^"$]*\.[cm]?js))"')
_NODE_SHEBANG = re.compile(r"#!\s*\S*/(?:env\s+(?:-S\s+)?)?node(?:\s|$)")


def target_in_cmd(text: str, folder: PureWindowsPath) -> PureWindowsPath | None:
    """Return the path of the script that a `.cmd` shim (a small starter script) runs. Return None
    if `text` is not such a shim.

    `text` is the content of the shim, and `folder` is the folder of the shim.

    >>> str(target_in_cmd(r'"%_prog%"  "%dp0%\\node_modules\\x\\gemini.js" %*', PureWindowsPath("C:/npm")))
    'C:\\\\npm\\\\node_modules\\\\x\\\\gemini.js'
    """
    match = _CMD.search(text)
    return _joined(folder, _CMD_HERE.sub("", match[1])) if match else None


def target_in_ps1(text: str, folder: _P) -> _P | None:
    """Return the path of the script that a PowerShell shim (a small starter script) runs. Return
    None if `text` is not such a shim.

    `text` is the content of the shim, and `folder` is the folder of the shim.
    """
    match = _PS1.search(text)
    return _joined(folder, match[1]) if match else None


def target_in_sh(text: str, folder: _P) -> _P | None:
    """Return the path of the script that a shell shim (a small starter script) runs. Return None if
    `text` is not such a shim.

    `text` is the content of the shim, and `folder` is the folder of the shim.
    """
    match = _SH.search(text)
    if match is None:
        return None
    return _joined(folder, match[2]) if match[1] else type(folder)(match[3])


def shim_target(file: Path, text: str) -> Path | None:
    """Return the path of the script that the shim `file` (a small starter script) runs. Return None
    if `file` is not a shim.

    `text` is the content of the file.
    """
    suffix = file.suffix.lower()
    if suffix in (".cmd", ".bat"):
        target = target_in_cmd(text, PureWindowsPath(file.parent))
        return Path(target) if target else None
    if suffix == ".ps1":
        return target_in_ps1(text, file.parent)
    return target_in_sh(text, file.parent) if text.startswith("#!") else None


def runs_on_node(text: str) -> bool:
    """Return whether the first line (`#!`) of a script says that Node runs the script. `text` is
    the content of the script.

    >>> runs_on_node("#!/usr/bin/env -S node --no-warnings"), runs_on_node("#!/bin/sh")
    (True, False)
    """
    return _NODE_SHEBANG.match(text) is not None


def _joined(folder: _P, tail: str) -> _P:
    # Remove `..` from the path here, because pure paths have no method `resolve`.
    path = folder / (tail if isinstance(folder, PureWindowsPath) else PurePosixPath(tail.replace("\\", "/")))
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and len(parts) > 1:
            parts.pop()
        else:
            parts.append(part)
    return type(folder)(*parts)
