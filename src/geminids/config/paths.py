"""Where geminids keeps its own things on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = ["SOURCE", "Places", "private_dir", "write_private"]

# Tells a run within a run whose home it is. It begins with GEMINI_CLI_, as the mark does: the CLI strips others.
SOURCE = "GEMINI_CLI_GEMINIDS_SOURCE"


class Places(msgspec.Struct, frozen=True):
    """The folders of this installation, all below `root`.

    `GEMINIDS_HOME` moves them all at once (a clone's own `.geminids`, a test's temporary folder).
    """

    root: Path

    @classmethod
    def of(cls, environ: Mapping[str, str] | None = None) -> Places:
        named = (os.environ if environ is None else environ).get("GEMINIDS_HOME")
        if named:
            return cls(Path(named).absolute())
        from platformdirs import user_data_path  # imported late: 18 ms

        return cls(user_data_path("geminids", appauthor=False))

    @property
    def releases(self) -> Path:
        """Managed installs of Gemini CLI, one folder a version."""
        return self.root / "gemini"

    @property
    def node(self) -> Path:
        """Managed Node, one folder a version."""
        return self.root / "node"

    @property
    def homes(self) -> Path:
        """Private homes of the CLI (`GEMINI_CLI_HOME`)."""
        return self.root / "homes"

    @property
    def runs(self) -> Path:
        """One folder for each run that has to write something, gone when the run is."""
        return self.root / "runs"

    @property
    def kept(self) -> Path:
        """One empty file for each run whose leftovers were kept on purpose."""
        return self.root / "kept"

    @property
    def locks(self) -> Path:
        """One file for each session that a run holds."""
        return self.root / "locks"

    @property
    def prices(self) -> Path:
        """List prices as they were looked up, so that the next look needs no library."""
        return self.root / "prices"

    @property
    def request_log(self) -> Path:
        """The API requests that no session file of the CLI holds (`gateway/request_log.py`)."""
        return self.root / "request-log" / "requests.jsonl"


def private_dir(path: Path) -> Path:
    """Make a folder that only its owner can enter, and return it; so are those above it that were not there."""
    if not path.is_dir():
        private_dir(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def write_private(file: Path, data: bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write a file, whole or not at all; raises OSError. `sync`: it is on the disk when this returns."""
    private_dir(file.parent)
    draft = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(data)
            out.flush()
            if sync:
                os.fsync(out.fileno())
        os.replace(draft, file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
