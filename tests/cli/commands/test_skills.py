"""`geminids skills` as a command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GOOD = "---\nname: {}\ndescription: {}\n---\nBody.\n"


def _write_skill(folder: Path, name: str, description: str = "Does it.") -> Path:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(GOOD.format(name, description))
    return folder


class User:
    """A user with a home, a work folder, and a CLI that is never started."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cwd = root / "work"
        self.home = root / "home"
        self.cwd.mkdir()
        self.home.mkdir()
        self.cli = root / "gemini"
        self.cli.write_text("#!/bin/sh\necho 0.61.0\n")
        self.cli.chmod(0o755)

    def call(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        base_env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "GEMINIDS_HOME": str(self.root / "geminids"),
        }
        return subprocess.run(
            [sys.executable, "-m", "geminids", "skills", *words],
            cwd=self.cwd,
            env={**base_env, "GEMINI_CLI_PATH": str(self.cli), "PYTHONUTF8": "1", **env},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def rows(self, *words: str) -> dict[str, Any]:
        done = self.call("list", "--json", *words)
        assert done.returncode == 0, done.stderr
        return {os.path.relpath(row["file"], self.root): row for row in json.loads(done.stdout)["skills"]}


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


def test_list_shows_what_a_run_sees(user: User) -> None:
    """`list` shows which skills a run sees: those of the user, and those of the folder that the
    user added.

    Each other skill has a reason.
    """
    _write_skill(user.home / ".gemini/skills/yours", "yours")
    _write_skill(user.home / ".gemini/skills/off", "off")
    _write_skill(user.home / ".gemini/skills/low", "high")
    _write_skill(user.home / ".agents/skills/high", "high")
    _write_skill(user.cwd / ".agents/skills/theirs", "theirs")
    (user.home / ".gemini/settings.json").write_text('{"skills": {"disabled": ["off"]}}')
    assert user.call("add", str(_write_skill(user.root / "mine", "mine"))).returncode == 0
    reasons = {os.path.basename(os.path.dirname(file)): row["why_not"] for file, row in user.rows().items()}
    assert reasons == {
        "yours": None,
        "off": "off: skills.disabled",
        "low": "shadowed by ~/.agents/skills/high/SKILL.md",
        "high": None,
        "theirs": "not added by you",
        "mine": None,
    }
    (user.cwd / ".gemini").mkdir()
    (user.cwd / ".gemini/settings.json").write_text('{"skills": {"disabled": ["yours"]}}')
    assert user.rows()["home/.gemini/skills/yours/SKILL.md"][
        "in_default_run"
    ]  # settings of the folder do not count
    output = user.call("list").stdout
    assert "added by you" in output and "not added by you" in output and "off: skills.disabled" in output
    assert output.index("this folder") < output.index("yours, ~")
    (user.cwd / ".agents/skills/mine/SKILL.md").write_text(GOOD.format("mine", "Evil."))
    row = user.rows()["work/.agents/skills/mine/SKILL.md"]
    assert (row["in_default_run"], row["added"], row["why_not"]) == (
        False,
        False,
        "has changed since it was added",
    )


def test_list_without_skills(user: User) -> None:
    """Without skills, `list` explains how to add one. Another home hides the user's skills."""
    assert "geminids skills add" in user.call("list").stdout
    _write_skill(user.home / ".gemini/skills/yours", "yours")
    assert user.rows("--home=isolated") == {}
    assert len(user.rows(f"--home={user.home}")) == 1


def test_list_without_a_cli(user: User) -> None:
    """Without a CLI, `list` reads the files as the newest release does and prints a notice."""
    _write_skill(user.home / ".gemini/skills/yours", "yours")
    done = user.call("list", GEMINI_CLI_PATH="", PATH="/nonexistent")
    assert done.returncode == 0 and "yours" in done.stdout
    assert "no Gemini CLI was found" in done.stderr
    assert user.call("list", "--gemini=0.0.1").returncode != 0


def test_a_hostile_description_does_not_steer_the_terminal(user: User) -> None:
    """`list` shows control characters of a description as symbols."""
    _write_skill(user.cwd / ".agents/skills/x", "x", '"\\e]0;title\\a\\e[2J"')
    output = user.call("list").stdout
    assert "\x1b" not in output and "\x07" not in output and "␛" in output


def test_lint(user: User) -> None:
    """`lint` exits with 0 without errors, with 1 for errors, and with 2 for a missing path.

    Each finding has a place and a rule.
    """
    good = _write_skill(user.root / "good", "good")
    assert user.call("lint", str(good)).stdout == "no problems found\n"
    (good / "SKILL.md").write_text(GOOD.format("good", "d") + "See scripts/gone.sh\n")
    done = user.call("lint", str(good))
    assert (
        done.returncode == 0 and "SKILL.md:6: warning missing-file: refers to scripts/gone.sh" in done.stdout
    )
    bad = _write_skill(user.root / "bad", "Bad")
    done = user.call("lint", str(good), str(bad), "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (1, False)
    assert [finding["code"] for finding in report["findings"]] == [
        "missing-file",
        "name-characters",
        "name-not-folder",
    ]
    missing = user.call("lint", str(user.root / "gone"))
    assert missing.returncode == 2 and "Traceback" not in missing.stderr


def test_lint_of_all_tiers(user: User) -> None:
    """Without a path, `lint` checks the skills of the user and of the folder, also shadowed ones."""
    _write_skill(user.home / ".gemini/skills/same", "same")
    _write_skill(user.cwd / ".gemini/skills/same", "same")
    (user.cwd / ".agents/skills/empty").mkdir(parents=True)
    done = user.call("lint", "--json")
    findings = {
        (finding["code"], os.path.relpath(finding["file"], user.root))
        for finding in json.loads(done.stdout)["findings"]
    }
    assert findings == {
        ("shadowed", "home/.gemini/skills/same/SKILL.md"),
        ("no-skill-file", "work/.agents/skills/empty"),
    }


def test_add_and_remove(user: User) -> None:
    """`add` and `remove` print a line for each change.

    A refusal exits with 1 and says why, and a missing folder exits with 2.
    """
    source = _write_skill(user.root / "mine", "mine")
    assert user.call("add", str(source)).stdout.startswith("added mine: ")
    again = user.call("add", str(source))
    assert again.returncode == 1 and "--force" in again.stderr
    assert user.call("add", str(source), "--force").returncode == 0
    assert user.call("remove", "mine").stdout.startswith("removed mine: ")
    assert user.call("remove", "mine").returncode == 1
    bad = user.call("add", str(_write_skill(user.root / "bad", "Bad")))
    assert bad.returncode == 1 and "name-characters" in bad.stderr
    for words in (["add", str(source)], ["remove", "mine"], ["list"], ["lint"]):
        assert user.call(*words, "--cwd=/nonexistent").returncode == 2
    assert os.listdir(user.cwd / ".agents/skills") == []
