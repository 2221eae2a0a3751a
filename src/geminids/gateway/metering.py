"""The upstream behind the door: each request is answered under the lease of its run, watched and counted."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from geminids.gateway.access.authorize import Unauthorized, authorize
from geminids.gateway.forward.forward import NOT_SIGNED_IN
from geminids.gateway.forward.response_observer import Observer
from geminids.gateway.lease import Lease, Leases
from geminids.gateway.limits.activity import Activity, Sent, sketch_of
from geminids.gateway.limits.roles import role_of
from geminids.gateway.messages import Answered, Halt, RequestRole, UnderWay, Waiting
from geminids.gateway.request import Request
from geminids.gateway.script.encode import error_body
from geminids.gateway.upstream import Body, Cut, Head, Mismatch, Part, UpstreamFault, closing
from geminids.log import get_logger
from geminids.spending.budget import BudgetRefusal, Hold
from geminids.spending.token_estimate import counted_bytes

__all__ = ["Leased"]

_log = get_logger("gateway")

# What costs tokens, and says how many or is told by its input.
_BY_TOKEN = ("stream", "generate", "embed")
# Faults before a request could leave.
_NO_CONNECTION = ("dns", "connect", "proxy", "tls")


class Leased:
    """Looks up whose request it is, holds it to the terms of that lease, and tells the run what became of it."""

    def __init__(self, leases: Leases, port: Callable[[], int]) -> None:
        self._leases = leases
        self._port = port

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        try:
            lease = authorize(request, self._leases, self._port())
        except Unauthorized as refused:
            _log.warning("refused a request with %d: %s", refused.status, refused.message)
            for part in _refusal(refused.status, refused.message, close=True):
                yield part
            return
        lease.under_way += 1
        visit = _Visit(lease, request)
        lease.requests[visit.under_way.number] = visit.under_way
        try:
            halt = await visit.admitted()
            if halt is not None:
                _log.warning("refused request %d (%s): %s", request.n, request.model, halt.message)
                for part in _refusal(403, halt.message):
                    yield part
                return
            if visit.early:
                for part in _too_early(visit.early):
                    visit.passed(part)
                    yield part
                visit.over(whole=True)
                return
            visit.send()
            async with closing(lease.upstream.answer(request)) as parts:
                async for part in parts:
                    visit.passed(part)
                    yield part
            visit.over(whole=True)
        except UpstreamFault as fault:
            _log.info("request %d (%s) failed upstream: %s", request.n, request.model, fault)
            visit.over(whole=False, fault=fault)
            # The CLI sees what it would have seen without us: a connection that breaks.
            yield Cut()
        except Mismatch as mismatch:
            _log.warning("refused request %d (%s): %s", request.n, request.model, mismatch.message)
            lease.tell(Halt(kind="mismatch", message=mismatch.message, hint=mismatch.hint))
            for part in _refusal(400, mismatch.message):
                yield part
        except Exception as error:
            _log.error("request %d (%s) failed in the gateway", request.n, request.model, error=error)
            visit.over(whole=False, fault=_own_fault(error))
            yield Cut()
        finally:
            visit.over(whole=False)
            lease.under_way -= 1
            lease.requests.pop(visit.under_way.number, None)
            lease.wake()


class _Visit:
    """One request on its way; told once how it ended, also when its client has gone away."""

    def __init__(self, lease: Lease, request: Request) -> None:
        self._lease = lease
        self._request = request
        self._number = lease.next_number(is_paid=request.is_paid)
        self._came = time.monotonic()
        self._left = self._came
        self._first: float | None = None
        self._head: Head | None = None
        self._observer: Observer | None = None
        self._holds: list[Hold] = []
        self._fault: UpstreamFault | None = None
        self._counted = request.is_paid
        self._over = False
        self._early = 0.0
        """The seconds by which the request came too early for the rate that is kept."""
        self._digest = zlib.crc32(request.raw) if self._counted else 0
        self._role: RequestRole = "nested" if request.is_nested else role_of(request)
        self._size = counted_bytes(request.raw) if lease.budgets else 0
        self._attempt = lease.attempts.get(self._digest, 0) + 1
        self._activity: Activity | None = None
        self._sent = Sent()
        self._turn = 0
        self.under_way = UnderWay(
            self._number,
            request.model,
            self._role,
            is_paid=self._counted,
            attempt=self._attempt,
            body=self._digest,
            came=self._came,
        )

    @property
    def early(self) -> float:
        return self._early

    async def admitted(self) -> Halt | None:
        """Wait for the pace that is kept; say why this request may not leave."""
        lease, request = self._lease, self._request
        if lease.halted is not None:
            self._over = True
            lease.tell(lease.halted)
            return lease.halted
        halt = self._unserved()
        if halt is None and lease.pace is not None and self._counted:
            # Before anything is held: what waits may go away, and has cost nothing then.
            self._early = await lease.pace.wait(request.model or "", self._held_back)
            halt = lease.halted
        if halt is None and not self._early:
            halt = self._unaffordable()
        if halt is not None:
            self._release()
            self._over = True
            lease.tell(halt)
        self._left = self.under_way.left = time.monotonic()
        return halt

    def _held_back(self, seconds: float, why: str) -> None:
        self.under_way.held_until, self.under_way.held_why = time.monotonic() + seconds, why
        self._lease.tell(Waiting(number=self._number, seconds=seconds, reason=why))

    def _unserved(self) -> Halt | None:
        lease, request = self._lease, self._request
        if request.model is not None and not lease.serves(request.model):
            allowed = ", ".join(lease.only_models)
            return Halt(
                kind="model",
                message=f"the CLI asked for model {request.model}, and only {allowed} may be used",
                hint="Name another model, or allow this one with only_models.",
            )
        return None

    def _unaffordable(self) -> Halt | None:
        lease, request = self._lease, self._request
        for budget in lease.budgets if self._counted else ():
            if request.method not in _BY_TOKEN and budget.limits.needs_tokens:
                return _uncountable(request, budget.name)
            hold = budget.take(request.model, self._size)
            if isinstance(hold, BudgetRefusal):
                return Halt(kind=hold.kind, message=hold.message, hint=hold.hint)
            self._holds.append(hold)
        return None

    def send(self) -> None:
        """The request goes to the API: see what it means among those before it."""
        if not self._counted:
            return
        lease = self._lease
        if lease.activity is None:
            lease.activity = Activity()
        self._activity = lease.activity
        self._sent = self._activity.sent(self._number, sketch_of(self._request, self._role))
        lease.turns += self._sent.is_new_turn
        self._turn = lease.turns
        for finding in self._sent.findings:
            lease.tell(finding)

    def passed(self, part: Part) -> None:
        if isinstance(part, (Head, Body)):
            self.under_way.last = time.monotonic()
        if isinstance(part, Head):
            self._first = self.under_way.first = self.under_way.last
            self._head = part
            if self._activity is not None:
                self._activity.began(self._number, part.status)
            self._observer = Observer(part.status, part.headers.get("content-type", ""))
            if not getattr(self._lease.upstream, "wants_body", True):
                self._request.let_go()
        elif isinstance(part, Body) and self._observer is not None:
            self._observer.feed(part.data)

    def over(self, *, whole: bool, fault: UpstreamFault | None = None) -> None:
        if self._over:
            return
        self._over = True
        self._fault = fault
        if self._observer is not None:
            self._observer.finish()
        lease, seen = self._lease, self._observer
        told = self._told(whole)
        if self._activity is not None:
            has_call = seen is not None and seen.calls > 0
            self._activity.ended(self._number, is_whole=whole, has_call=has_call)
        if not self._counted:
            return
        if told.ok:
            lease.attempts.pop(self._digest, None)
        else:
            lease.attempts[self._digest] = self._attempt
        if lease.pace is not None and not self._early:
            if told.status == 429:
                daily = seen is not None and seen.is_daily_quota
                lease.pace.told_to_wait(self._request.model or "", told.retry_after, daily=daily)
            elif told.ok:
                lease.pace.answered(self._request.model or "")
        counts = seen.counts if seen is not None else None
        if not told.sent:
            self._release()
        for hold in self._holds:
            hold.settle(told.served or self._request.model or "", counts, begun=self._has_begun)
        self._holds.clear()
        lease.tell(told)

    @property
    def _was_sent(self) -> bool:
        """Whether the API got the request: not if we held it back, could not sign in, or found no connection."""
        if self._early or (self._head is not None and self._head.kind == NOT_SIGNED_IN):
            return False
        return self._fault is None or self._fault.kind not in _NO_CONNECTION

    @property
    def _has_begun(self) -> bool:
        # Where nothing went wrong and no head has come, only the client has gone: the API was at work.
        return not self._fault if self._head is None else self._head.status < 400

    def _release(self) -> None:
        for hold in self._holds:
            hold.settle(None, None)
        self._holds.clear()

    def _told(self, whole: bool) -> Answered:
        now, seen, request = time.monotonic(), self._observer, self._request
        return Answered(
            number=self._number,
            at=int(time.time() * 1000),
            model=request.model,
            served=seen.served if seen else None,
            role=self._role,
            attempt=self._attempt,
            body=self._digest,
            repeat=self._sent.repeats is not None,
            turn=self._turn,
            status=self._head.status if self._head else None,
            counts=seen.counts if seen else None,
            finish=(seen.finish_reason or seen.block_reason) if seen else None,
            calls=seen.calls if seen else 0,
            thoughts=seen.thoughts if seen else 0,
            waited_ms=int((self._left - self._came) * 1000),
            first_byte_ms=int((self._first - self._left) * 1000) if self._first is not None else None,
            duration_ms=int((now - self._left) * 1000),
            whole=whole,
            sent=self._was_sent,
            held=self._early > 0,
            fault=self._fault.message if self._fault else None,
            error=seen.error if seen else None,
            retry_after=seen.retry_after if seen else None,
        )


def _own_fault(error: Exception) -> UpstreamFault:
    """A failure of the gateway itself. The system's errors (no descriptors left) come before a request is sent: those
    of a connection are `UpstreamFault` already."""
    if isinstance(error, OSError):
        return UpstreamFault("connect", f"the gateway failed: {error.strerror or error}")
    return UpstreamFault("gateway", f"the gateway failed: {type(error).__name__}: {error}")


def _segments(request: Request) -> list[str]:
    return request.path.partition("?")[0].split("/")


def _uncountable(request: Request, whose: str) -> Halt:
    what = _segments(request)[-1]
    return Halt(
        kind="model",
        message=f"what {what} costs is not told in tokens, and {whose} has a budget in tokens or dollars",
        hint="Run without a tool that asks for this, or limit requests in place of tokens and dollars.",
    )


def _too_early(seconds: float) -> tuple[Part, ...]:
    """What the API itself would say to a request that exceeds its rate; the CLI comes again after that time."""
    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{math.ceil(seconds)}s"}
    return _refusal(429, "held back by geminids: the rate of requests_per_minute is used up", [wait])


def _refusal(
    status: int, message: str, details: list[Any] | None = None, *, close: bool = False
) -> tuple[Part, ...]:
    body = error_body(status, message, details=details)
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    if close:
        headers["connection"] = "close"
    return Head(status, headers, "refused"), Body(body)
