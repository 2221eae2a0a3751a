"""`install` with a fake npm: its calls, its errors, and the files that it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from geminids.errors import InstallFailed, ToolchainError
from geminids.gemini import Gemini, find, installed
from geminids.gemini.install.cli import available_versions, install, uninstall

from .conftest import Machine


def install_version(machine: Machine, version: str = "latest") -> Gemini:
    return install(version, places=machine.places, environ=machine.environ, node="path")


def release_folders(machine: Machine) -> list[str]:
    """The names in the releases folder, without the lock files."""
    return sorted(name for name in os.listdir(machine.places.releases) if name != ".locks")


def test_install_a_tag(machine: Machine) -> None:
    """A tag is resolved, and the release is fetched, verified and stored with a note about version
    and tag.
    """
    machine.npm()
    progress: list[str] = []
    gemini = install(
        "latest", places=machine.places, environ=machine.environ, node="path", progress=progress.append
    )
    assert (gemini.version, gemini.origin) == ("0.61.0", "managed")
    assert progress == ["latest is 0.61.0", "fetching Gemini CLI 0.61.0", "verifying", "warming up"]
    assert release_folders(machine) == ["0.61.0"]
    note = json.loads((machine.places.releases / "0.61.0/geminids.json").read_text())
    assert (note["version"], note["tag"]) == ("0.61.0", "latest")
    assert note["bytes"] > 0
    assert find("latest", environ=machine.environ, places=machine.places) == gemini


def test_npm_runs_no_scripts(machine: Machine) -> None:
    """npm gets `--ignore-scripts`, and a cache that is not the user's."""
    log = machine.npm()
    install_version(machine, "0.41.2")
    (line,) = log.read_text().splitlines()
    assert line.startswith("install --prefix=")
    assert "--ignore-scripts" in line
    assert f"--cache={machine.places.releases}" in line


def test_an_installed_version_is_not_fetched_again(machine: Machine) -> None:
    """An installed version is not fetched again. A tag that resolves to it is stored."""
    log = machine.npm()
    install_version(machine, "0.61.0")
    assert install_version(machine, "v0.61.0").version == "0.61.0"
    install_version(machine, "latest")
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["install", "view"]
    assert find("latest", environ=machine.environ, places=machine.places).version == "0.61.0"


def test_side_by_side(machine: Machine) -> None:
    """Several releases can be installed. The beginning of a version means its newest release."""
    machine.npm()
    install_version(machine, "latest")
    install_version(machine, "0.41")
    install_version(machine, "0.61.0")
    assert find("latest", environ=machine.environ, places=machine.places).version == "0.61.0"
    assert [gemini.version for gemini in installed(machine.places, environ=machine.environ)] == [
        "0.61.0",
        "0.41.2",
    ]


@pytest.mark.parametrize(
    "version", ["", "-g", "--global", "../x", "a/b", "a b", "x@y", "0.1.0;ls", "^0.4", "é"]
)
def test_names_are_checked_before_anything_runs(machine: Machine, version: str) -> None:
    """A text that is neither a version nor a tag is refused, and npm is not started."""
    log = machine.npm()
    with pytest.raises(InstallFailed, match="neither a version nor a tag"):
        install_version(machine, version)
    assert not log.exists()


def test_unknown_version(machine: Machine) -> None:
    """For an unknown version, the error quotes npm and names the command that lists versions."""
    machine.npm()
    with pytest.raises(InstallFailed, match="No match found") as caught:
        install_version(machine, "no-such-tag")
    assert "versions --available" in (caught.value.hint or "")
    assert "E404" in caught.value.output
    assert release_folders(machine) == []


@pytest.mark.parametrize(
    ("npm_error", "hint"),
    [
        ("npm error code ENOTFOUND", "cannot reach"),
        ("npm error code ENOSPC", "disk is full"),
        ("npm error code E401", "login"),
        ("npm error code SELF_SIGNED_CERT_IN_CHAIN", "NODE_EXTRA_CA_CERTS"),
        ("something else", "end of npm's output"),
    ],
)
def test_npm_fails(machine: Machine, npm_error: str, hint: str) -> None:
    """If npm fails, the error has its output without secrets and a hint about the cause.

    No file is left.
    """
    machine.npm(NPM_ERROR=f"{npm_error} https://me:secret@registry.invalid/x")
    with pytest.raises(InstallFailed) as caught:
        install_version(machine, "0.61.0")
    assert hint in (caught.value.hint or "")
    assert npm_error in caught.value.output
    assert "secret" not in caught.value.output + caught.value.message
    assert release_folders(machine) == []


@pytest.mark.parametrize("wrong", [{"NPM_BRINGS": "0.60.0"}, {"NPM_PRINTS": "0.60.0"}, {"NPM_PRINTS": ""}])
def test_a_wrong_version_is_not_installed(machine: Machine, wrong: dict[str, str]) -> None:
    """A package with another version, or that prints another version, is not installed."""
    machine.npm(**wrong)
    if wrong == {"NPM_PRINTS": ""}:
        text = (machine.bin / "npm").read_text()
        (machine.bin / "npm").write_text(text.replace("console.log(", "process.exit(3) //"))
    with pytest.raises(InstallFailed):
        install_version(machine, "0.61.0")
    assert release_folders(machine) == []


def test_a_broken_install_is_repaired(machine: Machine) -> None:
    """A release with a missing file is fetched again."""
    machine.npm()
    gemini = install_version(machine, "0.61.0")
    gemini.entry.unlink()
    assert install_version(machine, "0.61.0").entry.is_file()
    assert release_folders(machine) == ["0.61.0"]


def test_no_npm(machine: Machine) -> None:
    """Without npm, the error names `--node=managed`."""
    with pytest.raises(InstallFailed, match="npm was not found") as caught:
        install_version(machine, "0.61.0")
    assert "--node=managed" in (caught.value.hint or "")


def test_folder_that_cannot_be_created(machine: Machine) -> None:
    """If the folder cannot be created, the error names it."""
    machine.npm()
    machine.places.root.write_text("in the way")
    with pytest.raises(InstallFailed, match=str(machine.places.root)):
        install_version(machine, "0.61.0")


def test_killed_install(machine: Machine) -> None:
    """A killed install leaves no release, and the next install removes its remains."""
    pid_file = machine.root / "npm.pid"
    machine.npm(NPM_PID=str(pid_file))
    code = "from geminids.gemini.install.cli import install; install('0.61.0', node='path')"
    environ = {**machine.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    host = subprocess.Popen([sys.executable, "-c", code], env=environ)
    try:
        npm = _wait_for_pid(pid_file)
    finally:
        host.kill()
        host.wait()
    os.killpg(npm, signal.SIGKILL)
    assert installed(machine.places, environ=machine.environ) == []
    assert len(release_folders(machine)) == 1
    del machine.environ["NPM_PID"]
    assert install_version(machine, "0.61.0").version == "0.61.0"
    assert release_folders(machine) == ["0.61.0"]


def test_two_at_once(machine: Machine) -> None:
    """Two processes that install the same version at once fetch it once, and both succeed."""
    log = machine.npm()
    text = (machine.bin / "npm").read_text()
    (machine.bin / "npm").write_text(text.replace("for word", "sleep 1; for word", 1))
    code = (
        "from geminids.gemini.install.cli import install;"
        "print(install('latest', node='path', progress=lambda text: None).version)"
    )
    environ = {**machine.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    argv = [sys.executable, "-c", code]
    pair = [subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate()[0] for process in pair]
    assert answers == ["0.61.0\n", "0.61.0\n"]
    assert sum(line.startswith("install") for line in log.read_text().splitlines()) == 1
    assert release_folders(machine) == ["0.61.0"]


def test_uninstall(machine: Machine) -> None:
    """`uninstall` removes one release.

    For a release that is not installed, the error lists the installed ones.
    """
    machine.managed("0.41.2")
    machine.managed("0.61.0")
    uninstall("0.41.2", places=machine.places)
    assert release_folders(machine) == ["0.61.0"]
    with pytest.raises(ToolchainError, match=r"has not installed Gemini CLI 0\.41\.2") as caught:
        uninstall("0.41.2", places=machine.places)
    assert caught.value.hint == "Installed: 0.61.0."


@pytest.mark.parametrize("version", ["..", ".", ".locks", "latest"])
def test_uninstall_removes_only_releases(machine: Machine, version: str) -> None:
    """`uninstall` accepts only the version of a release."""
    machine.managed("0.61.0")
    with pytest.raises(ToolchainError):
        uninstall(version, places=machine.places)
    assert release_folders(machine) == ["0.61.0"]


def test_available_versions(machine: Machine) -> None:
    """`available_versions` returns the versions of the registry, newest first."""
    machine.npm()
    listed = available_versions(places=machine.places, environ=machine.environ)
    assert listed == ["0.61.0", "0.61.0-preview.1", "0.41.2", "0.10.0", "0.9.0"]


def _wait_for_pid(file: Path) -> int:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if file.exists() and (text := file.read_text().strip()):
            return int(text)
        time.sleep(0.02)
    raise AssertionError("npm was not started")
