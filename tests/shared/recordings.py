"""Session files of the real CLI, by what was asked in them (tests/real/record.py makes them)."""

from __future__ import annotations

from pathlib import Path

from geminids.gemini.protocol.journal.replay import Conversation, replay

__all__ = ["FIXTURES", "RECORDINGS", "VERSIONS", "all_files", "recorded"]

RECORDINGS = Path(__file__).parents[1] / "recordings"
FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "sessions-0.11"
# Beside them lie recorded events, and what the dialects make of them.
VERSIONS = tuple(sorted(folder.name for folder in RECORDINGS.iterdir() if folder.name[0].isdigit()))


def all_files() -> list[Path]:
    """Every recorded file, subagents' too."""
    return sorted(file for version in VERSIONS for file in (RECORDINGS / version).rglob("*.json*"))


def recorded(version: str, prompt: str) -> tuple[Path, Conversation]:
    """The session of a release that began with this prompt."""
    for file in sorted((RECORDINGS / version).rglob("*.json*")):
        conversation = replay(file.read_bytes().splitlines())
        prompts = [message.text for message in conversation.messages if message.is_prompt]
        if prompts and prompts[0] == prompt:
            return file, conversation
    raise AssertionError(f"no session of {version} begins with {prompt!r}")
