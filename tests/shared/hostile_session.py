"""A session in which every text contains HTML, Markdown and terminal escape injections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from geminids.gemini.protocol.journal.records import StoredMessage, decode_message

__all__ = ["HOSTILE_TEXT", "ID", "messages", "write"]

ID = "badbad00-7033-438d-a978-a361d8031f47"
HOSTILE_TEXT = (
    '</pre></title></style><script>alert(1)</script><img src=x onerror=alert(2)> " onclick="alert(3)" '
    '<a href="javascript:alert(4)">x</a> [x](javascript:alert(5)) </details> \'\x1b]0;owned\x07\x1b[31m\u202e'
)
_DIFF = (
    "Index: a\n=====\n--- a\tCurrent\n+++ a\tProposed\n"
    f"@@ -1 +1 @@ {HOSTILE_TEXT}\n-{HOSTILE_TEXT}\n+{HOSTILE_TEXT}\n"
)
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def _call(call_id: str, status: str, display: Any, **response: Any) -> dict[str, Any]:
    return {
        "id": call_id,
        "name": HOSTILE_TEXT,
        "args": {"command": HOSTILE_TEXT},
        "status": status,
        "result": [{"functionResponse": {"id": call_id, "name": HOSTILE_TEXT, "response": response}}],
        "resultDisplay": display,
    }


def _records() -> list[dict[str, Any]]:
    media = [
        {"inlineData": {"mimeType": "image/png", "data": _PIXEL}},
        {"inlineData": {"mimeType": "image/svg+xml", "data": "PHN2Zz4="}},
        {"inlineData": {"mimeType": f"image/png{HOSTILE_TEXT}", "data": _PIXEL}},
        {"inlineData": {"mimeType": "image/png", "data": f'"{HOSTILE_TEXT}'}},
    ]
    calls = [
        _call("t1", "success", {"fileDiff": _DIFF, "filePath": HOSTILE_TEXT}, output=HOSTILE_TEXT),
        _call("t2", "error", HOSTILE_TEXT, error=HOSTILE_TEXT),
        _call(HOSTILE_TEXT, "success", "", output=f"```\n{HOSTILE_TEXT}\n````\n{HOSTILE_TEXT}"),
    ]
    return [
        {"id": "u1", "type": "user", "timestamp": HOSTILE_TEXT, "content": [{"text": HOSTILE_TEXT}, *media]},
        {
            "id": HOSTILE_TEXT,
            "type": "gemini",
            "content": f"{HOSTILE_TEXT}\n```\n{HOSTILE_TEXT}\n",
            "thoughts": [{"subject": HOSTILE_TEXT, "description": HOSTILE_TEXT}],
            "toolCalls": calls,
            "model": HOSTILE_TEXT,
            "tokens": {"input": 1, "output": 1},
        },
        {"id": "e1", "type": HOSTILE_TEXT, "content": HOSTILE_TEXT},
    ]


def messages() -> list[StoredMessage]:
    """Return the decoded messages of the hostile session."""
    return [message for record in _records() if (message := decode_message(json.dumps(record).encode()))]


def write(file: Path) -> None:
    """Write the hostile session into a file, in the CLI's journal format."""
    header = {
        "sessionId": ID,
        "projectHash": "h",
        "startTime": HOSTILE_TEXT,
        "lastUpdated": HOSTILE_TEXT,
        "summary": HOSTILE_TEXT,
    }
    file.write_text("".join(json.dumps(record) + "\n" for record in (header, *_records())))
