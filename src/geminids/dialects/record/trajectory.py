"""The trajectory file of cakit: what a run said, in YAML, to be read by people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from geminids.events.model import Event, Text

__all__ = ["STDERR_LINE", "of_events", "of_output", "of_sections"]

STDERR_LINE = "----- STDERR -----"
_TITLE = "Coding Agent Trace"


def of_output(stdout: str, stderr: str = "", *, source: str = "gemini") -> str:
    """The trajectory of what the CLI printed, whichever output format it had.

    >>> print(of_output('{"response": "one\\\\ntwo"}'), end="")
    title: Coding Agent Trace
    format: json-yaml
    source: gemini
    item:
      response: |-
        one
        two
    """
    form, content = _content(stdout, stderr)
    return _yaml({"title": _TITLE, "format": form, "source": source, **content})


def of_sections(sections: Sequence[tuple[str, str, str]], *, source: str = "gemini") -> str:
    """The trajectory of several outputs: of each its label, stdout and stderr."""
    told = []
    for label, stdout, stderr in sections:
        form, content = _content(stdout, stderr)
        told.append({"label": label, "format": form, **content})
    head = {"title": _TITLE, "format": "family-yaml", "source": source}
    return _yaml({**head, "section_count": len(told), "sections": told})


def of_events(events: Iterable[Event], *, source: str = "gemini") -> str:
    """The trajectory of a run's events, by their lines: pieces of text are one entry, and nulls are left out."""
    entries: list[dict[str, Any]] = []
    pieces: list[str] = []
    for event in events:
        if isinstance(event, Text) and pieces and _is_text_of(event, entries[-1]):
            pieces.append(event.text)
            continue
        _join(entries, pieces)
        entries.append({"index": event.seq + 1, "type": "json", "item": _item(event)})
        if isinstance(event, Text):
            pieces.append(event.text)
    _join(entries, pieces)
    head = {"title": _TITLE, "format": "jsonl-yaml", "source": source}
    return _yaml({**head, "entry_count": len(entries), "entries": entries})


def _yaml(document: dict[str, Any]) -> str:
    from geminids.dialects.record.yaml_text import yaml_text  # PyYAML is loaded for a trajectory only

    return yaml_text(document)


def _is_text_of(event: Text, entry: dict[str, Any]) -> bool:
    item = entry["item"]
    return (item["attempt"], item["turn"]) == (event.attempt, event.turn)


def _join(entries: list[dict[str, Any]], pieces: list[str]) -> None:
    if pieces:
        entries[-1]["item"]["text"] = "".join(pieces)
        pieces.clear()


def _item(event: Event) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = msgspec.to_builtins(event)
    except RecursionError:
        # An input as deep as JSON can be.
        fields = msgspec.to_builtins(msgspec.structs.replace(event, input=None))
    return {name: value for name, value in fields.items() if value is not None}


def _content(stdout: str, stderr: str) -> tuple[str, dict[str, Any]]:
    errors = {"stderr": text} if (text := stderr.strip("\n")) else {}
    known, value = _json(stdout.strip("\n"))
    if known:
        return "json-yaml", {"item": value, **errors}
    entries = [
        _entry(index, line.removesuffix("\r"))
        for index, line in enumerate(stdout.split("\n"), start=1)
        if line.strip()
    ]
    if any(entry["type"] == "json" for entry in entries):
        return "jsonl-yaml", {"entry_count": len(entries), "entries": entries, **errors}
    return "text", {"text": stdout.strip("\n"), **errors}


def _entry(index: int, line: str) -> dict[str, Any]:
    known, value = _json(line)
    return (
        {"index": index, "type": "json", "item": value}
        if known
        else {"index": index, "type": "text", "text": line}
    )


def _json(text: str) -> tuple[bool, Any]:
    try:
        return True, json.loads(text)
    except (ValueError, RecursionError):
        return False, None
