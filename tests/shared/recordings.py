"""Recorded session files of the real CLI, found by their first prompt. tests/recorders/record.py records
them."""

from __future__ import annotations

from pathlib import Path

from geminids.gemini.protocol.journal.replay import StoredConversation, replay

__all__ = ["FIXTURES", "RECORDINGS", "VERSIONS", "all_files", "recorded"]

RECORDINGS = Path(__file__).parents[1] / "recordings"
FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "sessions-0.11"
# The other folders contain recorded events and the dialects' golden files.
VERSIONS = tuple(sorted(folder.name for folder in RECORDINGS.iterdir() if folder.name[0].isdigit()))


def all_files() -> list[Path]:
    """Return all recorded session files, including those of subagents."""
    return sorted(file for version in VERSIONS for file in (RECORDINGS / version).rglob("*.json*"))


def recorded(version: str, prompt: str) -> tuple[Path, StoredConversation]:
    """Return the file and conversation of the session of a release whose first prompt is
    `prompt`."""
    for file in sorted((RECORDINGS / version).rglob("*.json*")):
        conversation = replay(file.read_bytes().splitlines())
        prompts = [message.text for message in conversation.messages if message.is_prompt]
        if prompts and prompts[0] == prompt:
            return file, conversation
    raise AssertionError(f"no session of {version} begins with {prompt!r}")
