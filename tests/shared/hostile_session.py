"""A session in which every text tries to get out of its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from geminids.gemini.protocol.journal.records import Message, decode_message

__all__ = ["BAD", "ID", "messages", "write"]

ID = "badbad00-7033-438d-a978-a361d8031f47"
BAD = (
    '</pre></title></style><script>alert(1)</script><img src=x onerror=alert(2)> " onclick="alert(3)" '
    '<a href="javascript:alert(4)">x</a> [x](javascript:alert(5)) </details> \'\x1b]0;owned\x07\x1b[31m\u202e'
)
_DIFF = f"Index: a\n=====\n--- a\tCurrent\n+++ a\tProposed\n@@ -1 +1 @@ {BAD}\n-{BAD}\n+{BAD}\n"
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def _call(call_id: str, status: str, display: Any, **response: Any) -> dict[str, Any]:
    return {
        "id": call_id,
        "name": BAD,
        "args": {"command": BAD},
        "status": status,
        "result": [{"functionResponse": {"id": call_id, "name": BAD, "response": response}}],
        "resultDisplay": display,
    }


def _records() -> list[dict[str, Any]]:
    media = [
        {"inlineData": {"mimeType": "image/png", "data": _PIXEL}},
        {"inlineData": {"mimeType": "image/svg+xml", "data": "PHN2Zz4="}},
        {"inlineData": {"mimeType": f"image/png{BAD}", "data": _PIXEL}},
        {"inlineData": {"mimeType": "image/png", "data": f'"{BAD}'}},
    ]
    calls = [
        _call("t1", "success", {"fileDiff": _DIFF, "filePath": BAD}, output=BAD),
        _call("t2", "error", BAD, error=BAD),
        _call(BAD, "success", "", output=f"```\n{BAD}\n````\n{BAD}"),
    ]
    return [
        {"id": "u1", "type": "user", "timestamp": BAD, "content": [{"text": BAD}, *media]},
        {
            "id": BAD,
            "type": "gemini",
            "content": f"{BAD}\n```\n{BAD}\n",
            "thoughts": [{"subject": BAD, "description": BAD}],
            "toolCalls": calls,
            "model": BAD,
            "tokens": {"input": 1, "output": 1},
        },
        {"id": "e1", "type": BAD, "content": BAD},
    ]


def messages() -> list[Message]:
    return [found for record in _records() if (found := decode_message(json.dumps(record).encode()))]


def write(file: Path) -> None:
    """The session as a journal."""
    header = {"sessionId": ID, "projectHash": "h", "startTime": BAD, "lastUpdated": BAD, "summary": BAD}
    file.write_text("".join(json.dumps(record) + "\n" for record in (header, *_records())))
