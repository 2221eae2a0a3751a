"""Mark and log the answers of a script or a cassette. No model made them, so they cost nothing.

A run of geminids reads the mark, a header of the answer. For a plain `gemini`, only the gateway knows
that the tokens in the session file cost nothing. So the gateway logs its answers.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator

import msgspec

from geminids.gateway.forward.response_observer import Observer
from geminids.gateway.limits.roles import role_of
from geminids.gateway.request import Request
from geminids.gateway.request_log import LoggedRequest, RequestLog
from geminids.gateway.upstream import FREE_HEADER, Body, Head, Part, Upstream, closing, with_header
from geminids.log import get_logger

__all__ = ["FreeAnswers"]

_log = get_logger("gateway")


class FreeAnswers:
    """Answers requests with an upstream that asks no model, and marks and logs each answer."""

    def __init__(self, inner: Upstream) -> None:
        self._inner = inner
        self._id = f"gateway-{os.urandom(8).hex()}"

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        observer, status = None, 0
        async with closing(self._inner.answer(request)) as parts:
            async for part in parts:
                if isinstance(part, Head):
                    observer, status = (
                        Observer(part.status, part.headers.get("content-type", "")),
                        part.status,
                    )
                    part = with_header(part, FREE_HEADER, f"{self._id}-{request.n}")
                elif isinstance(part, Body) and observer is not None:
                    observer.feed(part.data)
                yield part
        if request.is_paid and observer is not None:
            observer.finish()
            self._add(request, status, observer)

    def _add(self, request: Request, status: int, observer: Observer) -> None:
        counts = {} if observer.counts is None else msgspec.structs.asdict(observer.counts)
        entry = LoggedRequest(
            at=int(time.time() * 1000),
            run=self._id,
            request=request.n,
            role="nested" if request.is_nested else role_of(request),
            model=observer.served or request.model,
            requested_model=request.model,
            status=status,
            free=True,
            **counts,
        )
        if problem := RequestLog(self._id, lambda: (None, None)).add(entry):
            _log.warning("%s", problem)
