"""What the terminal says about a wrong command, flag or value: flags, and the next step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def _geminids(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "geminids", *words],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rnu",), "No such command 'rnu'. Did you mean 'run'?"),
        (("hi there",), 'geminids run "hi there"'),
        (("fix", "the", "tests"), 'geminids run "fix the tests"'),
        (('say "$HOME"',), "geminids run 'say \"$HOME\"'"),
        (("--offline", "hi"), "--offline belongs after the command: geminids run --offline ..."),
        (("run", "hi", "--modle", "x"), "No such option '--modle'. Did you mean '--model'?"),
        (("sessions", "shwo"), "Did you mean 'show'?"),
        (("run", "hi", "--schema", "s.json"), "--schema @s.json"),
    ],
)
def test_a_wrong_word_gets_the_nearest_right_one(words: tuple[str, ...], message: str) -> None:
    """An unknown command or flag exits with 2 and suggests the nearest one, or the run that was
    meant."""
    done = _geminids(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (("--cwd", "nope"), ["  --cwd: nope does not exist; use --make-cwd to create it"]),
        (("--schema-tries", "5000"), ["  --schema-tries: is 5000, not a whole number from 0 to 100"]),
        (
            ("--resume", "a", "--session-id", "b"),
            ["  --session-id: cannot be used with --resume: a resumed session keeps its id"],
        ),
        (
            ("--gateway", "off", "--max-budget", "3"),
            ["  --max-budget: needs the gateway; use `--gateway on`"],
        ),
        (("--var", "a=b"), ["  --var: can be used only with --template"]),
    ],
)
def test_a_problem_with_an_option_names_flags(
    words: tuple[str, ...], lines: list[str], tmp_path: Path
) -> None:
    """An error about options in the terminal has flags, not the names of Python."""
    done = _geminids("run", "hi", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[1:] == lines


def test_a_variable_is_named_as_the_origin(tmp_path: Path) -> None:
    """A bad value from the environment is reported with the variable that has it."""
    done = _geminids("run", "hi", cwd=tmp_path, GEMINIDS_TIMEOUT="soon")
    assert "--timeout: is 'soon', not a number of seconds (env GEMINIDS_TIMEOUT)" in done.stderr


def test_config_names_the_keys_of_the_file(tmp_path: Path) -> None:
    """`geminids config` reports keys of the configuration, which are the Python names."""
    done = _geminids("config", "set", "schema_tries", "5000", cwd=tmp_path)
    assert (done.returncode, "schema_tries: is 5000" in done.stderr) == (2, True)


def test_a_settings_file_that_is_broken_names_the_flag(fake_cli: object, tmp_path: Path) -> None:
    """A broken settings file of the CLI: the run, the dry run and the doctor suggest
    `--home isolated`."""
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini" / "settings.json").write_text("{broken")
    gemini = str(fake_cli("").gemini)  # type: ignore[operator]
    where = ("--offline", "--home", str(tmp_path), "--gemini", gemini)
    for words in (("run", "hi"), ("run", "hi", "--dry-run"), ("doctor",)):
        done = _geminids(*words, *where, cwd=tmp_path)
        assert done.returncode != 0
        assert "`--home isolated`" in done.stdout + done.stderr, words
        assert "home='isolated'" not in done.stdout + done.stderr


def test_a_run_without_a_sign_in_names_offline(world: object) -> None:
    """A run without a key says how to try it without one."""
    env = dict.fromkeys(("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"), "")
    options = world.options()  # type: ignore[attr-defined]
    words = ("run", "hi", "--gemini", str(options.gemini), "--home", "isolated")
    done = _geminids(*words, cwd=world.cwd, **env)  # type: ignore[attr-defined]
    assert done.returncode == 1
    assert "To run without a key, use --offline." in done.stderr


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (("What", "is", "in", "this", "folder?"), 'geminids run "What is in this folder?"'),
        (("run", "--offline", "Fix", "the", "tests"), "Put the prompt in quotes: geminids run"),
        (("rum", "hi"), "Did you mean 'run'?"),
    ],
)
def test_a_prompt_without_quotes(words: tuple[str, ...], advice: str) -> None:
    """A prompt without quotes is refused, and the message says how to write it."""
    done = _geminids(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert advice in done.stderr
