"""Read the API requests, with their tokens, from session files and from the request log.

The request log is a file of geminids. It contains the requests that are in no session file. A
request that is in several files is counted only once.
"""

from __future__ import annotations

import math
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
from geminids.gemini.protocol.journal.records import Rewind, StoredMessage, decode_record
from geminids.gemini.protocol.journal.replay import blocks
from geminids.sessions.finder import session_files
from geminids.sessions.folders import Folder, chat_folders, home_of, read_regular_file

__all__ = [
    "Kind",
    "RequestTokens",
    "StoredRequest",
    "StoredUsage",
    "Trouble",
    "read_usage",
    "stored_usage",
    "with_request_log",
]

_NEEDLE = b'"tokens":'
# `model` is the last field of a message that we need. The tool calls, which are the largest part of
# a message, come after it.
_MODEL = b',"model":"'
_UUID_LENGTH = 36
_SHORT_ID = re.compile(r"session-.*-([^-]*)\.jsonl?")
_HEADER = re.compile(rb'"(sessionId|startTime)"\s*:\s*"([^"\\]{1,300})"')
_HEAD = 4096
# The CLI writes the time of an answer some milliseconds after its end, and more on a busy machine.
_SAME_ANSWER_MS = 10_000

# conversation: requests of the conversation and its subagents. other: requests that the CLI sends
# for other purposes (to choose the model, search the web, compress the conversation, ...).
# discarded: requests of the conversation whose answers the CLI did not use.
Kind = Literal["conversation", "other", "discarded"]


class RequestTokens(msgspec.Struct, frozen=True, gc=False):
    """The numbers of tokens of one API request.

    `input` includes `cached`. `output` does not include `thinking`. `recorded_total` is the total
    that the API reported; 0 if it reported none.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    thinking: int = msgspec.field(default=0, name="thoughts")
    tool: int = 0
    recorded_total: int = msgspec.field(default=0, name="total")

    @property
    def total(self) -> int:
        """The total that the API reported. If the API reported no total, the sum of `input`,
        `output`, `thinking` and `tool`.
        """
        return self.recorded_total or self.input + self.output + self.thinking + self.tool


class StoredRequest(msgspec.Struct, frozen=True, gc=False):
    """One API request from a session file or the request log. `at` is its time as text. `model` is
    None if it is unknown.
    """

    id: str
    at: str
    model: str | None
    tokens: RequestTokens


class Trouble(msgspec.Struct, frozen=True):
    """A problem with a session file or the request log: `file` could not be read completely. So
    some API requests and their tokens may be missing in the sums.

    `what` says what is wrong with the file.
    """

    file: str
    what: str


class StoredUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The API requests of one session that were read from one file.

    For a file of a subagent, `session` is the id of the session that started the subagent.
    `are_tokens_known` is False if the answers to these requests ended before the API reported the
    tokens. `is_free` is True if a script or a cassette answered, so that the requests cost nothing.
    """

    file: str
    session: str
    project: str | None
    subagent: bool
    started: str
    requests: tuple[StoredRequest, ...]
    troubles: tuple[Trouble, ...] = ()
    kind: Kind = "conversation"
    are_tokens_known: bool = True
    is_free: bool = False


class _UsageMessage(msgspec.Struct, gc=False):
    id: str = ""
    type: str = ""
    timestamp: str = ""
    model: str | None = None
    tokens: RequestTokens | None = None


class _Record(_UsageMessage, gc=False):
    messages: list[_UsageMessage] = []
    set: _Set | None = msgspec.field(default=None, name="$set")


class _Set(msgspec.Struct, gc=False):
    messages: list[_UsageMessage] = []


_message: msgspec.json.Decoder[_UsageMessage] = msgspec.json.Decoder(_UsageMessage)
_record: msgspec.json.Decoder[_Record] = msgspec.json.Decoder(_Record)


def stored_usage(
    project: str | os.PathLike[str] | None = None,
    *,
    home: str | None = None,
    since: datetime | None = None,
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> list[StoredUsage]:
    """Read the API requests from the session files of a project. If `project` is None, read those
    of all projects.

    If `home` is None, the user's home and all private homes are read. Files that have not changed
    since the time `since` are skipped. Damaged files raise no error.

    Sessions can be copied (by a fork, a rescue, or a newer CLI release), so a request can be in
    several files. Such a request is returned only for the oldest of these sessions.

    In the example, the folders do not exist, so there are no requests:

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
    free: bool = False,
) -> list[StoredUsage]:
    """Return the requests in `stored` (from session files) together with the requests in the
    request log, geminids' own file of requests that are in no session file.

    Three parameters limit which requests of the log are added. `project`: only requests of this
    folder. `since`: only requests from this time on. `only_stored`: only requests of sessions in
    `stored`.

    Requests that a script or a cassette answered cost nothing. They are left out, unless `free` is
    true. Lines that cannot be read raise no error.
    """
    stored = list(stored)
    logged, troubles = _logged(places, since)
    usages, owners = _without_free(stored, [entry for entry in logged if entry.free and not entry.discarded])
    projects = {usage.session: usage.project for usage in stored}
    groups: dict[tuple[str, str | None, Kind, bool, bool], list[StoredRequest]] = {}
    for entry in logged:
        if entry.free and not free:
            continue
        in_conversation = entry.role in ("main", "subagent")
        kind: Kind = "discarded" if entry.discarded else "conversation" if in_conversation else "other"
        session = entry.session or owners.get((entry.run, entry.request))
        if session in projects:
            group = (session, projects[session], kind, entry.is_counted, entry.free)
        elif only_stored or (
            project is not None and entry.project not in (project, os.path.realpath(project))
        ):
            continue
        else:
            group = (session or entry.run, entry.project, kind, entry.is_counted, entry.free)
        groups.setdefault(group, []).append(_request(entry))
    log = str(places.request_log)
    for (session, folder, kind, is_counted, is_free), requests in groups.items():
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
                is_free=is_free,
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
    """Return the requests in the request log that are not older than `since`, and the problems that
    occurred while reading the log.

    If several lines are about the same request, the last line is used.
    """
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


_Counts = tuple[int | None, ...]


def _without_free(
    stored: list[StoredUsage], free: list[LoggedRequest]
) -> tuple[list[StoredUsage], dict[tuple[str, int], str]]:
    """Return the stored sessions without the requests in `free`: requests that a script or a cassette
    answered, which cost nothing. Also return the sessions of those requests whose line names none, by
    the run and the number in the line.

    A stored request is the same as one in `free` if both have the same session and the same numbers
    of tokens. A line without a session comes from a gateway to which a plain `gemini` was connected:
    then the request nearest in time is taken.
    """
    owners: dict[tuple[str, int], str] = {}
    if not free:
        return stored, owners
    in_session: Counter[tuple[str, _Counts]] = Counter()
    anywhere: dict[_Counts, list[LoggedRequest]] = {}
    for entry in free:
        counts: _Counts = (entry.input, entry.output, entry.cached, entry.thinking)
        if entry.session is not None:
            in_session[entry.session, counts] += 1
        elif entry.role in ("main", "subagent"):
            anywhere.setdefault(counts, []).append(entry)
    sessions = {session for session, _ in in_session}
    usages: list[StoredUsage] = []
    pairs: list[tuple[float, int, LoggedRequest, StoredRequest]] = []
    for usage in stored:
        if anywhere or usage.session in sessions:
            kept = []
            for request in usage.requests:
                counts = _counts_of(request)
                if usage.session in sessions and in_session[usage.session, counts] > 0:
                    in_session[usage.session, counts] -= 1
                    continue
                kept.append(request)
                for entry in anywhere.get(counts, ()):
                    apart = _apart(entry, request)
                    if apart <= _SAME_ANSWER_MS:
                        pairs.append((apart, len(usages), entry, request))
            usage = msgspec.structs.replace(usage, requests=tuple(kept))
        usages.append(usage)
    for number, taken in _nearest(pairs, usages, owners).items():
        kept = [request for request in usages[number].requests if id(request) not in taken]
        usages[number] = msgspec.structs.replace(usages[number], requests=tuple(kept))
    return usages, owners


def _nearest(
    pairs: list[tuple[float, int, LoggedRequest, StoredRequest]],
    usages: list[StoredUsage],
    owners: dict[tuple[str, int], str],
) -> dict[int, set[int]]:
    """Assign each entry of the log to one stored request, the nearest in time first. Add the sessions
    to `owners`, and return the ids of the assigned request objects by the index in `usages`.

    Each item of `pairs` has the time between the two, and the index of the request's session.
    """
    taken: dict[int, set[int]] = {}
    for _, number, entry, request in sorted(pairs, key=lambda pair: pair[0]):
        name = entry.run, entry.request
        if name not in owners and id(request) not in taken.get(number, ()):
            owners[name] = usages[number].session
            taken.setdefault(number, set()).add(id(request))
    return taken


def _counts_of(request: StoredRequest) -> _Counts:
    tokens = request.tokens
    return tokens.input, tokens.output, tokens.cached, tokens.thinking


def _apart(entry: LoggedRequest, request: StoredRequest) -> float:
    """Return the milliseconds between the two; infinity if the time of the request is not valid."""
    try:
        return abs(entry.at - datetime.fromisoformat(request.at).timestamp() * 1000)
    except (ValueError, OverflowError):
        return math.inf


def _request(entry: LoggedRequest) -> StoredRequest:
    tokens = RequestTokens(
        entry.input or 0, entry.output or 0, entry.cached or 0, entry.thinking or 0, entry.tool or 0
    )
    try:
        ended = datetime.fromtimestamp(entry.at / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # the time is invalid, so leave it empty
        return StoredRequest(f"{entry.run}-{entry.request}", "", entry.model, tokens)
    at = ended.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return StoredRequest(f"{entry.run}-{entry.request}", at, entry.model, tokens)


def _homes(home: str | None, environ: Mapping[str, str], places: Places) -> Iterator[str]:
    """Yield the home folders whose sessions must be read: the user's home and all private homes, or
    only `home` if it is not None. If several of them share one session folder, yield only the
    first.

    Most private homes share the session folder of the user's home, by a symbolic link.
    """
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
    """Yield `usages` without duplicate requests. A request that is in several sessions stays only
    in the oldest one.
    """
    seen: set[object] = set()
    # Sort the oldest session first, because a copy is younger than its original. If the CLI has
    # converted a session to a new format, the old `.json` file comes first.
    for usage in sorted(usages, key=lambda usage: (usage.started, usage.subagent, usage.file)):
        fresh = []
        for request in usage.requests:
            # An id that is not a UUID can occur in several conversations: compare the whole
            # request.
            key: object = request.id if len(request.id) == _UUID_LENGTH else request
            if key not in seen:
                seen.add(key)
                fresh.append(request)
        if len(fresh) < len(usage.requests):
            usage = msgspec.structs.replace(usage, requests=tuple(fresh))
        yield usage


def read_usage(file: str, folder: Folder) -> StoredUsage:
    """Read the API requests from the session file `file`, which is in `folder`. If the file cannot
    be read completely, no error is raised; `troubles` of the result says why.
    """
    name = os.path.basename(file)
    subagent = not name.startswith("session-")
    requests: dict[str, StoredRequest] = {}
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


def _read(data: bytes, legacy: bool, requests: dict[str, StoredRequest]) -> int:
    """Add the requests in `data`, the content of a session file, to `requests`. Return the number
    of records that could not be read.

    `legacy` is True if the file is one JSON object, as CLI releases up to 0.38 wrote it.
    """
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
        # When the tools of a message have finished, the CLI writes the message again. The part up
        # to the model (the head) is the same, so it need not be decoded again.
        if not head or head != last_head:
            last_head = head if _read_head(head, requests) else b""
        if not last_head:
            broken += not _read_line(data[start:end], requests)
        position = data.find(_NEEDLE, end)
    return broken


def _end_of_model(data: bytes, position: int, end: int) -> int:
    """Return the position in `data` where the field `model` of a message ends. The field `tokens`
    of this message begins at `position`. Return 0 if the field after `tokens` is not `model`.
    """
    tokens_end = data.find(b"}", position, end) + 1
    return (
        data.find(b'"', tokens_end + len(_MODEL), end) + 1 if data.startswith(_MODEL, tokens_end, end) else 0
    )


def _read_head(head: bytes, requests: dict[str, StoredRequest]) -> bool:
    """Decode only `head`, the part of a message before its tool calls, and add the request of the
    message to `requests`. Return True if this worked.

    A closing brace is added to `head` before it is decoded. Return False if the result is not valid
    JSON. This happens if the field `tokens` in `head` is not a field of the message, but is inside
    the argument of a tool.
    """
    try:
        message = _message.decode(head + b"}")
    except UNREADABLE:
        return False
    _put(message, requests)
    return True


def _read_line(line: bytes, requests: dict[str, StoredRequest]) -> bool:
    try:
        _take(_record.decode(line), requests)
        return True
    except UNREADABLE:
        pass
    # The line is incomplete, or does not have the types that the CLI writes.
    record = decode_record(line.strip().rstrip(b","))
    if record is None:
        return False
    messages: list[StoredMessage] = []
    if isinstance(record, StoredMessage):
        messages = [record]
    elif not isinstance(record, Rewind):
        messages = record.messages or []
    for message in messages:
        if message.tokens is not None:
            counts = message.tokens
            spent = RequestTokens(
                counts.input, counts.output, counts.cached, counts.thoughts, counts.tool, counts.total
            )
            _put(_UsageMessage(message.id, message.type, message.timestamp, message.model, spent), requests)
    return True


def _take(record: _Record, requests: dict[str, StoredRequest]) -> None:
    _put(record, requests)
    # A record with a whole conversation contains copies of earlier messages without their times. So
    # add only messages that are not known yet.
    for message in (*record.messages, *(record.set.messages if record.set else ())):
        if message.id not in requests:
            _put(message, requests)


def _put(message: _UsageMessage, requests: dict[str, StoredRequest]) -> None:
    """Add the request of a message to `requests`, if the message has tokens. If the file contains a
    message several times, the request of the last one replaces the earlier ones.
    """
    tokens = message.tokens
    if tokens is not None and message.type == "gemini" and (tokens.recorded_total or tokens.total):
        # In very old releases, a message may have no id.
        requests[message.id or f"#{len(requests)}"] = StoredRequest(
            message.id, message.timestamp, message.model, tokens
        )
