"""List the paths where a `gemini` may be on this machine."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from geminids.gemini.versions import Version

__all__ = ["COMMON", "common_places", "expand", "home_of", "on_path"]

# Folders of version and package managers. Many are not on the PATH of a service or a GUI.
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
    """Yield every `gemini` on PATH in order, executable or not."""
    for entry in environ.get("PATH", "").split(os.pathsep):
        # Skip empty and relative entries, which mean the working directory: a repository must not
        # supply gemini.
        if not os.path.isabs(entry):
            continue
        for name in names:
            path = os.path.join(entry, name)
            if os.path.lexists(path):
                yield Path(path)


def common_places(environ: Mapping[str, str]) -> Iterator[tuple[str, list[Path]]]:
    """Yield each common pattern with its matches, newest Node version first."""
    for pattern in _COMMON_WINDOWS if os.name == "nt" else COMMON:
        yield pattern, expand(pattern, environ)


def expand(pattern: str, environ: Mapping[str, str]) -> list[Path]:
    """Return the files that match a pattern with `~` and at most one `*`, newest version first."""
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
    """Return the user's home from the environment."""
    named = environ.get("USERPROFILE" if os.name == "nt" else "HOME")
    return Path(named) if named else Path.home()


def _newest(name: str) -> tuple[Version, str]:
    match = re.search(r"\d+(?:\.\d+)*", name)
    parsed = Version.parse(match[0] if match and "." in match[0] else f"{match[0]}.0" if match else None)
    return parsed or Version(-1, 0), name
