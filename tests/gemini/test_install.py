"""Installs with a stand-in for npm: what is asked, what is refused, what is left behind."""

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


def put(machine: Machine, version: str = "latest") -> Gemini:
    return install(version, places=machine.places, environ=machine.environ, node="path")


def left_behind(machine: Machine) -> list[str]:
    """What is in the folder of releases besides the lock files."""
    return sorted(name for name in os.listdir(machine.places.releases) if name != ".locks")


def test_install_a_tag(machine: Machine) -> None:
    """A tag is resolved, fetched aside, verified and put in place, with a note of what it is."""
    machine.npm()
    said: list[str] = []
    gemini = install(
        "latest", places=machine.places, environ=machine.environ, node="path", progress=said.append
    )
    assert (gemini.version, gemini.origin) == ("0.61.0", "managed")
    assert said == ["latest is 0.61.0", "fetching Gemini CLI 0.61.0", "verifying", "warming up"]
    assert left_behind(machine) == ["0.61.0"]
    note = json.loads((machine.places.releases / "0.61.0/geminids.json").read_text())
    assert (note["version"], note["tag"]) == ("0.61.0", "latest")
    assert note["bytes"] > 0
    assert find("latest", environ=machine.environ, places=machine.places) == gemini


def test_nothing_of_the_package_is_run_by_npm(machine: Machine) -> None:
    """npm gets flags that run no scripts, and a cache that is not the user's."""
    log = machine.npm()
    put(machine, "0.41.2")
    (line,) = log.read_text().splitlines()
    assert line.startswith("install --prefix=")
    assert "--ignore-scripts" in line
    assert f"--cache={machine.places.releases}" in line


def test_installed_already(machine: Machine) -> None:
    """A version that is there is not fetched again; a tag that means it is noted."""
    log = machine.npm()
    put(machine, "0.61.0")
    assert put(machine, "v0.61.0").version == "0.61.0"
    put(machine, "latest")
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["install", "view"]
    assert find("latest", environ=machine.environ, places=machine.places).version == "0.61.0"


def test_side_by_side(machine: Machine) -> None:
    """Several releases live beside each other; the first part of a version means the newest of it."""
    machine.npm()
    put(machine, "latest")
    put(machine, "0.41")
    put(machine, "0.61.0")
    assert find("latest", environ=machine.environ, places=machine.places).version == "0.61.0"
    assert [gemini.version for gemini in installed(machine.places, environ=machine.environ)] == [
        "0.61.0",
        "0.41.2",
    ]


@pytest.mark.parametrize(
    "version", ["", "-g", "--global", "../x", "a/b", "a b", "x@y", "0.1.0;ls", "^0.4", "é"]
)
def test_names_are_checked_before_anything_runs(machine: Machine, version: str) -> None:
    """What is neither version nor tag is refused, and npm is not even asked."""
    log = machine.npm()
    with pytest.raises(InstallFailed, match="neither a version nor a tag"):
        put(machine, version)
    assert not log.exists()


def test_unknown_version(machine: Machine) -> None:
    """npm's refusal is told in its own words, with a way to see what there is."""
    machine.npm()
    with pytest.raises(InstallFailed, match="No match found") as caught:
        put(machine, "no-such-tag")
    assert "versions --available" in (caught.value.hint or "")
    assert "E404" in caught.value.output
    assert left_behind(machine) == []


@pytest.mark.parametrize(
    ("says", "hint"),
    [
        ("npm error code ENOTFOUND", "cannot reach"),
        ("npm error code ENOSPC", "disk is full"),
        ("npm error code E401", "login"),
        ("npm error code SELF_SIGNED_CERT_IN_CHAIN", "NODE_EXTRA_CA_CERTS"),
        ("something else", "Try again"),
    ],
)
def test_npm_fails(machine: Machine, says: str, hint: str) -> None:
    """A failed fetch leaves nothing, keeps what npm said and hints at the cause."""
    machine.npm(NPM_SAYS=f"{says} https://me:secret@registry.invalid/x")
    with pytest.raises(InstallFailed) as caught:
        put(machine, "0.61.0")
    assert hint in (caught.value.hint or "")
    assert says in caught.value.output
    assert "secret" not in caught.value.output + caught.value.message
    assert left_behind(machine) == []


@pytest.mark.parametrize("wrong", [{"NPM_BRINGS": "0.60.0"}, {"NPM_PRINTS": "0.60.0"}, {"NPM_PRINTS": ""}])
def test_verified(machine: Machine, wrong: dict[str, str]) -> None:
    """A package of another version, or one that answers with another, is not put in place."""
    machine.npm(**wrong)
    if wrong == {"NPM_PRINTS": ""}:
        text = (machine.bin / "npm").read_text()
        (machine.bin / "npm").write_text(text.replace("console.log(", "process.exit(3) //"))
    with pytest.raises(InstallFailed):
        put(machine, "0.61.0")
    assert left_behind(machine) == []


def test_a_broken_install_is_mended(machine: Machine) -> None:
    """A version whose files were damaged is fetched again."""
    machine.npm()
    gemini = put(machine, "0.61.0")
    gemini.entry.unlink()
    assert put(machine, "0.61.0").entry.is_file()
    assert left_behind(machine) == ["0.61.0"]


def test_no_npm(machine: Machine) -> None:
    """Without npm the error says how to get one."""
    with pytest.raises(InstallFailed, match="No npm") as caught:
        put(machine, "0.61.0")
    assert "--node=managed" in (caught.value.hint or "")


def test_folder_that_cannot_be_made(machine: Machine) -> None:
    """A place that cannot be written is an InstallFailed that names it."""
    machine.npm()
    machine.places.root.write_text("in the way")
    with pytest.raises(InstallFailed, match=str(machine.places.root)):
        put(machine, "0.61.0")


def test_killed_install(machine: Machine) -> None:
    """An install that is killed leaves no version, and the next one sweeps its remains."""
    pid_file = machine.root / "npm.pid"
    machine.npm(NPM_PID=str(pid_file))
    code = "from geminids.gemini.install.cli import install; install('0.61.0', node='path')"
    environ = {**machine.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    host = subprocess.Popen([sys.executable, "-c", code], env=environ)
    try:
        npm = _pid_in(pid_file)
    finally:
        host.kill()
        host.wait()
    os.killpg(npm, signal.SIGKILL)
    assert installed(machine.places, environ=machine.environ) == []
    assert len(left_behind(machine)) == 1
    del machine.environ["NPM_PID"]
    assert put(machine, "0.61.0").version == "0.61.0"
    assert left_behind(machine) == ["0.61.0"]


def test_two_at_once(machine: Machine) -> None:
    """Two processes that install one version at once both have it, by one fetch."""
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
    assert left_behind(machine) == ["0.61.0"]


def test_uninstall(machine: Machine) -> None:
    """One release goes, the others stay; one that is not there is an error that says what is."""
    machine.managed("0.41.2")
    machine.managed("0.61.0")
    uninstall("0.41.2", places=machine.places)
    assert left_behind(machine) == ["0.61.0"]
    with pytest.raises(ToolchainError, match=r"0\.41\.2 is not installed") as caught:
        uninstall("0.41.2", places=machine.places)
    assert caught.value.hint == "Installed: 0.61.0."


@pytest.mark.parametrize("version", ["..", ".", ".locks", "latest"])
def test_uninstall_removes_only_releases(machine: Machine, version: str) -> None:
    """No name but a version's can be removed."""
    machine.managed("0.61.0")
    with pytest.raises(ToolchainError):
        uninstall(version, places=machine.places)
    assert left_behind(machine) == ["0.61.0"]


def test_available_versions(machine: Machine) -> None:
    """What the registry has comes in the order of versions, newest first."""
    machine.npm()
    listed = available_versions(places=machine.places, environ=machine.environ)
    assert listed == ["0.61.0", "0.61.0-preview.1", "0.41.2", "0.10.0", "0.9.0"]


def _pid_in(file: Path) -> int:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if file.exists() and (text := file.read_text().strip()):
            return int(text)
        time.sleep(0.02)
    raise AssertionError("npm was not started")
