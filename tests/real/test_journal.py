"""Session files as the real CLI reads them: what `--resume` sends to the model is what our reader gives."""

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


def said(number: int, text: str = "") -> dict[str, Any]:
    """The user has the odd numbers, the model the even ones."""
    kind = "user" if number % 2 else "gemini"
    return {
        "id": f"m{number}",
        "timestamp": HEADER["startTime"],
        "type": kind,
        "content": text or f"said {number}",
    }


def talk(first: int, last: int) -> list[dict[str, Any]]:
    return [said(number) for number in range(first, last + 1)]


_NOTE = {"id": "n1", "timestamp": "", "type": "info", "content": "a note"}
_JOURNALS: dict[str, list[Any]] = {
    "all at once": [
        HEADER,
        *talk(1, 4),
        said(2, "replaced"),
        b"{broken",
        *talk(5, 8),
        {"$rewindTo": "m5"},
        b'{"id":"m3","content":"cut',
        *talk(7, 8),
        _NOTE,
        said(4, "replaced too"),
        {"$set": {"summary": "x"}},
    ],
    "rewound to nothing": [HEADER, *talk(1, 4), {"$rewindTo": "unknown"}, *talk(5, 6)],
    "rewound and said again": [HEADER, *talk(1, 6), {"$rewindTo": "m3"}, *talk(5, 6), *talk(3, 4)],
    "without a header": [{"$set": HEADER}, *talk(1, 4)],
    "bad characters": [HEADER, b'{"id":"m1","type":"user","content":"a \xff"}', said(2)],
}
_CHECKPOINT = [HEADER, *talk(1, 4), {"$set": {"messages": talk(5, 8)}}, *talk(9, 10), said(6, "replaced")]


@pytest.fixture
def resume(tmp_path: Path, installs: Places, geminids_gateway: Gateway) -> Resume:
    """Put a session file where the CLI has its own, and resume it: gives what the model was told before."""

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
        told = [
            (content["role"], part["text"])
            for content in geminids_gateway.requests[-1].contents
            for part in content["parts"]
        ]
        assert told.pop() == ("user", "and now?")
        return [one for one in told if not one[1].startswith("<session_context>")]

    return run


def journal(records: list[Any]) -> bytes:
    return b"".join(
        (record if isinstance(record, bytes) else json.dumps(record).encode()) + b"\n" for record in records
    )


def ours(data: bytes) -> list[tuple[str, str]]:
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
def test_resume_sends_what_is_replayed(resume: Resume, version: str, name: str) -> None:
    """Replacements, rewinds, updates and broken lines mean to us what they mean to the CLI."""
    data = journal(_JOURNALS[name])
    found = ours(data)
    assert found
    assert resume(version, data) == found


@pytest.mark.deep
def test_a_checkpoint_is_the_conversation_from_there(resume: Resume) -> None:
    """`$set.messages`, and what comes after it."""
    data = journal(_CHECKPOINT)
    assert (
        resume("0.61.0", data)
        == ours(data)
        == [
            ("user", "said 5"),
            ("model", "replaced"),
            ("user", "said 7"),
            ("model", "said 8"),
            ("user", "said 9"),
            ("model", "said 10"),
        ]
    )


@pytest.mark.deep
def test_a_separator_in_a_text_costs_the_cli_that_message(resume: Resume) -> None:
    """Node's readline takes U+2028 for the end of a line, which JSON.stringify does not escape: we read on."""
    odd = json.dumps(said(3, "a\u2028b"), ensure_ascii=False).encode()
    data = journal([HEADER, *talk(1, 2), odd, said(4)])
    found = ours(data)
    assert found[2] == ("user", "a\u2028b")
    assert found[2] not in resume("0.61.0", data)


@pytest.mark.deep
@pytest.mark.parametrize("version", ["0.61.0", "0.54.4"])
@pytest.mark.parametrize("indent", [2, None])
def test_legacy_files(resume: Resume, version: str, indent: int | None) -> None:
    """One JSON object, as releases to 0.38 write it, or on one line."""
    updated = {"lastUpdated": HEADER["startTime"]}
    data = json.dumps({**HEADER, **updated, "messages": [*talk(1, 4), _NOTE]}, indent=indent).encode()
    found = ours(data)
    assert len(found) == 4
    assert resume(version, data, ".json") == found
