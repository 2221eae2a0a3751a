"""Write a new session file in the CLI's format. An existing file is never overwritten."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from geminids.config.paths import private_dir
from geminids.errors import SessionError
from geminids.gemini.protocol.journal.records import StoredMessage

__all__ = ["answered_once", "write_session"]


def write_session(
    chats: Path, fields: Mapping[str, Any], messages: Iterable[StoredMessage], *, legacy: bool
) -> tuple[str, Path]:
    """Write the messages as a new session to the folder `chats`. Return the id of the session and
    the path of its file.

    `fields` are added to the header of the file. With `legacy`, the file has the format of CLI
    releases before 0.39 (one JSON object), which newer releases can also read. The file gets its
    final name only after it is completely written to disk. Raises `SessionError` if it cannot be
    written.
    """
    now = datetime.now(UTC)
    stamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    draft = chats / f".geminids-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        private_dir(chats)
        session_id = _new_id(chats)
        header = {**fields, "sessionId": session_id, "startTime": stamp, "lastUpdated": stamp, "kind": "main"}
        file = chats / f"session-{now:%Y-%m-%dT%H-%M}-{session_id[:8]}.json{'' if legacy else 'l'}"
        _fill(draft, header, (message.raw for message in answered_once(messages)), legacy)
        _name(draft, file)
        return session_id, file
    except OSError as error:
        raise SessionError(
            f"cannot write the session to {chats}: {error.strerror or error}",
            hint="Check the permissions of the folder, and the free disk space.",
        ) from None
    finally:
        draft.unlink(missing_ok=True)


def _name(draft: Path, file: Path) -> None:
    """Give the completely written file `draft` its final name, `file`.

    Raises `OSError` if a file with this name exists.
    """
    try:
        os.link(draft, file)
    except FileExistsError:
        raise
    except OSError:
        # The file system may not support hard links.
        if file.exists():
            raise
        os.rename(draft, file)


def answered_once(messages: Iterable[StoredMessage]) -> Iterator[StoredMessage]:
    """Yield the messages without duplicate tool results. A message with tool results is left out if
    earlier messages already contain all of these results.

    Since 0.54, the CLI stores each tool result twice: in the tool call, and as a separate message.
    When the CLI resumes a session, it sends both. So without this function, the API would receive
    two results for one call.
    """
    answered: set[str] = set()
    for message in messages:
        if message.is_tool_results:
            ids = [_answered_id(part) for part in message.content]
            if all(call_id in answered for call_id in ids):
                continue
            answered.update(call_id for call_id in ids if call_id)
        for call in message.tool_calls:
            if call.result:
                results = call.result if isinstance(call.result, list) else [call.result]
                answered.update(call_id for call_id in (call.id, *map(_answered_id, results)) if call_id)
        yield message


def _answered_id(part: Any) -> str | None:
    """Return the id of the tool call whose result is in this content part. Return None if the part
    contains no result.
    """
    response = part.get("functionResponse") if isinstance(part, dict) else None
    call_id = response.get("id") if isinstance(response, dict) else None
    return call_id if isinstance(call_id, str) else None


def _new_id(chats: Path) -> str:
    """Return a new session id. No session in the folder `chats` has an id with the same first eight
    characters.

    The CLI confuses sessions whose ids start with the same eight characters.
    """
    taken = os.listdir(chats)
    while True:
        session_id = str(uuid.uuid4())
        if not any(f"-{session_id[:8]}." in name for name in taken):
            return session_id


def _fill(draft: Path, header: Mapping[str, Any], messages: Iterable[bytes], legacy: bool) -> None:
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as out:
        if legacy:
            whole = {**header, "messages": [msgspec.Raw(message) for message in messages]}
            out.write(msgspec.json.format(msgspec.json.encode(whole), indent=2))
        else:
            out.write(msgspec.json.encode(header) + b"\n")
            out.writelines(message + b"\n" for message in messages)
        out.flush()
        os.fsync(fd)
