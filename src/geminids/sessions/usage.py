"""The API requests in session files and in the request log, with their tokens; each request once."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from geminids.config.paths import Places
from geminids.gateway.request_log import LoggedRequest, read_request_log
from geminids.gemini.protocol.journal.lenient import UNREADABLE
from geminids.gemini.protocol.journal.records import Message, Rewind, decode_record
from geminids.gemini.protocol.journal.replay import blocks
from geminids.sessions.finder import session_files
from geminids.sessions.folders import Folder, chat_folders, home_of, read_regular_file

__all__ = [
    "Kind",
    "Request",
    "Spent",
    "StoredUsage",
    "Trouble",
    "read_usage",
    "stored_usage",
    "with_request_log",
]

_NEEDLE = b'"tokens":'
# The last field that we need. The tool calls, which are most of a message, come after it.
_MODEL = b',"model":"'
_UUID_LENGTH = 36
_SHORT_ID = re.compile(r"session-.*-([^-]*)\.jsonl?")
_HEADER = re.compile(rb'"(sessionId|startTime)"\s*:\s*"([^"\\]{1,300})"')
_HEAD = 4096

# conversation: requests of the conversation and its subagents. other: requests outside it (router,
# web search, compression, ...). discarded: answers of the conversation that the CLI discarded.
Kind = Literal["conversation", "other", "discarded"]


class Spent(msgspec.Struct, frozen=True, gc=False):
    """The tokens of one API request. `input` includes the cached ones, `output` excludes thinking."""

    input: int = 0
    output: int = 0
    cached: int = 0
    thinking: int = msgspec.field(default=0, name="thoughts")
    tool: int = 0
    recorded_total: int = msgspec.field(default=0, name="total")

    @property
    def total(self) -> int:
        """The API's total; the sum if the API reported none."""
        return self.recorded_total or self.input + self.output + self.thinking + self.tool


class Request(msgspec.Struct, frozen=True, gc=False):
    """One API request: its id, its time, and its model (None: unknown)."""

    id: str
    at: str
    model: str | None
    tokens: Spent


class Trouble(msgspec.Struct, frozen=True):
    """A file that could not be read completely, so that tokens are missing."""

    file: str
    what: str


class StoredUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one session in one file. A subagent's `session` is the one that called it.

    `are_tokens_known` is False for requests whose answers ended before they reported their tokens.
    """

    file: str
    session: str
    project: str | None
    subagent: bool
    started: str
    requests: tuple[Request, ...]
    troubles: tuple[Trouble, ...] = ()
    kind: Kind = "conversation"
    are_tokens_known: bool = True


class _Message(msgspec.Struct, gc=False):
    id: str = ""
    type: str = ""
    timestamp: str = ""
    model: str | None = None
    tokens: Spent | None = None


class _Record(_Message, gc=False):
    messages: list[_Message] = []
    set: _Set | None = msgspec.field(default=None, name="$set")


class _Set(msgspec.Struct, gc=False):
    messages: list[_Message] = []


_message: msgspec.json.Decoder[_Message] = msgspec.json.Decoder(_Message)
_record: msgspec.json.Decoder[_Record] = msgspec.json.Decoder(_Record)


def stored_usage(
    project: str | os.PathLike[str] | None = None,
    *,
    home: str | None = None,
    since: datetime | None = None,
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> list[StoredUsage]:
    """Read all session files of a project, or of all projects.

    `home` None reads the user's home and all private homes. A request that is in several files (a
    fork, a rescue, a session that a newer release has rewritten) counts for the oldest session that
    has it. Files that were not changed `since` are skipped. Never raises, whatever the files contain.

    >>> stored_usage("/no/such/project", home="/no/such/home")
    []
    """
    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    usages: list[StoredUsage] = []
    for path in _homes(home, environ, places):
        for folder in chat_folders(project, home=path, environ=environ, places=places):
            files = session_files(folder, True)
            if since is not None:
                files = [file for file in files if _changed(file) >= since.timestamp()]
            usages += [read_usage(file, folder) for file in files]
    return list(_once(usages))


def with_request_log(
    stored: Iterable[StoredUsage],
    places: Places,
    *,
    project: str | None = None,
    only_stored: bool = False,
    since: datetime | None = None,
) -> list[StoredUsage]:
    """Add the requests of the request log to those of the session files. Never raises.

    Requests of a scripted or replayed model cost nothing: they are removed from their session. A
    session in `stored` keeps its project. `project`: only requests of this folder. `only_stored`: only
    requests of the sessions in `stored`.
    """
    stored = list(stored)
    logged, troubles = _logged(places, since)
    usages = _without_free(stored, [entry for entry in logged if entry.free and not entry.discarded])
    projects = {usage.session: usage.project for usage in stored}
    groups: dict[tuple[str, str | None, Kind, bool], list[Request]] = {}
    for entry in logged:
        if entry.free:
            continue
        in_conversation = entry.role in ("main", "subagent")
        kind: Kind = "discarded" if entry.discarded else "conversation" if in_conversation else "other"
        if entry.session in projects:
            group = (entry.session, projects[entry.session], kind, entry.is_counted)
        elif only_stored or (
            project is not None and entry.project not in (project, os.path.realpath(project))
        ):
            continue
        else:
            group = (entry.session or entry.run, entry.project, kind, entry.is_counted)
        groups.setdefault(group, []).append(_request(entry))
    log = str(places.request_log)
    for (session, folder, kind, is_counted), requests in groups.items():
        usages.append(
            StoredUsage(
                file=log,
                session=session,
                project=folder,
                subagent=False,
                started=requests[0].at,
                requests=tuple(requests),
                kind=kind,
                are_tokens_known=is_counted,
            )
        )
    if troubles:
        usages.append(
            StoredUsage(
                file=log, session="", project=None, subagent=False, started="", requests=(), troubles=troubles
            )
        )
    return usages


def _logged(places: Places, since: datetime | None) -> tuple[list[LoggedRequest], tuple[Trouble, ...]]:
    """Return the requests of the log, the last line of each, and the problems of reading it."""
    first = since.timestamp() * 1000 if since else None
    latest: dict[tuple[str, int], LoggedRequest] = {}
    broken = 0

    def count() -> None:
        nonlocal broken
        broken += 1

    troubles = []
    try:
        for entry in read_request_log(places, count):
            if first is None or entry.at >= first:
                latest[entry.run, entry.request] = entry
    except OSError as error:
        troubles.append(Trouble(str(places.request_log), f"cannot be read: {error.strerror or error}"))
    if broken:
        problem = "1 line that cannot be read" if broken == 1 else f"{broken} lines that cannot be read"
        troubles.append(Trouble(str(places.request_log), problem))
    return list(latest.values()), tuple(troubles)


def _without_free(stored: list[StoredUsage], free: list[LoggedRequest]) -> list[StoredUsage]:
    """Remove the requests of scripted and replayed models from their sessions: session and tokens identify them."""
    if not free:
        return stored
    left = Counter((entry.session, entry.input, entry.output, entry.cached, entry.thinking) for entry in free)
    sessions = {entry.session for entry in free}
    usages = []
    for usage in stored:
        if usage.session in sessions:
            requests = []
            for request in usage.requests:
                tokens = request.tokens
                key = (usage.session, tokens.input, tokens.output, tokens.cached, tokens.thinking)
                if left[key] > 0:
                    left[key] -= 1
                else:
                    requests.append(request)
            usage = msgspec.structs.replace(usage, requests=tuple(requests))
        usages.append(usage)
    return usages


def _request(entry: LoggedRequest) -> Request:
    tokens = Spent(
        entry.input or 0, entry.output or 0, entry.cached or 0, entry.thinking or 0, entry.tool or 0
    )
    try:
        ended = datetime.fromtimestamp(entry.at / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # not a time: an unknown day
        return Request(f"{entry.run}-{entry.request}", "", entry.model, tokens)
    at = ended.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Request(f"{entry.run}-{entry.request}", at, entry.model, tokens)


def _homes(home: str | None, environ: Mapping[str, str], places: Places) -> Iterator[str]:
    """Yield the homes with their own sessions. Most private homes only link to the user's."""
    if home is not None:
        yield home
        return
    try:
        private = [str(places.homes / name) for name in sorted(os.listdir(places.homes))]
    except OSError:
        private = []
    seen = set()
    for path in (str(home_of("user", environ, places)), *private):
        tree = os.path.realpath(os.path.join(path, ".gemini", "tmp"))
        if tree not in seen:
            seen.add(tree)
            yield path


def _changed(file: str) -> float:
    try:
        return os.stat(file).st_mtime
    except OSError:
        return 0.0


def _once(usages: Iterable[StoredUsage]) -> Iterator[StoredUsage]:
    seen: set[object] = set()
    # A copy is younger than its original. Of a session that the CLI rewrote, the `.json` file is first.
    for usage in sorted(usages, key=lambda usage: (usage.started, usage.subagent, usage.file)):
        fresh = []
        for request in usage.requests:
            # Another conversation may use the same id if it is not a UUID: then the whole request must be equal.
            key: object = request.id if len(request.id) == _UUID_LENGTH else request
            if key not in seen:
                seen.add(key)
                fresh.append(request)
        if len(fresh) < len(usage.requests):
            usage = msgspec.structs.replace(usage, requests=tuple(fresh))
        yield usage


def read_usage(file: str, folder: Folder) -> StoredUsage:
    """Read one session file, each request once. Never raises."""
    name = os.path.basename(file)
    subagent = not name.startswith("session-")
    requests: dict[str, Request] = {}
    broken, data = 0, b""
    troubles: tuple[Trouble, ...] = ()
    try:
        data = read_regular_file(file)
        broken = _read(data, name.endswith(".json"), requests)
    except OSError as error:
        troubles = (Trouble(file, f"cannot be read: {error.strerror or error}"),)
    if broken:
        problem = "1 record that cannot be read" if broken == 1 else f"{broken} records that cannot be read"
        troubles = (Trouble(file, problem),)
    fields = {key: value.decode("utf-8", "replace") for key, value in reversed(_HEADER.findall(data[:_HEAD]))}
    short = _SHORT_ID.fullmatch(name)
    own = fields.get(b"sessionId") or (short.group(1) if short else name)
    return StoredUsage(
        file=file,
        session=os.path.basename(os.path.dirname(file)) if subagent else own,
        project=folder.project,
        subagent=subagent,
        started=fields.get(b"startTime", ""),
        requests=tuple(requests.values()),
        troubles=troubles,
    )


def _read(data: bytes, legacy: bool, requests: dict[str, Request]) -> int:
    """Collect the requests of a file; return the number of records that could not be read."""
    if legacy:
        try:
            _take(_record.decode(data), requests)
            return 0
        except UNREADABLE:
            pieces = [block.text for block in blocks(data.splitlines(keepends=True)) if _NEEDLE in block.text]
            return sum(not _read_line(piece, requests) for piece in pieces) or 1
    broken = 0
    last_head = b""
    position = data.find(_NEEDLE)
    while position >= 0:
        # Most lines have no tokens and are skipped.
        start = data.rfind(b"\n", 0, position) + 1
        end = data.find(b"\n", position)
        end = len(data) if end < 0 else end
        head = data[start : _end_of_model(data, position, end)]
        # The CLI writes a message again when its tools have finished, with the same head.
        if not head or head != last_head:
            last_head = head if _read_head(head, requests) else b""
        if not last_head:
            broken += not _read_line(data[start:end], requests)
        position = data.find(_NEEDLE, end)
    return broken


def _end_of_model(data: bytes, position: int, end: int) -> int:
    """Return the end of the `model` field after the tokens; 0 if there is none."""
    tokens_end = data.find(b"}", position, end) + 1
    return (
        data.find(b'"', tokens_end + len(_MODEL), end) + 1 if data.startswith(_MODEL, tokens_end, end) else 0
    )


def _read_head(head: bytes, requests: dict[str, Request]) -> bool:
    """Decode only the part of a message before its tool calls.

    With a closing brace added, that part is valid JSON only if the tokens are the message's own, not
    an argument of a tool.
    """
    try:
        message = _message.decode(head + b"}")
    except UNREADABLE:
        return False
    _put(message, requests)
    return True


def _read_line(line: bytes, requests: dict[str, Request]) -> bool:
    try:
        _take(_record.decode(line), requests)
        return True
    except UNREADABLE:
        pass
    # The line is cut off, or differs from the CLI's own types.
    record = decode_record(line.strip().rstrip(b","))
    if record is None:
        return False
    messages: list[Message] = []
    if isinstance(record, Message):
        messages = [record]
    elif not isinstance(record, Rewind):
        messages = record.messages or []
    for message in messages:
        if message.tokens is not None:
            counts = message.tokens
            spent = Spent(
                counts.input, counts.output, counts.cached, counts.thoughts, counts.tool, counts.total
            )
            _put(_Message(message.id, message.type, message.timestamp, message.model, spent), requests)
    return True


def _take(record: _Record, requests: dict[str, Request]) -> None:
    _put(record, requests)
    # A checkpoint or a whole conversation. Its copies of earlier messages have lost their times.
    for message in (*record.messages, *(record.set.messages if record.set else ())):
        if message.id not in requests:
            _put(message, requests)


def _put(message: _Message, requests: dict[str, Request]) -> None:
    """Add a message's request. The last record of a message that has tokens counts."""
    tokens = message.tokens
    if tokens is not None and message.type == "gemini" and (tokens.recorded_total or tokens.total):
        # The oldest releases could leave the id out.
        requests[message.id or f"#{len(requests)}"] = Request(
            message.id, message.timestamp, message.model, tokens
        )
