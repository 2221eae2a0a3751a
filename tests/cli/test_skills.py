"""`geminids skills`, as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GOOD = "---\nname: {}\ndescription: {}\n---\nBody.\n"


def _skill(folder: Path, name: str, what: str = "Does it.") -> Path:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(GOOD.format(name, what))
    return folder


class Here:
    """A home, a folder to work in, and a CLI that is never started."""

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
        given = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "GEMINIDS_HOME": str(self.root / "geminids"),
        }
        return subprocess.run(
            [sys.executable, "-m", "geminids", "skills", *words],
            cwd=self.cwd,
            env={**given, "GEMINI_CLI_PATH": str(self.cli), "PYTHONUTF8": "1", **env},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def rows(self, *words: str) -> dict[str, Any]:
        ran = self.call("list", "--json", *words)
        assert ran.returncode == 0, ran.stderr
        return {os.path.relpath(row["file"], self.root): row for row in json.loads(ran.stdout)["skills"]}


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_list_tells_what_a_run_sees(here: Here) -> None:
    """Yours are seen, a folder's own only where you added them, and each that is not says why."""
    _skill(here.home / ".gemini/skills/yours", "yours")
    _skill(here.home / ".gemini/skills/off", "off")
    _skill(here.home / ".gemini/skills/low", "high")
    _skill(here.home / ".agents/skills/high", "high")
    _skill(here.cwd / ".agents/skills/theirs", "theirs")
    (here.home / ".gemini/settings.json").write_text('{"skills": {"disabled": ["off"]}}')
    assert here.call("add", str(_skill(here.root / "mine", "mine"))).returncode == 0
    why = {os.path.basename(os.path.dirname(file)): row["why_not"] for file, row in here.rows().items()}
    assert why == {
        "yours": None,
        "off": "off: skills.disabled",
        "low": "shadowed by ~/.agents/skills/high/SKILL.md",
        "high": None,
        "theirs": "not added by you",
        "mine": None,
    }
    (here.cwd / ".gemini").mkdir()
    (here.cwd / ".gemini/settings.json").write_text('{"skills": {"disabled": ["yours"]}}')
    assert here.rows()["home/.gemini/skills/yours/SKILL.md"]["in_default_run"]  # the folder has no say
    said = here.call("list").stdout
    assert "added by you" in said and "not added by you" in said and "off: skills.disabled" in said
    assert said.index("this folder") < said.index("yours, ~")
    (here.cwd / ".agents/skills/mine/SKILL.md").write_text(GOOD.format("mine", "Evil."))
    row = here.rows()["work/.agents/skills/mine/SKILL.md"]
    assert (row["in_default_run"], row["added"], row["why_not"]) == (
        False,
        False,
        "has changed since it was added",
    )


def test_list_of_nothing(here: Here) -> None:
    """Where there is none, it is said how to add one; a home of one's own hides the user's."""
    assert "geminids skills add" in here.call("list").stdout
    _skill(here.home / ".gemini/skills/yours", "yours")
    assert here.rows("--home=isolated") == {}
    assert len(here.rows(f"--home={here.home}")) == 1


def test_list_without_a_cli(here: Here) -> None:
    """Without a CLI the files are looked at as the newest would, and that is said."""
    _skill(here.home / ".gemini/skills/yours", "yours")
    ran = here.call("list", GEMINI_CLI_PATH="", PATH="/nonexistent")
    assert ran.returncode == 0 and "yours" in ran.stdout
    assert "no Gemini CLI found" in ran.stderr
    assert here.call("list", "--gemini=0.0.1").returncode != 0


def test_a_hostile_description_does_not_steer_the_terminal(here: Here) -> None:
    """Control characters are shown as symbols."""
    _skill(here.cwd / ".agents/skills/x", "x", '"\\e]0;title\\a\\e[2J"')
    said = here.call("list").stdout
    assert "\x1b" not in said and "\x07" not in said and "␛" in said


def test_lint(here: Here) -> None:
    """Exit 0 where there are no errors, 1 where there are, 2 for a path that is none; each with place and rule."""
    good = _skill(here.root / "good", "good")
    assert here.call("lint", str(good)).stdout == "no problems found\n"
    (good / "SKILL.md").write_text(GOOD.format("good", "d") + "See scripts/gone.sh\n")
    ran = here.call("lint", str(good))
    assert ran.returncode == 0 and "SKILL.md:6: warning missing-file: refers to scripts/gone.sh" in ran.stdout
    bad = _skill(here.root / "bad", "Bad")
    ran = here.call("lint", str(good), str(bad), "--json")
    report = json.loads(ran.stdout)
    assert (ran.returncode, report["ok"]) == (1, False)
    assert [one["code"] for one in report["findings"]] == [
        "missing-file",
        "name-characters",
        "name-not-folder",
    ]
    gone = here.call("lint", str(here.root / "gone"))
    assert gone.returncode == 2 and "Traceback" not in gone.stderr


def test_lint_of_all_tiers(here: Here) -> None:
    """Without a path, yours and the folder's are looked at, and who is shadowed by whom."""
    _skill(here.home / ".gemini/skills/same", "same")
    _skill(here.cwd / ".gemini/skills/same", "same")
    (here.cwd / ".agents/skills/empty").mkdir(parents=True)
    ran = here.call("lint", "--json")
    found = {
        (one["code"], os.path.relpath(one["file"], here.root)) for one in json.loads(ran.stdout)["findings"]
    }
    assert found == {
        ("shadowed", "home/.gemini/skills/same/SKILL.md"),
        ("no-skill-file", "work/.agents/skills/empty"),
    }


def test_add_and_remove(here: Here) -> None:
    """Said in one line each; what is refused says what to do, and ends with 1."""
    source = _skill(here.root / "mine", "mine")
    assert here.call("add", str(source)).stdout.startswith("added mine: ")
    again = here.call("add", str(source))
    assert again.returncode == 1 and "--force" in again.stderr
    assert here.call("add", str(source), "--force").returncode == 0
    assert here.call("remove", "mine").stdout.startswith("removed mine: ")
    assert here.call("remove", "mine").returncode == 1
    bad = here.call("add", str(_skill(here.root / "bad", "Bad")))
    assert bad.returncode == 1 and "name-characters" in bad.stderr
    for words in (["add", str(source)], ["remove", "mine"], ["list"], ["lint"]):
        assert here.call(*words, "--cwd=/nonexistent").returncode == 2
    assert os.listdir(here.cwd / ".agents/skills") == []
