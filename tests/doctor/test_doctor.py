"""Tests of the environment check: each check on a prepared machine."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from fake_sign_ins import authorized_user_file
from geminids import Options
from geminids.config.paths import Places
from geminids.doctor import Check, check_environment, would_work
from geminids.process.marker import MARKER, Mark

SETTINGS_KEY = '{"security": {"auth": {"selectedType": "gemini-api-key"}}}'
SETTINGS_ACCOUNT = '{"security": {"auth": {"selectedType": "oauth-personal"}}}'
KEY = "AIzaSy-only-for-this-test-0123456789"
ALL_CHECKS = [
    "node",
    "cli",
    "cli_version",
    "settings",
    "auth",
    "gateway",
    "cwd",
    "trust",
    "ripgrep",
    "homes",
    "sessions_home",
]
ALL_CHECKS += ["orphans", "plan", "live"]
# Variables of the real machine that would influence the checks.
MACHINE_VARIABLES = [
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_VERTEXAI",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_CLOUD_LOCATION",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_ACCESS_TOKEN",
    "GOOGLE_GEMINI_BASE_URL",
    "CLOUD_SHELL",
    "GEMINI_CLI_USE_COMPUTE_ADC",
    "GEMINI_CLI_HOME",
    "GEMINI_CLI_PATH",
    "GEMINI_CLI_TRUST_WORKSPACE",
    "GEMINI_RESTRICTED_MODE",
]


class Machine:
    """A home, a working folder, a geminids data folder, and a package that
    looks like Gemini CLI."""

    def __init__(self, root: Path, installs: Places) -> None:
        self.home, self.work = root / "home", root / "work"
        self.places = Places(root / "geminids")
        for folder in (self.home, self.work, self.places.root):
            folder.mkdir()
        self.places.root.chmod(0o700)
        installs.node.mkdir(parents=True, exist_ok=True)
        self.places.node.symlink_to(installs.node)
        self.cli = self.package("0.61.0")

    def package(self, version: str) -> Path:
        folder = self.work.parent / f"cli-{version}"
        (folder / "bundle").mkdir(parents=True)
        manifest = {"name": "@google/gemini-cli", "version": version, "bin": {"gemini": "bundle/gemini.js"}}
        (folder / "package.json").write_text(json.dumps(manifest))
        (folder / "bundle" / "gemini.js").write_text("process.exit(1)\n")
        return folder

    def write(self, name: str, text: str) -> Path:
        file = self.home / ".gemini" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    def check(self, *, live: bool = False, **fields: Any) -> dict[str, Check]:
        options = {"cwd": str(self.work), "gemini": str(self.cli), **fields}

        async def run_checks() -> tuple[Check, ...]:
            return await check_environment(Options(**options), live=live)

        checks = anyio.run(run_checks)
        assert len({check.code for check in checks}) == len(checks)
        return {check.code: check for check in checks}


@pytest.fixture
def machine(tmp_path: Path, installs: Places, monkeypatch: pytest.MonkeyPatch) -> Machine:
    prepared = Machine(tmp_path, installs)
    for name in MACHINE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(prepared.home))
    monkeypatch.setenv("GEMINIDS_HOME", str(prepared.places.root))
    return prepared


def test_prepared_machine_passes(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a CLI, Node and a key, all checks are reported, none is an
    error, and a run would work."""
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    checks = machine.check()
    assert list(checks) == ALL_CHECKS
    assert would_work(checks.values())
    assert checks["cli"].detail.startswith("0.61.0 at ")
    assert checks["auth"] == Check("auth", "ok", "API key (GEMINI_API_KEY)")
    assert checks["live"].level == "skipped"


def test_check_leaves_no_files(machine: Machine) -> None:
    """A check writes nothing to the working folder, and to the home only
    the folders for sessions."""
    machine.check()
    assert os.listdir(machine.work) == []
    paths = [path.relative_to(machine.home).as_posix() for path in machine.home.rglob("*")]
    assert set(paths) <= {".gemini", ".gemini/tmp", ".gemini/history"}


def test_missing_cli(machine: Machine) -> None:
    """A missing CLI is one error, and the checks that depend on it are skipped."""
    checks = machine.check(gemini=str(machine.work / "nothing"))
    assert checks["cli"].level == "error"
    assert "does not exist" in checks["cli"].detail
    assert checks["node"].level == "ok"
    assert {checks[code].level for code in ("cli_version", "trust", "plan")} == {"skipped"}


def test_missing_node(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Node, `node` is the error, and `cli` is skipped."""
    machine.places.node.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    checks = machine.check()
    if checks["node"].level == "ok":
        pytest.skip("this machine has a Node outside PATH")
    assert checks["node"].level == "error"
    assert "geminids install" in str(checks["node"].hint)
    assert checks["cli"].level == "skipped"


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("0.54.0", "ok"),
        ("0.61.7", "ok"),
        ("0.62.0", "warning"),
        ("0.61.0-nightly.1", "warning"),
        ("0.53.0", "error"),
        ("0.9.0", "error"),
    ],
)
def test_cli_versions(machine: Machine, version: str, level: str) -> None:
    """An untested newer release is a warning.
    A release that geminids does not support is an error."""
    cli = machine.cli if version == "0.61.0" else machine.package(version)
    assert machine.check(gemini=str(cli))["cli_version"].level == level


def test_old_release_is_an_error(machine: Machine) -> None:
    """For a release that is too old, the check names the version, and its
    hint `geminids install`."""
    checks = machine.check(gemini=str(machine.package("0.41.2")))
    assert checks["cli_version"].level == "error"
    assert "Gemini CLI 0.41.2 is too old" in checks["cli_version"].detail
    assert "geminids install" in str(checks["cli_version"].hint)


@pytest.mark.parametrize(
    ("env", "level", "detail"),
    [
        ({}, "error", "no sign-in was found"),
        ({"GOOGLE_API_KEY": KEY}, "error", "GOOGLE_API_KEY is set, but the CLI uses it only for Vertex AI"),
        ({"GEMINI_API_KEY": KEY}, "ok", "API key (GEMINI_API_KEY)"),
        (
            {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_API_KEY": KEY},
            "ok",
            "Vertex AI (GOOGLE_GENAI_USE_VERTEXAI)",
        ),
        ({"GOOGLE_GENAI_USE_GCA": "true"}, "error", "has no stored login"),
        ({"GOOGLE_GENAI_USE_GCA": "true", "GOOGLE_CLOUD_ACCESS_TOKEN": KEY}, "warning", "2026-06-18"),
        ({"GEMINI_CLI_USE_COMPUTE_ADC": "true"}, "ok", "default credentials"),
    ],
)
def test_sign_in_from_the_environment(machine: Machine, env: dict[str, str], level: str, detail: str) -> None:
    """The check names the sign-in and its variable, or what is missing. It never shows the key."""
    check = machine.check(env=env)["auth"]
    assert check.level == level
    assert detail in check.detail
    assert KEY not in check.detail
    assert (check.hint is None) == (level == "ok")


def test_account_sign_in(machine: Machine) -> None:
    """An account without a stored login is an error.
    With a login it is a warning about the retired tier."""
    machine.write("settings.json", SETTINGS_ACCOUNT)
    assert machine.check()["auth"].level == "error"
    machine.write("oauth_creds.json", "{}")
    check = machine.check()["auth"]
    assert check.level == "warning"
    assert "2026-06-18" in check.detail
    assert "GEMINI_API_KEY" in str(check.hint)


def test_settings_that_require_a_key(machine: Machine) -> None:
    """Settings that require a key need one in the environment or stored by the CLI."""
    machine.write("settings.json", SETTINGS_KEY)
    check = machine.check()["auth"]
    assert check.level == "error"
    assert "GEMINI_API_KEY is not set" in check.detail
    machine.write("gemini-credentials.json", "…")
    assert machine.check()["auth"].level == "ok"


def test_unknown_sign_in(machine: Machine) -> None:
    """A sign-in that geminids does not know is a warning, because it may work."""
    machine.write("settings.json", '{"security": {"auth": {"selectedType": "by-carrier-pigeon"}}}')
    assert machine.check()["auth"].level == "warning"


VERTEX = {"GOOGLE_GENAI_USE_VERTEXAI": "true", "NO_GCE_CHECK": "true"}
PROJECT = {**VERTEX, "GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "eu"}


@pytest.mark.parametrize(
    ("env", "level", "detail"),
    [
        ({"GEMINI_API_KEY": KEY}, "ok", "gateway: Gemini API with a key"),
        ({**VERTEX, "GOOGLE_API_KEY": KEY}, "ok", "gateway: Vertex AI with a key"),
        (VERTEX, "error", "refused: Vertex AI needs GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION"),
        (PROJECT, "error", "no Google Cloud credentials"),
        ({**PROJECT, "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere.json"}, "error", "/nowhere.json"),
        (
            {"GEMINI_API_KEY": KEY, "GEMINI_SANDBOX": "docker"},
            "warning",
            "direct: the CLI runs in a container",
        ),
        ({}, "warning", "direct: no sign-in was found"),
    ],
)
def test_route_of_a_run(machine: Machine, env: dict[str, str], level: str, detail: str) -> None:
    """The check shows which route a run would take (gateway, direct or refused) and why."""
    check = machine.check(env=env)["gateway"]
    assert (check.level, detail in check.detail) == (level, True), check.detail
    assert check.level == "ok" or check.hint


def test_credentials_in_the_users_env_file(machine: Machine, tmp_path: Path) -> None:
    """The check finds credentials that ~/.gemini/.env names, because a run reads that file."""
    file = authorized_user_file(tmp_path, "http://127.0.0.1:1")
    machine.write(".env", f"GOOGLE_APPLICATION_CREDENTIALS={file}\n")
    check = machine.check(env=PROJECT)["gateway"]
    assert (check.level, "this machine's credentials" in check.detail) == ("ok", True), check.detail


@pytest.mark.parametrize(
    "location", ["work/.env", "work/.gemini/.env", ".env", "home/.gemini/.env", "home/.env"]
)
def test_key_in_an_env_file(machine: Machine, tmp_path: Path, location: str) -> None:
    """A key in an env file of the home is used.
    One in or above the working folder is used only if the workspace is trusted."""
    file = tmp_path / location
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"GEMINI_API_KEY={KEY}\n")
    expected = Check("auth", "ok", f"API key (GEMINI_API_KEY in {file})")
    assert machine.check(trust_workspace=True)["auth"] == expected
    assert machine.check(trust_workspace=True)["gateway"].level == "ok"
    check = machine.check()["auth"]
    if location.startswith("home/"):
        assert check == expected
    else:
        assert check.level == "error"
        assert f"the sign-in in {file} is ignored" in check.detail
        assert f"env_file={str(file)!r}" in (check.hint or "")


def test_nearest_env_file(machine: Machine) -> None:
    """In a trusted workspace, its own env file wins over the user's, if it has a key."""
    machine.write(".env", f"GEMINI_API_KEY={KEY}\n")
    (machine.work / ".env").write_text("COLOUR=blue\n")
    assert machine.check(trust_workspace=True)["auth"].level == "ok"
    (machine.work / ".env").write_text("GEMINI_API_KEY=another-key-0123\n")
    assert str(machine.work / ".env") in machine.check(trust_workspace=True)["auth"].detail


def test_offline(machine: Machine) -> None:
    """With `offline`, no sign-in is needed, and a run would work."""
    checks = machine.check(offline=True)
    assert checks["auth"].level == "skipped"
    assert would_work(checks.values())


def test_broken_settings(machine: Machine) -> None:
    """A broken settings file is an error that contains its path. Dependent checks are skipped."""
    file = machine.write("settings.json", '{"model": ')
    checks = machine.check()
    assert checks["settings"].level == "error"
    assert str(file) in checks["settings"].detail
    assert {checks[code].level for code in ("auth", "sessions_home", "plan")} == {"skipped"}


def test_missing_cwd(machine: Machine, tmp_path: Path) -> None:
    """A missing working folder is an error, unless `make_cwd` is set.
    The check does not create it, and a file in its place is an error."""
    missing = tmp_path / "away" / "further"
    assert machine.check(cwd=str(missing))["cwd"].level == "error"
    checks = machine.check(cwd=str(missing), make_cwd=True, offline=True)
    assert checks["cwd"].level == "ok"
    assert would_work(checks.values())
    assert not missing.exists()
    file = tmp_path / "file"
    file.touch()
    assert "not a folder" in machine.check(cwd=str(file))["cwd"].detail


@pytest.mark.skipif(os.getuid() == 0, reason="root can write to any folder")
def test_read_only_folder(machine: Machine) -> None:
    """A read-only working folder is a warning, because the agent can still read."""
    machine.work.chmod(0o500)
    assert machine.check()["cwd"].level == "warning"
    machine.work.chmod(0o700)


@pytest.mark.parametrize(
    ("env", "version", "level"),
    [
        ({}, "0.61.0", "ok"),
        ({"GEMINI_CLI_TRUST_WORKSPACE": "true"}, "0.61.0", "ok"),
        ({"GEMINI_CLI_TRUST_WORKSPACE": "false"}, "0.61.0", "error"),
        ({"GEMINI_RESTRICTED_MODE": "true"}, "0.61.0", "error"),
        ({"GEMINI_RESTRICTED_MODE": "true"}, "0.54.4", "ok"),
    ],
)
def test_trust(machine: Machine, env: dict[str, str], version: str, level: str) -> None:
    """A variable that forbids trust is an error if this release reads it
    and a run would pass it on."""
    cli = machine.cli if version == "0.61.0" else machine.package(version)
    assert machine.check(env=env, gemini=str(cli), trust_workspace=True)["trust"].level == level
    untrusted = "ok" if "GEMINI_CLI_TRUST_WORKSPACE" in env else level
    assert machine.check(env=env, gemini=str(cli))["trust"].level == untrusted


def test_ripgrep(machine: Machine, tmp_path: Path) -> None:
    """If `rg` is on PATH, its path is shown. Otherwise the check is an information."""
    path = os.environ["PATH"]
    rg = tmp_path / "rg"
    rg.write_text("#!/bin/sh\n")
    rg.chmod(0o755)
    assert machine.check(env={"PATH": f"{tmp_path}{os.pathsep}{path}"})["ripgrep"].detail == str(rg)
    assert machine.check(env={"PATH": str(machine.work)})["ripgrep"].level == "info"


def test_data_folder(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The data folder of geminids must be writable, and others must not have access to it."""
    assert machine.check()["homes"].level == "ok"
    machine.places.root.chmod(0o755)
    check = machine.check()["homes"]
    assert check.level == "warning"
    assert "chmod 700" in str(check.hint)
    (tmp_path / "file").touch()
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "file" / "geminids"))
    checks = machine.check()
    assert checks["homes"].level == "error"
    assert checks["plan"].level == "skipped"


def test_sessions_folder(machine: Machine) -> None:
    """If the folder for session files cannot be created, that is an error."""
    machine.write("tmp", "a file where a folder should be")
    assert machine.check()["sessions_home"].level == "error"


def test_invalid_options(machine: Machine) -> None:
    """All invalid options are reported in one error."""
    checks = machine.check(grace=-1.0, model="two words")
    assert checks["options"].level == "error"
    assert "grace" in checks["options"].detail
    assert "model" in checks["options"].detail


def test_env_file_of_the_options(machine: Machine) -> None:
    """A key in the file of the option `env_file` is used.
    A broken line is reported by its number, without its content."""
    file = machine.work / "vars"
    file.write_text(f"GEMINI_API_KEY={KEY}\n")
    assert machine.check(env_file=str(file))["auth"].level == "ok"
    file.write_text(f"{KEY}\n")
    checks = machine.check(env_file=str(file))
    assert "line 1" in checks["options"].detail
    assert not any(KEY in f"{check.detail}{check.hint}" for check in checks.values())


@pytest.mark.parametrize(
    "fields", [{"cwd": 5}, {"home": "\0"}, {"env": {"A": 5}}, {"gemini": "\udcff/x"}, {"cwd": "\0"}]
)
def test_never_raises(machine: Machine, fields: dict[str, Any]) -> None:
    """Invalid options of any kind never raise an exception. At least one check is an error."""
    checks = machine.check(**fields)
    assert not would_work(checks.values())
    json.dumps([[check.detail, check.hint] for check in checks.values()]).encode("ascii")


def test_no_secret(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No check contains the value of a secret, even if a path contains it."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", KEY)
    folder = machine.work / KEY
    folder.mkdir()
    checks = machine.check(cwd=str(folder), gemini=f"{folder}/nothing")
    assert not any(KEY in f"{check.detail}{check.hint}" for check in checks.values())
    assert "***" in checks["cwd"].detail


def test_orphans(machine: Machine) -> None:
    """A process whose host died is a warning with its pid and command.
    One that a run kept on purpose is an information."""
    host = subprocess.Popen(["true"])
    host.wait()
    mark = Mark(host.pid, int(time.time() * 1000), "0123456789ab", "run-kept")
    env = {MARKER: str(mark), "PATH": os.environ["PATH"], "GEMINIDS_HOME": str(machine.places.root)}
    with subprocess.Popen(["sleep", "300"], env=env) as process:
        try:
            check = machine.check()["orphans"]
            assert check.level == "warning"
            assert f"{process.pid}, " in check.detail
            assert "sleep 300" in check.detail
            machine.places.kept.mkdir()
            (machine.places.kept / "run-kept").touch()
            check = machine.check()["orphans"]
            assert check.level == "info"
            assert f"{process.pid}, " in check.detail.partition("by a run with --leftovers keep")[2]
        finally:
            process.kill()


def test_live_is_skipped(machine: Machine) -> None:
    """The live check is skipped if the CLI is missing."""
    check = machine.check(live=True, gemini=str(machine.work / "nothing"))["live"]
    assert check.level == "skipped"


def test_live_crash(machine: Machine) -> None:
    """A live run that fails is an error with the kind of the failure and a hint."""
    check = machine.check(live=True, offline=True)["live"]
    assert check.level == "error"
    assert check.detail.startswith("failed (")
    assert check.hint


@pytest.mark.real
def test_live(make_world: Callable[[str], Any]) -> None:
    """A successful live run of the real CLI is reported as ok.
    A refused key is an error with a hint."""
    world = make_world("0.61.0")
    world.gateway.reply(text="OK")

    async def run_checks() -> dict[str, Check]:
        options = world.options()
        return {check.code: check for check in await check_environment(options, live=True)}

    checks = anyio.run(run_checks)
    assert checks["live"].level == "ok", checks["live"]
    assert would_work(checks.values())
    world.gateway.reply(status=400, error="API key not valid. Please pass a valid API key.", times=None)
    check = anyio.run(run_checks)["live"]
    assert check.level == "error"
    assert "(auth)" in check.detail
    assert "GEMINI_API_KEY" in str(check.hint)


@pytest.mark.real
def test_live_on_trio(make_world: Callable[[str], Any]) -> None:
    """The live check works on trio. With `offline`, it reports that the model is scripted."""
    world = make_world("0.61.0")

    async def run_checks() -> dict[str, Check]:
        options = world.options(offline=True)
        return {check.code: check for check in await check_environment(options, live=True)}

    checks = anyio.run(run_checks, backend="trio")
    assert checks["live"].level == "ok", checks["live"]
    assert "scripted" in checks["live"].detail


@pytest.mark.real
def test_live_without_network(make_world: Callable[[str], Any]) -> None:
    """If the API cannot be reached, the live check reports a network error."""
    world = make_world("0.61.0")
    nowhere = {"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9"}

    async def run_checks() -> dict[str, Check]:
        options = msgspec.structs.replace(world.options(env=nowhere), model=None)
        return {check.code: check for check in await check_environment(options, live=True)}

    check = anyio.run(run_checks)["live"]
    assert check.level == "error"
    assert "(network)" in check.detail
