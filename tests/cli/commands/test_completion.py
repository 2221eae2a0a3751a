"""Shell completion: in a real bash, and with click's protocol for zsh and fish."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_TRY = """
eval "$(geminids completion bash)"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
complete -p geminids | sed 's/.*-F \\([^ ]*\\).*/\\1/' > function
compopt() { echo "names of $2"; }
$(cat function) geminids
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `geminids` is this checkout."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "geminids"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv[0] = 'geminids'\nfrom geminids.cli import main\nmain()\n"
    )
    program.chmod(0o755)
    return f"{tmp_path / 'bin'}:{os.environ['PATH']}"


def _run(argv: list[str], path: str, cwd: Path, **env: str) -> list[str]:
    done = subprocess.run(
        argv, cwd=cwd, env={**os.environ, "PATH": path, **env}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected", "unexpected"),
    [
        (["r"], ["run"], ["chat"]),
        ([""], ["run", "chat", "completion"], ["--help"]),
        (["run", "--mod"], ["--model"], ["--max-turns"]),
        (["run", "--output", "re"], ["record"], ["text"]),
        (["run", "--approval", ""], ["plan", "yolo"], []),
        (["run", "--allow", "sh"], ["shell"], ["network"]),
        (["sessions", "sh"], ["show"], ["list"]),
        (["run", "--file", ""], ["names of default"], []),
        (["run", "--cwd", ""], ["names of dirnames"], []),
    ],
)
def test_bash_completes(
    words: list[str], expected: list[str], unexpected: list[str], path: str, tmp_path: Path
) -> None:
    """A real bash that has evaluated the script completes commands, flags, values and files."""
    found = _run(["bash", "--norc", "-c", _TRY, "-", "geminids", *words], path, tmp_path)
    assert [word for word in expected if word not in found] == []
    assert [word for word in unexpected if word in found] == []


@pytest.mark.parametrize(
    ("shell", "words", "number", "expected"),
    [
        ("zsh", "geminids ru", "1", "run\nRun the agent once."),
        ("zsh", "geminids run --mod", "2", "--model\n"),
        ("fish", "geminids ru", "ru", "plain,run"),
        ("fish", "geminids run --mod", "--mod", "plain,--model"),
    ],
)
def test_zsh_and_fish_complete(
    shell: str, words: str, number: str, expected: str, path: str, tmp_path: Path
) -> None:
    """The scripts for zsh and fish call `geminids` with click's variables, and it answers."""
    script = "\n".join(_run(["geminids", "completion", shell], path, tmp_path))
    assert f"_GEMINIDS_COMPLETE={shell}_complete" in script and "_geminids_completion" in script
    env = {"_GEMINIDS_COMPLETE": f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": number}
    assert expected in "\n".join(_run(["geminids"], path, tmp_path, **env))


def test_an_unknown_shell_is_refused() -> None:
    """Another shell is bad usage, and the message lists the known shells."""
    argv = [sys.executable, "-m", "geminids", "completion", "tcsh"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'bash', 'zsh', 'fish'" in done.stderr
