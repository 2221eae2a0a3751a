"""Session files as the CLI writes them, built by hand so that no CLI is needed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from geminids.config.paths import Places

CONTEXT = "<session_context>\nThis is the Gemini CLI.\n</session_context>"


@dataclass
class SessionFiles:
    """A home with session files."""

    root: Path
    count: int = 0
    records_by_id: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def project(self) -> Path:
        return self.root / "app"

    @property
    def where(self) -> dict[str, Any]:
        return {"home": str(self.home), "places": Places(self.root / "geminids"), "environ": {}}

    def chats(self, project: Path | None = None, *, slug: str = "app", marker: bool = True) -> Path:
        """Create a chats folder with a slug name, as release 0.29 and newer do."""
        folder = self.home / ".gemini" / "tmp" / slug
        (folder / "chats").mkdir(parents=True, exist_ok=True)
        if marker:
            (folder / ".project_root").write_text(str(project or self.project))
        return folder / "chats"

    def hashed(self, project: Path | None = None) -> Path:
        """Create a chats folder with a hash name, as releases before 0.29 do."""
        name = sha256(str(project or self.project).encode()).hexdigest()
        folder = self.home / ".gemini" / "tmp" / name / "chats"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def records(
        self, session_id: str, *, turns: int = 1, hour: int = 10, words: str = ""
    ) -> list[dict[str, Any]]:
        """Build the records of a journal, as release 0.61.0 writes them."""
        self.count += 1
        base = f"2026-10-{self.count % 28 + 1:02}T{hour:02}"
        header = {
            "sessionId": session_id,
            "projectHash": sha256(str(self.project).encode()).hexdigest(),
            "startTime": f"{base}:00:00.000Z",
            "lastUpdated": f"{base}:00:00.000Z",
            "kind": "main",
        }
        context = {
            "id": f"c-{session_id}",
            "timestamp": f"{base}:00:00.100Z",
            "type": "user",
            "content": [{"text": CONTEXT}],
        }
        records: list[dict[str, Any]] = [header, {"$set": {"messages": [context]}}]
        for turn in range(turns):
            stamp = f"{base}:{turn % 60:02}:01.000Z"
            records += [
                {
                    "id": f"u{turn}",
                    "timestamp": stamp,
                    "type": "user",
                    "content": [{"text": f"prompt {turn}{words}"}],
                },
                {"$set": {"lastUpdated": stamp}},
                {
                    "id": f"g{turn}",
                    "timestamp": stamp,
                    "type": "gemini",
                    "content": f"answer {turn}",
                    "thoughts": [],
                    "tokens": {"input": 1, "output": 1, "cached": 0, "thoughts": 0, "tool": 0, "total": 2},
                    "model": "gemini-3.8-flash",
                },
            ]
        self.records_by_id[session_id] = records
        return records

    def journal(self, chats: Path, session_id: str, **kwargs: Any) -> Path:
        """Write a `.jsonl` session file."""
        records = self.records(session_id, **kwargs)
        file = chats / f"session-2026-10-01T10-00-{session_id[:8]}.jsonl"
        file.write_text("".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records))
        return file

    def legacy(self, chats: Path, session_id: str, **kwargs: Any) -> Path:
        """Write a `.json` session file."""
        header, _, *rest = self.records(session_id, **kwargs)
        messages = [record for record in rest if "id" in record]
        file = chats / f"session-2026-10-01T10-00-{session_id[:8]}.json"
        file.write_text(json.dumps({**header, "messages": messages}, indent=2))
        return file


@pytest.fixture
def session_files(tmp_path: Path) -> SessionFiles:
    files = SessionFiles(tmp_path)
    files.project.mkdir()
    return files
