"""The API requests that stored sessions tell of, with their tokens: all of them, and none twice."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from geminids.config.places import Places
from geminids.sessions.folders import Folder, chat_folders, home_of
from geminids.sessions.listing import session_files
from geminids.wire.journal import Message, Rewind, decode_record
from geminids.wire.journal_legacy import blocks
from geminids.wire.journal_odd import UNREADABLE

__all__ = ["Request", "Spent", "StoredUsage", "Trouble", "contents", "read_usage", "stored_usage"]

_NEEDLE = b'"tokens"'
# What stands before a message's tool calls, up to where the CLI has told all that we want.
_PLAIN = re.compile(rb'"tokens":\{(?:"[a-z]+":\d+,?)+\},"model":"[^"\\]*"')
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORT_ID = re.compile(r"session-.*-([^-]*)\.jsonl?")
_HEADER = re.compile(rb'"(sessionId|startTime)"\s*:\s*"([^"\\]{1,300})"')
_HEAD = 4096
# So many files are worth a second process.
_MANY = 40


class Spent(msgspec.Struct, frozen=True, gc=False):
    """The tokens of one API request. `input` has the cached ones in it, `output` has not the thinking."""

    input: int = 0
    output: int = 0
    cached: int = 0
    thinking: int = msgspec.field(default=0, name="thoughts")
    tool: int = 0
    recorded_total: int = msgspec.field(default=0, name="total")

    @property
    def total(self) -> int:
        """As the API has told it; where it has not, the sum."""
        return self.recorded_total or self.input + self.output + self.thinking + self.tool


class Request(msgspec.Struct, frozen=True, gc=False):
    """One API request: the message that it made, when, by which model (None: not told)."""

    id: str
    at: str
    model: str | None
    tokens: Spent


class Trouble(msgspec.Struct, frozen=True):
    """What could not be read, so that its tokens are missing."""

    file: str
    what: str


class StoredUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one file tells. `session` is the conversation that it is a part of: a subagent's is its parent's.

    `errands`: not the CLI has written it down, but we, of what it asked for itself.
    """

    file: str
    session: str
    project: str | None
    subagent: bool
    started: str
    requests: tuple[Request, ...]
    troubles: tuple[Trouble, ...] = ()
    errands: bool = False


class _Record(msgspec.Struct, gc=False):
    id: str = ""
    type: str = ""
    timestamp: str = ""
    model: str | None = None
    tokens: Spent | None = None
    messages: list[_Record] = []
    set: _Set | None = msgspec.field(default=None, name="$set")


class _Set(msgspec.Struct, gc=False):
    messages: list[_Record] = []


_record: msgspec.json.Decoder[_Record] = msgspec.json.Decoder(_Record)


def stored_usage(
    project: str | os.PathLike[str] | None = None,
    *,
    home: str | None = None,
    since: datetime | None = None,
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
    may_fork: bool = False,
) -> list[StoredUsage]:
    """What all files of a project tell, or of all projects; `home` None: the user's and all private homes.

    A request that stands in several files (a fork, a rescue, a session that a newer release has rewritten) is told
    with the oldest session that has it. Files that were not changed `since` are passed over. Nothing that is in the
    files raises. `may_fork`: half of many files are read by a fork of this process.

    >>> stored_usage("/no/such/project", home="/no/such/home")
    []
    """
    environ = os.environ if environ is None else environ
    places = places or Places.of(environ)
    found: list[tuple[str, Folder]] = []
    for one in _homes(home, environ, places):
        for folder in chat_folders(project, home=one, environ=environ, places=places):
            files = session_files(folder, True)
            if since is not None:
                files = [file for file in files if _changed(file) >= since.timestamp()]
            found += [(file, folder) for file in files]
    return list(_once(_read_all(found, may_fork)))


def _read_all(files: list[tuple[str, Folder]], may_fork: bool) -> list[StoredUsage]:
    if not may_fork or len(files) < _MANY:
        return [_usage_of(*one) for one in files]
    from geminids.sessions.usage_aside import aside

    rest = aside(lambda: [_usage_of(*one) for one in files[1::2]], list[StoredUsage])
    return [*[_usage_of(*one) for one in files[::2]], *rest()]


def read_usage(file: str | Path, project: str | None = None) -> StoredUsage:
    """What one file tells, each request once; never raises."""
    return _usage_of(str(file), Folder(Path(file).parent, project, False))


def _homes(home: str | None, environ: Mapping[str, str], places: Places) -> Iterator[str]:
    """Homes with sessions of their own: those of most private homes are links into the user's."""
    if home is not None:
        yield home
        return
    try:
        private = [str(places.homes / name) for name in sorted(os.listdir(places.homes))]
    except OSError:
        private = []
    seen = set()
    for one in (str(home_of("user", environ, places)), *private):
        tree = os.path.realpath(os.path.join(one, ".gemini", "tmp"))
        if tree not in seen:
            seen.add(tree)
            yield one


def _changed(file: str) -> float:
    try:
        return os.stat(file).st_mtime
    except OSError:
        return 0.0


def _once(found: Iterable[StoredUsage]) -> Iterator[StoredUsage]:
    seen: set[object] = set()
    # A copy is younger than what it is a copy of. Of a file and the one that the CLI has made of it, `.json` is first.
    for usage in sorted(found, key=lambda one: (one.started, one.subagent, one.file)):
        fresh = []
        for request in usage.requests:
            # An id that is no UUID may be another conversation's too: then all of it has to be the same.
            key: object = request.id if _ID.fullmatch(request.id) else request
            if key not in seen:
                seen.add(key)
                fresh.append(request)
        if len(fresh) < len(usage.requests):
            usage = msgspec.structs.replace(usage, requests=tuple(fresh))
        yield usage


def _usage_of(file: str, folder: Folder) -> StoredUsage:
    name = os.path.basename(file)
    subagent = not name.startswith("session-")
    requests: dict[str, Request] = {}
    broken, data = 0, b""
    troubles: tuple[Trouble, ...] = ()
    try:
        data = contents(file)
        broken = _read(data, name.endswith(".json"), requests)
    except OSError as error:
        troubles = (Trouble(file, f"cannot be read: {error.strerror or error}"),)
    if broken:
        what = "1 record that cannot be read" if broken == 1 else f"{broken} records that cannot be read"
        troubles = (Trouble(file, what),)
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


def contents(file: str) -> bytes:
    """All of a file; raises `OSError` where it is none."""
    # What has a session's name may be a pipe, and nobody would ever write to it.
    fd = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(fd, "rb", buffering=0) as opened:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError("it is not a file")
        return opened.read()


def _read(data: bytes, legacy: bool, requests: dict[str, Request]) -> int:
    """Gather the requests in a file; how many of its records could not be read."""
    if legacy:
        try:
            _take(_record.decode(data), requests)
            return 0
        except UNREADABLE:
            pieces = [block.text for block in blocks(data.splitlines(keepends=True)) if _NEEDLE in block.text]
            return sum(not _read_line(piece, requests) for piece in pieces) or 1
    broken = 0
    found = data.find(_NEEDLE)
    while found >= 0:
        # Most lines have none, and are never looked at.
        start = data.rfind(b"\n", 0, found) + 1
        end = data.find(b"\n", found)
        end = len(data) if end < 0 else end
        if not _read_head(data, start, found, requests):
            broken += not _read_line(data[start:end], requests)
        found = data.find(_NEEDLE, end)
    return broken


def _read_head(data: bytes, start: int, found: int, requests: dict[str, Request]) -> bool:
    """A message by what stands before its tool calls, which are most of it.

    Closed there, a line is JSON only where the tokens are the message's own, and not some tool's argument.
    """
    plain = _PLAIN.match(data, found)
    if plain is None:
        return False
    try:
        record = _record.decode(data[start : plain.end()] + b"}")
    except UNREADABLE:
        return False
    _take(record, requests)
    return True


def _read_line(line: bytes, requests: dict[str, Request]) -> bool:
    try:
        _take(_record.decode(line), requests)
        return True
    except UNREADABLE:
        pass
    # Not quite what the CLI's types say; or torn.
    odd = decode_record(line.strip().rstrip(b","))
    if odd is None:
        return False
    messages = [odd] if isinstance(odd, Message) else [] if isinstance(odd, Rewind) else odd.messages or []
    for message in messages:
        if message.tokens is not None:
            told = message.tokens
            spent = Spent(told.input, told.output, told.cached, told.thoughts, told.tool, told.total)
            _put(_Record(message.id, message.type, message.timestamp, message.model, spent), requests)
    return True


def _take(record: _Record, requests: dict[str, Request]) -> None:
    _put(record, requests)
    # A checkpoint, or a whole conversation: messages that were told before have lost their times in it.
    for message in (*record.messages, *(record.set.messages if record.set else ())):
        if message.id not in requests:
            _put(message, requests)


def _put(record: _Record, requests: dict[str, Request]) -> None:
    """A record that is written again takes the place of the first one; one without tokens takes nothing away."""
    tokens = record.tokens
    if tokens is not None and record.type == "gemini" and tokens.total:
        # The oldest releases could leave the id out.
        requests[record.id or f"#{len(requests)}"] = Request(
            record.id, record.timestamp, record.model, tokens
        )
