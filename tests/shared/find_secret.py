"""A program that searches for a secret wherever a hostile tool could. The agent's shell tool runs
it.

    python find_secret.py HALF OTHER_HALF [--memory]

The secret is passed in two halves, so that the search does not find its own arguments. The program
searches its own environment; the environment, arguments and open files of every process that it can
read; the settings, the private home, geminids' own folder, TMPDIR and the workspace. With
`--memory` it also searches the memory of the run's processes and of their host. It prints one line
of JSON: `found` lists the places with the secret, `read` counts what could be read, and `closed`
lists the processes that could not be read. It imports nothing from geminids, because a tool cannot.
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


class SecretSearch:
    """Searches the environment, processes, memory and files, and records where the secret is."""

    def __init__(self, secret: bytes, memory: bool) -> None:
        self._secret = secret
        self._memory = memory
        self._mark = os.environ.get(MARKER, "").split()[-1:]
        self._seen: set[tuple[int, int]] = set()
        self.found: list[str] = []
        self.read: Counter[str] = Counter()
        self.closed: dict[str, list[int]] = {"environ": [], "fd": [], "mem": []}

    def search_everywhere(self) -> None:
        self._search_data(
            "own environment", "own", "\n".join(f"{k}={v}" for k, v in os.environ.items()).encode()
        )
        for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
            if pid != os.getpid():
                self._search_process(pid)
        for name in _HOMES:
            if name in os.environ:
                self._search_folder(os.environ[name])
        for name in _FILES:
            if name in os.environ:
                self._search_file(os.environ[name], name)
        for name in _WITHIN:
            if name in os.environ:
                # geminids' own folder, which contains the private homes and the folders of all
                # runs.
                self._search_folder(os.path.dirname(os.path.dirname(os.environ[name])))

    def _search_process(self, pid: int) -> None:
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
                return  # the process has ended
            if name == "environ":
                marked = bool(self._mark) and self._mark[0].encode() in data
                self.read["of the run"] += marked
            self._search_data(f"{name} of {self._describe_process(pid)}", name, data)
        self._search_open_files(pid)
        if self._memory and (marked or pid == self._host_pid):
            self._search_memory(pid)

    @property
    def _host_pid(self) -> int | None:
        """The pid of the host: the first part of the run's mark."""
        return int(self._mark[0].partition(":")[0]) if self._mark else None

    def _search_open_files(self, pid: int) -> None:
        for link in self._list_descriptors(pid):
            path = f"/proc/{pid}/fd/{link}"
            try:
                target = os.readlink(path)
            except PermissionError:
                self.closed["fd"].append(pid)
                return
            except OSError:
                continue
            if target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/sys/")):
                self._search_file(path, f"open file {target} of {self._describe_process(pid)}")

    def _list_descriptors(self, pid: int) -> list[str]:
        try:
            return os.listdir(f"/proc/{pid}/fd")
        except PermissionError:
            self.closed["fd"].append(pid)
        except OSError:
            pass
        return []

    def _search_memory(self, pid: int) -> None:
        try:
            with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
                for start, end in _writable_ranges(maps):
                    try:
                        mem.seek(start)
                        data = mem.read(min(end - start, _LARGEST))
                    except (OSError, ValueError, OverflowError):
                        continue
                    self._search_data(f"memory of {self._describe_process(pid)}", "mem", data)
        except PermissionError:
            self.closed["mem"].append(pid)
        except OSError:
            pass

    def _search_folder(self, folder: str) -> None:
        for path, folders, names in os.walk(folder):
            for name in [*names, *folders]:
                inner = os.path.join(path, name)
                if os.path.islink(inner):
                    # A link out of the folder leads to the user's own files, which are not
                    # searched.
                    if os.path.realpath(inner).startswith(os.path.realpath(folder) + os.sep):
                        self._search_file(inner, inner)
                elif name in names:
                    self._search_file(inner, inner)

    def _search_file(self, path: str, shown: str) -> None:
        try:
            about = os.stat(path)
            key = (about.st_dev, about.st_ino)
            if key in self._seen or not os.path.isfile(path):
                return
            self._seen.add(key)
            with open(path, "rb") as file:
                self._search_data(shown, "file", file.read(_LARGEST))
        except OSError:
            pass

    def _search_data(self, place: str, kind: str, data: bytes) -> None:
        self.read[kind] += 1
        if self._secret in data and place not in self.found:
            self.found.append(place)

    def _describe_process(self, pid: int) -> str:
        try:
            with open(f"/proc/{pid}/comm") as file:
                return f"{pid} {file.read().strip()}"
        except OSError:
            return str(pid)


def _writable_ranges(maps: Iterator[str]) -> Iterator[tuple[int, int]]:
    for line in maps:
        where, rights = line.split()[:2]
        if rights.startswith("rw"):
            start, _, end = where.partition("-")
            yield int(start, 16), int(end, 16)


def main() -> None:
    secret = (sys.argv[1] + sys.argv[2]).encode()
    search = SecretSearch(secret, "--memory" in sys.argv)
    search.search_everywhere()
    print(
        "HUNT",
        json.dumps(
            {"found": search.found, "read": search.read, "closed": search.closed, "host": search._host_pid}
        ),
    )


if __name__ == "__main__":
    main()
