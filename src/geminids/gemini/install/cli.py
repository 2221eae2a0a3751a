"""Side-by-side installs of Gemini CLI: fetched aside, verified, then put in place in one step."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from geminids.config.flock import FileLock
from geminids.config.paths import Places, private_dir
from geminids.errors import InstallFailed, ToolchainError
from geminids.gemini.install.npm import Npm, available, checked, fetch, npm_for, resolve
from geminids.gemini.locate.cli import PACKAGE, Gemini, package_in, probe_version
from geminids.gemini.locate.find import Installed, find, installed, record_of
from geminids.gemini.locate.node import Node, find_node
from geminids.gemini.versions import Version

__all__ = ["Progress", "available_versions", "install", "uninstall", "warm_up"]

_SETTINGS = (
    '{"security":{"auth":{"selectedType":"gemini-api-key"}},"privacy":{"usageStatisticsEnabled":false},'
    '"general":{"sessionRetention":{"enabled":false}}}'
)
_ANSWER = (
    '{"method":"generateContentStream","response":[{"candidates":[{"content":{"role":"model","parts":'
    '[{"text":"warm"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1,'
    '"candidatesTokenCount":1,"totalTokenCount":2}}]}\n'
)
_KEPT = ("PATH", "LANG", "TMPDIR", "SYSTEMROOT")


def warm_up(gemini: Gemini, places: Places, environ: Mapping[str, str]) -> bool:
    """Fill the compile cache; True if the scripted run succeeded. No network, no trace in any home.

    A release that geminids does not run is left as it is.
    """
    if gemini.node is None or not gemini.node.has_compile_cache or not gemini.release.is_supported:
        return False
    import tempfile

    from geminids.gemini.locate.probe import answer_of

    with tempfile.TemporaryDirectory(prefix=".warm-up-", dir=private_dir(places.root)) as folder:
        home = Path(folder)
        private_dir(home / ".gemini").joinpath("settings.json").write_text(_SETTINGS)
        script = home / "answer.ndjson"
        script.write_text(_ANSWER)
        flags = ("--output-format=stream-json", "--model=gemini-2.5-flash", f"--fake-responses={script}")
        argv = (*gemini.command(places), *flags, "--prompt=warm up")
        answer = answer_of(argv, environ=_environ(home, environ), cwd=private_dir(home / "cwd"), timeout=60)
    return answer.code == 0


def _environ(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    # Little of the user's environment: a key or a base URL in it would turn a warm-up into a request.
    own = {name: environ[name] for name in _KEPT if name in environ}
    return {
        **own,
        "HOME": str(home),
        "GEMINI_CLI_HOME": str(home),
        "GEMINI_API_KEY": "none",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "NO_BROWSER": "true",
    }


Progress = Callable[[str], None]

_ASIDE = ".aside-"


def install(
    version: str = "latest",
    *,
    places: Places | None = None,
    progress: Progress | None = None,
    node: Literal["managed", "path"] = "managed",
    environ: Mapping[str, str] | None = None,
) -> Gemini:
    """Install a version or tag of Gemini CLI beside the others, and return it.

    With `node="managed"` it also brings its own Node, whose compile cache makes every start faster.
    What is there already is not fetched again; a broken-off install leaves no half version behind.
    """
    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    say = progress or _silent
    asked = checked(version)
    with _named_failures(places):
        runtime = _runtime(places, node, environ, say)
        exact = _exact(asked)
        if exact and _is_whole(exact, places):
            return find(exact, environ=environ, places=places)
        with _aside(places, "resolve") as work:
            npm = npm_for(runtime, work, environ)
            resolved = exact or resolve(npm, asked)
            if not exact:
                say(f"{asked} is {resolved}")
            with _lock(places, resolved, say):
                if not _is_whole(resolved, places):
                    _sweep(places, work)
                    _put(npm, resolved, asked, runtime, places, environ, say)
                elif tag := _tag(asked):
                    _note(places.releases / resolved, resolved, tag, runtime, None)
    return find(resolved, environ=environ, places=places)


def uninstall(version: str, *, places: Places | None = None) -> None:
    """Remove one managed install."""
    places = places or Places.of()
    asked = checked(version)
    folder = places.releases / asked
    if _exact(asked) is None or not folder.is_dir():
        here = ", ".join(gemini.version or "" for gemini in installed(places))
        hint = f"Installed: {here}." if here else "Nothing is installed."
        raise ToolchainError(f"Gemini CLI {asked} is not installed by geminids", hint=hint)
    with _named_failures(places), _lock(places, asked, _silent), _aside(places, "remove") as work:
        folder.rename(work / "old")  # in one step: nobody finds half of it


def available_versions(
    *, places: Places | None = None, environ: Mapping[str, str] | None = None
) -> list[str]:
    """Every version that npm's registry has, newest first."""
    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    with _named_failures(places), _aside(places, "list") as work:
        return available(npm_for(find_node(places, environ=environ), work, environ))


def _put(
    npm: Npm,
    version: str,
    asked: str,
    node: Node,
    places: Places,
    environ: Mapping[str, str],
    say: Progress,
) -> None:
    say(f"fetching Gemini CLI {version}")
    tree = private_dir(npm.work / "tree")
    fetch(npm, version, tree)
    say("verifying")
    _verify(tree, version, node, places, environ)
    _note(tree, version, _tag(asked), node, _size(tree))
    target = places.releases / version
    if target.exists():  # what stands there was found broken
        target.rename(npm.work / "broken")
    tree.rename(target)
    say("warming up")  # only now: compiled code is kept by the path of its source
    warm_up(find(version, environ=environ, places=places), places, environ)


def _verify(tree: Path, version: str, node: Node, places: Places, environ: Mapping[str, str]) -> None:
    package = package_in(tree / "node_modules" / PACKAGE)
    if package is None or package.version != version:
        got = f"version {package.version}" if package else "no whole package"
        raise InstallFailed(f"npm was asked for {PACKAGE}@{version} and brought {got}", hint="Try again.")
    says = probe_version((str(node.path), str(package.entry)), places, environ)
    if says != version:
        message = f"Gemini CLI {version} answers {says or 'nothing'} to --version on Node {node.version}"
        raise InstallFailed(message, hint="This release may need another Node: try --node=path.")


def _note(tree: Path, version: str, tag: str | None, node: Node, size: int | None) -> None:
    old = None
    if size is None:
        old = msgspec.json.decode((tree / "geminids.json").read_bytes(), type=Installed)
    note = Installed(
        version=version,
        installed_at=old.installed_at if old else int(time.time()),
        tag=tag,
        node=node.version,
        bytes=old.bytes if old else size,
    )
    half = tree / f".geminids.json.{os.getpid()}"
    half.write_bytes(msgspec.json.encode(note))
    half.replace(tree / "geminids.json")


def _runtime(places: Places, node: str, environ: Mapping[str, str], say: Progress) -> Node:
    if node == "path":
        return find_node(places, environ=environ, managed=False)
    from geminids.gemini.install.node import install_node

    return install_node(places, say, environ=environ)


def _exact(asked: str) -> str | None:
    return asked if Version.parse(asked) and asked.count(".") >= 2 else None


def _tag(asked: str) -> str | None:
    return asked if Version.parse(asked) is None else None


def _is_whole(version: str, places: Places) -> bool:
    package = package_in(places.releases / version / "node_modules" / PACKAGE)
    return package is not None and package.version == version and record_of(version, places) is not None


@contextmanager
def _aside(places: Places, purpose: str) -> Iterator[Path]:
    import tempfile

    private_dir(places.releases)
    work = Path(tempfile.mkdtemp(prefix=f"{_ASIDE}{purpose}-{os.getpid()}-", dir=places.releases))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sweep(places: Places, own: Path) -> None:
    # Left by an install that was killed: its name carries the process that made it.
    for name in os.listdir(places.releases):
        if name.startswith(_ASIDE) and name != own.name and not _lives(name.split("-")[2]):
            shutil.rmtree(places.releases / name, ignore_errors=True)


def _lives(pid: str) -> bool:
    import psutil

    return not pid.isdigit() or psutil.pid_exists(int(pid))


@contextmanager
def _lock(places: Places, version: str, say: Progress) -> Iterator[None]:
    file = private_dir(places.releases / ".locks") / f"{version}.lock"
    lock = FileLock.take(file)
    if lock is None:
        say(f"waiting for another install of {version}")
        lock = FileLock.wait_for(file)
    with closing(lock):
        yield


@contextmanager
def _named_failures(places: Places) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "GEMINIDS_HOME moves all of geminids' own folders."
        raise InstallFailed(f"{error.filename or places.root}: {error.strerror}", hint=hint) from error


def _size(tree: Path) -> int:
    return sum(
        os.lstat(os.path.join(folder, name)).st_size for folder, _, files in os.walk(tree) for name in files
    )


def _silent(_: str) -> None:
    pass
