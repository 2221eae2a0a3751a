"""What the CLI asks for itself, written down as it comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from geminids import Notice, Options, Text, TokensUsed
from geminids.config.places import Places
from geminids.events.ledger import Ledger
from geminids.run.errands import Errands
from geminids.sessions.usage_errands import with_errands


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("GEMINIDS_HOME", str(tmp_path / "geminids"))
    return Places.of()


def used(role: Any, seq: int = 0, **told: int | None) -> TokensUsed:
    names = ("input", "cached", "output", "thinking", "tool")
    counts: Any = {**dict.fromkeys(names), **told}
    return TokensUsed(at=1_794_800_000_000, seq=seq, attempt=1, turn=1, model="m", role=role, **counts)


def errands_of(ledger: Ledger | None = None, **fields: Any) -> Errands:
    return Errands.of("run", Options(**fields), ledger or Ledger(), lambda: ("session", "/repo/app"))


def test_errands_alone(places: Places) -> None:
    """The CLI's own requests are written down, and subagents', which not all releases do; not the conversation's."""
    text = Text(at=1, seq=1, attempt=1, turn=1, text="hi")
    events = [
        used("main", 1),
        text,
        used("utility", 2, input=5, output=2, thinking=None),
        used("subagent", 3),
    ]
    assert errands_of().note(events) == []
    lines = (places.errands / "2026-11.jsonl").read_text().split()
    assert len(lines) == 2 and '"agent":true' in lines[1]
    (one,) = with_errands([], places)
    assert (one.session, one.project) == ("session", "/repo/app")
    assert [(request.id, request.model, request.tokens.total) for request in one.requests] == [
        ("run-2", "m", 7)
    ]


@pytest.mark.parametrize("fields", [{"offline": True}, {"replay": "/repo/cassette.jsonl"}])
def test_no_real_model(places: Places, fields: dict[str, Any]) -> None:
    """Of a run that asked no real model all requests are written down, as what was never spent."""
    assert errands_of(**fields).note([used("main", 1, input=7), used("utility", 2)]) == []
    assert with_errands([], places) == []
    lines = (places.errands / "2026-11.jsonl").read_text().split()
    assert len(lines) == 2 and all('"free":true' in line for line in lines)


def test_one_notice(places: Places) -> None:
    """Where it cannot be written, that is told once."""
    places.root.write_text("a file where the folder should be")
    errands = errands_of()
    (notice,) = errands.note([used("utility", 1), used("utility", 2)])
    assert isinstance(notice, Notice) and (notice.level, notice.code) == ("warning", "errands")
    assert errands.note([used("utility", 3)]) == []


def test_nowhere(places: Places) -> None:
    """Whatever goes wrong costs no run."""

    def where() -> tuple[str | None, str | None]:
        raise RuntimeError("nobody knows")

    (notice,) = Errands("run", Ledger(), where).note([used("utility")])
    assert isinstance(notice, Notice) and "nobody knows" in notice.message
