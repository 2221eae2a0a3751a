"""`geminids run --schema`: the printed value, the schema file, and errors in it."""

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


def run_command(options: Options, *words: str) -> subprocess.CompletedProcess[str]:
    fixed_flags = [
        "--gemini",
        str(options.gemini),
        "--home",
        options.home,
        "--cwd",
        options.cwd,
        "--grace",
        "1",
    ]
    argv = [sys.executable, "-m", "geminids", "run", "hello", *words, *fixed_flags]
    return subprocess.run(argv, input="", capture_output=True, text=True, timeout=60)


def body_that_answers(text: str) -> str:
    return f'out(INIT + say("{text}") + DONE)'


@pytest.mark.parametrize(("value", "printed"), [("{}", "{}\n"), ("null", "null\n")])
def test_only_the_value_is_printed(fake_cli: Any, value: str, printed: str) -> None:
    """stdout has only the JSON value, without the prose and the fence around it.

    `null` is a value too.
    """
    done = run_command(fake_cli(body_that_answers(FENCED.replace("{}", value))), "--schema", SCHEMA)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


@pytest.mark.parametrize("body", [body_that_answers("no"), "out(INIT + say('{}'))\nsys.exit(7)"])
def test_no_value_prints_nothing(fake_cli: Any, body: str) -> None:
    """If the answer has no matching value or the CLI fails, stdout is empty and stderr has the
    reason.
    """
    done = run_command(fake_cli(body), "--schema", SCHEMA, "--schema-tries", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("geminids: failed (")


def test_formats_that_contain_the_value(fake_cli: Any) -> None:
    """The last event has the value as `value`, and Claude's result line as `structured_output`."""
    options = fake_cli(body_that_answers(FENCED.replace("{}", '{\\"a\\": 1}')))
    for output, name in (("events", "value"), ("claude", "structured_output")):
        done = run_command(options, "--schema", SCHEMA, "-o", output)
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
def test_an_invalid_schema_file(fake_cli: Any, tmp_path: Path, data: bytes | None, words: str) -> None:
    """A missing or invalid schema file gives one message and exit code 2. Nothing is started."""
    file = tmp_path / "schema.json"
    if data is not None:
        file.write_bytes(data)
    done = run_command(fake_cli("open('started', 'w')"), "--schema", f"@{file}")
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "work" / "started").exists()


def test_a_dry_run_shows_the_prompt(fake_cli: Any) -> None:
    """A dry run shows the prompt with the schema, and the CLI settings that `--retries` changes."""
    done = run_command(fake_cli(body_that_answers("{}")), "--schema", SCHEMA, "--retries", "2", "--dry-run")
    settings, _, prompt = done.stdout.partition("prompt, on stdin")
    assert prompt.strip().startswith("hello") and "JSON Schema" in prompt and "null" in prompt, done.stderr
    assert '"maxAttempts": 1' in settings
