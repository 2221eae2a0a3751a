"""`geminids run --schema`: what a program reads, where the schema comes from, and what is wrong with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from geminids import Options

SCHEMA = '{"type": ["object", "null"]}'
FENCED = "Here:\\n```json\\n{}\\n```\\nDone."


def ran(options: Options, *words: str) -> subprocess.CompletedProcess[str]:
    given = ["--gemini", str(options.gemini), "--home", options.home, "--cwd", options.cwd, "--grace", "1"]
    argv = [sys.executable, "-m", "geminids", "run", "hello", *words, *given]
    return subprocess.run(argv, input="", capture_output=True, text=True, timeout=60)


def says(text: str) -> str:
    return f'out(INIT + say("{text}") + DONE)'


@pytest.mark.parametrize(("value", "printed"), [("{}", "{}\n"), ("null", "null\n")])
def test_the_value_alone(stand_in: Any, value: str, printed: str) -> None:
    """No prose and no fence: a program reads it; nothing is a value too."""
    done = ran(stand_in(says(FENCED.replace("{}", value))), "--schema", SCHEMA)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


@pytest.mark.parametrize("body", [says("no"), "out(INIT + say('{}'))\nsys.exit(7)"])
def test_no_value_prints_nothing(stand_in: Any, body: str) -> None:
    """Neither an answer of another form nor half of one; why there is none goes to stderr."""
    done = ran(stand_in(body), "--schema", SCHEMA, "--schema-tries", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("geminids: failed (")


def test_the_formats_that_have_a_place_for_it(stand_in: Any) -> None:
    """Events and Claude's result line."""
    options = stand_in(says(FENCED.replace("{}", '{\\"a\\": 1}').replace('"', '"')))
    for output, name in (("events", "value"), ("claude", "structured_output")):
        done = ran(options, "--schema", SCHEMA, "-o", output)
        assert json.loads(done.stdout.splitlines()[-1])[name] == {"a": 1}, done.stderr


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "schema.json: No such file or directory"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"{", "schema: is not JSON"),
        (b'{"type": "nope"}', "schema: is not a valid JSON Schema"),
    ],
)
def test_a_file_that_is_none(stand_in: Any, tmp_path: Path, data: bytes | None, words: str) -> None:
    """One sentence, exit code 2, and nothing is started."""
    file = tmp_path / "schema.json"
    if data is not None:
        file.write_bytes(data)
    done = ran(stand_in("open('started', 'w')"), "--schema", f"@{file}")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "work" / "started").exists()


def test_a_dry_run_shows_what_is_said(stand_in: Any) -> None:
    """With the form that the answer shall have, and with what retries mean for the CLI, as the run would have it."""
    done = ran(stand_in(says("{}")), "--schema", SCHEMA, "--retries", "2", "--dry-run")
    settings, _, said = done.stdout.partition("prompt, on stdin")
    assert said.strip().startswith("hello") and "JSON Schema" in said and "null" in said, done.stderr
    assert '"maxAttempts": 1' in settings
