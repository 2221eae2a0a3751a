"""The request log: an append-only file of the API requests that no session file of the CLI holds.

Gemini CLI records the tokens of an answer in one place, at the end of an accepted answer of a
conversation (`GeminiChat.processStreamResponse` in 0.54.4 and 0.61.0). So a session file holds the
accepted answers of the main conversation, and a subagent's own file holds the subagent's.
Everything else is in no file: the model router, web search, web fetch, compression, loop checks,
and answers that the CLI discarded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Protocol

import msgspec

from geminids.config.paths import Places, private_dir
from geminids.log import get_logger

# For types only, so that `spending` is not loaded before the CLI is spawned.
if TYPE_CHECKING:
    from geminids.spending.tokens import Tokens

    class RequestFacts(Tokens, Protocol):
        """What the log needs to know about a request. The event `TokensUsed` has these
        attributes."""

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


__all__ = ["LoggedRequest", "RequestLog", "read_request_log"]

_log = get_logger("gateway")

# Session files hold the accepted answers of these roles.
_CONVERSATION_ROLES = ("main", "subagent")
# A run inside a run writes its own session files and its own lines in this log.
_LOGGED_BY_INNER_RUN = "nested"
# A line is one `write` of at most this many bytes.
_MAX_LINE = 4096
# Model names come from the API; nothing guarantees that they are short.
_MAX_NAME = 200
# A negative count would reduce what other requests have used.
_Count = Annotated[int, msgspec.Meta(ge=0)]


class LoggedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One line of the log: an API request, when its answer ended (Unix milliseconds), and its
    tokens.

    `run` and `request` identify it: a later line of the same request replaces an earlier one.
    Tokens are None if the answer ended without reporting them. `discarded`: the CLI threw the
    answer away. `free`: a scripted or replayed model answered, so the tokens that the session file
    shows for it were never spent.
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
        """Whether its tokens are known."""
        return self.input is not None or self.output is not None


class RequestLog:
    """Writes the lines of one run or one chat turn. Never raises: a log that fails must not end a
    run.

    `where` returns the session id and the project folder, as far as they are known. `add` and
    `discarded` return a text for the first problem; for later ones they return None.
    """

    def __init__(
        self,
        run_id: str,
        where: Callable[[], tuple[str | None, str | None]],
        *,
        free: bool = False,
        places: Places | None = None,
    ) -> None:
        self._run_id = run_id
        self._where = where
        self._free = free
        self._places = places
        self._has_failed = False
        # Answers that a session file may hold, by request number: `discarded` needs them later.
        self._conversation: dict[int, LoggedRequest] = {}

    def add(self, used: RequestFacts) -> str | None:
        """Log a request that has ended, unless a session file holds it."""
        if used.request is None or used.role == _LOGGED_BY_INNER_RUN or not _has_cost(used):
            return None
        entry = LoggedRequest(
            at=used.at,
            run=self._run_id,
            request=used.request,
            role=used.role,
            model=_short(used.model),
            requested_model=_short(used.requested_model),
            status=used.status,
            input=used.input,
            cached=used.cached,
            output=used.output,
            thinking=used.thinking,
            tool=used.tool,
            free=self._free,
        )
        if used.role not in _CONVERSATION_ROLES:
            # Nothing was spent and no session file claims otherwise.
            return None if self._free else self._write(entry)
        self._conversation[entry.request] = entry
        if self._free:
            # `usage` leaves out the session file's tokens of this request.
            return self._write(entry) if entry.is_counted else None
        # The CLI accepts no answer that was cut off before its tokens: no session file will hold
        # it.
        return None if entry.is_counted else self._write(entry)

    def discarded(self, request: int) -> str | None:
        """The CLI threw away the answer to this request, so no session file holds it."""
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
    """Whether the API answered. A request that failed costs nothing; one that was cut off may cost
    something."""
    if used.status is None or used.status >= 400:
        return False
    counts = (used.input, used.cached, used.output, used.thinking, used.tool)
    return any(counts) or all(count is None for count in counts)


def _short(name: str | None) -> str | None:
    return name[:_MAX_NAME] if name else None


def _encode(entry: LoggedRequest) -> bytes:
    """The line, with a newline before and after it: the line before may have been cut off by a full
    disk."""
    try:
        line = b"\n" + msgspec.json.encode(entry) + b"\n"
        if len(line) <= _MAX_LINE:
            return line
    except UnicodeEncodeError:  # a folder whose name is not UTF-8
        pass
    # The session is enough to find the project again.
    return b"\n" + msgspec.json.encode(msgspec.structs.replace(entry, project=None)) + b"\n"


def _append(line: bytes, places: Places) -> None:
    """Append in one `write`, so that lines of several processes do not mix."""
    file = places.request_log
    private_dir(file.parent)
    # With O_NONBLOCK a FIFO of that name cannot block us.
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{file} is not a file")
        written = os.write(fd, line)
    finally:
        os.close(fd)
    if written < len(line):
        raise OSError(f"only a part of a line fits in {file}: is the disk full?")


_decoder: msgspec.json.Decoder[LoggedRequest] = msgspec.json.Decoder(LoggedRequest)


def read_request_log(places: Places, on_broken: Callable[[], None] = lambda: None) -> Iterator[LoggedRequest]:
    """Yield the lines of the log, oldest first; nothing if there is no log. Raises `OSError` if it
    cannot be read.

    `on_broken` is called for each line that cannot be decoded, except for an unfinished last line,
    which another process may be writing.
    """
    try:
        fd = os.open(places.request_log, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return
    with open(fd, "rb", buffering=1 << 18) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(f"{places.request_log} is not a file")
        is_rest = False
        # The limit bounds the memory that a file without line breaks can take.
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
