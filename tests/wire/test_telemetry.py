"""The CLI's telemetry file is read in one pass, whatever stands in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from geminids.wire.telemetry import ApiResponse, responses_in


def _record(name: str = "gemini_cli.api_response", **attributes: Any) -> str:
    return json.dumps({"attributes": {"event.name": name, **attributes}, "resource": {}}, indent=2) + "\n"


def test_answered_requests_are_found_among_all_else(tmp_path: Path) -> None:
    """Spans, metrics and other events are passed over; the order stays."""
    file = tmp_path / "telemetry.json"
    file.write_text(
        _record("gemini_cli.config")
        + _record(model="a", role="main", input_token_count=1, thoughts_token_count=2)
        + json.dumps({"metrics": [{"name": "gemini_cli.api_response"}]}, indent=2)
        + "\n"
        + _record(model="b", role="utility_router")
    )
    found = list(responses_in(file))
    assert found[0] == ApiResponse(model="a", role="main", input_token_count=1, thoughts_token_count=2)
    assert [one.model for one in found] == ["a", "b"]


def test_a_file_that_is_cut_off_gives_what_is_whole(tmp_path: Path) -> None:
    """A run that was killed leaves half an object."""
    file = tmp_path / "telemetry.json"
    whole = _record(model="a")
    file.write_text(whole + whole[: len(whole) // 2])
    assert [one.model for one in responses_in(file)] == ["a"]


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """The CLI may have ended before it wrote anything."""
    assert list(responses_in(tmp_path / "none.json")) == []


@given(st.binary(max_size=400))
def test_no_bytes_raise(tmp_path_factory: Any, data: bytes) -> None:
    """Whatever stands there is no reason to lose an ending."""
    file = tmp_path_factory.mktemp("t") / "telemetry.json"
    file.write_bytes(b'{\n"attributes": {"event.name": "gemini_cli.api_response", ' + data + b"\n}\n" + data)
    list(responses_in(file))
