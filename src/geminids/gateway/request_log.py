"""The request log: a file to which runs append a line for each API request of two kinds. The first
kind: requests that are in no session file of the CLI. The second kind: requests that are in a
session file but cost nothing, because a script or a cassette answered them.

The CLI writes the token counts of an answer to only one place: to the session file, at the end of
an accepted answer of a conversation (`GeminiChat.processStreamResponse` in 0.54.4 and 0.61.0). Each
subagent has its own session file. So no session file contains the other requests: model router, web
search, web fetch, compression, loop checks, and requests whose answer the CLI discarded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec

from geminids.config.paths import Places, private_dir
from geminids.log import get_logger

# Imported only for types, so that `spending` is not loaded before the CLI is spawned.
if TYPE_CHECKING:
    from geminids.spending.tokens import Tokens

    class RequestFacts(Tokens, Protocol):
        """The facts about an API request that the request log needs. The event `TokensUsed` has all
        these attributes.
        """

        @property
        def at(self) -> int: ...
        @property
        def request(self) -> int | None: ...
        @property
        def role(self) -> str: ...
        @property
        def model(self) -> str | None: ...
        @property
        def requested_model(self) -> str | None: ...
        @property
        def status(self) -> int | None: ...
        @property
        def free(self) -> bool: ...


__all__ = ["LoggedRequest", "RequestLog", "read_request_log"]

_log = get_logger("gateway")

# The session files of the CLI contain the accepted answers to requests of these roles.
_CONVERSATION_ROLES = ("main", "subagent")
# The role of requests of a nested run (a run that a tool of this run started). A nested run writes
# its own session files and its own lines in this log.
_LOGGED_BY_INNER_RUN = "nested"
# The maximum length of a line in bytes. Each line is written with a single `write`.
_MAX_LINE = 4096
# The maximum length of a name. Model names come from the API, so they could be long.
_MAX_NAME = 200
# Negative counts are not valid: they would reduce the sum of all requests.
_Count = Annotated[int, msgspec.Meta(ge=0)]


class LoggedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One line of the request log: an API request and its token counts. `at` is the time of the end
    of the answer in Unix milliseconds.

    `run` and `request` identify the request. If the log has several lines for one request, the last
    line is valid. The token counts are None if the answer ended before the API reported them.
    `discarded` is true if the CLI discarded the answer. `free` is true if a script or a cassette
    answered: the session file contains token counts, but the request cost nothing.
    """

    at: int
    run: str
    request: int
    role: str
    session: str | None = None
    project: str | None = None
    model: str | None = None
    requested_model: str | None = None
    status: int | None = None
    input: _Count | None = None
    cached: _Count | None = None
    output: _Count | None = None
    thinking: _Count | None = None
    tool: _Count | None = None
    discarded: bool = False
    free: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether the tokens of the request are known."""
        return self.input is not None or self.output is not None


class RequestLog:
    """Writes the lines of one run or of one chat turn to the request log. It never raises, because
    a problem with the log must not end a run.

    `where` is a function that returns the session id and the project folder; each is None if it is
    not known. When writing fails for the first time, `add` or `discarded` returns a message;
    otherwise they return None.
    """

    def __init__(
        self,
        run_id: str,
        where: Callable[[], tuple[str | None, str | None]],
        *,
        places: Places | None = None,
    ) -> None:
        self._run_id = run_id
        self._where = where
        self._places = places
        self._has_failed = False
        # The requests whose answers a session file may contain, by request number. `discarded`
        # needs them later.
        self._conversation: dict[int, LoggedRequest] = {}

    def add(self, used: RequestFacts, *, known_as: str | None = None) -> str | None:
        """Add a line for a request that has ended, if one is needed. Return a message if writing
        fails for the first time, and otherwise None.

        A line is needed if the request may have cost something and no session file contains it. If
        a script or a cassette answered (`used.free`), a line with the tokens is needed too: it says
        that the request cost nothing. `known_as` is the name under which another gateway has logged
        such an answer (see `FREE_HEADER`): this line then replaces that one.
        """
        if used.request is None or used.role == _LOGGED_BY_INNER_RUN or not _has_cost(used):
            return None
        run, _, number = (known_as or "").rpartition("-")
        is_known = bool(run) and number.isdecimal()
        entry = LoggedRequest(
            at=used.at,
            run=_short(run) or self._run_id if is_known else self._run_id,
            request=int(number[:18]) if is_known else used.request,
            role=used.role,
            model=_short(used.model),
            requested_model=_short(used.requested_model),
            status=used.status,
            input=used.input,
            cached=used.cached,
            output=used.output,
            thinking=used.thinking,
            tool=used.tool,
            free=used.free,
        )
        if used.role in _CONVERSATION_ROLES:
            self._conversation[used.request] = entry
        if entry.free:
            return self._write(entry) if entry.is_counted else None
        if used.role not in _CONVERSATION_ROLES:
            return self._write(entry)
        # An answer without tokens gets a line, because the CLI does not accept it and no session
        # file contains it.
        return None if entry.is_counted else self._write(entry)

    def discarded(self, request: int) -> str | None:
        """Add a line for a conversation request whose answer the CLI discarded. The line is needed
        because no session file contains such a request. `request` is the number of the request.
        Return a message if writing fails for the first time, and otherwise None.
        """
        entry = self._conversation.pop(request, None)
        return self._write(msgspec.structs.replace(entry, discarded=True)) if entry is not None else None

    def _write(self, entry: LoggedRequest) -> str | None:
        try:
            session, project = self._where()
            entry = msgspec.structs.replace(entry, session=_short(session), project=project or None)
            self._places = self._places or Places.of()
            _append(_encode(entry), self._places)
        except Exception as error:
            _log.warning("request %d of run %s is not logged", entry.request, self._run_id, error=error)
            if self._has_failed:
                return None
            self._has_failed = True
            return f"the request log cannot be written, so `geminids usage` will miss some requests: {error}"
        return None


def _has_cost(used: RequestFacts) -> bool:
    """Return whether a request may have cost something. A request that ended with an HTTP error
    cost nothing. A request whose answer ended early may have cost something.
    """
    if used.status is None or used.status >= 400:
        return False
    counts = (used.input, used.cached, used.output, used.thinking, used.tool)
    return any(counts) or all(count is None for count in counts)


def _short(name: str | None) -> str | None:
    return name[:_MAX_NAME] if name else None


def _encode(entry: LoggedRequest) -> bytes:
    """Encode an entry of the request log as a line. The line begins with a newline, because the
    previous line may be incomplete if the disk was full.
    """
    try:
        line = b"\n" + msgspec.json.encode(entry) + b"\n"
        if len(line) <= _MAX_LINE:
            return line
    except UnicodeEncodeError:  # the name of the project folder is not UTF-8
        pass
    # Leave out the project: the session id is enough to find it.
    return b"\n" + msgspec.json.encode(msgspec.structs.replace(entry, project=None)) + b"\n"


def _append(line: bytes, places: Places) -> None:
    """Append a line to the request log with a single `write`, so that the lines of several
    processes do not mix. Raises `OSError` if the line cannot be written completely.
    """
    file = places.request_log
    private_dir(file.parent)
    # O_NONBLOCK: if a FIFO has this name, opening it must not wait.
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{file} is not a regular file")
        written = os.write(fd, line)
    finally:
        os.close(fd)
    if written < len(line):
        raise OSError(f"could write only a part of a line to {file}; the disk may be full")


_decoder: msgspec.json.Decoder[LoggedRequest] = msgspec.json.Decoder(LoggedRequest)


def read_request_log(places: Places, on_broken: Callable[[], None] = lambda: None) -> Iterator[LoggedRequest]:
    """Yield the entries of the request log, the oldest one first. If the log does not exist, yield
    nothing. Raises `OSError` if the log cannot be read.

    `on_broken` is called for each line that cannot be decoded. An unfinished last line is skipped
    without a call, because another process may be writing it.
    """
    try:
        fd = os.open(places.request_log, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    with open(fd, "rb", buffering=1 << 18) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{places.request_log} is not a regular file")
        is_rest = False
        # Limit the length, because a file without line breaks must not fill the memory.
        while line := file.readline(_MAX_LINE):
            is_whole = line.endswith(b"\n")
            is_too_long = not is_whole and len(line) == _MAX_LINE
            if line != b"\n" and not is_rest:
                try:
                    yield _decoder.decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    if is_whole or is_too_long:
                        on_broken()
            is_rest = not is_whole
