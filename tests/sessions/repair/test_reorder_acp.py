"""`repair_order` reorders a session from ACP so that a headless run can resume it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from geminids.gemini.protocol.journal.records import StoredMessage
from geminids.gemini.protocol.journal.replay import replay
from geminids.sessions.repair.reorder_acp import in_true_order, repair_order
from geminids.sessions.transcript import TurnEnd, entries
from recordings import all_files, recorded


def _copy(tmp_path: Path, version: str, prompt: str) -> Path:
    file, _ = recorded(version, prompt)
    return Path(shutil.copy(file, tmp_path / file.name))


def _result_ids(message: StoredMessage) -> list[str]:
    """The ids of the calls whose results a message contains."""
    parts = message.parts if message.is_tool_results else [call.result[0] for call in message.tool_calls]
    return [part["functionResponse"]["id"] for part in parts]


@pytest.mark.parametrize("prompt", ["Look around.", "Read, then fail.", "Read, then resume."])
@pytest.mark.parametrize("cut", [0, 1], ids=["whole", "cut off"])
def test_a_repair_keeps_the_transcript(tmp_path: Path, prompt: str, cut: int) -> None:
    """The repair changes no transcript entry.

    Afterwards the messages are in order, each result occurs once, and a second repair has no
    effect.
    """
    file = _copy(tmp_path, "0.61.0", prompt)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) - cut])
    before = replay(data.split(b"\n"))
    assert repair_order(file)
    after = replay(file.read_bytes().split(b"\n"))
    assert file.read_bytes().startswith(data)
    entries_after = [entry for entry in entries(after.messages) if not isinstance(entry, TurnEnd)]
    assert entries_after == [entry for entry in entries(before.messages) if not isinstance(entry, TurnEnd)]
    assert [*map(id, in_true_order(after.messages))] == [*map(id, after.messages)]
    answered = [call_id for message in after.messages for call_id in _result_ids(message)]
    assert len(answered) == len(set(answered)) > 1
    assert not repair_order(file)
    assert after.header == before.header or after.header is not None


def test_other_sessions_are_not_touched(tmp_path: Path) -> None:
    """A session that was not made on ACP keeps its bytes and its modification time."""
    for number, source in enumerate(all_files()):
        if "acp" in source.parts and "0.61.0" in source.parts:
            continue
        if b'"text":"Sleep."' in source.read_bytes():
            continue
        file = Path(shutil.copy(source, tmp_path / f"{number}-{source.name}"))
        os.utime(file, (1, 1))
        assert not repair_order(file), source
        assert (file.read_bytes(), file.stat().st_mtime) == (source.read_bytes(), 1), source


def test_a_missing_file_is_no_error(tmp_path: Path) -> None:
    """A missing file and a folder are not repaired, and no error is raised."""
    assert not repair_order(tmp_path / "missing.jsonl")
    assert not repair_order(tmp_path)
