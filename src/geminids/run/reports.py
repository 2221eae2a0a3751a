"""The CLI's error reports: files in the temporary folder with the conversation and the API's own words in them.

The CLI leaves `gemini-client-error-….json` there for anybody on the machine to read, and names it on stderr.
The report stays, since it is of use; what it says of secrets does not, and only its owner can read it.
"""

from __future__ import annotations

import os
import re
import stat

from geminids.redact import Redactor

__all__ = ["Reports"]

_NAMED = re.compile(r"[Rr]eport available at: (/.*/gemini-client-error-[^/\n]*\.json)")
_BEGIN = "gemini-client-error-"
_MOST = 100


class Reports:
    """Collects the reports that the CLI names, and seals them when the run is over."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._paths: dict[str, None] = {}

    def look_for(self, text: str) -> None:
        if "eport available at" in text and len(self._paths) < _MOST:
            self._paths.update(dict.fromkeys(_NAMED.findall(text)))

    def look_in(self, folder: str, since: float) -> None:
        """Those of a process that does not name them: a warm one says nothing on stderr before its end."""
        try:
            with os.scandir(folder) as found:
                for one in found:
                    is_report = one.name.startswith(_BEGIN) and one.name.endswith(".json")
                    if is_report and one.stat(follow_symlinks=False).st_mtime >= since:
                        self._paths[one.path] = None
        except OSError:
            return

    def seal(self) -> None:
        for path in self._paths:
            try:
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError:
                continue
            with os.fdopen(fd, "r+b") as file:
                try:
                    self._seal(file.fileno())
                except OSError:
                    continue

    def _seal(self, fd: int) -> None:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid():
            return  # stderr is the tools' to write to as well: it may name anything
        os.fchmod(fd, 0o600)
        said = os.pread(fd, about.st_size, 0)
        kept = self._redactor.block(said)
        if kept != said:
            os.pwrite(fd, kept, 0)
            os.ftruncate(fd, len(kept))
