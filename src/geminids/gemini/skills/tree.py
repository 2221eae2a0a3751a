"""The files of one skill folder: what they are together, and a copy of them that is whole or not there."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator

import msgspec

from geminids.errors import GeminidsError

__all__ = ["Tree", "copy_tree", "leaves", "look_at", "outward_links"]

# It belongs to the place where a skill was made, not to the skill.
_LEFT_OUT = ".git"


class Tree(msgspec.Struct, frozen=True):
    """What a folder holds. `sha256` covers names, kinds, links, executable bits and every byte."""

    files: int
    size: int
    sha256: str = ""

    @property
    def without_digest(self) -> Tree:
        return Tree(self.files, self.size)


class Leaf(msgspec.Struct, frozen=True):
    """One thing in a folder that is no folder; `path` is relative, with `/`."""

    path: str
    full: str
    mode: int
    size: int


def leaves(folder: str, under: str = "") -> Iterator[Leaf]:
    """All of it in a fixed order, links not followed. Raises OSError."""
    for name in sorted(os.listdir(os.path.join(folder, under)), key=os.fsencode):
        path = f"{under}/{name}" if under else name
        full = os.path.join(folder, path)
        status = os.lstat(full)
        if stat.S_ISDIR(status.st_mode):
            yield from leaves(folder, path)
        else:
            yield Leaf(path, full, status.st_mode, status.st_size)


def look_at(folder: str, expected: Tree | None = None) -> Tree:
    """What is in the folder. Where even count and size are not what was expected, no byte is read."""
    found = list(leaves(folder))
    tree = Tree(len(found), sum(leaf.size for leaf in found))
    if expected is not None and tree != expected.without_digest:
        return tree
    import hashlib  # imported late: it loads OpenSSL, and most folders hold no skill that was added

    digest = hashlib.sha256()
    for leaf in found:
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


def outward_links(folder: str) -> list[str]:
    """Links that lead out of the folder, or that would after a copy: relative paths."""
    inside = os.path.realpath(folder)
    found = []
    for leaf in leaves(folder):
        if stat.S_ISLNK(leaf.mode) and leaf.path.split("/")[0] != _LEFT_OUT:
            end = os.path.realpath(leaf.full)
            if os.path.isabs(os.readlink(leaf.full)) or not end.startswith(inside + os.sep):
                found.append(leaf.path)
    return found


def copy_tree(source: str, target: str) -> None:
    """Copy files and links, without `.git`; `target` must not be there. Anything else is refused."""
    os.mkdir(target)
    for leaf in leaves(source):
        if leaf.path.split("/")[0] == _LEFT_OUT:
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
