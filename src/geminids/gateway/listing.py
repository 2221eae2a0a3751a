"""Read what the CLI's `list_directory` says, and find the file in it that tells most."""

from __future__ import annotations

import re

import msgspec

__all__ = ["Listing", "read_listing", "telling_file"]

_HEAD = re.compile(r"Directory listing for (?P<folder>.+):$|Directory (?P<empty>.+) is empty\.$")
_SIZE = re.compile(r" \((?P<bytes>\d+) bytes\)$")
_NOTE = re.compile(r"\(\d+ .*ignored\)$")
_TELLING = ("pyproject.toml", "package.json", "cargo.toml", "go.mod", "makefile")
_TEXT = re.compile(
    r"\.(md|markdown|rst|txt|py|pyi|js|mjs|ts|tsx|jsx|go|rs|c|h|cc|cpp|java|kt|rb|php|sh|toml|ya?ml|json|ini|cfg|"
    r"html|css|sql|csv|tex)$|^(dockerfile|license|notice|changelog|makefile)$",
    re.IGNORECASE,
)
_MOST = 200_000


class Listing(msgspec.Struct, frozen=True):
    """A folder with the names in it."""

    folder: str | None
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    large: frozenset[str] = frozenset()


def read_listing(output: str) -> Listing:
    """Read the output of `list_directory` of any release.

    >>> read_listing("Directory listing for /w:\\n[DIR] src\\na.py (4 bytes)")
    Listing(folder='/w', files=('a.py',), folders=('src',), large=frozenset())
    """
    lines = output.splitlines()
    head = _HEAD.match(lines[0].rstrip()) if lines else None
    folder = (head["folder"] or head["empty"]) if head else None
    files, folders, large = [], [], []
    for line in lines[1:] if head else lines:
        name = line.rstrip()
        if not name or _NOTE.match(name):
            continue
        if name.startswith("[DIR] "):
            folders.append(name.removeprefix("[DIR] "))
            continue
        size = _SIZE.search(name)
        name = _SIZE.sub("", name)
        files.append(name)
        if size is not None and int(size["bytes"]) > _MOST:
            large.append(name)
    return Listing(folder, tuple(files), tuple(folders), frozenset(large))


def telling_file(listing: Listing) -> str | None:
    """The file that says most about the folder: a README, else the project's file, else a text.

    >>> telling_file(Listing("/w", ("a.py", "package.json", "README.md")))
    'README.md'
    """
    # Hidden files can hold secrets (.env): never those.
    names = [name for name in listing.files if not name.startswith(".") and name not in listing.large]
    readmes = sorted((name for name in names if name.lower().startswith("readme")), key=_readme_rank)
    if readmes:
        return readmes[0]
    for wanted in _TELLING:
        for name in names:
            if name.lower() == wanted:
                return name
    return next((name for name in names if _TEXT.search(name)), None)


def _readme_rank(name: str) -> tuple[bool, int, str]:
    return not name.lower().endswith((".md", ".rst", ".txt", "readme")), len(name), name
