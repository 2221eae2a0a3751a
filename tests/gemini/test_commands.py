"""The commands `install`, `versions` and `uninstall`."""

from __future__ import annotations

import json
import os

import pytest
from click.testing import CliRunner, Result

from geminids.cli.commands.releases import install, uninstall, versions
from geminids.errors import InstallFailed, ToolchainError

from .conftest import Machine


@pytest.fixture(autouse=True)
def _environment(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(os.environ) - {"PYTEST_CURRENT_TEST"}:
        monkeypatch.delenv(name)
    machine.npm()
    for name, value in machine.environ.items():
        monkeypatch.setenv(name, value)


def run(command: object, *arguments: str) -> Result:
    from click import Command

    assert isinstance(command, Command)
    return CliRunner().invoke(command, arguments)


def test_install(machine: Machine) -> None:
    """`install` writes progress to stderr, and only the path of the script to stdout."""
    done = run(install, "0.61.0", "--node=path")
    assert done.exit_code == 0
    assert done.stdout.strip().endswith("0.61.0/node_modules/@google/gemini-cli/bundle/gemini.js")
    assert "fetching Gemini CLI 0.61.0" in done.stderr
    assert done.stderr.splitlines()[-1].endswith("s] Gemini CLI 0.61.0 is ready")


def test_installing_an_old_release_prints_a_note(machine: Machine) -> None:
    """A release that is too old can be installed; the last line says that geminids does not run it."""
    done = run(install, "0.41.2", "--node=path", "--json")
    assert done.exit_code == 0
    message = "s] Gemini CLI 0.41.2 is installed, but geminids needs 0.54 or newer"
    assert done.stderr.splitlines()[-1].endswith(message)
    assert (json.loads(done.stdout)["version"], json.loads(done.stdout)["supported"]) == ("0.41.2", False)


def test_install_json() -> None:
    """`install --json` prints one object about the installed release."""
    done = run(install, "latest", "--node=path", "--json")
    row = json.loads(done.stdout)
    assert (row["version"], row["tag"], row["origin"], row["tested"]) == ("0.61.0", "latest", "managed", True)


def test_errors_are_raised_to_the_group() -> None:
    """A bad version raises one of our own errors, which the command group prints.

    A bad flag exits with 2.
    """
    assert isinstance(run(install, "../x", "--node=path").exception, InstallFailed)
    assert isinstance(run(uninstall, "0.1.1").exception, ToolchainError)
    assert run(install, "--node=other").exit_code == 2
    assert run(uninstall).exit_code == 2


def test_versions(machine: Machine) -> None:
    """`versions` lists installed releases, newest first.

    A star marks the one that a run would use.
    """
    machine.managed("0.60.0")
    machine.managed("0.61.0", "latest")
    lines = run(versions).stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["*", "0.61.0"], ["0.60.0", "managed"]]
    rows = json.loads(run(versions, "--json").stdout)
    assert [(row["version"], row["used"]) for row in rows] == [("0.61.0", True), ("0.60.0", False)]


def test_versions_that_are_too_old(machine: Machine) -> None:
    """A release that is too old is marked, and a run would not use it."""
    machine.managed("0.41.2")
    done = run(versions)
    assert done.stdout.split()[:4] == ["0.41.2", "managed,", "too", "old"]
    assert "Gemini CLI 0.41.2 is too old" in done.stderr
    assert "geminids install" in done.stderr
    (machine.bin / "gemini").symlink_to(machine.package(machine.home / "global", "0.53.0"))
    machine.managed("0.61.0")
    rows = json.loads(run(versions, "--json").stdout)
    assert [(row["version"], row["supported"], row["used"]) for row in rows] == [
        ("0.61.0", True, True),
        ("0.41.2", False, False),
    ]


def test_versions_with_another_one_on_path(machine: Machine) -> None:
    """A gemini on PATH that a run would use is listed first, with its origin."""
    machine.managed("0.61.0")
    (machine.bin / "gemini").symlink_to(machine.package(machine.home / "global", "0.60.0"))
    rows = json.loads(run(versions, "--json").stdout)
    assert [(row["version"], row["origin"], row["used"]) for row in rows] == [
        ("0.60.0", "path", True),
        ("0.61.0", "managed", False),
    ]


def test_no_versions() -> None:
    """Without any release the list is empty, and stderr names `geminids install`."""
    done = run(versions, "--json")
    if json.loads(done.stdout):
        pytest.skip("this machine has its own gemini")
    assert (done.exit_code, done.stdout) == (0, "[]\n")
    assert "geminids install" in done.stderr


def test_available() -> None:
    """`versions --available` lists the versions of the registry, newest first."""
    assert run(versions, "--available").stdout.splitlines()[0] == "0.61.0"
    assert json.loads(run(versions, "--available", "--json").stdout)[-1] == "0.9.0"


def test_uninstall(machine: Machine) -> None:
    """`uninstall` deletes the folder of the release."""
    machine.managed("0.41.2")
    assert run(uninstall, "0.41.2").exit_code == 0
    assert not (machine.places.releases / "0.41.2").exists()
