"""Run npm to list and download releases of Gemini CLI, and explain the errors of npm."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from geminids.errors import InstallFailed
from geminids.gemini.locate.identify import PACKAGE
from geminids.gemini.locate.node import Node, npm_script
from geminids.gemini.locate.probe import run_command
from geminids.gemini.versions import Version

__all__ = ["Npm", "available", "check_spec", "failure_hint", "fetch", "npm_for", "resolve"]

# A version (0.61.0), the beginning of one (0.61) or a tag (latest). The pattern excludes everything
# that npm could read as a flag, a path or a URL.
_SPEC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")
_HINTS = (
    ("E404|ETARGET|No match", "Run: geminids versions --available (lists what can be installed)."),
    (
        "ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET",
        "npm cannot reach its registry: check the network and the proxy.",
    ),
    (
        "CERT_|_CERT|SELF_SIGNED|UNABLE_TO_VERIFY",
        "npm rejects a TLS certificate, usually of a proxy: set NODE_EXTRA_CA_CERTS to the path of its CA file.",
    ),
    ("E401|E403|ENEEDAUTH", "npm's registry rejects the login; check your .npmrc."),
    ("ENOSPC", "The disk is full: free some space."),
    ("EACCES|EPERM|EROFS", "npm cannot write to a folder; set GEMINIDS_HOME to another folder."),
)


class Npm(msgspec.Struct, frozen=True):
    """How to run npm: the command, the environment, and the folder `work` for npm's files.

    npm's cache is in `work` too, so the npm cache of the user is not used.
    """

    command: tuple[str, ...]
    environ: dict[str, str]
    work: Path

    def run(self, *arguments: str, timeout: float) -> str:
        """Run npm with these arguments, for at most `timeout` seconds. Return what npm prints to
        stdout.

        Raises `InstallFailed` with the end of npm's output if npm fails or takes too long.
        """
        flags = ("--loglevel=error", "--no-update-notifier", f"--cache={self.work / 'npm-cache'}")
        argv = (*self.command, *arguments, *flags)
        # Run npm in our own folder, where no .npmrc of a repository can choose another registry.
        result = run_command(argv, environ=self.environ, cwd=self.work, timeout=timeout)
        if result.code == 0:
            return result.out
        output = _CREDENTIALS.sub("***@", (result.err or result.out).strip())[-4000:]
        ended = f"ended with exit code {result.code}" if result.code is not None else "did not finish"
        message = f"npm {arguments[0]} {ended}" + (f": {_summary(output)}" if output else "")
        raise InstallFailed(message, hint=failure_hint(output), output=output)


def npm_for(node: Node, work: Path, environ: Mapping[str, str]) -> Npm:
    """Return the npm to use: the npm that was installed with `node` if geminids installed this
    Node, otherwise the npm on PATH.

    `work` is the folder for npm's cache and other files. Raises `InstallFailed` if there is no npm.
    """
    script = npm_script(node)
    if script is not None:
        return Npm((str(node.path), str(script)), dict(environ), work)
    names = ("npm.cmd",) if os.name == "nt" else ("npm",)
    for entry in environ.get("PATH", "").split(os.pathsep):
        for name in names:
            path = os.path.join(entry, name)
            if os.path.isabs(entry) and os.access(path, os.X_OK):
                return Npm((path,), dict(environ), work)
    raise InstallFailed(
        "npm was not found on PATH", hint="Run: geminids install --node=managed (includes npm)."
    )


def check_spec(spec: str) -> str:
    """Check that `spec` is a version (such as `0.61.0`) or a tag (such as `latest`), and return it.
    A leading `v` of a version is removed.

    Raises `InstallFailed` if `spec` is neither a version nor a tag.

    >>> check_spec("v0.41.2")
    '0.41.2'
    """
    if not _SPEC.fullmatch(spec):
        hint = "Use a version such as 0.61.0, or a tag: latest, preview or nightly."
        raise InstallFailed(f"{spec!r} is neither a version nor a tag", hint=hint)
    return spec.removeprefix("v") if Version.parse(spec) else spec


def resolve(npm: Npm, spec: str) -> str:
    """Return the exact version for `spec`, which is a version, the beginning of a version such as
    `0.61`, or a tag such as `latest`.

    Raises `InstallFailed` if npm fails, or if npm's registry has no such version.
    """
    output = npm.run("view", f"{PACKAGE}@{spec}", "version", "--json", timeout=120)
    versions = _versions(output)
    if not versions:
        hint = failure_hint("E404")
        raise InstallFailed(f"npm has no {PACKAGE}@{spec}", hint=hint, output=output[-2000:])
    return versions[0]


def available(npm: Npm) -> list[str]:
    """Return all versions of Gemini CLI that npm's registry offers, the newest one first. Raises
    `InstallFailed` if npm fails.
    """
    return _versions(npm.run("view", PACKAGE, "versions", "--json", timeout=120))


def fetch(npm: Npm, version: str, into: Path) -> None:
    """Download this version of Gemini CLI and its dependencies to the folder `into`.

    npm does not run the install scripts of the packages. Raises `InstallFailed` if npm fails.
    """
    # --ignore-scripts: node-pty and ripgrep are prebuilt, so no script needs to run.
    flags = ("--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--ignore-scripts", "--omit=dev")
    npm.run("install", f"--prefix={into}", *flags, f"{PACKAGE}@{version}", timeout=1200)


def failure_hint(output: str) -> str:
    """Return a hint for the user that says what to do about a failure of npm. The hint depends on
    the error code in `output`, the output of npm.

    >>> failure_hint("npm error code ENOSPC")
    'The disk is full: free some space.'
    """
    hints = (hint for pattern, hint in _HINTS if re.search(pattern, output))
    return next(hints, "Read the end of npm's output. Try again when the cause is removed.")


def _summary(output: str) -> str:
    lines = [line.removeprefix("npm error").strip() for line in output.splitlines() if "npm error" in line]
    return next((line for line in lines if line and not line.startswith("code ")), output.splitlines()[-1])


def _versions(output: str) -> list[str]:
    try:
        decoded = msgspec.json.decode(output, type=list[str] | str)
    except msgspec.MsgspecError:
        return []
    listed = [decoded] if isinstance(decoded, str) else decoded
    versions = [(version, text) for text in listed if (version := Version.parse(text))]
    return [text for _, text in sorted(versions, reverse=True)]
