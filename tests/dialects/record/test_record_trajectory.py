"""The trajectory file in YAML: the CLI's output, or the events of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given

from geminids.dialects.record.trajectory import of_events, of_output, of_sections
from geminids.events.model import Event, Text
from golden import GOLDEN, check_golden
from random_events import RECORDED, any_events, recorded, valid_runs

_HEAD = {"title": "Coding Agent Trace", "source": "gemini"}


@pytest.mark.parametrize("name", RECORDED)
def test_a_real_run_can_be_read(name: str) -> None:
    """The trajectory of a recorded run equals its golden file, and a YAML parser reads it."""
    output = of_events(recorded(name))
    check_golden(GOLDEN / "trajectory" / f"{name}.yaml", output.encode())
    assert yaml.safe_load(output)["entry_count"] == len(yaml.safe_load(output)["entries"])


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        ('{"a": "x\\ny"}\n', "", {"format": "json-yaml", "item": {"a": "x\ny"}}),
        ("[1, 2]", "oh\n", {"format": "json-yaml", "item": [1, 2], "stderr": "oh"}),
        (
            'noise\n\n{"a": 1}\r\n{"a": 2}\n',
            "",
            {
                "format": "jsonl-yaml",
                "entry_count": 3,
                "entries": [
                    {"index": 1, "type": "text", "text": "noise"},
                    {"index": 3, "type": "json", "item": {"a": 1}},
                    {"index": 4, "type": "json", "item": {"a": 2}},
                ],
            },
        ),
        ("just words\nmore\n", "", {"format": "text", "text": "just words\nmore"}),
        ("", "only this", {"format": "text", "text": "", "stderr": "only this"}),
    ],
)
def test_the_format_follows_the_output(stdout: str, stderr: str, expected: dict[str, Any]) -> None:
    """One JSON value, lines of JSON, and text each have their own format. Stderr is added if there
    is any."""
    output = of_output(stdout, stderr)
    assert yaml.safe_load(output) == {**_HEAD, **expected}
    assert list(yaml.safe_load(output))[:3] == ["title", "format", "source"]


def test_several_outputs_are_sections() -> None:
    """Several outputs become sections with their own label and format."""
    document = yaml.safe_load(of_sections([("first", '{"a": 1}', ""), ("second", "words", "oh")]))
    assert document == {
        **_HEAD,
        "format": "family-yaml",
        "section_count": 2,
        "sections": [
            {"label": "first", "format": "json-yaml", "item": {"a": 1}},
            {"label": "second", "format": "text", "text": "words", "stderr": "oh"},
        ],
    }


def test_deep_nesting_does_not_raise() -> None:
    """A line that is nested too deeply for a JSON parser is kept as text. A tool input that is
    nested too deeply is left out."""
    line = "[" * 100_000
    assert yaml.safe_load(of_output(f"{{}}\n{line}"))["entries"][1]["text"] == line
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    started = next(event for event in recorded("tools") if event.__class__.__name__ == "ToolStarted")
    import msgspec

    (entry,) = yaml.safe_load(of_events([msgspec.structs.replace(started, input=deep)]))["entries"]
    assert "input" not in entry["item"] and entry["item"]["name"] == "read_file"
    while deep:
        deep = deep.pop("a")


@given(any_events)
def test_no_input_raises(events: list[Event]) -> None:
    """Any events give a trajectory that a YAML parser reads."""
    assert yaml.safe_load(of_events(events))["title"] == "Coding Agent Trace"


@given(valid_runs())
def test_text_is_kept_to_the_character(events: list[Event]) -> None:
    """Consecutive pieces of text become one entry, and no piece and no other event is lost."""
    entries = yaml.safe_load(of_events(events))["entries"]
    text = "".join(entry["item"]["text"] for entry in entries if entry["item"]["type"] == "text")
    assert text == "".join(event.text for event in events if isinstance(event, Text))
    others = [entry for entry in entries if entry["item"]["type"] != "text"]
    assert len(others) == sum(not isinstance(event, Text) for event in events)
    assert json.dumps([entry["index"] for entry in entries]) == json.dumps(
        sorted(entry["index"] for entry in entries)
    )
