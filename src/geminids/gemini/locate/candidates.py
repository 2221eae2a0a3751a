"""List the paths on this machine where a `gemini` program may be installed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from geminids.gemini.versions import Version

__all__ = ["COMMON", "common_places", "expand", "home_of", "on_path"]

# Where version and package managers install `gemini`. Often these folders are not on the PATH of a
# service or a GUI program.
COMMON = (
    "~/.local/share/mise/installs/node/*/bin/gemini",
    "~/.local/share/mise/installs/npm-google-gemini-cli/*/bin/gemini",
    "~/.local/share/mise/shims/gemini",
    "~/.nvm/versions/node/*/bin/gemini",
    "~/.local/share/fnm/node-versions/*/installation/bin/gemini",
    "~/.fnm/node-versions/*/installation/bin/gemini",
    "~/Library/Application Support/fnm/node-versions/*/installation/bin/gemini",
    "~/.volta/bin/gemini",
    "~/.asdf/installs/nodejs/*/bin/gemini",
    "~/.asdf/shims/gemini",
    "~/.npm-global/bin/gemini",
    "~/.npm/bin/gemini",
    "~/.local/bin/gemini",
    "~/.bun/bin/gemini",
    "~/.local/share/pnpm/gemini",
    "~/Library/pnpm/gemini",
    "~/.yarn/bin/gemini",
    "~/.config/yarn/global/node_modules/.bin/gemini",
    "/opt/homebrew/bin/gemini",
    "/home/linuxbrew/.linuxbrew/bin/gemini",
    "/usr/local/bin/gemini",
)
_COMMON_WINDOWS = (
    "~/AppData/Roaming/npm/gemini.cmd",
    "~/AppData/Local/Volta/bin/gemini.exe",
    "~/AppData/Local/pnpm/gemini.cmd",
    "~/AppData/Roaming/nvm/*/gemini.cmd",
    "~/scoop/shims/gemini.cmd",
    "~/.bun/bin/gemini.exe",
)
_NAMES = ("gemini.exe", "gemini.cmd", "gemini.ps1") if os.name == "nt" else ("gemini",)


def on_path(environ: Mapping[str, str], names: tuple[str, ...] = _NAMES) -> Iterator[Path]:
    """Yield the path of each file that has one of these `names` and is in a folder of PATH, in the
    order of PATH.

    The files need not be executable.
    """
    for entry in environ.get("PATH", "").split(os.pathsep):
        # Skip empty and relative entries: they refer to the working directory, which can be a
        # repository. A `gemini` in a repository must not be used.
        if not os.path.isabs(entry):
            continue
        for name in names:
            path = os.path.join(entry, name)
            if os.path.lexists(path):
                yield Path(path)


def common_places(environ: Mapping[str, str]) -> Iterator[tuple[str, list[Path]]]:
    """Yield path patterns for the places where `gemini` is often installed. With each pattern,
    yield the list of existing paths that match the pattern.

    If the `*` in a pattern stands for a version, the path with the newest version comes first.
    """
    for pattern in _COMMON_WINDOWS if os.name == "nt" else COMMON:
        yield pattern, expand(pattern, environ)


def expand(pattern: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the existing paths that match a pattern. The pattern may begin with `~` and contain at
    most one `*`.

    If the `*` stands for a version number, the newest version comes first.
    """
    text = pattern.replace("~", str(home_of(environ)), 1) if pattern.startswith("~") else pattern
    if "*" not in text:
        return [Path(text)] if os.path.lexists(text) else []
    folder, tail = text.split("/*/", 1)
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    names.sort(key=_newest, reverse=True)
    return [path for name in names if os.path.lexists(path := Path(folder, name, tail))]


def home_of(environ: Mapping[str, str]) -> Path:
    """Return the user's home folder: the value of the variable HOME (on Windows, USERPROFILE). If
    the variable is not set in `environ`, return `Path.home()`.
    """
    named = environ.get("USERPROFILE" if os.name == "nt" else "HOME")
    return Path(named) if named else Path.home()


def _newest(name: str) -> tuple[Version, str]:
    match = re.search(r"\d+(?:\.\d+)*", name)
    parsed = Version.parse(match[0] if match and "." in match[0] else f"{match[0]}.0" if match else None)
    return parsed or Version(-1, 0), name
