"""The folders in which geminids keeps its own files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

__all__ = ["SOURCE", "Places", "private_dir", "write_private"]

# The environment variable with the path of the user's home, for a run that is started by a tool of
# another run. Its name begins with GEMINI_CLI_, because the CLI removes other variables from the
# environment of its tools.
SOURCE = "GEMINI_CLI_GEMINIDS_SOURCE"


class Places(msgspec.Struct, frozen=True):
    """The folders in which geminids stores its files. All are inside `root`.

    The environment variable `GEMINIDS_HOME` sets `root`. Without it, `root` is the platform's
    folder for user data.
    """

    root: Path

    @classmethod
    def of(cls, environ: Mapping[str, str] | None = None) -> Places:
        named = (os.environ if environ is None else environ).get("GEMINIDS_HOME")
        if named:
            return cls(Path(named).absolute())
        from platformdirs import user_data_path  # imported late: it takes 18 ms

        return cls(user_data_path("geminids", appauthor=False))

    @property
    def releases(self) -> Path:
        """The folder with the releases of Gemini CLI that geminids installed, one per version."""
        return self.root / "gemini"

    @property
    def node(self) -> Path:
        """The folder with the Node versions that geminids installed."""
        return self.root / "node"

    @property
    def homes(self) -> Path:
        """The folder with the home folders that geminids creates for the CLI. The CLI gets the path
        of one of them in `GEMINI_CLI_HOME`."""
        return self.root / "homes"

    @property
    def runs(self) -> Path:
        """The folder with the temporary folders of the runs, one for each run. The temporary folder
        of a run is removed when the run ends."""
        return self.root / "runs"

    @property
    def records(self) -> Path:
        """The folder with the run records: one folder for each run, with its files. geminids never
        removes them."""
        return self.root / "records"

    @property
    def kept(self) -> Path:
        """The folder with one empty file for each run that left background processes running on
        purpose (`leftovers="keep"`)."""
        return self.root / "kept"

    @property
    def locks(self) -> Path:
        """The folder with the lock files, for example one for each session that a run uses."""
        return self.root / "locks"

    @property
    def prices(self) -> Path:
        """The folder that caches list prices.

        The cache saves time, because genai-prices, the library that contains the list prices, is
        slow to import.
        """
        return self.root / "prices"

    @property
    def request_log(self) -> Path:
        """The request log: a file with the API requests that `geminids usage` cannot find, or must
        not count, in the session files of the CLI.

        `gateway/request_log.py` writes this file.
        """
        return self.root / "request-log" / "requests.jsonl"


def private_dir(path: Path) -> Path:
    """Create a folder and its missing parents with mode 0700, and return the folder."""
    if not path.is_dir():
        private_dir(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    return path


def write_private(file: Path, data: bytes, *, mode: int = 0o600, sync: bool = False) -> None:
    """Write `data` to a file atomically: other processes see either the old or the complete new
    contents.

    `mode` are the permissions of the file; by default, only the owner can read it. If `sync` is
    true, the data is on disk when this function returns. Raises OSError if the file cannot be
    written.
    """
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
