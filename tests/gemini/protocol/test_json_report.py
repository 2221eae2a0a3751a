"""`--output-format json`: the last JSON value of stdout, or the error on stderr."""

from __future__ import annotations

import json
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
    """The last JSON value that begins a line counts.

    Noise, earlier values and a cut-off end are ignored.
    """
    assert last_json(text) == expected


@pytest.mark.parametrize("text", ["", "[1]", "no json"])
def test_only_an_object_is_a_report(text: str) -> None:
    """Output without a JSON object at its end has no report."""
    assert read_report(text) is None


def test_a_missing_field_is_none() -> None:
    """A missing field is None and not guessed from another."""
    report = read_report('{"response": "x"}')
    assert report is not None
    assert (report.response, report.stats, report.session_id) == ("x", None, None)


def test_a_field_of_the_wrong_type_is_none() -> None:
    """A field of the wrong type is None, and the fields beside it are read."""
    models = {
        "a": {"tokens": {"prompt": 1, "candidates": "2", "total": 3}, "api": {"totalRequests": True}},
        "b": 5,
        "c": {"tokens": [], "api": None},
    }
    stats = {"models": models, "tools": {"totalCalls": 4}}
    report = read_report(json.dumps({"response": 5, "session_id": "s", "warnings": {}, "stats": stats}))
    assert report is not None and report.stats is not None
    assert (report.response, report.session_id, report.warnings) == (None, "s", [])
    a = report.stats.models["a"]
    assert (a.tokens.prompt, a.tokens.candidates, a.tokens.total) == (1, None, 3)
    assert a.api.total_requests is None
    assert list(report.stats.models) == ["a", "c"]
    assert report.stats.tools.total_calls == 4
    odd: tuple[object, ...] = ({"models": []}, {"tools": 1}, 1)
    for value in odd:
        report = read_report(json.dumps({"stats": value, "error": 1}))
        assert report is not None and report.error is None
        assert report.stats is None or report.stats.models == {}


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
    """The report of the real CLI has response, session, tokens, requests and tool calls."""
    from geminids.gateway import ReplyUsage

    world.gateway.reply(text="hello back", usage=ReplyUsage(input=10, output=3, thinking=4, cached=2))
    done = _json_run(world)
    report = read_report(done.stdout)
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
    """On an error, stdout of the real CLI is empty, and the report is read from stderr."""
    world.gateway.reply(status=401, error="no such key", times=None)
    done = _json_run(world, max_attempts=1)
    assert done.stdout.strip() == ""
    report = read_report(done.stderr)
    assert report is not None
    assert report.response is None
    assert report.error is not None
    assert "no such key" in (report.error.message or "")
