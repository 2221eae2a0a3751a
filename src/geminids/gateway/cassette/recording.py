"""The upstream that writes down what passes: another one answers, and a cassette is made of it."""

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
from geminids.gateway.cassette.answer import body_fields, masked
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
from geminids.gateway.upstream import Body, Cut, Head, Mismatch, Part, Stall, Upstream, UpstreamFault, closing
from geminids.redact import MASK, Redactor

__all__ = ["Recording"]

_TOKEN = re.compile(re.escape(TOKEN_PREFIX) + r"[0-9a-f]{48}")
_AGENT = re.compile(r"GeminiCLI(?:-[\w-]+)?/(\d+\.\d+\.\d+[\w.-]*)")


# No lock, because a forked child could wait for it for ever: `setdefault` is atomic.
_recorded_now: dict[Path, Recording] = {}


class Recording:
    """Passes on what `inner` answers, and writes it to `path`.

    It writes beside that file, and takes its place when it is closed: a run that is killed loses only the exchange
    that was going on (the rest is in `FILE.<random>.part`), and a cassette that was there before is never half
    overwritten. A file that cannot be written ends the recording, not the run; `on_remark` hears of it. Only one
    recording at a time can use a file: of two, the one that is closed last would overwrite the other.
    """

    def __init__(
        self,
        inner: Upstream,
        path: str | Path,
        *,
        secrets: Iterable[str] = (),
        header: CassetteHeader | None = None,
        on_remark: Callable[[str], None] | None = None,
    ) -> None:
        self.path = Path(os.path.realpath(path))
        self.problem: str | None = None
        """Why the recording is not whole, if it is not."""
        self._inner = inner
        self._redactor = Redactor(secrets)
        self._header = header or CassetteHeader()
        self._on_remark = on_remark
        self._shelf = CassetteEncoder()
        self._came = self._written = 0
        self._started = False
        self._closed = False
        # Closed by the run, written by the gateway's thread.
        self._lock = threading.Lock()
        self._part = self.path.with_name(f"{self.path.name}.{os.urandom(4).hex()}.part")
        self._file = self._opened()

    def _opened(self) -> int:
        hint = "Name a file in a folder that is there and can be written."
        if self.path.is_dir():
            raise GeminidsError(f"cannot record to {self.path}: it is a folder", hint=hint)
        if _recorded_now.setdefault(self.path, self) is not self:
            raise GeminidsError(
                f"cannot record to {self.path}: another run or chat of this program records to it",
                hint="Name a file for each, for example pool.chat(record=…).",
            )
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            return os.open(self._part, flags, 0o600)
        except OSError as error:
            del _recorded_now[self.path]
            raise GeminidsError(
                f"cannot record to {self.path}: {error.strerror or error}", hint=hint
            ) from None

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        if request.path.endswith(METRICS):
            async with closing(self._inner.answer(request)) as parts:
                async for part in parts:
                    yield part
            return
        self._came += 1
        if request.login is not None and request.login not in self._redactor.secrets:
            self._redactor = Redactor((*self._redactor.secrets, request.login))
        take = _Take(self._came, request)
        parts = self._inner.answer(request)
        try:
            async for part in parts:
                take.heard(part)
                yield part
            take.over("whole")
        except UpstreamFault as fault:
            take.over("fault", fault)
            raise
        except Mismatch:
            take.over(None)
            raise
        finally:
            # A client that has gone away ends the request upstream, now and not when the garbage is collected.
            close = getattr(parts, "aclose", None)
            try:
                if close is not None:
                    await close()
            finally:
                self._write(take)

    def close(self) -> None:
        """Put the cassette in its place. Closing twice does no harm."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                if self.problem is None:
                    self._begin(None)
            except OSError as error:
                self._failed(error)
            finally:
                os.close(self._file)
            try:
                if self.problem is None:
                    self._settle()
            except OSError as error:
                self._failed(error)
            finally:
                _recorded_now.pop(self.path, None)

    def _settle(self) -> None:
        # A run that asked for nothing must not take the place of one that did.
        if not self._written and self.path.exists():
            self._part.unlink()
        else:
            os.replace(self._part, self.path)

    def _write(self, take: _Take) -> None:
        with self._lock:
            if self._closed or self.problem is not None or not take.usable:
                return
            try:
                self._begin(take.request)
                self._put(b"".join(self._shelf.lines(take.exchange(self._redactor))))
                self._written += 1
            except (OSError, ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
                self._failed(error)

    def _begin(self, request: Request | None) -> None:
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
        self._put(to_line(header))

    def _put(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]

    def _failed(self, error: Exception) -> None:
        self.problem = (
            f"the recording to {self.path} has stopped: {getattr(error, 'strerror', None) or error}"
        )
        if self._on_remark is not None:
            self._on_remark(self.problem)


class _Take:
    """One exchange while it goes on."""

    def __init__(self, n: int, request: Request) -> None:
        self.request = request
        self._n = n
        self._at = time.time()
        self._began = time.monotonic()
        self._first: float | None = None
        self._head: Head | None = None
        self._body = bytearray()
        self._fault: UpstreamFault | None = None
        # Until it is over: a client that leaves is never told of.
        self._end: End | None = "left"

    @property
    def usable(self) -> bool:
        return self._end is not None

    def heard(self, part: Part) -> None:
        if isinstance(part, Body):
            self._body += part.data
        elif isinstance(part, Head):
            self._first = time.monotonic()
            self._head = part
        elif isinstance(part, Cut):
            self._end = "cut"
        elif isinstance(part, Stall):
            self._end = "stalled"

    def over(self, end: End | None, fault: UpstreamFault | None = None) -> None:
        # After a cut or a stall the iteration may come to its end too.
        if self._end == "left":
            self._end = end
        self._fault = fault

    def exchange(self, redactor: Redactor) -> Exchange:
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
            fields = masked(body_fields(head, bytes(self._body)), redactor)
            fields |= {"status": head.status, "type": head.headers.get("content-type", "")}
            fields["retry_after"] = head.headers.get("retry-after")
            fields["first_ms"] = int((self._first - self._began) * 1000) if self._first is not None else None
        if fault is not None:
            fields |= {"fault": fault.kind, "message": redactor.text(fault.message)}
        return RecordedAnswer(
            end=self._end or "left", ms=int((time.monotonic() - self._began) * 1000), **fields
        )


def _body_of(request: Request, redactor: Redactor) -> Any:
    """What was asked, without secrets: known ones, and the token of a run wherever a tool has printed it."""
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
