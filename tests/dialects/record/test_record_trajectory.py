"""The trajectory file: what the CLI printed, or a run's events, in YAML."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given

from geminids.dialects.record.trajectory import of_events, of_output, of_sections
from geminids.events.model import Event, Text
from golden import GOLDEN, check_golden
from random_events import RECORDED, any_events, lawful_runs, recorded

_HEAD = {"title": "Coding Agent Trace", "source": "gemini"}


@pytest.mark.parametrize("name", RECORDED)
def test_a_real_run_can_be_read(name: str) -> None:
    """The golden set: recordings of the real CLI, byte for byte, and a parser reads them."""
    said = of_events(recorded(name))
    check_golden(GOLDEN / "trajectory" / f"{name}.yaml", said.encode())
    assert yaml.safe_load(said)["entry_count"] == len(yaml.safe_load(said)["entries"])


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
    """One JSON value, lines of JSON among others, or text; stderr where there is any."""
    said = of_output(stdout, stderr)
    assert yaml.safe_load(said) == {**_HEAD, **expected}
    assert list(yaml.safe_load(said))[:3] == ["title", "format", "source"]


def test_several_outputs_are_sections() -> None:
    """Each with its label and its own format."""
    told = yaml.safe_load(of_sections([("first", '{"a": 1}', ""), ("second", "words", "oh")]))
    assert told == {
        **_HEAD,
        "format": "family-yaml",
        "section_count": 2,
        "sections": [
            {"label": "first", "format": "json-yaml", "item": {"a": 1}},
            {"label": "second", "format": "text", "text": "words", "stderr": "oh"},
        ],
    }


def test_bottomless_output_does_not_raise() -> None:
    """A line that no parser takes is a text; an input that none can write is left out."""
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
def test_nothing_that_is_heard_raises(events: list[Event]) -> None:
    """Whatever comes, a parser reads it."""
    assert yaml.safe_load(of_events(events))["title"] == "Coding Agent Trace"


@given(lawful_runs())
def test_text_is_kept_to_the_character(events: list[Event]) -> None:
    """Pieces that follow each other are one entry, and no piece is lost."""
    entries = yaml.safe_load(of_events(events))["entries"]
    told = "".join(entry["item"]["text"] for entry in entries if entry["item"]["type"] == "text")
    assert told == "".join(event.text for event in events if isinstance(event, Text))
    others = [entry for entry in entries if entry["item"]["type"] != "text"]
    assert len(others) == sum(not isinstance(event, Text) for event in events)
    assert json.dumps([entry["index"] for entry in entries]) == json.dumps(
        sorted(entry["index"] for entry in entries)
    )
