"""The files of a skill folder: list, hash and copy them."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator

import msgspec

from geminids.errors import GeminidsError

__all__ = ["Tree", "copy_tree", "leaves", "links_outside", "scan_tree"]

# The skill's repository, which is not part of the skill.
_EXCLUDED = ".git"


class Tree(msgspec.Struct, frozen=True):
    """The contents of a folder. `sha256` covers names, kinds, links, executable bits and bytes."""

    files: int
    size: int
    sha256: str = ""

    @property
    def without_digest(self) -> Tree:
        return Tree(self.files, self.size)


class Leaf(msgspec.Struct, frozen=True):
    """A directory entry that is not a folder. `path` is relative, with `/`."""

    path: str
    full: str
    mode: int
    size: int


def leaves(folder: str, under: str = "") -> Iterator[Leaf]:
    """Yield all entries in a fixed order, without following links. Raises OSError."""
    for name in sorted(os.listdir(os.path.join(folder, under)), key=os.fsencode):
        path = f"{under}/{name}" if under else name
        full = os.path.join(folder, path)
        status = os.lstat(full)
        if stat.S_ISDIR(status.st_mode):
            yield from leaves(folder, path)
        else:
            yield Leaf(path, full, status.st_mode, status.st_size)


def scan_tree(folder: str, expected: Tree | None = None) -> Tree:
    """Count and hash the files of a folder; no hash if count or size differ from `expected`."""
    files = list(leaves(folder))
    tree = Tree(len(files), sum(leaf.size for leaf in files))
    if expected is not None and tree != expected.without_digest:
        return tree
    import hashlib  # imported late: it loads OpenSSL, and most folders have no added skill

    digest = hashlib.sha256()
    for leaf in files:
        kind, data = _bytes_of(leaf)
        digest.update(b"%s %d " % (kind, len(data)) + os.fsencode(leaf.path) + b"\0" + data)
    return msgspec.structs.replace(tree, sha256=digest.hexdigest())


def _bytes_of(leaf: Leaf) -> tuple[bytes, bytes]:
    if stat.S_ISLNK(leaf.mode):
        return b"link", os.fsencode(os.readlink(leaf.full))
    if not stat.S_ISREG(leaf.mode):
        raise OSError(f"{leaf.full} is neither a file, a folder nor a link")
    with open(leaf.full, "rb") as file:
        return (b"program" if leaf.mode & stat.S_IXUSR else b"file"), file.read()


def links_outside(folder: str) -> list[str]:
    """Return the relative paths of links that point outside the folder, or would after a copy."""
    inside = os.path.realpath(folder)
    links = []
    for leaf in leaves(folder):
        if stat.S_ISLNK(leaf.mode) and leaf.path.split("/")[0] != _EXCLUDED:
            target = os.path.realpath(leaf.full)
            if os.path.isabs(os.readlink(leaf.full)) or not target.startswith(inside + os.sep):
                links.append(leaf.path)
    return links


def copy_tree(source: str, target: str) -> None:
    """Copy files and links, except `.git`, to a new folder. Other kinds of files are errors."""
    os.mkdir(target)
    for leaf in leaves(source):
        if leaf.path.split("/")[0] == _EXCLUDED:
            continue
        to = os.path.join(target, leaf.path)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if stat.S_ISLNK(leaf.mode):
            os.symlink(os.readlink(leaf.full), to)
        elif stat.S_ISREG(leaf.mode):
            shutil.copyfile(leaf.full, to, follow_symlinks=False)
            os.chmod(to, 0o755 if leaf.mode & stat.S_IXUSR else 0o644)
        else:
            raise GeminidsError(
                f"{leaf.full} is neither a file, a folder nor a link", hint="Remove it first."
            )
