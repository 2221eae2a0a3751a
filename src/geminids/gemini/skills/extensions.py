"""Find the user's extensions that the CLI loads when it runs in a folder. Extensions can contain
skills.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from geminids.gemini.settings_file import Settings

__all__ = ["Extension", "active_extensions", "substitute_variables"]

_NAME = re.compile(r"[a-zA-Z0-9-]+")


class Extension(msgspec.Struct, frozen=True):
    """An extension of the CLI. `path` is the folder with the files of the extension.

    If the extension was installed as a link, `path` is the target of the link.
    """

    name: str
    path: Path


def active_extensions(folder: Path, cwd: str, settings: Settings) -> Iterator[Extension]:
    """Yield the extensions in `folder` that the CLI loads when it runs in `cwd`, in the order of
    loading.

    An extension is loaded if it is valid, if the settings allow it, and if it is enabled for `cwd`.
    """
    rules = _object(folder / "extension-enablement.json")
    for name in sorted(os.listdir(folder), key=os.fsencode):
        extension = _extension(folder / name, cwd, settings)
        if extension is not None and _is_enabled(rules.get(extension.name), cwd):
            yield extension


def substitute_variables(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with variables such as `${extensionPath}` replaced with their values. Unknown
    variables stay unchanged. `${/}` is the path separator.

    >>> substitute_variables("${extensionPath}${/}a ${b}", {"extensionPath": "/x"})
    '/x/a ${b}'
    """
    known = {"/": os.sep, "pathSeparator": os.sep, **values}
    return re.sub(r"\$\{(.*?)\}", lambda match: known.get(match[1], match[0]), text)


def _extension(folder: Path, cwd: str, settings: Settings) -> Extension | None:
    if not folder.is_dir():
        return None
    origin = _object(folder / ".gemini-extension-install.json")
    if not _is_allowed(origin, settings):
        return None
    source = origin.get("source")
    path = Path(source) if origin.get("type") == "link" and isinstance(source, str) else folder
    config = _object(path / "gemini-extension.json")
    name = config.get("name")
    if not isinstance(name, str) or not config.get("version"):
        return None
    name = substitute_variables(name, {"extensionPath": str(path), "workspacePath": cwd})
    return Extension(name, path) if _NAME.fullmatch(name) else None


def _is_allowed(origin: Mapping[str, Any], settings: Settings) -> bool:
    security = settings.get("security")
    security = security if isinstance(security, dict) else {}
    patterns = security.get("allowedExtensions")
    if isinstance(patterns, list) and patterns:
        source = origin.get("source")
        return isinstance(source, str) and any(_matches(pattern, source) for pattern in patterns)
    return not (security.get("blockGitExtensions") and origin.get("type") in ("git", "github-release"))


def _matches(pattern: object, source: str) -> bool:
    try:
        return isinstance(pattern, str) and bool(re.search(pattern, os.path.realpath(source)))
    except re.error:
        return False


def _is_enabled(rules: object, cwd: str) -> bool:
    """Return whether an extension is enabled for the folder `cwd`.

    `rules` is the JSON object of the extension in `extension-enablement.json`. Its field
    `overrides` is a list of rules. A rule is a path: it enables the extension in the folder with
    this path. A rule with a `!` before the path disables the extension there. A `*` at the end of
    the path includes subfolders.

    The last rule that matches `cwd` decides. If no rule matches, the extension is enabled.
    """
    overrides = rules.get("overrides") if isinstance(rules, dict) else None
    place = f"{cwd.rstrip('/')}/"
    enabled = True
    for rule in overrides if isinstance(overrides, list) else ():
        if isinstance(rule, str) and re.fullmatch(_as_pattern(rule.removeprefix("!")), place):
            enabled = not rule.startswith("!")
    return enabled


def _as_pattern(rule: str) -> str:
    plain = re.sub(r"[.+?^${}()|\[\]\\]", r"\\\g<0>", rule)
    return re.sub(r"(/?)\*", r"(\1.*)?", plain)


def _object(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
