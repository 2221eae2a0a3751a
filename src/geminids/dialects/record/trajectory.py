"""Write cakit's trajectory file: the output of a run as YAML, for people to read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import yaml
from yaml.emitter import ScalarAnalysis

from geminids.events.model import Event, Text

__all__ = ["STDERR_LINE", "of_events", "of_output", "of_sections", "yaml_text"]

STDERR_LINE = "----- STDERR -----"
_TITLE = "Coding Agent Trace"


def of_output(stdout: str, stderr: str = "", *, source: str = "gemini") -> str:
    """Return the trajectory of the CLI's output, as YAML text. The output is JSON, JSON lines or
    plain text.

    `source` is the name of the agent.

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
    """Return one trajectory for several outputs of CLIs, as YAML text. Each section is a tuple of a
    label, stdout and stderr. `source` is the name of the agent."""
    entries = []
    for label, stdout, stderr in sections:
        form, content = _content(stdout, stderr)
        entries.append({"label": label, "format": form, **content})
    head = {"title": _TITLE, "format": "family-yaml", "source": source}
    return _yaml({**head, "section_count": len(entries), "sections": entries})


def of_events(events: Iterable[Event], *, source: str = "gemini") -> str:
    """Return the trajectory of a run's events, as YAML text.

    Consecutive pieces of text become one entry. Fields that are None are omitted. `source` is the
    name of the agent.
    """
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
        # The input is nested too deeply.
        fields = msgspec.to_builtins(msgspec.structs.replace(event, input=None))
    # Omit the field `session` of a notice: the message of the notice has the same data.
    return {name: value for name, value in fields.items() if value is not None and name != "session"}


def _content(stdout: str, stderr: str) -> tuple[str, dict[str, Any]]:
    errors = {"stderr": text} if (text := stderr.strip("\n")) else {}
    is_json, value = _json(stdout.strip("\n"))
    if is_json:
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
    is_json, value = _json(line)
    return (
        {"index": index, "type": "json", "item": value}
        if is_json
        else {"index": index, "type": "text", "text": line}
    )


def _json(text: str) -> tuple[bool, Any]:
    try:
        return True, json.loads(text)
    except (ValueError, RecursionError):
        return False, None


# Characters that a literal block cannot hold, or that readers treat as a line end.
_UNFIT = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
# Texts that are numbers in YAML 1.2. PyYAML implements YAML 1.1, and would not quote them.
_NUMBER = re.compile(r"[-+]?[0-9]+[eE][-+]?[0-9]+|0o[0-7]+")
# Deeper nesting could exceed the recursion limit of programs that read the file.
_DEEPEST = 40


def yaml_text(document: Mapping[str, Any]) -> str:
    """Return a document of JSON values as YAML text.

    >>> print(yaml_text({"title": "A day", "lines": ["one\\ntwo\\n", "7"], "none": None}), end="")
    title: A day
    lines:
      - |
        one
        two
      - '7'
    none: null
    """
    options = {"sort_keys": False, "allow_unicode": True, "width": math.inf}
    return yaml.dump(_shallow(document, 0), Dumper=_Dumper, **options)  # type: ignore[call-overload, no-any-return]


class _Dumper(yaml.SafeDumper):
    """Writes YAML without aliases, with indented lists, and with literal blocks where possible."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def analyze_scalar(self, scalar: str) -> ScalarAnalysis:
        # PyYAML's own analysis quotes a text of several lines if one of them ends with a space. It
        # also loses a lone U+0085.
        is_fit = not _UNFIT.search(scalar)
        if is_fit and "\n" not in scalar:
            return super().analyze_scalar(scalar)
        is_block = is_fit and bool(scalar.strip())
        return ScalarAnalysis(scalar, False, True, False, False, False, True, is_block)


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _NUMBER.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _shallow(value: Any, depth: int) -> Any:
    """Replace values that are nested deeper than 40 levels with their JSON text. Programs that read
    the file might not be able to parse deeper YAML. `depth` is the level of `value`."""
    if not value or not isinstance(value, Mapping | list | tuple):
        return value
    if depth > _DEEPEST:
        try:
            return json.dumps(value, ensure_ascii=False)
        except RecursionError:
            return "(a value with too many nested levels)"
    if isinstance(value, Mapping):
        return {str(key): _shallow(inner, depth + 1) for key, inner in value.items()}
    return [_shallow(inner, depth + 1) for inner in value]
