"""The folders in which geminids keeps its own files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = ["SOURCE", "Places", "private_dir", "write_private"]

# Names the user's home for runs that a tool of another run starts. It begins with GEMINI_CLI_, like
# the marker of processes: the CLI removes other variables from the environment of its tools.
SOURCE = "GEMINI_CLI_GEMINIDS_SOURCE"


class Places(msgspec.Struct, frozen=True):
    """The folders of this installation, all below `root`.

    `GEMINIDS_HOME` sets `root`, for example to the `.geminids` of a clone or to a temporary folder.
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
        """Managed installs of Gemini CLI, one folder per version."""
        return self.root / "gemini"

    @property
    def node(self) -> Path:
        """Managed Node, one folder per version."""
        return self.root / "node"

    @property
    def homes(self) -> Path:
        """Private homes of the CLI (`GEMINI_CLI_HOME`)."""
        return self.root / "homes"

    @property
    def runs(self) -> Path:
        """Scratch folders of runs. Each is removed when its run ends."""
        return self.root / "runs"

    @property
    def kept(self) -> Path:
        """One empty file for each run with `leftovers="keep"`."""
        return self.root / "kept"

    @property
    def locks(self) -> Path:
        """One lock file for each session in use."""
        return self.root / "locks"

    @property
    def prices(self) -> Path:
        """A cache of list prices, so that the next lookup needs no library."""
        return self.root / "prices"

    @property
    def request_log(self) -> Path:
        """API requests that are in no session file of the CLI (`gateway/request_log.py`)."""
        return self.root / "request-log" / "requests.jsonl"


def private_dir(path: Path) -> Path:
    """Create a folder and missing parents that only the owner can enter, and return it."""
    if not path.is_dir():
        private_dir(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def write_private(file: Path, data: bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write a file atomically; raises OSError. `sync`: the data is on disk when this returns."""
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
