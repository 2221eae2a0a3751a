"""Record the requests of a run and their answers in a cassette file. The requests are forwarded to
an upstream (an object that answers requests).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from geminids.errors import GeminidsError
from geminids.gateway.cassette.answer import body_fields, mask
from geminids.gateway.cassette.lines import (
    CassetteEncoder,
    CassetteHeader,
    End,
    Exchange,
    RecordedAnswer,
    to_line,
)
from geminids.gateway.lease import TOKEN_PREFIX
from geminids.gateway.request import METRICS, Request
from geminids.gateway.upstream import (
    Body,
    Cut,
    Hang,
    Head,
    Mismatch,
    Part,
    Upstream,
    UpstreamFault,
    closing,
    is_free,
)
from geminids.log import get_logger
from geminids.redact import MASK, Redactor

__all__ = ["Recording", "check_record_path"]

_log = get_logger("gateway")

_HINT = "Choose a file in an existing, writable folder."
_EXISTS = "Use another file, or replace this one with `overwrite=True`."

_TOKEN = re.compile(re.escape(TOKEN_PREFIX) + r"[0-9a-f]{48}")
_AGENT = re.compile(r"GeminiCLI(?:-[\w-]+)?/(\d+\.\d+\.\d+[\w.-]*)")


# The open recordings, by path. No lock is needed, because `setdefault` is atomic. (A forked child
# process could wait for a lock for ever.)
_active: dict[Path, Recording] = {}


def check_record_path(path: str | Path, *, overwrite: bool) -> Path:
    """Return `path` with its links resolved.

    Raises `GeminidsError` if no cassette can be written to `path`: if it is a folder, if its folder
    does not exist or is not writable, or if the file exists and `overwrite` is not set.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise GeminidsError(f"cannot record to {target}: it is a folder", hint=_HINT)
    if not overwrite and os.path.lexists(target):
        raise GeminidsError(f"cannot record to {target}: the file already exists", hint=_EXISTS)
    if not target.parent.is_dir():
        raise GeminidsError(f"cannot record to {target}: {target.parent} is not a folder", hint=_HINT)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise GeminidsError(f"cannot record to {target}: {target.parent} is not writable", hint=_HINT)
    return target


class Recording:
    """Forwards requests to the upstream `inner`, and records them with their answers in the
    cassette file `path`.

    The recording is first written to a file `NAME.<random>.part` in the same folder. When the
    recording is closed, this file is renamed to `path`. So if the run is killed, an existing
    cassette stays intact, and only the request in progress is missing from the `.part` file. If the
    recording is closed with `keep=False`, because the run failed, `path` does not change, and the
    `.part` file is renamed to `NAME.failed`.

    Raises `GeminidsError` if the `.part` file cannot be created, if `path` is a folder, if `path`
    exists and `overwrite` is not set, or if another recording of this process writes to `path`. If
    writing fails later, the recording ends and `on_remark` is called with a message; the run
    continues.
    """

    def __init__(
        self,
        inner: Upstream,
        path: str | Path,
        *,
        overwrite: bool = False,
        secrets: Iterable[str] = (),
        header: CassetteHeader | None = None,
        on_remark: Callable[[str], None] | None = None,
    ) -> None:
        self.path = check_record_path(path, overwrite=overwrite)
        self.failed_path = self.path.with_name(f"{self.path.name}.failed")
        """Where a recording is kept if it does not become the cassette."""
        self._overwrite = overwrite
        self.problem: str | None = None
        """Why the recording is incomplete; None if there is no problem."""
        self._inner = inner
        self._redactor = Redactor(secrets)
        self._header = header or CassetteHeader()
        self._on_remark = on_remark
        self._encoder = CassetteEncoder()
        self._received = self._written = 0
        self._started = False
        self._closed = False
        # The run's thread may close the recording while the gateway's thread writes to it.
        self._lock = threading.Lock()
        self._part = self.path.with_name(f"{self.path.name}.{os.urandom(4).hex()}.part")
        self._file = self._open()

    @property
    def is_free(self) -> bool:
        """Whether no model answers, so that the requests cost nothing."""
        return is_free(self._inner)

    def _open(self) -> int:
        if _active.setdefault(self.path, self) is not self:
            raise GeminidsError(
                f"cannot record to {self.path}: another run or chat of this program is recording to it",
                hint="Set another file with `record` for each run or chat.",
            )
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            return os.open(self._part, flags, 0o600)
        except OSError as error:
            del _active[self.path]
            raise GeminidsError(
                f"cannot record to {self.path}: {error.strerror or error}", hint=_HINT
            ) from None

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        if request.path.endswith(METRICS):
            async with closing(self._inner.answer(request)) as parts:
                async for part in parts:
                    yield part
            return
        self._received += 1
        if request.login is not None and request.login not in self._redactor.secrets:
            self._redactor = Redactor((*self._redactor.secrets, request.login))
        exchange = _RecordedExchange(self._received, request)
        parts = self._inner.answer(request)
        try:
            async for part in parts:
                exchange.add(part)
                yield part
            exchange.end("whole")
        except UpstreamFault as fault:
            exchange.end("fault", fault)
            raise
        except Mismatch:
            exchange.end(None)
            raise
        finally:
            # If the client has disconnected, end the request to the upstream now. Otherwise it
            # would continue until the garbage collector runs.
            close = getattr(parts, "aclose", None)
            try:
                if close is not None:
                    await close()
            finally:
                self._write_exchange(exchange)

    @property
    def has_requests(self) -> bool:
        """Whether a request has arrived."""
        return self._received > 0

    def close(self, *, keep: bool = True) -> None:
        """End the recording, and move the finished cassette to its final path. A second call has no
        effect.

        With `keep=False`, the final path does not change, and the recording is kept in
        `failed_path`. A recording without requests is then removed.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self.problem is None:
                    self._write_header(None)
            except OSError as error:
                self._failed(error)
            finally:
                os.close(self._file)
            try:
                if self.problem is None:
                    self._move_into_place(keep)
            except OSError as error:
                self._failed(error)
            finally:
                _active.pop(self.path, None)

    def _move_into_place(self, keep: bool) -> None:
        # A recording without requests must not replace an existing cassette.
        if not self._written and (not keep or self.path.exists()):
            self._part.unlink()
        elif not keep:
            os.replace(self._part, self.failed_path)
        elif self._overwrite:
            os.replace(self._part, self.path)
        else:
            self._create()

    def _create(self) -> None:
        """Move the recording to its final path, unless a file was created there meanwhile."""
        try:
            os.link(self._part, self.path)
        except FileExistsError:
            os.replace(self._part, self.failed_path)
            self._report(
                f"{self.path} was created by another program; the recording is in {self.failed_path}"
            )
        except OSError:
            os.rename(self._part, self.path)  # the file system may not support hard links
        else:
            self._part.unlink()

    def _write_exchange(self, exchange: _RecordedExchange) -> None:
        with self._lock:
            if self._closed or self.problem is not None or not exchange.is_recorded:
                return
            try:
                self._write_header(exchange.request)
                self._write_bytes(b"".join(self._encoder.lines(exchange.to_exchange(self._redactor))))
                self._written += 1
            except (OSError, ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
                self._failed(error)

    def _write_header(self, request: Request | None) -> None:
        if self._started:
            return
        self._started = True
        agent = _AGENT.search(request.headers.get("user-agent", "")) if request is not None else None
        header = self._header
        header = msgspec.structs.replace(
            header,
            made=header.made or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            cli=header.cli or (agent[1] if agent else None),
            api=header.api if request is None else request.api,
            model=header.model
            or (request.model if request is not None and request.method == "stream" else None),
        )
        self._write_bytes(to_line(header))

    def _write_bytes(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def _failed(self, error: Exception) -> None:
        self._report(f"the recording to {self.path} has stopped: {getattr(error, 'strerror', None) or error}")

    def _report(self, problem: str) -> None:
        self.problem = problem
        _log.warning("a recording is incomplete: %s", problem)
        if self._on_remark is not None:
            self._on_remark(self.problem)


class _RecordedExchange:
    """Collects one request and its answer for the cassette, while the answer arrives."""

    def __init__(self, n: int, request: Request) -> None:
        self.request = request
        self._n = n
        self._at = time.time()
        self._started_at = time.monotonic()
        self._first: float | None = None
        self._head: Head | None = None
        self._body = bytearray()
        self._fault: UpstreamFault | None = None
        # The default is "left" (the client disconnected), because no event reports a disconnect.
        # None means that the exchange is not recorded.
        self._end: End | None = "left"

    @property
    def is_recorded(self) -> bool:
        return self._end is not None

    def add(self, part: Part) -> None:
        if isinstance(part, Body):
            self._body += part.data
        elif isinstance(part, Head):
            self._first = time.monotonic()
            self._head = part
        elif isinstance(part, Cut):
            self._end = "cut"
        elif isinstance(part, Hang):
            self._end = "stalled"

    def end(self, end: End | None, fault: UpstreamFault | None = None) -> None:
        # Keep the first ending: after a cut or a stall, the iteration may still end in the normal
        # way.
        if self._end == "left":
            self._end = end
        self._fault = fault

    def to_exchange(self, redactor: Redactor) -> Exchange:
        request = self.request
        path, body = redactor.text(request.path), _body_of(request, redactor)
        return Exchange(
            n=self._n,
            at=round(self._at, 3),
            verb=request.verb,
            path=path,
            body=body,
            answer=self._answer(redactor),
        )

    def _answer(self, redactor: Redactor) -> RecordedAnswer:
        head, fault = self._head, self._fault
        fields: dict[str, Any] = {}
        if head is not None:
            fields = mask(body_fields(head, bytes(self._body)), redactor)
            fields |= {"status": head.status, "type": head.headers.get("content-type", "")}
            fields["retry_after"] = head.headers.get("retry-after")
            fields["first_ms"] = (
                int((self._first - self._started_at) * 1000) if self._first is not None else None
            )
        if fault is not None:
            fields |= {"fault": fault.kind, "message": redactor.text(fault.message)}
        return RecordedAnswer(
            end=self._end or "left", ms=int((time.monotonic() - self._started_at) * 1000), **fields
        )


def _body_of(request: Request, redactor: Redactor) -> Any:
    """Return the body of a request with all secrets masked. The tokens with which runs use the
    gateway are masked too, because a tool may have printed one.
    """
    body = request.body
    if body is None:
        return _TOKEN.sub(MASK, redactor.block(request.raw).decode("latin-1")).encode("latin-1")
    return _without_tokens(redactor.value(body))


def _without_tokens(value: Any) -> Any:
    if isinstance(value, str):
        return _TOKEN.sub(MASK, value) if TOKEN_PREFIX in value else value
    if isinstance(value, dict):
        return {key: _without_tokens(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_tokens(inner) for inner in value]
    return value
