"""Would a run work here? Each check, on a machine that has what the test gives it."""

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
ALL = [
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
ALL += ["orphans", "plan", "live"]
# What could lead the checks to something of the machine that the tests run on.
FOREIGN = [
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
    """A home, a folder to work in, geminids' own folder, and a package that looks like Gemini CLI."""

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

    def look(self, *, live: bool = False, **fields: Any) -> dict[str, Check]:
        given = {"cwd": str(self.work), "gemini": str(self.cli), **fields}

        async def look() -> tuple[Check, ...]:
            return await check_environment(Options(**given), live=live)

        found = anyio.run(look)
        assert len({check.code for check in found}) == len(found)
        return {check.code: check for check in found}


@pytest.fixture
def machine(tmp_path: Path, installs: Places, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path, installs)
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(made.home))
    monkeypatch.setenv("GEMINIDS_HOME", str(made.places.root))
    return made


def test_all_well(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a CLI, a Node and a key, every check is there, none is an error, and a run would work."""
    monkeypatch.setenv("GEMINI_API_KEY", KEY)
    found = machine.look()
    assert list(found) == ALL
    assert would_work(found.values())
    assert found["cli"].detail.startswith("0.61.0 at ")
    assert found["auth"] == Check("auth", "ok", "API key (GEMINI_API_KEY)")
    assert found["live"].level == "skipped"


def test_leaves_nothing(machine: Machine) -> None:
    """A look writes nothing into the user's home or the folder to work in, except where sessions go."""
    machine.look()
    assert os.listdir(machine.work) == []
    left = [path.relative_to(machine.home).as_posix() for path in machine.home.rglob("*")]
    assert set(left) <= {".gemini", ".gemini/tmp", ".gemini/history"}


def test_no_cli(machine: Machine) -> None:
    """Without a CLI that is said once, with where it was looked for; what depends on it is skipped."""
    found = machine.look(gemini=str(machine.work / "nothing"))
    assert found["cli"].level == "error"
    assert "does not exist" in found["cli"].detail
    assert found["node"].level == "ok"
    assert {found[code].level for code in ("cli_version", "trust", "plan")} == {"skipped"}


def test_no_node(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a Node, node is the error and the CLI is skipped."""
    machine.places.node.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine.look()
    if found["node"].level == "ok":
        pytest.skip("this machine has a Node outside PATH")
    assert found["node"].level == "error"
    assert "geminids install" in str(found["node"].hint)
    assert found["cli"].level == "skipped"


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
def test_versions(machine: Machine, version: str, level: str) -> None:
    """A release beyond what was tested is a warning; one that geminids does not run is an error."""
    cli = machine.cli if version == "0.61.0" else machine.package(version)
    assert machine.look(gemini=str(cli))["cli_version"].level == level


def test_an_older_release_is_an_error_with_the_remedy(machine: Machine) -> None:
    """Doctor shows the refusal of a run: the sentence, and what to do."""
    found = machine.look(gemini=str(machine.package("0.41.2")))
    assert found["cli_version"].level == "error"
    assert "Gemini CLI 0.41.2 is too old" in found["cli_version"].detail
    assert "geminids install" in str(found["cli_version"].hint)


@pytest.mark.parametrize(
    ("env", "level", "said"),
    [
        ({}, "error", "no sign-in was found"),
        ({"GOOGLE_API_KEY": KEY}, "error", "GOOGLE_API_KEY alone is not enough"),
        ({"GEMINI_API_KEY": KEY}, "ok", "API key (GEMINI_API_KEY)"),
        (
            {"GOOGLE_GENAI_USE_VERTEXAI": "true", "GOOGLE_API_KEY": KEY},
            "ok",
            "Vertex AI (GOOGLE_GENAI_USE_VERTEXAI)",
        ),
        ({"GOOGLE_GENAI_USE_GCA": "true"}, "error", "no login is stored"),
        ({"GOOGLE_GENAI_USE_GCA": "true", "GOOGLE_CLOUD_ACCESS_TOKEN": KEY}, "warning", "2026-06-18"),
        ({"GEMINI_CLI_USE_COMPUTE_ADC": "true"}, "ok", "default credentials"),
    ],
)
def test_auth_of_the_environment(machine: Machine, env: dict[str, str], level: str, said: str) -> None:
    """The way of signing in is named with where it was found, and what is missing for it."""
    check = machine.look(env=env)["auth"]
    assert check.level == level
    assert said in check.detail
    assert KEY not in check.detail
    assert (check.hint is None) == (level == "ok")


def test_account(machine: Machine) -> None:
    """An account is a warning that names the retired tier; without a stored login it is an error."""
    machine.write("settings.json", SETTINGS_ACCOUNT)
    assert machine.look()["auth"].level == "error"
    machine.write("oauth_creds.json", "{}")
    check = machine.look()["auth"]
    assert check.level == "warning"
    assert "2026-06-18" in check.detail
    assert "GEMINI_API_KEY" in str(check.hint)


def test_key_of_the_settings(machine: Machine) -> None:
    """Settings that ask for a key need one: in the environment, or stored by the CLI."""
    machine.write("settings.json", SETTINGS_KEY)
    check = machine.look()["auth"]
    assert check.level == "error"
    assert "GEMINI_API_KEY is not set" in check.detail
    machine.write("gemini-credentials.json", "…")
    assert machine.look()["auth"].level == "ok"


def test_unknown_way(machine: Machine) -> None:
    """A way of signing in that we do not know may work: a warning."""
    machine.write("settings.json", '{"security": {"auth": {"selectedType": "by-carrier-pigeon"}}}')
    assert machine.look()["auth"].level == "warning"


VERTEX = {"GOOGLE_GENAI_USE_VERTEXAI": "true", "NO_GCE_CHECK": "true"}
PROJECT = {**VERTEX, "GOOGLE_CLOUD_PROJECT": "p", "GOOGLE_CLOUD_LOCATION": "eu"}


@pytest.mark.parametrize(
    ("env", "level", "said"),
    [
        ({"GEMINI_API_KEY": KEY}, "ok", "gateway: Gemini API with a key"),
        ({**VERTEX, "GOOGLE_API_KEY": KEY}, "ok", "gateway: Vertex AI with a key"),
        (VERTEX, "error", "refused: Vertex AI needs GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION"),
        (PROJECT, "error", "no Google Cloud credentials"),
        ({**PROJECT, "GOOGLE_APPLICATION_CREDENTIALS": "/nowhere.json"}, "error", "/nowhere.json"),
        (
            {"GEMINI_API_KEY": KEY, "GEMINI_SANDBOX": "docker"},
            "warning",
            "direct: the CLI's container sandbox",
        ),
        ({}, "warning", "direct: no sign-in was found"),
    ],
)
def test_the_route_is_the_runs_own(machine: Machine, env: dict[str, str], level: str, said: str) -> None:
    """Doctor shows the decision that a run takes: gateway, direct or refused, with the reason."""
    check = machine.look(env=env)["gateway"]
    assert (check.level, said in check.detail) == (level, True), check.detail
    assert check.level == "ok" or check.hint


def test_credentials_in_the_users_env_file(machine: Machine, tmp_path: Path) -> None:
    """A run reads ~/.gemini/.env, so doctor finds the credentials that it names."""
    file = authorized_user_file(tmp_path, "http://127.0.0.1:1")
    machine.write(".env", f"GOOGLE_APPLICATION_CREDENTIALS={file}\n")
    check = machine.look(env=PROJECT)["gateway"]
    assert (check.level, "this machine's credentials" in check.detail) == ("ok", True), check.detail


@pytest.mark.parametrize(
    "where", ["work/.env", "work/.gemini/.env", ".env", "home/.gemini/.env", "home/.env"]
)
def test_key_in_an_env_file(machine: Machine, tmp_path: Path, where: str) -> None:
    """A key in an env file counts where a run would have it, and is not shown: of a folder only if it is trusted."""
    file = tmp_path / where
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"GEMINI_API_KEY={KEY}\n")
    ok = Check("auth", "ok", f"API key (GEMINI_API_KEY in {file})")
    assert machine.look(trust_workspace=True)["auth"] == ok
    assert machine.look(trust_workspace=True)["gateway"].level == "ok"
    check = machine.look()["auth"]
    if where.startswith("home/"):
        assert check == ok
    else:
        assert check.level == "error"
        assert f"the sign-in in {file} is ignored" in check.detail
        assert f"--env-file {file}" in (check.hint or "")


def test_nearest_env_file(machine: Machine) -> None:
    """A trusted folder's key goes before the one in the user's own file, which is used if the folder has none."""
    machine.write(".env", f"GEMINI_API_KEY={KEY}\n")
    (machine.work / ".env").write_text("COLOUR=blue\n")
    assert machine.look(trust_workspace=True)["auth"].level == "ok"
    (machine.work / ".env").write_text("GEMINI_API_KEY=another-key-0123\n")
    assert str(machine.work / ".env") in machine.look(trust_workspace=True)["auth"].detail


def test_offline(machine: Machine) -> None:
    """Offline no sign-in is needed, and a run would work without."""
    found = machine.look(offline=True)
    assert found["auth"].level == "skipped"
    assert would_work(found.values())


def test_broken_settings(machine: Machine) -> None:
    """A settings file that the CLI would refuse is named; what depends on it is skipped."""
    file = machine.write("settings.json", '{"model": ')
    found = machine.look()
    assert found["settings"].level == "error"
    assert str(file) in found["settings"].detail
    assert {found[code].level for code in ("auth", "sessions_home", "plan")} == {"skipped"}


def test_folders(machine: Machine, tmp_path: Path) -> None:
    """A folder that is not there is an error, unless a run would make it; a look does not make it."""
    away = tmp_path / "away" / "further"
    assert machine.look(cwd=str(away))["cwd"].level == "error"
    made = machine.look(cwd=str(away), make_cwd=True, offline=True)
    assert made["cwd"].level == "ok"
    assert would_work(made.values())
    assert not away.exists()
    file = tmp_path / "file"
    file.touch()
    assert "not a folder" in machine.look(cwd=str(file))["cwd"].detail


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_read_only_folder(machine: Machine) -> None:
    """In a folder that cannot be written, the agent can still read: a warning."""
    machine.work.chmod(0o500)
    assert machine.look()["cwd"].level == "warning"
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
    """Variables that forbid trust are an error where the release heeds them, and a run would hand them on."""
    cli = machine.cli if version == "0.61.0" else machine.package(version)
    assert machine.look(env=env, gemini=str(cli), trust_workspace=True)["trust"].level == level
    untrusted = "ok" if "GEMINI_CLI_TRUST_WORKSPACE" in env else level
    assert machine.look(env=env, gemini=str(cli))["trust"].level == untrusted


def test_ripgrep(machine: Machine, tmp_path: Path) -> None:
    """With rg on PATH its path is told, without it that search is slower."""
    path = os.environ["PATH"]
    rg = tmp_path / "rg"
    rg.write_text("#!/bin/sh\n")
    rg.chmod(0o755)
    assert machine.look(env={"PATH": f"{tmp_path}{os.pathsep}{path}"})["ripgrep"].detail == str(rg)
    assert machine.look(env={"PATH": str(machine.work)})["ripgrep"].level == "info"


def test_own_folder(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Our own folder must be writable, and should be closed to others."""
    assert machine.look()["homes"].level == "ok"
    machine.places.root.chmod(0o755)
    check = machine.look()["homes"]
    assert check.level == "warning"
    assert "chmod 700" in str(check.hint)
    (tmp_path / "file").touch()
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "file" / "geminids"))
    found = machine.look()
    assert found["homes"].level == "error"
    assert found["plan"].level == "skipped"


def test_sessions(machine: Machine) -> None:
    """Session files must have a place."""
    machine.write("tmp", "a file where a folder should be")
    assert machine.look()["sessions_home"].level == "error"


def test_options(machine: Machine) -> None:
    """Options that a run would refuse are an error of their own, all at once."""
    found = machine.look(grace=-1.0, model="two words")
    assert found["options"].level == "error"
    assert "grace" in found["options"].detail
    assert "model" in found["options"].detail


def test_env_file_of_the_options(machine: Machine) -> None:
    """The env file of the options counts; a broken line of it is named, and not shown."""
    file = machine.work / "vars"
    file.write_text(f"GEMINI_API_KEY={KEY}\n")
    assert machine.look(env_file=str(file))["auth"].level == "ok"
    file.write_text(f"{KEY}\n")
    found = machine.look(env_file=str(file))
    assert "line 1" in found["options"].detail
    assert not any(KEY in f"{check.detail}{check.hint}" for check in found.values())


@pytest.mark.parametrize(
    "fields", [{"cwd": 5}, {"home": "\0"}, {"env": {"A": 5}}, {"gemini": "\udcff/x"}, {"cwd": "\0"}]
)
def test_never_raises(machine: Machine, fields: dict[str, Any]) -> None:
    """However strange the options: checks, and at least one of them an error."""
    found = machine.look(**fields)
    assert not would_work(found.values())
    json.dumps([[check.detail, check.hint] for check in found.values()]).encode("ascii")


def test_no_secret(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret's value is in no check, also where a path or a process has it."""
    monkeypatch.setenv("MY_SERVICE_TOKEN", KEY)
    folder = machine.work / KEY
    folder.mkdir()
    found = machine.look(cwd=str(folder), gemini=f"{folder}/nothing")
    assert not any(KEY in f"{check.detail}{check.hint}" for check in found.values())
    assert "***" in found["cwd"].detail


def test_orphans(machine: Machine) -> None:
    """A process of a dead host is a warning with its pid and command; one that was kept is information."""
    host = subprocess.Popen(["true"])
    host.wait()
    mark = Mark(host.pid, int(time.time() * 1000), "0123456789ab", "run-kept")
    env = {MARKER: str(mark), "PATH": os.environ["PATH"], "GEMINIDS_HOME": str(machine.places.root)}
    with subprocess.Popen(["sleep", "300"], env=env) as process:
        try:
            check = machine.look()["orphans"]
            assert check.level == "warning"
            assert f"{process.pid}, " in check.detail
            assert "sleep 300" in check.detail
            machine.places.kept.mkdir()
            (machine.places.kept / "run-kept").touch()
            check = machine.look()["orphans"]
            assert check.level == "info"
            assert f"{process.pid}, " in check.detail.partition("kept by a run on purpose")[2]
        finally:
            process.kill()


def test_live_is_skipped(machine: Machine) -> None:
    """What cannot be started is not tried."""
    check = machine.look(live=True, gemini=str(machine.work / "nothing"))["live"]
    assert check.level == "skipped"


def test_live_crash(machine: Machine) -> None:
    """A live run that fails is an error with the kind of its failure and what to do."""
    check = machine.look(live=True, offline=True)["live"]
    assert check.level == "error"
    assert check.detail.startswith("failed (")
    assert check.hint


@pytest.mark.real
def test_live(make_world: Callable[[str], Any]) -> None:
    """A live run of the real CLI that succeeds is told with its time; a refused key with its hint."""
    world = make_world("0.61.0")
    world.gateway.reply(text="OK")

    async def look() -> dict[str, Check]:
        options = world.options()
        return {check.code: check for check in await check_environment(options, live=True)}

    found = anyio.run(look)
    assert found["live"].level == "ok", found["live"]
    assert would_work(found.values())
    world.gateway.reply(status=400, error="API key not valid. Please pass a valid API key.", times=None)
    check = anyio.run(look)["live"]
    assert check.level == "error"
    assert "(auth)" in check.detail
    assert "GEMINI_API_KEY" in str(check.hint)


@pytest.mark.real
def test_live_on_trio(make_world: Callable[[str], Any]) -> None:
    """It works on trio too, offline, and then says that the model is scripted."""
    world = make_world("0.61.0")

    async def look() -> dict[str, Check]:
        options = world.options(offline=True)
        return {check.code: check for check in await check_environment(options, live=True)}

    found = anyio.run(look, backend="trio")
    assert found["live"].level == "ok", found["live"]
    assert "scripted" in found["live"].detail


@pytest.mark.real
def test_live_without_network(make_world: Callable[[str], Any]) -> None:
    """An API that cannot be reached is told as such, well before the time is up."""
    world = make_world("0.61.0")
    nowhere = {"GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9"}

    async def look() -> dict[str, Check]:
        options = msgspec.structs.replace(world.options(env=nowhere), model=None)
        return {check.code: check for check in await check_environment(options, live=True)}

    check = anyio.run(look)["live"]
    assert check.level == "error"
    assert "(network)" in check.detail
