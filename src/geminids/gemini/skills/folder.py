"""List, hash and copy the files of a skill's folder."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator

import msgspec

from geminids.errors import GeminidsError

__all__ = ["Tree", "copy_tree", "file_entries", "links_outside", "scan_tree"]

# The git data of a skill's repository, which is not part of the skill.
_EXCLUDED = ".git"


class Tree(msgspec.Struct, frozen=True):
    """A summary of a folder's contents: the number of files, their total size in bytes, and a hash.

    `sha256` is a hash of all files and links: their names, kinds, contents, link targets and
    executable bits. It is an empty string if the hash was not computed.
    """

    files: int
    size: int
    sha256: str = ""

    @property
    def without_digest(self) -> Tree:
        return Tree(self.files, self.size)


class FileEntry(msgspec.Struct, frozen=True):
    """A file or link in a folder or its subfolders. `path` is the path relative to the folder, with
    `/` as the separator. `full` is the folder's path joined with `path`. `size` is in bytes.
    """

    path: str
    full: str
    mode: int
    size: int


def file_entries(folder: str, under: str = "") -> Iterator[FileEntry]:
    """Yield all files and links in a folder and its subfolders, in a fixed order. Raises `OSError`
    if a folder cannot be read.

    Links are not followed. `under` is the path of a subfolder, relative to `folder`: only the files
    and links inside this subfolder are yielded. If `under` is empty, those of the whole folder are
    yielded.
    """
    for name in sorted(os.listdir(os.path.join(folder, under)), key=os.fsencode):
        path = f"{under}/{name}" if under else name
        full = os.path.join(folder, path)
        status = os.lstat(full)
        if stat.S_ISDIR(status.st_mode):
            yield from file_entries(folder, path)
        else:
            yield FileEntry(path, full, status.st_mode, status.st_size)


def scan_tree(folder: str, expected: Tree | None = None) -> Tree:
    """Return the number of files in a folder, their total size, and a hash of their contents.

    If the number of files or the total size differs from that in `expected`, the folder has
    changed. Then the hash is not needed: it is not computed and stays empty. Raises `OSError` if a
    file cannot be read, or if the folder contains a special file, such as a socket.
    """
    files = list(file_entries(folder))
    tree = Tree(len(files), sum(entry.size for entry in files))
    if expected is not None and tree != expected.without_digest:
        return tree
    import hashlib  # imported late: it loads OpenSSL, and most workspaces have no added skill

    digest = hashlib.sha256()
    for entry in files:
        kind, data = _bytes_of(entry)
        digest.update(b"%s %d " % (kind, len(data)) + os.fsencode(entry.path) + b"\0" + data)
    return msgspec.structs.replace(tree, sha256=digest.hexdigest())


def _bytes_of(entry: FileEntry) -> tuple[bytes, bytes]:
    if stat.S_ISLNK(entry.mode):
        return b"link", os.fsencode(os.readlink(entry.full))
    if not stat.S_ISREG(entry.mode):
        raise OSError(f"{entry.full} is a special file, for example a socket or a named pipe")
    with open(entry.full, "rb") as file:
        return (b"program" if entry.mode & stat.S_IXUSR else b"file"), file.read()


def links_outside(folder: str) -> list[str]:
    """Return the links in a folder that would point outside a copy of the folder, as relative
    paths. Links in `.git` are left out.

    These are all relative links to a place outside the folder, and all absolute links. An absolute
    link to a place inside the folder is included too: in a copy, it still points to the original
    folder.
    """
    inside = os.path.realpath(folder)
    links = []
    for entry in file_entries(folder):
        if stat.S_ISLNK(entry.mode) and entry.path.split("/")[0] != _EXCLUDED:
            target = os.path.realpath(entry.full)
            if os.path.isabs(os.readlink(entry.full)) or not target.startswith(inside + os.sep):
                links.append(entry.path)
    return links


def copy_tree(source: str, target: str) -> None:
    """Copy the files and links in the folder `source` to the new folder `target`. `.git` is not
    copied.

    Raises `GeminidsError` if the folder contains a special file, such as a socket.
    """
    os.mkdir(target)
    for entry in file_entries(source):
        if entry.path.split("/")[0] == _EXCLUDED:
            continue
        to = os.path.join(target, entry.path)
        os.makedirs(os.path.dirname(to), exist_ok=True)
        if stat.S_ISLNK(entry.mode):
            os.symlink(os.readlink(entry.full), to)
        elif stat.S_ISREG(entry.mode):
            shutil.copyfile(entry.full, to, follow_symlinks=False)
            os.chmod(to, 0o755 if entry.mode & stat.S_IXUSR else 0o644)
        else:
            raise GeminidsError(
                f"the skill was not copied: {entry.full} is a special file, such as a socket or a named pipe",
                hint="Remove this file from the skill's folder, then try again.",
            )
