"""`geminids doctor`, as a process: in a pipe, as JSON, and on a terminal."""

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
    """Somebody with a home, a folder to work in, and a package that looks like Gemini CLI."""

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
        said = json.loads(self.doctor("--json", *flags, **env).stdout)
        return {check["code"]: check for check in said["checks"]}

    def on_terminal(self, *flags: str, answer: str = "", **env: str) -> str:
        """All that it shows on a terminal; `answer` is typed when it asks."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*COMMAND, *flags],
            env={**self.env, **env},
            cwd=self.work,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            shown = b""
            end = time.monotonic() + 30
            while time.monotonic() < end:
                if select.select([ours], [], [], 0.1)[0]:
                    try:
                        shown += os.read(ours, 65536)
                    except OSError:  # Linux says so when the other side is closed
                        break
                if answer and b"[y/N]" in shown:
                    os.write(ours, f"{answer}\n".encode())
                    answer = ""
            process.kill()
        os.close(ours)
        return shown.decode()


@pytest.fixture
def user(tmp_path: Path, installs: Places) -> User:
    return User(tmp_path, installs)


@pytest.fixture
def orphan(user: User) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose mark names a dead host (it is our child, so that its end is seen at once)."""
    host = subprocess.Popen(["true"])
    host.wait()
    mark = Mark(host.pid, int(time.time() * 1000), "0123456789ab", "run-gone")
    env = {MARKER: str(mark), "PATH": os.environ["PATH"], "GEMINIDS_HOME": user.env["GEMINIDS_HOME"]}
    with subprocess.Popen(["sleep", "300"], env=env) as process:
        yield process
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def test_good(user: User) -> None:
    """Where a run would work: exit 0, a line a check, and the last line says so."""
    said = user.doctor(GEMINI_API_KEY=KEY)
    lines = said.stdout.splitlines()
    assert said.returncode == 0
    assert lines[-1] == "A run would work here."
    assert "✓ auth           API key (GEMINI_API_KEY)" in lines
    assert said.stderr == ""


def test_bad(user: User) -> None:
    """Where it would not: exit 1, how many problems, and what to do about each, indented."""
    said = user.doctor(f"--cwd={user.work / 'nowhere'}")
    lines = said.stdout.splitlines()
    assert said.returncode == 1
    assert lines[-1] == "A run would not work here: 2 problems."
    at = lines.index("✗ auth           no sign-in was found: no key, no Vertex AI, no account")
    assert lines[at + 1].startswith(" " * 17 + "Set GEMINI_API_KEY")


def test_json(user: User) -> None:
    """With --json stdout is one object, in the bad case too."""
    said = user.doctor("--json")
    found = json.loads(said.stdout)
    assert said.returncode == 1
    assert set(found) == {"ok", "checks"}
    assert found["ok"] is False
    for check in found["checks"]:
        assert set(check) == {"code", "level", "detail", "hint"}
    assert json.loads(user.doctor("--json", GEMINI_API_KEY=KEY).stdout)["ok"] is True


def test_offline(user: User) -> None:
    """With --offline no key is needed."""
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
def test_options(user: User, flag: str, code: str) -> None:
    """What an option makes impossible is a check, not a crash."""
    assert user.checks(flag, "--offline")[code]["level"] == "error"


def test_configured_options_are_those_of_a_run(user: User) -> None:
    """Variables and files count as for `run`: the route is a run's, and what `run` refuses is an error here."""
    checks = user.checks(GEMINI_API_KEY=KEY, GEMINIDS_GATEWAY="off")
    assert checks["gateway"]["detail"] == "direct: gateway='off'"
    checks = user.checks("--offline", GEMINIDS_TIMEOUT="soon")
    assert checks["options"]["level"] == "error"
    assert "GEMINIDS_TIMEOUT" in checks["options"]["detail"]
    # Beside another problem, too.
    assert user.checks(GEMINIDS_TIMEOUT="soon")["options"]["level"] == "error"


def test_bad_usage(user: User) -> None:
    """A flag that cannot be is bad usage: exit 2."""
    assert user.doctor("--live-timeout=0").returncode == 2
    assert user.doctor("--nonsense").returncode == 2


def test_settings_file(user: User) -> None:
    """A broken settings file is told by its path."""
    (user.home / ".gemini").mkdir()
    (user.home / ".gemini" / "settings.json").write_text("{")
    check = user.checks()["settings"]
    assert check["level"] == "error"
    assert "settings.json" in check["detail"]


@pytest.mark.parametrize("flags", [(), ("--json",), ("--live",), ("--live", "--json"), ("--end-orphans",)])
def test_no_secret(user: User, orphan: object, flags: tuple[str, ...]) -> None:
    """A key in the environment, in an env file, in a path or in a command is never printed."""
    folder = user.work / KEY
    folder.mkdir()
    other = "another-secret-0123456789"
    (folder / ".env").write_text(f"SOME_TOKEN={other}\n")
    (user.cli / "bundle" / "gemini.js").write_text(
        "console.error(JSON.stringify(process.env)); process.exit(1)\n"
    )
    said = user.doctor(*flags, f"--cwd={folder}", GEMINI_API_KEY=KEY, GOOGLE_API_KEY=f"{KEY}-2")
    assert KEY not in said.stdout + said.stderr
    assert other not in said.stdout + said.stderr
    assert "***" in said.stdout


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours(user: User, env: dict[str, str]) -> None:
    """Colours are for terminals alone, and not where NO_COLOR is set."""
    assert "\x1b" not in user.doctor().stdout
    assert "\x1b" not in user.on_terminal("--offline", **env, answer="n")
    assert "\x1b[32m✓" in user.on_terminal("--offline", answer="n")


def test_plain_letters(user: User) -> None:
    """A stdout that has no such characters gets others; nothing breaks."""
    said = user.doctor(PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert said.returncode == 1
    assert "\nx auth " in said.stdout
    assert said.stdout.isascii()


def test_closed_pipe(user: User) -> None:
    """Whoever stops reading gets no traceback."""
    process = subprocess.Popen(COMMAND, env=user.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    process.stdout.close()
    with process:
        assert process.stderr
        assert b"Traceback" not in process.stderr.read()


def test_speed(user: User) -> None:
    """Without --live it answers within a second of work."""
    user.doctor()
    before = os.times()
    user.doctor()
    after = os.times()
    assert after.children_user + after.children_system - before.children_user - before.children_system < 1


def test_orphans_told(user: User, orphan: subprocess.Popen[bytes]) -> None:
    """In a pipe a process of a dead host is a warning and stays as it is: a run would work all the same."""
    said = user.doctor("--offline")
    assert said.returncode == 0
    assert f"{orphan.pid}, " in said.stdout
    assert "geminids doctor --end-orphans" in said.stdout
    assert orphan.poll() is None


def test_orphans_kept(user: User, orphan: subprocess.Popen[bytes]) -> None:
    """What was kept on purpose is not ended."""
    kept = Path(user.env["GEMINIDS_HOME"]) / "kept"
    kept.mkdir()
    (kept / "run-gone").touch()
    user.doctor("--offline", "--end-orphans")
    assert orphan.poll() is None


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_orphans_ended(user: User, orphan: subprocess.Popen[bytes], flags: tuple[str, ...]) -> None:
    """With --end-orphans they are ended without a question, and told on stderr."""
    said = user.doctor("--offline", "--end-orphans", *flags)
    assert orphan.wait(5) == -15
    assert f"ended {orphan.pid} (TERM): sleep 300" in said.stderr
    assert f"{orphan.pid}, " not in said.stdout
    if flags:
        json.loads(said.stdout)


def test_orphans_offered(user: User, orphan: subprocess.Popen[bytes]) -> None:
    """On a terminal it asks first, and a no is a no."""
    shown = user.on_terminal("--offline", answer="n")
    assert "[y/N]" in shown
    assert orphan.poll() is None
    shown = user.on_terminal("--offline", answer="y")
    assert f"ended {orphan.pid} (TERM)" in shown
    assert orphan.wait(5) == -15


def test_json_on_a_terminal(user: User, orphan: subprocess.Popen[bytes]) -> None:
    """With --json nothing is asked, on a terminal too."""
    shown = user.on_terminal("--offline", "--json")
    assert json.loads(shown)["ok"] is True
    assert orphan.poll() is None


@pytest.mark.real
def test_live_offline(user: User, installs: Places) -> None:
    """--live --offline makes a real run of the real CLI with the scripted model."""
    from geminids.gemini.install.cli import install

    gemini = install("0.61.0", places=installs)
    said = user.doctor("--live", "--offline", f"--gemini={gemini.entry}")
    assert said.returncode == 0, said.stdout
    assert "✓ live           a run succeeded in " in said.stdout
