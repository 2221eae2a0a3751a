"""The little of npm that an install needs: which npm, what it is asked, what its refusals mean."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from geminids.errors import InstallFailed
from geminids.gemini.locate.cli import PACKAGE
from geminids.gemini.locate.node import Node, npm_script
from geminids.gemini.versions import Version

__all__ = ["Npm", "available", "checked", "failure_hint", "fetch", "npm_for", "resolve"]

# A version, the first part of one, or a tag: nothing that npm could take for a flag, a path or an address.
_SPEC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")
_HINTS = (
    ("E404|ETARGET|No match", "Run: geminids versions --available (lists what can be installed)."),
    ("ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ERR_SOCKET", "npm cannot reach its registry."),
    (
        "CERT_|_CERT|SELF_SIGNED|UNABLE_TO_VERIFY",
        "A proxy signs the traffic here: name its certificate, NODE_EXTRA_CA_CERTS=/path/to/ca.pem.",
    ),
    ("E401|E403|ENEEDAUTH", "npm's registry refuses this login; look into your .npmrc."),
    ("ENOSPC", "The disk is full."),
    ("EACCES|EPERM|EROFS", "A folder cannot be written; GEMINIDS_HOME moves them all."),
)


class Npm(msgspec.Struct, frozen=True):
    """How npm is run here. Its cache is a folder of this install alone, never the user's own."""

    command: tuple[str, ...]
    environ: dict[str, str]
    work: Path

    def ask(self, *arguments: str, timeout: float) -> str:
        """What npm prints; `InstallFailed` with the end of its output where it fails."""
        from geminids.gemini.locate.probe import answer_of

        own = ("--loglevel=error", "--no-update-notifier", f"--cache={self.work / 'npm-cache'}")
        argv = (*self.command, *arguments, *own)
        # cwd is our own empty folder: the .npmrc of a repository must not choose the registry.
        answer = answer_of(argv, environ=self.environ, cwd=self.work, timeout=timeout)
        if answer.code == 0:
            return answer.out
        output = _CREDENTIALS.sub("***@", (answer.err or answer.out).strip())[-4000:]
        how = f"ended with {answer.code}" if answer.code is not None else "did not run to its end"
        message = f"npm {arguments[0]} {how}" + (f": {_summary(output)}" if output else "")
        raise InstallFailed(message, hint=failure_hint(output), output=output)


def npm_for(node: Node, work: Path, environ: Mapping[str, str]) -> Npm:
    """The npm of a managed Node, else the one on PATH."""
    script = npm_script(node)
    if script is not None:
        return Npm((str(node.path), str(script)), dict(environ), work)
    names = ("npm.cmd",) if os.name == "nt" else ("npm",)
    for entry in environ.get("PATH", "").split(os.pathsep):
        for name in names:
            path = os.path.join(entry, name)
            if os.path.isabs(entry) and os.access(path, os.X_OK):
                return Npm((path,), dict(environ), work)
    raise InstallFailed("No npm was found on PATH", hint="Run: geminids install --node=managed (brings npm).")


def checked(spec: str) -> str:
    """`spec` if it is a version or a tag and nothing else.

    >>> checked("v0.41.2")
    '0.41.2'
    """
    if not _SPEC.fullmatch(spec):
        hint = "A version is like 0.61.0, a tag like latest, preview or nightly."
        raise InstallFailed(f"{spec!r} is neither a version nor a tag", hint=hint)
    return spec.removeprefix("v") if Version.parse(spec) else spec


def resolve(npm: Npm, spec: str) -> str:
    """The version that a version, its first part or a tag stands for."""
    said = npm.ask("view", f"{PACKAGE}@{spec}", "version", "--json", timeout=120)
    versions = _versions(said)
    if not versions:
        hint = failure_hint("E404")
        raise InstallFailed(f"npm knows no {PACKAGE}@{spec}", hint=hint, output=said[-2000:])
    return versions[0]


def available(npm: Npm) -> list[str]:
    """Every version that the registry has, newest first."""
    return _versions(npm.ask("view", PACKAGE, "versions", "--json", timeout=120))


def fetch(npm: Npm, version: str, into: Path) -> None:
    """Unpack `version` and what it needs into a folder. No package's script is run."""
    # --ignore-scripts: node-pty and ripgrep come prebuilt, so that nothing of the tree needs to run here.
    flags = ("--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--ignore-scripts", "--omit=dev")
    npm.ask("install", f"--prefix={into}", *flags, f"{PACKAGE}@{version}", timeout=1200)


def failure_hint(output: str) -> str:
    """What to do about npm's refusal.

    >>> failure_hint("npm error code ENOSPC")
    'The disk is full.'
    """
    found = (hint for pattern, hint in _HINTS if re.search(pattern, output))
    return next(found, "Try again; what npm said last is below (InstallFailed.output).")


def _summary(output: str) -> str:
    lines = [line.removeprefix("npm error").strip() for line in output.splitlines() if "npm error" in line]
    return next((line for line in lines if line and not line.startswith("code ")), output.splitlines()[-1])


def _versions(said: str) -> list[str]:
    try:
        answer = msgspec.json.decode(said, type=list[str] | str)
    except msgspec.MsgspecError:
        return []
    listed = [answer] if isinstance(answer, str) else answer
    known = [(version, text) for text in listed if (version := Version.parse(text))]
    return [text for _, text in sorted(known, reverse=True)]
