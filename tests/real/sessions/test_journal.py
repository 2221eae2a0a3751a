"""Our reader of session files agrees with the real CLI: it gives the messages that `--resume` sends
to the model."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from geminids.config.paths import Places
from geminids.gateway import Gateway
from geminids.gemini.install.cli import install
from geminids.gemini.protocol.journal.replay import replay

pytestmark = pytest.mark.real

_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"maxAttempts": 1, "sessionRetention": {"enabled": False}},
}
ID = "5f0c0f5e-1111-4222-8333-444455556666"
HEADER = {"sessionId": ID, "projectHash": "0" * 64, "startTime": "2026-01-01T00:00:00.000Z", "kind": "main"}
Resume = Callable[..., list[tuple[str, str]]]


def message(number: int, text: str = "") -> dict[str, Any]:
    """Return a message with this number: odd numbers are the user's, even numbers the model's."""
    kind = "user" if number % 2 else "gemini"
    return {
        "id": f"m{number}",
        "timestamp": HEADER["startTime"],
        "type": kind,
        "content": text or f"message {number}",
    }


def messages(first: int, last: int) -> list[dict[str, Any]]:
    return [message(number) for number in range(first, last + 1)]


_NOTE = {"id": "n1", "timestamp": "", "type": "info", "content": "a note"}
_JOURNALS: dict[str, list[Any]] = {
    "all at once": [
        HEADER,
        *messages(1, 4),
        message(2, "replaced"),
        b"{broken",
        *messages(5, 8),
        {"$rewindTo": "m5"},
        b'{"id":"m3","content":"cut',
        *messages(7, 8),
        _NOTE,
        message(4, "replaced too"),
        {"$set": {"summary": "x"}},
    ],
    "rewound to nothing": [HEADER, *messages(1, 4), {"$rewindTo": "unknown"}, *messages(5, 6)],
    "rewound and repeated": [HEADER, *messages(1, 6), {"$rewindTo": "m3"}, *messages(5, 6), *messages(3, 4)],
    "without a header": [{"$set": HEADER}, *messages(1, 4)],
    "bad characters": [HEADER, b'{"id":"m1","type":"user","content":"a \xff"}', message(2)],
}
_CHECKPOINT = [
    HEADER,
    *messages(1, 4),
    {"$set": {"messages": messages(5, 8)}},
    *messages(9, 10),
    message(6, "replaced"),
]


@pytest.fixture
def resume(tmp_path: Path, installs: Places, geminids_gateway: Gateway) -> Resume:
    """Put a session file where the CLI expects it, resume it, and return the history that the model
    received."""

    def run(version: str, data: bytes, suffix: str = ".jsonl") -> list[tuple[str, str]]:
        gemini = install(version, places=installs)
        cwd, home = tmp_path / "repo", tmp_path / "home"
        cwd.mkdir()
        chats = home / ".gemini" / "tmp" / "repo" / "chats"
        chats.mkdir(parents=True)
        (chats.parent / ".project_root").write_text(str(cwd))
        (home / ".gemini" / "projects.json").write_text(json.dumps({"projects": {str(cwd): "repo"}}))
        (home / ".gemini" / "settings.json").write_text(json.dumps(_SETTINGS))
        (chats / f"session-2026-01-01T00-00-{ID[:8]}{suffix}").write_bytes(data)
        own = {"PATH": os.environ["PATH"], "HOME": str(home), "GEMINI_CLI_HOME": str(home), "NO_COLOR": "1"}
        done = subprocess.run(
            [*gemini.command(installs), "--output-format=stream-json", "--model=flash", f"--resume={ID}"],
            input="and now?",
            text=True,
            capture_output=True,
            env={**own, "GEMINI_CLI_NO_RELAUNCH": "true", **geminids_gateway.env},
            cwd=cwd,
            timeout=60,
        )
        assert geminids_gateway.requests, done.stderr
        history = [
            (content["role"], part["text"])
            for content in geminids_gateway.requests[-1].contents
            for part in content["parts"]
        ]
        assert history.pop() == ("user", "and now?")
        return [entry for entry in history if not entry[1].startswith("<session_context>")]

    return run


def journal(records: list[Any]) -> bytes:
    return b"".join(
        (record if isinstance(record, bytes) else json.dumps(record).encode()) + b"\n" for record in records
    )


def replayed(data: bytes) -> list[tuple[str, str]]:
    """Return the role and text of each message that our reader finds resumable."""
    return [
        ("user" if message.type == "user" else "model", message.text)
        for message in replay(data.split(b"\n")).messages
        if message.is_resumable
    ]


@pytest.mark.parametrize(
    ("version", "name"),
    [
        pytest.param(
            version, name, marks=() if (version, name) == ("0.61.0", "all at once") else pytest.mark.deep
        )
        for version in ("0.61.0", "0.54.4")
        for name in _JOURNALS
    ],
)
def test_our_reader_agrees_with_resume(resume: Resume, version: str, name: str) -> None:
    """Our reader treats replacements, rewinds, updates and broken lines of a session file as the
    CLI does."""
    data = journal(_JOURNALS[name])
    expected = replayed(data)
    assert expected
    assert resume(version, data) == expected


@pytest.mark.deep
def test_a_checkpoint_replaces_the_conversation(resume: Resume) -> None:
    """A `$set` of `messages` replaces all earlier messages; later messages are added to it."""
    data = journal(_CHECKPOINT)
    assert (
        resume("0.61.0", data)
        == replayed(data)
        == [
            ("user", "message 5"),
            ("model", "replaced"),
            ("user", "message 7"),
            ("model", "message 8"),
            ("user", "message 9"),
            ("model", "message 10"),
        ]
    )


@pytest.mark.deep
def test_a_line_separator_does_not_split_a_message(resume: Resume) -> None:
    """Our reader keeps a message with U+2028. The CLI loses it, because Node's readline splits the
    line there."""
    line = json.dumps(message(3, "a\u2028b"), ensure_ascii=False).encode()
    data = journal([HEADER, *messages(1, 2), line, message(4)])
    third = replayed(data)[2]
    assert third == ("user", "a\u2028b")
    assert third not in resume("0.61.0", data)


@pytest.mark.deep
@pytest.mark.parametrize("version", ["0.61.0", "0.54.4"])
@pytest.mark.parametrize("indent", [2, None])
def test_legacy_files(resume: Resume, version: str, indent: int | None) -> None:
    """Our reader and the CLI agree on a legacy file, which is one JSON object: indented, as
    releases up to 0.38 write it, or on one line."""
    updated = {"lastUpdated": HEADER["startTime"]}
    data = json.dumps({**HEADER, **updated, "messages": [*messages(1, 4), _NOTE]}, indent=indent).encode()
    expected = replayed(data)
    assert len(expected) == 4
    assert resume(version, data, ".json") == expected
