"""Install releases of Gemini CLI side by side, each in its own folder.

A release is first downloaded to a temporary folder and verified there. Then the temporary folder is
renamed to the folder of the release.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from geminids.config.flock import FileLock
from geminids.config.paths import Places, private_dir
from geminids.errors import InstallFailed, ToolchainError
from geminids.gemini.install.node import install_node
from geminids.gemini.install.npm import Npm, available, check_spec, fetch, npm_for, resolve
from geminids.gemini.locate.find import Installed, find, installed, record_of
from geminids.gemini.locate.identify import PACKAGE, Gemini, package_in, probe_version
from geminids.gemini.locate.node import Node, find_node
from geminids.gemini.locate.probe import run_command
from geminids.gemini.versions import Version

__all__ = ["Progress", "available_versions", "install", "uninstall", "warm_up"]

# Seconds for the first `gemini --version`. It takes one second, and much longer on a loaded machine.
_VERSION_TIMEOUT = 60
_SETTINGS = (
    '{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false},'
    '"general":{"sessionRetention":{"enabled":false}}}'
)
_ANSWER = (
    '{"method":"generateContentStream","response":[{"candidates":[{"content":{"role":"model","parts":'
    '[{"text":"warm"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,'
    '"candidatesTokenCount":1,"totalTokenCount":2}}]}\n'
)
_PASSED_VARIABLES = ("PATH", "LANG", "TMPDIR", "SYSTEMROOT")


def warm_up(gemini: Gemini, places: Places, environ: Mapping[str, str]) -> bool:
    """Run a newly installed CLI once. During this run, Node stores the compiled code of the CLI, so
    later starts are faster. Return whether the run succeeded.

    The run uses a scripted model answer, a temporary home and no network. The CLI is not run, and
    the result is False, if geminids does not support the release, if no Node is known for the CLI
    (`gemini.node` is None), or if this Node cannot store compiled code.
    """
    if gemini.node is None or not gemini.node.has_compile_cache or not gemini.release.is_supported:
        return False
    with tempfile.TemporaryDirectory(prefix=".warm-up-", dir=private_dir(places.root)) as folder:
        home = Path(folder)
        private_dir(home / ".gemini").joinpath("settings.json").write_text(_SETTINGS)
        script = home / "answer.ndjson"
        script.write_text(_ANSWER)
        flags = ("--output-format=stream-json", "--model=gemini-2.5-flash", f"--fake-responses={script}")
        argv = (*gemini.command(places), *flags, "--prompt=warm up")
        result = run_command(argv, environ=_environ(home, environ), cwd=private_dir(home / "cwd"), timeout=60)
    return result.code == 0


def _environ(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    # Pass only a few variables: with an API key or a base URL, the CLI could send a real request.
    passed = {name: environ[name] for name in _PASSED_VARIABLES if name in environ}
    return {
        **passed,
        "HOME": str(home),
        "GEMINI_CLI_HOME": str(home),
        "GEMINI_API_KEY": "none",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "NO_BROWSER": "true",
    }


Progress = Callable[[str], None]

_STAGING = ".staging-"


def install(
    version: str = "latest",
    *,
    places: Places | None = None,
    progress: Progress | None = None,
    node: Literal["managed", "path"] = "managed",
    environ: Mapping[str, str] | None = None,
) -> Gemini:
    """Install a version or tag of Gemini CLI, and return the installed CLI. Other installed
    versions stay.

    With `node="managed"`, a Node for the CLI is installed too. With `node="path"`, the CLI uses the
    Node on PATH. `progress` is called with a line of text at each step.

    If the version is already installed, it is not downloaded again. If the installation is
    interrupted, no incomplete version is left. Raises `InstallFailed` if the installation fails, or
    `NodeMissing` if `node="path"` and no suitable Node is found.
    """
    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    report = progress or _ignore
    spec = check_spec(version)
    with _as_install_errors(places):
        runtime = _runtime(places, node, environ, report)
        exact = _exact(spec)
        if exact and _is_complete(exact, places):
            return find(exact, environ=environ, places=places)
        with _staging_folder(places, "resolve") as work:
            npm = npm_for(runtime, work, environ)
            resolved = exact or resolve(npm, spec)
            if not exact:
                report(f"{spec} is {resolved}")
            with _lock(places, resolved, report):
                if not _is_complete(resolved, places):
                    _remove_stale(places, work)
                    _install_release(npm, resolved, spec, runtime, places, environ, report)
                elif tag := _tag(spec):
                    _write_record(places.releases / resolved, resolved, tag, runtime, None)
    return find(resolved, environ=environ, places=places)


def uninstall(version: str, *, places: Places | None = None) -> None:
    """Remove a release of Gemini CLI that geminids has installed.

    Raises `ToolchainError` if geminids has not installed this release, or if it cannot be removed.
    """
    places = places or Places.of()
    spec = check_spec(version)
    folder = places.releases / spec
    if _exact(spec) is None or not folder.is_dir():
        versions = ", ".join(gemini.version or "" for gemini in installed(places))
        hint = f"Installed: {versions}." if versions else "Nothing is installed."
        raise ToolchainError(f"geminids has not installed Gemini CLI {spec}", hint=hint)
    with _as_install_errors(places), _lock(places, spec, _ignore), _staging_folder(places, "remove") as work:
        folder.rename(work / "old")  # atomic: no other process sees a partial install


def available_versions(
    *, places: Places | None = None, environ: Mapping[str, str] | None = None
) -> list[str]:
    """Return all versions of Gemini CLI that npm's registry offers, the newest one first. Raises
    `ToolchainError` if there is no Node or no npm, or if npm fails.
    """
    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    with _as_install_errors(places), _staging_folder(places, "list") as work:
        return available(npm_for(find_node(places, environ=environ), work, environ))


def _install_release(
    npm: Npm,
    version: str,
    spec: str,
    node: Node,
    places: Places,
    environ: Mapping[str, str],
    report: Progress,
) -> None:
    report(f"fetching Gemini CLI {version}")
    tree = private_dir(npm.work / "tree")
    fetch(npm, version, tree)
    report("verifying")
    _verify(tree, version, node, places, environ)
    _write_record(tree, version, _tag(spec), node, _size(tree))
    target = places.releases / version
    if target.exists():  # an incomplete install
        target.rename(npm.work / "broken")
    tree.rename(target)
    report("warming up")  # after the rename, because the compile cache stores the path of the script
    warm_up(find(version, environ=environ, places=places), places, environ)


def _verify(tree: Path, version: str, node: Node, places: Places, environ: Mapping[str, str]) -> None:
    package = package_in(tree / "node_modules" / PACKAGE)
    if package is None or package.version != version:
        installed_version = f"version {package.version}" if package else "an incomplete package"
        raise InstallFailed(
            f"npm installed {installed_version} instead of {PACKAGE}@{version}", hint="Try again."
        )
    command = (str(node.path), str(package.entry))
    printed = probe_version(command, places, environ, timeout=_VERSION_TIMEOUT)
    if printed != version:
        message = (
            f"Gemini CLI {version} does not work on Node {node.version}: "
            f"`gemini --version` printed {printed or f'no version within {_VERSION_TIMEOUT} seconds'}"
        )
        hint = "Try again. If it does not work again, this release may need another Node: try --node=path."
        raise InstallFailed(message, hint=hint)


def _write_record(tree: Path, version: str, tag: str | None, node: Node, size: int | None) -> None:
    old = None
    if size is None:
        old = msgspec.json.decode((tree / "geminids.json").read_bytes(), type=Installed)
    record = Installed(
        version=version,
        installed_at=old.installed_at if old else int(time.time()),
        tag=tag,
        node=node.version,
        bytes=old.bytes if old else size,
    )
    temporary = tree / f".geminids.json.{os.getpid()}"
    temporary.write_bytes(msgspec.json.encode(record))
    temporary.replace(tree / "geminids.json")


def _runtime(places: Places, node: str, environ: Mapping[str, str], report: Progress) -> Node:
    if node == "path":
        return find_node(places, environ=environ, managed=False)
    return install_node(places, report, environ=environ)


def _exact(spec: str) -> str | None:
    return spec if Version.parse(spec) and spec.count(".") >= 2 else None


def _tag(spec: str) -> str | None:
    return spec if Version.parse(spec) is None else None


def _is_complete(version: str, places: Places) -> bool:
    package = package_in(places.releases / version / "node_modules" / PACKAGE)
    return package is not None and package.version == version and record_of(version, places) is not None


@contextmanager
def _staging_folder(places: Places, purpose: str) -> Iterator[Path]:
    private_dir(places.releases)
    work = Path(tempfile.mkdtemp(prefix=f"{_STAGING}{purpose}-{os.getpid()}-", dir=places.releases))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _remove_stale(places: Places, own: Path) -> None:
    # Remove the staging folders of installs that were killed. The name of a staging folder contains
    # the pid of the process that created it.
    for name in os.listdir(places.releases):
        if name.startswith(_STAGING) and name != own.name and not _is_running(name.split("-")[2]):
            shutil.rmtree(places.releases / name, ignore_errors=True)


def _is_running(pid: str) -> bool:
    return not pid.isdigit() or psutil.pid_exists(int(pid))


@contextmanager
def _lock(places: Places, version: str, report: Progress) -> Iterator[None]:
    file = private_dir(places.releases / ".locks") / f"{version}.lock"
    lock = FileLock.take(file)
    if lock is None:
        report(f"waiting for another install of {version}")
        lock = FileLock.wait_for(file)
    with closing(lock):
        yield


@contextmanager
def _as_install_errors(places: Places) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "Set GEMINIDS_HOME to use another folder."
        message = f"cannot read or write {error.filename or places.root}: {error.strerror}"
        raise InstallFailed(message, hint=hint) from error


def _size(tree: Path) -> int:
    return sum(
        os.lstat(os.path.join(folder, name)).st_size for folder, _, files in os.walk(tree) for name in files
    )


def _ignore(_: str) -> None:
    pass
