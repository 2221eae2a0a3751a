"""What a hostile tool can look at: run by a shell tool of the agent, it says in one line of JSON where a needle is.

    python key_hunt.py HALF OTHER_HALF [--memory]

The needle is given in two halves, so that the hunt does not find itself. It looks at its own environment; at the
environment, arguments and open files of every process that it may look into; with `--memory`, at the memory of the
run's processes and of their host; at the settings, the private home, geminids' own folder, TMPDIR and the workspace.
`found` names the places, `read` counts what could be read, `closed` the processes that could not be looked into.
It is a plain script: a tool has nothing of ours to import.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator

__all__: list[str] = []

MARKER = "GEMINI_CLI_GEMINIDS_MARK"
_HOMES = ("GEMINI_CLI_HOME", "TMPDIR", "PWD")
_FILES = ("GEMINI_CLI_SYSTEM_SETTINGS_PATH", "GEMINI_CLI_SYSTEM_DEFAULTS_PATH", "GEMINI_TELEMETRY_OUTFILE")
_WITHIN = ("GEMINI_CLI_HOME", "GEMINI_CLI_SYSTEM_SETTINGS_PATH")
_LARGEST = 64 * 1024 * 1024


class Hunt:
    def __init__(self, needle: bytes, memory: bool) -> None:
        self._needle = needle
        self._memory = memory
        self._mark = os.environ.get(MARKER, "").split()[-1:]
        self._seen: set[tuple[int, int]] = set()
        self.found: list[str] = []
        self.read: Counter[str] = Counter()
        self.closed: dict[str, list[int]] = {"environ": [], "fd": [], "mem": []}

    def everywhere(self) -> None:
        self._look("own environment", "own", "\n".join(f"{k}={v}" for k, v in os.environ.items()).encode())
        for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
            if pid != os.getpid():
                self._process(pid)
        for name in _HOMES:
            if name in os.environ:
                self._folder(os.environ[name])
        for name in _FILES:
            if name in os.environ:
                self._file(os.environ[name], name)
        for name in _WITHIN:
            if name in os.environ:
                # geminids' own folder, with the homes and the runs' folders of all runs.
                self._folder(os.path.dirname(os.path.dirname(os.environ[name])))

    def _process(self, pid: int) -> None:
        base = f"/proc/{pid}"
        marked = False
        for name in ("cmdline", "environ"):
            try:
                with open(f"{base}/{name}", "rb") as file:
                    data = file.read()
            except PermissionError:
                self.closed[name].append(pid)
                continue
            except OSError:
                return  # it has ended
            if name == "environ":
                marked = bool(self._mark) and self._mark[0].encode() in data
                self.read["of the run"] += marked
            self._look(f"{name} of {self._who(pid)}", name, data)
        self._open_files(pid)
        if self._memory and (marked or pid == self._host):
            self._mem(pid)

    @property
    def _host(self) -> int | None:
        """The host's pid stands in the mark."""
        return int(self._mark[0].partition(":")[0]) if self._mark else None

    def _open_files(self, pid: int) -> None:
        for link in self._links(pid):
            path = f"/proc/{pid}/fd/{link}"
            try:
                target = os.readlink(path)
            except PermissionError:
                self.closed["fd"].append(pid)
                return
            except OSError:
                continue
            if target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/sys/")):
                self._file(path, f"open file {target} of {self._who(pid)}")

    def _links(self, pid: int) -> list[str]:
        try:
            return os.listdir(f"/proc/{pid}/fd")
        except PermissionError:
            self.closed["fd"].append(pid)
        except OSError:
            pass
        return []

    def _mem(self, pid: int) -> None:
        try:
            with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
                for start, end in _writable(maps):
                    try:
                        mem.seek(start)
                        data = mem.read(min(end - start, _LARGEST))
                    except (OSError, ValueError, OverflowError):
                        continue
                    self._look(f"memory of {self._who(pid)}", "mem", data)
        except PermissionError:
            self.closed["mem"].append(pid)
        except OSError:
            pass

    def _folder(self, folder: str) -> None:
        for path, folders, names in os.walk(folder):
            for name in [*names, *folders]:
                inner = os.path.join(path, name)
                if os.path.islink(inner):
                    # What leads out of it is the user's own, as it was before.
                    if os.path.realpath(inner).startswith(os.path.realpath(folder) + os.sep):
                        self._file(inner, inner)
                elif name in names:
                    self._file(inner, inner)

    def _file(self, path: str, shown: str) -> None:
        try:
            about = os.stat(path)
            key = (about.st_dev, about.st_ino)
            if key in self._seen or not os.path.isfile(path):
                return
            self._seen.add(key)
            with open(path, "rb") as file:
                self._look(shown, "file", file.read(_LARGEST))
        except OSError:
            pass

    def _look(self, place: str, kind: str, data: bytes) -> None:
        self.read[kind] += 1
        if self._needle in data and place not in self.found:
            self.found.append(place)

    def _who(self, pid: int) -> str:
        try:
            with open(f"/proc/{pid}/comm") as file:
                return f"{pid} {file.read().strip()}"
        except OSError:
            return str(pid)


def _writable(maps: Iterator[str]) -> Iterator[tuple[int, int]]:
    for line in maps:
        where, rights = line.split()[:2]
        if rights.startswith("rw"):
            start, _, end = where.partition("-")
            yield int(start, 16), int(end, 16)


def main() -> None:
    needle = (sys.argv[1] + sys.argv[2]).encode()
    hunt = Hunt(needle, "--memory" in sys.argv)
    hunt.everywhere()
    print(
        "HUNT",
        json.dumps({"found": hunt.found, "read": hunt.read, "closed": hunt.closed, "host": hunt._host}),
    )


if __name__ == "__main__":
    main()
