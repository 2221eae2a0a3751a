"""Handle a request of the CLI: authenticate it, apply the limits of its run, forward it to the API,
and record what it used.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from geminids.gateway.access.authorize import Unauthorized, authorize
from geminids.gateway.forward.forward import NOT_SIGNED_IN
from geminids.gateway.forward.response_observer import Observer
from geminids.gateway.lease import Lease, Leases
from geminids.gateway.limits.activity import Activity, Sent, fingerprint_of
from geminids.gateway.limits.roles import declared_tools, role_of
from geminids.gateway.messages import Answered, Halt, InFlightRequest, RequestRole, Waiting
from geminids.gateway.request import Request
from geminids.gateway.script.encode import error_body
from geminids.gateway.upstream import (
    FREE_HEADER,
    Body,
    Cut,
    Head,
    Mismatch,
    Part,
    UpstreamFault,
    closing,
    is_free,
    with_header,
)
from geminids.log import get_logger
from geminids.spending.budget import BudgetRefusal, Hold
from geminids.spending.token_estimate import counted_bytes

__all__ = ["MeteredUpstream"]

_log = get_logger("gateway")

# API methods whose token counts are known: the answer reports them, or they can be estimated from
# the input.
_BY_TOKEN = ("stream", "generate", "embed")
# Requests of these roles are sent as often as the CLI's setting `general.maxAttempts` says. The run in
# a tool (`nested`) has its own limit.
_LIMITED_BY_SETTING = ("main", "subagent", "nested")
# Kinds of `UpstreamFault` that happen before the request is sent to the API.
_NO_CONNECTION = ("dns", "connect", "proxy", "tls")


class MeteredUpstream:
    """Answers the requests of all runs. It finds the lease of each request (the run's right to use
    the gateway), applies the limits of the run, forwards the request, and reports the result to the
    run.
    """

    def __init__(self, leases: Leases, port: Callable[[], int]) -> None:
        self._leases = leases
        self._port = port

    async def answer(self, request: Request) -> AsyncIterator[Part]:
        try:
            lease = authorize(request, self._leases, self._port())
        except Unauthorized as refusal:
            _log.warning("refused a request with HTTP %d: %s", refusal.status, refusal.message)
            for part in _refusal(refusal.status, refusal.message, close=True):
                yield part
            return
        lease.in_flight_count += 1
        metered = _MeteredRequest(lease, request)
        lease.requests[metered.in_flight.number] = metered.in_flight
        try:
            halt = await metered.admit()
            if halt is not None:
                _log.warning("refused request %d (%s): %s", request.n, request.model, halt.message)
                for part in _refusal(403, halt.message):
                    yield part
                return
            if metered.rate_limited_for:
                for part in _rate_limited(metered.rate_limited_for):
                    metered.observe(part)
                    yield part
                metered.end(whole=True)
                return
            metered.send()
            held: list[Part] = []
            async with closing(lease.upstream.answer(request)) as parts:
                async for part in parts:
                    if isinstance(part, Head) and is_free(lease.upstream):
                        part = with_header(part, FREE_HEADER, "")
                    metered.observe(part)
                    if metered.is_last_attempt and isinstance(part, (Head, Body)):
                        held.append(part)
                    else:
                        yield part
            metered.end(whole=True)
            for part in metered.without_retry(held):
                yield part
        except UpstreamFault as fault:
            _log.info("request %d (%s) got no complete answer: %s", request.n, request.model, fault)
            metered.end(whole=False, fault=fault)
            # Break the connection: without a gateway, the CLI would see the same. But the CLI would
            # then send the request again.
            for part in metered.last_answer(fault.message) if metered.is_last_attempt else (Cut(),):
                yield part
        except Mismatch as mismatch:
            _log.warning("refused request %d (%s): %s", request.n, request.model, mismatch.message)
            lease.report(Halt(kind="mismatch", message=mismatch.message, hint=mismatch.hint))
            for part in _refusal(400, mismatch.message):
                yield part
        except Exception as error:
            _log.error("request %d (%s): error in the gateway", request.n, request.model, error=error)
            metered.end(whole=False, fault=_own_fault(error))
            yield Cut()
        finally:
            metered.end(whole=False)
            lease.in_flight_count -= 1
            lease.requests.pop(metered.in_flight.number, None)
            lease.wake()


class _MeteredRequest:
    """One request of a run, from its arrival to its end. `end` is called in all cases, even if the
    client has disconnected. The first call of `end` reports the result of a paid request to the
    run; later calls have no effect.
    """

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
        self._is_paid = request.is_paid
        self._has_ended = False
        self._rate_limited_for = 0.0
        """The seconds until `requests_per_minute` would allow the request; 0 if the request may be
        sent."""
        self._digest = zlib.crc32(request.raw) if self._is_paid else 0
        self._role: RequestRole = "nested" if request.is_nested else role_of(request)
        self._size = counted_bytes(request.raw) if lease.budgets else 0
        self._attempt = lease.attempts.get(self._digest, 0) + 1
        self._activity: Activity | None = None
        self._sent = Sent()
        self._turn = 0
        self.in_flight = InFlightRequest(
            self._number,
            request.model,
            self._role,
            is_paid=self._is_paid,
            attempt=self._attempt,
            body=self._digest,
            came=self._came,
        )

    @property
    def rate_limited_for(self) -> float:
        return self._rate_limited_for

    @property
    def is_last_attempt(self) -> bool:
        """Whether the CLI must not send this request again, but would do so after a failure.

        The CLI's setting `general.maxAttempts` applies only to conversations. It sends all other
        requests up to five times, with pauses of up to 30 s (baseLlmClient.ts, 0.61.0).
        """
        limit = self._lease.max_attempts
        is_utility = self._is_paid and self._role not in _LIMITED_BY_SETTING
        return is_utility and limit is not None and self._attempt >= limit

    def without_retry(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Return the parts of an answer. If it is an error after which the CLI would send the
        request again, return an error after which it does not.
        """
        status = self._head.status if self._head is not None else 200
        if not parts or not (status in (429, 499) or status >= 500):
            return parts
        error = self._observer.error if self._observer is not None else None
        return self.last_answer(f"HTTP {status}" + (f": {error}" if error else ""))

    def last_answer(self, why: str) -> Sequence[Part]:
        """Return an error after which the CLI does not send this request again (retry.ts)."""
        return _refusal(400, f"{why} (attempt {self._attempt} of {self._lease.max_attempts})")

    async def admit(self) -> Halt | None:
        """Wait until the rate limit allows the request, and reserve its cost in the budgets. Return
        a `Halt` message with the reason if the run must end; otherwise None.

        If the result is None, the caller must check `rate_limited_for`. If this is 0, the request
        may be sent. If it is above 0, the rate limit would delay the request for too long: no cost
        is reserved, and the request must not be sent.
        """
        lease, request = self._lease, self._request
        if self._role == "main" and lease.tools is None:
            lease.tools = declared_tools(request)
            lease.wake()
        if lease.halted is not None:
            self._has_ended = True
            lease.report(lease.halted)
            return lease.halted
        halt = self._check_model()
        if halt is None and lease.rate_limiter is not None and self._is_paid:
            # Wait first and reserve the cost later: if the client disconnects during the wait,
            # nothing is reserved.
            self._rate_limited_for = await lease.rate_limiter.wait(request.model or "", self._report_wait)
            halt = lease.halted
        if halt is None and not self._rate_limited_for:
            halt = self._reserve_budgets()
        if halt is not None:
            self._release()
            self._has_ended = True
            lease.report(halt)
        self._left = self.in_flight.left = time.monotonic()
        return halt

    def _report_wait(self, seconds: float, reason: str) -> None:
        self.in_flight.held_until, self.in_flight.held_why = time.monotonic() + seconds, reason
        self._lease.report(Waiting(number=self._number, seconds=seconds, reason=reason))

    def _check_model(self) -> Halt | None:
        lease, request = self._lease, self._request
        if request.model is not None and not lease.serves(request.model):
            allowed = ", ".join(lease.only_models)
            return Halt(
                kind="model",
                message=f"the CLI requested model {request.model}, but only {allowed} may be used",
                hint="Use another model, or add this one to `only_models`.",
            )
        return None

    def _reserve_budgets(self) -> Halt | None:
        lease, request = self._lease, self._request
        for budget in lease.budgets if self._is_paid else ():
            if request.method not in _BY_TOKEN and budget.limits.needs_tokens:
                return _uncountable(request, budget.name)
            hold = budget.take(request.model, self._size, is_free=is_free(lease.upstream))
            if isinstance(hold, BudgetRefusal):
                return Halt(kind=hold.kind, message=hold.message, hint=hold.hint)
            self._holds.append(hold)
        return None

    def send(self) -> None:
        """Record that the request is about to be sent to the API, and compare it with earlier
        requests. Report to the run what the comparison shows about the CLI's hidden activity, such
        as a repeated request. Do nothing if the API does not charge for the request.
        """
        if not self._is_paid:
            return
        lease = self._lease
        if lease.activity is None:
            lease.activity = Activity()
        self._activity = lease.activity
        self._sent = self._activity.sent(self._number, fingerprint_of(self._request, self._role))
        lease.turns += self._sent.is_new_turn
        self._turn = lease.turns
        for finding in self._sent.findings:
            lease.report(finding)

    def observe(self, part: Part) -> None:
        if isinstance(part, (Head, Body)):
            self.in_flight.last = time.monotonic()
        if isinstance(part, Head):
            self._first = self.in_flight.first = self.in_flight.last
            self._head = part
            if self._activity is not None:
                self._activity.began(self._number, part.status)
            self._observer = Observer(part.status, part.headers.get("content-type", ""))
            if not getattr(self._lease.upstream, "wants_body", True):
                self._request.drop_body()
        elif isinstance(part, Body) and self._observer is not None:
            self._observer.feed(part.data)

    def end(self, *, whole: bool, fault: UpstreamFault | None = None) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        self._fault = fault
        if self._observer is not None:
            self._observer.finish()
        lease, observer = self._lease, self._observer
        ended = self._summary(whole)
        if self._activity is not None:
            has_call = observer is not None and observer.calls > 0
            self._activity.ended(self._number, is_whole=whole, has_call=has_call)
        if not self._is_paid:
            return
        if ended.ok:
            lease.attempts.pop(self._digest, None)
        else:
            lease.attempts[self._digest] = self._attempt
        if lease.rate_limiter is not None and not self._rate_limited_for:
            if ended.status == 429:
                daily = observer is not None and observer.is_daily_quota
                lease.rate_limiter.back_off(self._request.model or "", ended.retry_after, daily=daily)
            elif ended.ok:
                lease.rate_limiter.answered(self._request.model or "")
        counts = observer.counts if observer is not None else None
        if not ended.sent:
            self._release()
        for hold in self._holds:
            model = ended.served or self._request.model or ""
            hold.settle(model, counts, begun=self._has_begun, is_free=ended.free_as is not None)
        self._holds.clear()
        lease.report(ended)

    @property
    def _was_sent(self) -> bool:
        """Whether the request reached the API. This is False if the gateway's rate limit stopped
        the request, or if the sign-in or the connection failed.
        """
        if self._rate_limited_for or (self._head is not None and self._head.kind == NOT_SIGNED_IN):
            return False
        return self._fault is None or self._fault.kind not in _NO_CONNECTION

    @property
    def _has_begun(self) -> bool:
        # If there is neither a head nor a fault, the client disconnected while the API was
        # computing the answer: the request has a cost.
        return not self._fault if self._head is None else self._head.status < 400

    def _release(self) -> None:
        for hold in self._holds:
            hold.settle(None, None)
        self._holds.clear()

    def _summary(self, whole: bool) -> Answered:
        now, observer, request = time.monotonic(), self._observer, self._request
        return Answered(
            number=self._number,
            at=int(time.time() * 1000),
            model=request.model,
            served=observer.served if observer else None,
            role=self._role,
            attempt=self._attempt,
            body=self._digest,
            repeat=self._sent.repeats is not None,
            turn=self._turn,
            status=self._head.status if self._head else None,
            counts=observer.counts if observer else None,
            finish=(observer.finish_reason or observer.block_reason) if observer else None,
            calls=observer.calls if observer else 0,
            thoughts=observer.thoughts if observer else 0,
            waited_ms=int((self._left - self._came) * 1000),
            first_byte_ms=int((self._first - self._left) * 1000) if self._first is not None else None,
            duration_ms=int((now - self._left) * 1000),
            whole=whole,
            free_as=self._head.headers.get(FREE_HEADER) if self._head else None,
            sent=self._was_sent,
            held=self._rate_limited_for > 0,
            fault=self._fault.message if self._fault else None,
            error=observer.error if observer else None,
            retry_after=observer.retry_after if observer else None,
        )


def _own_fault(error: Exception) -> UpstreamFault:
    """Convert an error in the gateway itself to an `UpstreamFault`.

    An `OSError`, for example because no file descriptor is free, gets the kind `connect`. This kind
    means that the request was not sent. (An `OSError` of an open connection was already converted
    to an `UpstreamFault` before.)
    """
    if isinstance(error, OSError):
        return UpstreamFault("connect", f"the gateway failed: {error.strerror or error}")
    return UpstreamFault("gateway", f"the gateway failed: {type(error).__name__}: {error}")


def _segments(request: Request) -> list[str]:
    return request.path.partition("?")[0].split("/")


def _uncountable(request: Request, budget_name: str) -> Halt:
    method = _segments(request)[-1]
    return Halt(
        kind="model",
        message=f"the API does not report the tokens of `{method}`, but {budget_name} has a budget in tokens or "
        "dollars",
        hint="Deny the tool that sends this request, or use a budget that limits only the number of requests.",
    )


def _rate_limited(seconds: float) -> tuple[Part, ...]:
    """Return an HTTP 429 answer that looks like an answer of the API. This answer makes the CLI
    send the request again after this number of `seconds`.
    """
    wait = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{math.ceil(seconds)}s"}
    return _refusal(429, "delayed by geminids: the limit `requests_per_minute` is reached", [wait])


def _refusal(
    status: int, message: str, details: list[Any] | None = None, *, close: bool = False
) -> tuple[Part, ...]:
    body = error_body(status, message, details=details)
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    if close:
        headers["connection"] = "close"
    return Head(status, headers, "refused"), Body(body)
