"""`geminids doctor` as a process: in a pipe, as JSON, and in a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from geminids.config.paths import Places
from geminids.process.marker import MARKER, Mark

COMMAND = [sys.executable, "-m", "geminids", "doctor"]
KEY = "AIzaSy-only-for-this-test-0123456789"


class User:
    """A user with a home, a work folder, and a package that looks like Gemini CLI."""

    def __init__(self, root: Path, installs: Places) -> None:
        self.home, self.work, self.cli = root / "home", root / "work", root / "cli"
        places = Places(root / "geminids")
        for folder in (self.home, self.work, places.root, self.cli / "bundle"):
            folder.mkdir(parents=True)
        places.root.chmod(0o700)
        installs.node.mkdir(parents=True, exist_ok=True)
        places.node.symlink_to(installs.node)
        manifest = {"name": "@google/gemini-cli", "version": "0.61.0", "bin": {"gemini": "bundle/gemini.js"}}
        (self.cli / "package.json").write_text(json.dumps(manifest))
        (self.cli / "bundle" / "gemini.js").write_text("process.exit(1)\n")
        self.env = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "GEMINIDS_HOME": str(places.root),
            "GEMINI_CLI_PATH": str(self.cli),
            "TERM": "xterm",
            MARKER: os.environ[MARKER],
        }

    def doctor(self, *flags: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *flags],
            env={**self.env, **env},
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
        )

    def checks(self, *flags: str, **env: str) -> dict[str, Any]:
        report = json.loads(self.doctor("--json", *flags, **env).stdout)
        return {check["code"]: check for check in report["checks"]}

    def run_in_terminal(self, *flags: str, answer: str = "", **env: str) -> str:
        """Run doctor in a terminal and return its output; type `answer` when it asks."""
        master, slave = pty.openpty()
        with subprocess.Popen(
            [*COMMAND, *flags],
            env={**self.env, **env},
            cwd=self.work,
            stdin=slave,
            stdout=slave,
            stderr=slave,
        ) as process:
            os.close(slave)
            shown = b""
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                if select.select([master], [], [], 0.1)[0]:
                    try:
                        shown += os.read(master, 65536)
                    except OSError:  # on Linux: the other side is closed
                        break
                if answer and b"[y/N]" in shown:
                    os.write(master, f"{answer}\n".encode())
                    answer = ""
            process.kill()
        os.close(master)
        return shown.decode()


@pytest.fixture
def user(tmp_path: Path, installs: Places) -> User:
    return User(tmp_path, installs)


@pytest.fixture
def orphan(user: User) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose mark names a dead host. It is our child, so the test sees its end at once."""
    host = subprocess.Popen(["true"])
    host.wait()
    mark = Mark(host.pid, int(time.time() * 1000), "0123456789ab", "run-gone")
    env = {MARKER: str(mark), "PATH": os.environ["PATH"], "GEMINIDS_HOME": user.env["GEMINIDS_HOME"]}
    with subprocess.Popen(["sleep", "300"], env=env) as process:
        yield process
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def test_a_run_would_work(user: User) -> None:
    """If a run would work, doctor exits with 0, prints a line for each check, and the last line
    says so.
    """
    result = user.doctor(GEMINI_API_KEY=KEY)
    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert lines[-1] == "A run would work here."
    assert "✓ auth           API key (GEMINI_API_KEY)" in lines
    assert result.stderr == ""


def test_a_run_would_not_work(user: User) -> None:
    """If a run would not work, doctor exits with 1, counts the problems, and indents a hint below
    each.
    """
    result = user.doctor(f"--cwd={user.work / 'nowhere'}")
    lines = result.stdout.splitlines()
    assert result.returncode == 1
    assert lines[-1] == "A run would not work here: 2 problems."
    at = lines.index(
        "✗ auth           no sign-in was found: no API key, no Vertex AI settings and no Google account"
    )
    assert lines[at + 1].startswith(" " * 17 + "Set GEMINI_API_KEY")


def test_json(user: User) -> None:
    """With `--json` stdout is one JSON object, also if a check fails."""
    result = user.doctor("--json")
    report = json.loads(result.stdout)
    assert result.returncode == 1
    assert set(report) == {"ok", "checks"}
    assert report["ok"] is False
    for check in report["checks"]:
        assert set(check) == {"code", "level", "detail", "hint"}
    assert json.loads(user.doctor("--json", GEMINI_API_KEY=KEY).stdout)["ok"] is True


# The variables and files of a situation in which a run does not start, and flags for both commands.
BROKEN: dict[str, tuple[dict[str, str], dict[str, str], tuple[str, ...]]] = {
    "broken config.toml": ({"GEMINIDS_CONFIG": "config.toml"}, {"config.toml": "[gemini"}, ("--offline",)),
    "unknown key": (
        {"GEMINIDS_CONFIG": "config.toml"},
        {"config.toml": '[gemini]\nmodle = "flash"'},
        ("--offline",),
    ),
    "missing instructions": (
        {"GEMINIDS_CONFIG": "config.toml"},
        {"config.toml": '[gemini]\ninstructions = "nope.md"'},
        ("--offline",),
    ),
    "empty instructions": ({"GEMINIDS_INSTRUCTIONS": "empty.md"}, {"empty.md": ""}, ("--offline",)),
    "wrong variable": ({"GEMINIDS_TIMEOUT": "soon"}, {}, ("--offline",)),
    "project file": ({}, {"geminids.toml": "[gemini"}, ("--offline",)),
    "invalid schema": ({"GEMINIDS_SCHEMA": '{"type": "nosuch"}'}, {}, ("--offline",)),
    "no JSON schema": ({"GEMINIDS_SCHEMA": "{"}, {}, ("--offline",)),
    "unknown session": ({"GEMINIDS_RESUME": "nosuch"}, {}, ("--offline",)),
    "template": ({"GEMINIDS_TEMPLATE": "{{foo}}"}, {}, ("--offline",)),
    "price table": ({"GEMINIDS_PRICES": "p.toml"}, {"p.toml": "[x]"}, ("--offline",)),
    "key file": ({"GEMINIDS_KEY_FROM": "file:nope"}, {}, ()),
    "folder of the recording": ({"GEMINIDS_RECORD": "nope/c.jsonl"}, {}, ("--offline",)),
    "existing recording": ({"GEMINIDS_RECORD": "c.jsonl"}, {"c.jsonl": "x"}, ("--offline",)),
    "replay": ({"GEMINIDS_REPLAY": "c.jsonl"}, {"c.jsonl": "x"}, ()),
    "script": ({"GEMINIDS_SCRIPT": "s.json"}, {"s.json": "[{]"}, ()),
    "two models": ({"GEMINIDS_SCRIPT": "s.json"}, {"s.json": "[]"}, ("--offline",)),
}


@pytest.mark.parametrize("situation", BROKEN)
def test_doctor_fails_as_a_run_does(user: User, situation: str) -> None:
    """If a run cannot start, doctor fails with the same message, and does not call the plan of the
    run ready. Without the cause, doctor succeeds."""
    env, files, flags = BROKEN[situation]
    assert user.doctor("--offline").returncode == 0
    for name, text in files.items():
        (user.work / name).write_text(text)
    argv = [sys.executable, "-m", "geminids", "run", "hi", *flags]
    run = subprocess.run(
        argv,
        env={**user.env, **env},
        cwd=user.work,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
    )
    doctor = user.doctor(*flags, **env)
    assert run.returncode in (1, 2)
    assert doctor.returncode == 1, doctor.stdout
    assert "a run is ready to start" not in doctor.stdout
    assert "Traceback" not in run.stderr + doctor.stderr
    # The first line of `run` has a prefix: `geminids: 1 option is not valid:`.
    problem = run.stderr.splitlines()[0].removeprefix("geminids: ")
    problem = problem.partition("): ")[2] if problem.startswith("failed (") else problem
    assert problem.removesuffix(":") in doctor.stdout
    if "not valid" in problem:
        assert run.stderr.splitlines()[1].strip() in doctor.stdout


def test_doctor_prints_the_warnings_of_a_run(user: User) -> None:
    """Doctor reports on stderr what a run ignores, here an option of an untrusted project."""
    (user.work / "geminids.toml").write_text('[gemini]\napproval = "yolo"\n')
    result = user.doctor("--offline")
    assert result.returncode == 0
    assert "ignored approval" in result.stderr


def test_doctor_records_and_writes_nothing(user: User) -> None:
    """A recording that a run could write is no problem, and doctor does not write it."""
    assert user.doctor("--offline", GEMINIDS_RECORD="c.jsonl").returncode == 0
    assert list(user.work.iterdir()) == []


def test_a_replay_needs_no_sign_in(user: User) -> None:
    """With a cassette or a script, doctor does not ask for a sign-in."""
    (user.work / "s.json").write_text('[{"text": "hi"}]')
    assert user.checks(GEMINIDS_SCRIPT="s.json")["auth"]["level"] == "skipped"
    assert user.doctor(GEMINIDS_SCRIPT="s.json").returncode == 0


def test_offline(user: User) -> None:
    """With `--offline` doctor succeeds without an API key."""
    assert user.doctor("--offline").returncode == 0


@pytest.mark.parametrize(
    ("flag", "code"),
    [
        ("--cwd=/nowhere", "cwd"),
        ("--gemini=9.9.9", "cli"),
        ("--gemini= ", "options"),
        ("--home= ", "options"),
    ],
)
def test_impossible_options(user: User, flag: str, code: str) -> None:
    """An option that makes a run impossible is a failed check, not a crash."""
    assert user.checks(flag, "--offline")[code]["level"] == "error"


def test_configured_options_are_those_of_a_run(user: User) -> None:
    """Doctor uses the options of a run.

    It shows the run's route, and an invalid variable is a failed check.
    """
    checks = user.checks(GEMINI_API_KEY=KEY, GEMINIDS_GATEWAY="off")
    assert checks["gateway"]["detail"] == "direct: `--gateway off`"
    checks = user.checks("--offline", GEMINIDS_TIMEOUT="soon")
    assert checks["options"]["level"] == "error"
    assert "GEMINIDS_TIMEOUT" in checks["options"]["detail"]
    # Also if another check fails.
    assert user.checks(GEMINIDS_TIMEOUT="soon")["options"]["level"] == "error"


def test_bad_usage(user: User) -> None:
    """An invalid value and an unknown flag exit with 2."""
    assert user.doctor("--live-timeout=0").returncode == 2
    assert user.doctor("--nonsense").returncode == 2


def test_settings_file(user: User) -> None:
    """A broken settings file is reported with its path."""
    (user.home / ".gemini").mkdir()
    (user.home / ".gemini" / "settings.json").write_text("{")
    check = user.checks()["settings"]
    assert check["level"] == "error"
    assert "settings.json" in check["detail"]


@pytest.mark.parametrize("flags", [(), ("--json",), ("--live",), ("--live", "--json"), ("--end-orphans",)])
def test_no_secret(user: User, orphan: object, flags: tuple[str, ...]) -> None:
    """Doctor prints no key, whether it is in the environment, an env file, a path or a command."""
    folder = user.work / KEY
    folder.mkdir()
    other = "another-secret-0123456789"
    (folder / ".env").write_text(f"SOME_TOKEN={other}\n")
    (user.cli / "bundle" / "gemini.js").write_text(
        "console.error(JSON.stringify(process.env)); process.exit(1)\n"
    )
    result = user.doctor(*flags, f"--cwd={folder}", GEMINI_API_KEY=KEY, GOOGLE_API_KEY=f"{KEY}-2")
    assert KEY not in result.stdout + result.stderr
    assert other not in result.stdout + result.stderr
    assert "***" in result.stdout


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours(user: User, env: dict[str, str]) -> None:
    """Doctor uses colours only in a terminal, and not with NO_COLOR or TERM=dumb."""
    assert "\x1b" not in user.doctor().stdout
    assert "\x1b" not in user.run_in_terminal("--offline", **env, answer="n")
    assert "\x1b[32m✓" in user.run_in_terminal("--offline", answer="n")


def test_output_without_unicode(user: User) -> None:
    """If stdout cannot encode Unicode, doctor prints ASCII characters."""
    result = user.doctor(PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert result.returncode == 1
    assert "\nx auth " in result.stdout
    assert result.stdout.isascii()


def test_closed_pipe(user: User) -> None:
    """A closed stdout causes no traceback."""
    process = subprocess.Popen(COMMAND, env=user.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    process.stdout.close()
    with process:
        assert process.stderr
        assert b"Traceback" not in process.stderr.read()


def test_speed(user: User) -> None:
    """Without `--live`, doctor takes less than a second of CPU time."""
    user.doctor()
    before = os.times()
    user.doctor()
    after = os.times()
    assert after.children_user + after.children_system - before.children_user - before.children_system < 1


def test_orphans_are_reported(user: User, orphan: subprocess.Popen[bytes]) -> None:
    """In a pipe, a process of a dead host (an orphan) is a warning.

    Doctor does not end it and exits with 0.
    """
    result = user.doctor("--offline")
    assert result.returncode == 0
    assert f"{orphan.pid}, " in result.stdout
    assert "geminids doctor --end-orphans" in result.stdout
    assert orphan.poll() is None


def test_kept_orphans_are_not_ended(user: User, orphan: subprocess.Popen[bytes]) -> None:
    """`--end-orphans` does not end the processes of a run that were kept on purpose."""
    kept = Path(user.env["GEMINIDS_HOME"]) / "kept"
    kept.mkdir()
    (kept / "run-gone").touch()
    user.doctor("--offline", "--end-orphans")
    assert orphan.poll() is None


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_orphans_are_ended_on_request(
    user: User, orphan: subprocess.Popen[bytes], flags: tuple[str, ...]
) -> None:
    """`--end-orphans` ends orphans without a question and lists them on stderr."""
    result = user.doctor("--offline", "--end-orphans", *flags)
    assert orphan.wait(5) == -15
    assert f"ended {orphan.pid} (TERM): sleep 300" in result.stderr
    assert f"{orphan.pid}, " not in result.stdout
    if flags:
        json.loads(result.stdout)


def test_doctor_asks_before_it_ends_an_orphan(user: User, orphan: subprocess.Popen[bytes]) -> None:
    """In a terminal doctor asks before it ends an orphan. After `n` the orphan keeps running."""
    shown = user.run_in_terminal("--offline", answer="n")
    assert "[y/N]" in shown
    assert orphan.poll() is None
    shown = user.run_in_terminal("--offline", answer="y")
    assert f"ended {orphan.pid} (TERM)" in shown
    assert orphan.wait(5) == -15


def test_json_on_a_terminal(user: User, orphan: subprocess.Popen[bytes]) -> None:
    """With `--json` doctor asks no question, also in a terminal."""
    shown = user.run_in_terminal("--offline", "--json")
    assert json.loads(shown)["ok"] is True
    assert orphan.poll() is None


@pytest.mark.real
def test_live_offline(user: User, installs: Places) -> None:
    """`--live --offline` runs the real CLI with the scripted model."""
    from geminids.gemini.install.cli import install

    gemini = install("0.61.0", places=installs)
    result = user.doctor("--live", "--offline", f"--gemini={gemini.entry}")
    assert result.returncode == 0, result.stdout
    assert "✓ live           a run succeeded in " in result.stdout
