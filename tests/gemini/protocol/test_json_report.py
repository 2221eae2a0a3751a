"""`--output-format json`: the last JSON value of stdout, the error on stderr, exact field names."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from geminids.gemini.protocol.json_report import last_json, read_report
from geminids.launch.build import build_headless
from geminids.launch.prepare import prepare
from geminids.launch.write import write


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("no json here", None),
        ('{"a": 1}', {"a": 1}),
        ('{"a": 1}\n{"b": 2}\n', {"b": 2}),
        ('{\n  "a": {\n"deep": 1}\n}', {"a": {"deep": 1}}),
        ('{"a": 1}\n{"cut": ', {"a": 1}),
        ('log {"a": 1}\n', None),
        ('[ERROR] {"error": 1}', {"error": 1}),
    ],
)
def test_only_the_last_value_counts(text: str, expected: object) -> None:
    """Noise, earlier values and a cut-off tail do not matter; a value must begin its line."""
    assert last_json(text) == expected


def test_a_report_of_the_wrong_shape_is_none() -> None:
    """Nothing is guessed: no field falls back to another."""
    assert read_report('{"response": 5}') is None
    assert read_report("") is None
    report = read_report('{"response": "x"}')
    assert report is not None
    assert (report.response, report.stats, report.session_id) == ("x", None, None)


def _json_run(world: Any, **fields: Any) -> subprocess.CompletedProcess[str]:
    plan = build_headless(
        prepare(world.options(gateway="off", **fields), transport="headless", prompt="hello"), None
    )
    write(plan)
    argv = [word.replace("stream-json", "json") for word in plan.argv]
    return subprocess.run(
        argv,
        cwd=plan.cwd,
        env=plan.env,
        input=plan.stdin.decode(),
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.real
def test_the_real_report_is_read(world: Any) -> None:
    """Response, session and tokens, thinking included, under the CLI's own names."""
    from geminids.gateway import Usage

    world.gateway.reply(text="hello back", usage=Usage(input=10, output=3, thinking=4, cached=2))
    done = _json_run(world)
    report = read_report(done.stdout, done.stderr)
    assert report is not None
    assert report.response == "hello back"
    assert report.session_id
    assert report.error is None
    assert report.stats is not None
    (model,) = report.stats.models.values()
    tokens = model.tokens
    assert (tokens.prompt, tokens.candidates, tokens.thoughts, tokens.cached) == (10, 3, 4, 2)
    assert model.api.total_requests == 1
    assert report.stats.tools.total_calls == 0


@pytest.mark.real
def test_a_real_error_is_read_from_stderr(world: Any) -> None:
    """On an error stdout is empty, and the JSON stands among the log lines of stderr."""
    world.gateway.reply(status=401, error="no such key", times=None)
    done = _json_run(world, max_attempts=1)
    assert done.stdout.strip() == ""
    report = read_report(done.stdout, done.stderr)
    assert report is not None
    assert report.response is None
    assert report.error is not None
    assert "no such key" in (report.error.message or "")
