"""Tests of the launch steps prepare, build and write: only `write` changes anything on the
machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geminids.config.paths import Places
from geminids.launch.build import build_headless, build_warm
from geminids.launch.errors import Refused
from geminids.launch.gateway_env import PLACEHOLDER, Endpoint
from geminids.launch.prepare import Context, prepare
from geminids.launch.write import write
from geminids.options import Options, make_options

KEY = "AIzaSy-not-a-real-key-0123456789"

# Prints every change that the program makes: files, folders, sockets, processes.
_WATCH = """
import json, os, sys
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = (
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.symlink", "os.link", "os.chmod", "os.truncate", "os.utime",
    "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.bind", "socket.connect",
    "tempfile.mkstemp", "tempfile.mkdtemp",
)
seen = []
def hook(event, args):
    if event in CHANGES or (event == "open" and isinstance(args[2], int) and args[2] & WRITES):
        seen.append([event, str(args[0])])
sys.addaudithook(hook)
def report(**more):
    print(json.dumps({"changes": list(seen), **more}), file=sys.stderr)
"""


class Machine:
    """A home, a Node and a Gemini CLI in temporary folders: enough to plan a run, but nothing that
    runs."""

    def __init__(self, folder: Path, root: str = "geminids") -> None:
        self.folder = folder
        self.places = Places(folder / root)
        for name in ("home", "work", "bin", "cli/bundle"):
            (folder / name).mkdir(parents=True)
        node = folder / "bin" / "node"
        node.write_text(f"#!/bin/sh\necho v24.1.0 {node}\n")
        node.chmod(0o755)
        (folder / "cli/bundle/gemini.js").write_text("// nothing\n")
        manifest = {"name": "@google/gemini-cli", "version": "0.61.0", "bin": {"gemini": "bundle/gemini.js"}}
        (folder / "cli/package.json").write_text(json.dumps(manifest))
        (folder / "note.txt").write_text("a note")
        self.environ = {
            "HOME": str(folder / "home"),
            "PATH": str(node.parent),
            "GEMINIDS_HOME": str(self.places.root),
            "GEMINI_API_KEY": KEY,
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(folder),
        }

    def fields(self, **more: Any) -> dict[str, Any]:
        return {"cwd": str(self.folder / "work"), "gemini": str(self.folder / "cli"), **more}

    def context(self, transport: Any = "headless", prompt: str = "hi", **more: Any) -> Context:
        options = make_options(Options(), **self.fields(**more))
        return prepare(options, transport=transport, prompt=prompt, environ=self.environ, places=self.places)

    def cache_node_version(self) -> None:
        """Plan once, so that the version of Node is queried and cached."""
        self.context()

    def run_watched(self, program: str) -> dict[str, Any]:
        """Run a program, and return its report with every change that it made."""
        argv = [sys.executable, "-c", _WATCH + program]
        done = subprocess.run(argv, env=self.environ, capture_output=True, text=True, timeout=60)
        lines = [line for line in done.stderr.splitlines() if line.startswith('{"changes"')]
        assert lines, done.stderr
        report: dict[str, Any] = json.loads(lines[-1])
        return {**report, "stdout": done.stdout}

    def tree(self) -> dict[str, tuple[int, int]]:
        """Every file and folder with its inode and the time of its last change."""
        paths = sorted(self.folder.rglob("*"))
        return {str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in paths}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


_PLAN = """
from geminids.launch.build import build_headless, build_warm
from geminids.launch.gateway_env import PLACEHOLDER
from geminids.launch.prepare import prepare
from geminids.launch.write import write
from geminids.options import Options, make_options
options = make_options(Options(), **json.loads({fields!r}))
seen.clear()
if {transport!r} == "warm":
    plan = build_warm(prepare(options, transport="warm", asks=True), PLACEHOLDER)
else:
    plan = build_headless(prepare(options, transport="headless", prompt="hi"), PLACEHOLDER)
"""


def _plan(machine: Machine, transport: str, *, then: str = "", **more: Any) -> dict[str, Any]:
    fields = json.dumps(machine.fields(make_cwd=True, **{"cwd": str(machine.folder / "new"), **more}))
    return machine.run_watched(_PLAN.format(fields=fields, transport=transport) + then + "\nreport()")


@pytest.mark.parametrize("transport", ["headless", "warm"])
def test_planning_changes_nothing(machine: Machine, transport: str) -> None:
    """Planning creates or changes no file, binds no socket and starts no process; `write` then
    creates the files."""
    machine.cache_node_version()
    files: dict[str, Any] = {} if transport == "warm" else {"files": [str(machine.folder / "note.txt")]}
    if transport == "headless":
        files["telemetry"] = str(machine.folder / "telemetry.json")
    before = machine.tree()
    assert _plan(machine, transport, **files)["changes"] == []
    assert machine.tree() == before
    changes = _plan(machine, transport, then="write(plan).close()", **files)["changes"]
    created = [path for event, path in changes if event == "os.mkdir"]
    assert any(path.startswith(str(machine.places.homes)) for path in created)
    assert str(machine.folder / "new") in created
    assert not any(event.startswith(("socket", "subprocess")) for event, _ in changes)
    assert (machine.places.root / "preload.cjs").is_file()
    assert (machine.folder / "telemetry.json").exists() == (transport == "headless")


def test_the_gateway_opens_between_prepare_and_build(machine: Machine) -> None:
    """The gateway's socket is bound when the lease's endpoint is requested, and not with
    `gateway="off"`."""
    machine.cache_node_version()
    opened = """
from geminids.run.accounting.lease import RunLease
context = prepare(options, transport="headless", prompt="hi")
assert seen == []
lease = RunLease(options)
endpoint = lease.endpoint_for(context)
lease.close()
"""
    report = _plan(machine, "headless", then=opened)
    assert "socket.bind" in [event for event, _ in report["changes"]]
    direct = _plan(machine, "headless", then=opened + "assert endpoint is None", gateway="off")
    assert direct["changes"] == []


def test_choosing_a_folder_for_files_changes_nothing(tmp_path: Path) -> None:
    """The folder for attached files is chosen without writing a file, even if only the working
    folder can be used."""
    machine = Machine(tmp_path, "geminids [ours]")
    machine.environ["TMPDIR"] = str(tmp_path / "work")
    machine.cache_node_version()
    before = machine.tree()
    show = "\nprint(plan.stdin.decode())"
    report = _plan(
        machine,
        "headless",
        then=show,
        cwd=str(tmp_path / "work"),
        files=[str(tmp_path / "note.txt")],
    )
    assert re.search(r"@\.geminids-run-\w+/media-001.txt \(attached as note.txt\)", report["stdout"])
    assert report["changes"] == []
    assert machine.tree() == before


_CLI = """
from geminids.cli import main
sys.argv = ["geminids", *json.loads({arguments!r})]
try:
    main()
except SystemExit as end:
    report(code=end.code)
"""


@pytest.mark.parametrize(
    "arguments", [("run", "hello", "--dry-run"), ("run", "hello", "--dry-run", "-o", "events")]
)
def test_a_dry_run_changes_nothing(machine: Machine, arguments: tuple[str, ...]) -> None:
    """A dry run shows the files that a run would write, and writes none."""
    machine.cache_node_version()
    before = machine.tree()
    fields = machine.fields()
    flags = ["--gemini", fields["gemini"], "--cwd", str(machine.folder / "new"), "--make-cwd"]
    flags += ["--file", str(machine.folder / "note.txt")]
    report = machine.run_watched(_CLI.format(arguments=json.dumps([*arguments, *flags])))
    assert (report["changes"], report["code"]) == ([], 0)
    assert "policy/geminids.toml" in report["stdout"]
    assert "media-001.txt" in report["stdout"]
    assert machine.tree() == before


def test_the_plan_of_doctor_changes_nothing(machine: Machine) -> None:
    """`geminids doctor` plans a run but creates no home and no folder, and binds no socket."""
    machine.cache_node_version()
    program = """
import anyio
from geminids.options import Options
from geminids.doctor import check_environment
checks = anyio.run(check_environment, Options(**json.loads({fields!r})))
report(plan=[check.level for check in checks if check.code == "plan"])
"""
    fields = machine.fields(cwd=str(machine.folder / "new"), make_cwd=True)
    report = machine.run_watched(program.format(fields=json.dumps(fields)))
    assert report["plan"] == ["ok"]
    assert not machine.places.homes.exists()
    assert not machine.places.runs.exists()
    assert not (machine.folder / "new").exists()
    assert not any(event == "socket.bind" for event, _ in report["changes"])


def _break_settings(machine: Machine) -> None:
    (machine.folder / "home/.gemini").mkdir()
    (machine.folder / "home/.gemini/settings.json").write_text("{ no json")


def _add_command(machine: Machine) -> None:
    (machine.folder / "work/.gemini/commands").mkdir(parents=True)
    (machine.folder / "work/.gemini/commands/deploy.toml").write_text('prompt = "!{x}"')


_REFUSED: dict[str, tuple[str, dict[str, Any], Any]] = {
    "bad_prompt": ("", {}, None),
    "bad_prompt: a command of the folder": ("/deploy", {}, _add_command),
    "bad_option: no NAME=value": ("hi", {"env_file": "note.txt"}, None),
    "bad_option: not a video": ("hi", {"videos": ["note.txt"]}, None),
    "bad_option: a limit without the gateway": (
        "hi",
        {"env": {"GEMINI_SANDBOX": "docker"}, "max_requests": 3},
        None,
    ),
    "bad_option: a server that is not there": ("hi", {"permissions": {"deny_servers": ["nobody"]}}, None),
    "bad_option: not a skill": ("hi", {"skills": ["work"]}, None),
    "cli_missing": ("hi", {"gemini": "/no/such/gemini"}, None),
    "config": ("hi", {}, _break_settings),
    "config: a comma in a path": ("hi", {"include_dirs": ["a,b"]}, None),
}


@pytest.mark.parametrize(
    ("case", "asks"),
    [
        *((case, False) for case in _REFUSED),
        ("bad_prompt", True),
        ("bad_option: not a video", True),
        ("cli_missing", True),
    ],
)
def test_a_refused_run_changes_nothing(machine: Machine, case: str, asks: bool) -> None:
    """A refused run creates no file, no socket and no process, for every reason to refuse it."""
    machine.cache_node_version()
    (machine.folder / "a,b").mkdir()
    prompt, more, change = _REFUSED[case]
    if change is not None:
        change(machine)
    fields = machine.fields(cwd=str(machine.folder / "work"), files=[str(machine.folder / "note.txt")])
    fields |= {"permissions": {"shell": "deny"}, **more}
    for name in ("videos", "skills", "include_dirs"):
        fields[name] = [str(machine.folder / path) for path in fields.get(name, ())]
    if "env_file" in fields:
        fields["env_file"] = str(machine.folder / fields["env_file"])
    before = machine.tree()
    program = """
import geminids
from geminids.options import Permissions
fields = json.loads({fields!r})
permissions = fields.pop("permissions").items()
permissions = {{name: tuple(value) if isinstance(value, list) else value for name, value in permissions}}
fields["permissions"] = Permissions(**permissions)
result = geminids.ask_sync({prompt!r}, on_permission=print if {asks} else None, **fields)
report(kind=result.failure.kind)
"""
    report = machine.run_watched(program.format(fields=json.dumps(fields), prompt=prompt, asks=asks))
    assert report["kind"] == case.split(":")[0]
    assert report["changes"] == []
    assert machine.tree() == before


def test_a_failed_write_leaves_no_files(machine: Machine) -> None:
    """If `write` fails, the files of the run are removed."""
    telemetry = machine.folder / "nowhere" / "telemetry.json"
    context = machine.context(files=(str(machine.folder / "note.txt"),), telemetry=str(telemetry))
    with pytest.raises(Refused, match=r"`telemetry`: .*No such file or directory") as refused:
        write(build_headless(context, PLACEHOLDER))
    assert refused.value.failure.kind == "bad_option"
    assert os.listdir(machine.places.runs) == []


def test_a_plan_depends_only_on_context_and_endpoint(machine: Machine) -> None:
    """Building twice gives equal plans.

    Another endpoint changes only the address, the token and the secrets.
    """
    other = Endpoint("http://127.0.0.1:9", "a-token-of-the-gateway")
    headless = machine.context(files=(str(machine.folder / "note.txt"),))
    plan, again = build_headless(headless, PLACEHOLDER), build_headless(headless, PLACEHOLDER)
    assert plan == again
    real = build_headless(headless, other)
    changed = {name for name in plan.env if plan.env[name] != real.env[name]}
    assert changed == {"GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"}
    assert (plan.argv, plan.stdin, plan.writes) == (real.argv, real.stdin, real.writes)
    assert other.token in real.secrets
    warm = machine.context("warm")
    assert build_warm(warm, other) == build_warm(warm, other)
    assert KEY not in str(build_warm(warm, other).env)


_RECORDING_CLI = """
json.dump(dict(argv=sys.argv, env=dict(os.environ), prompt=sys.stdin.read()), open("../real.json", "w"))
out(INIT + DONE)
"""


@pytest.mark.parametrize("flags", [(), ("--gateway", "off"), ("--approval", "plan", "--model", "flash")])
def test_a_dry_run_shows_what_a_run_uses(fake_cli: Any, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """A dry run shows the argv, environment and prompt of the real run, except for port, token and
    folder name."""
    options = fake_cli(_RECORDING_CLI)
    (tmp_path / "note.txt").write_text("a note")
    (tmp_path / "work/.env").write_text("GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:1\nGOOGLE_API_KEY=x\n")
    arguments = ["run", "hello", "--gemini", options.gemini, "--cwd", options.cwd, "--home", "isolated"]
    arguments += ["--file", str(tmp_path / "note.txt"), *flags]
    # Otherwise Python would set LC_CTYPE in the fake CLI.
    env = {
        **os.environ,
        "GEMINI_API_KEY": KEY,
        "PYTHONCOERCECLOCALE": "0",
        "HTTPS_PROXY": "http://proxy.example:1",
    }

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "geminids", *arguments, *more]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)

    dry, done = run("--dry-run", "-o", "events"), run()
    assert (dry.returncode, done.returncode) == (0, 0), dry.stderr + done.stderr
    planned = json.loads(_normalize(dry.stdout))
    real = json.loads(_normalize((tmp_path / "real.json").read_text()))
    assert planned["argv"] == real["argv"]
    assert planned["prompt"] == real["prompt"]
    differences = {name: value for name, value in real["env"].items() if env.get(name) != value}
    differences |= {name: None for name in env if name not in real["env"]}
    differences.pop("GEMINI_CLI_GEMINIDS_MARK", None)  # set at the spawn
    masked = {name for name, value in planned["environment"].items() if value == "***"}
    assert planned["environment"] == {
        name: "***" if name in masked and value else value for name, value in differences.items()
    }


def _normalize(text: str) -> str:
    """Replace the values that differ from run to run."""
    text = re.sub(r"run-[0-9a-f]{16}", "run-x", text)
    return re.sub(r"127\.0\.0\.1:(\d+|<port>)", "127.0.0.1:0", text)
