"""Turn the gateway's messages into events: requests with tokens and price, failures, waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import Event, Level, Notice, Retry, TokensUsed
from geminids.gateway.messages import Answered, Finding, Halt, Remark, Waiting
from geminids.gateway.request_log import RequestLog
from geminids.gemini.protocol.outcome.hints import hint_for
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.outcome import Failure, FailureKind
from geminids.run.accounting.lease import RunLease
from geminids.run.recorder import RunRecorder

if TYPE_CHECKING:
    import anyio

    from geminids.gateway.messages import InFlightRequest
    from geminids.run.accounting.cost import Prices

__all__ = ["GatewayEvents", "ending_of"]

# How long the end of a run waits for its requests to end. A closed connection ends its request at
# once.
_SETTLE = 1.0
# A filter of the API ended the answer or refused the prompt: the same request would probably be
# filtered again. The names are from `FinishReason` and `BlockedReason` in the CLI's SDK. The CLI
# treats OTHER as a filter too (geminiChat.ts).
_FILTERS = (
    "SAFETY",
    "PROHIBITED_CONTENT",
    "BLOCKLIST",
    "SPII",
    "RECITATION",
    "LANGUAGE",
    "OTHER",
    "JAILBREAK",
    "MODEL_ARMOR",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
)
_PLAIN_FINISH = (None, "STOP", "FINISH_REASON_UNSPECIFIED")
_KINDS: dict[str, FailureKind] = {
    "model": "config",
    "mismatch": "bad_request",
    "gone": "network",
    "unwritable": "config",
}


class GatewayEvents:
    """Reads the gateway's messages during one attempt or turn.

    Passes events to `put`; calls `halt` when the gateway stops the run.

    `halted` is the reason for that. `faults` are the failed requests, newest last. `finish_reason`
    is the API's reason to end the last answer of the main conversation; None if the answer was
    interrupted before the API gave one.
    """

    def __init__(
        self,
        lease: RunLease,
        recorder: RunRecorder,
        prices: Prices,
        log: RequestLog,
        put: Callable[[list[Event]], None],
        halt: Callable[[Halt], None],
    ) -> None:
        self._lease = lease
        self._recorder = recorder
        self._prices = prices
        self._log = log
        self._put = put
        self._halt = halt
        self._first_turn = recorder.turn
        self._turns_before = lease.turns
        self._idle: anyio.Event | None = None
        self.halted: Halt | None = None
        self.faults: list[Answered] = []
        self.failed: tuple[Answered, float] | None = None
        """The last request and when it ended (monotonic), if it failed."""
        self.finish_reason: str | None = None

    @property
    def in_flight(self) -> list[InFlightRequest]:
        """The requests that have not ended."""
        return self._lease.in_flight

    async def watch(self) -> None:
        """Emit events as messages arrive, until cancelled."""
        import anyio

        while True:
            await self._lease.mailbox.wait()
            if not self._prices.loaded:
                # In a thread: loading the price list takes a sixth of a second.
                await anyio.to_thread.run_sync(self._prices.load)
            self.read()
            if self._idle is not None and not self._lease.busy:
                self._idle.set()

    def read(self) -> None:
        """Emit events for the messages that have arrived."""
        events: list[Event] = []
        for message in self._lease.mailbox.take():
            if isinstance(message, Answered):
                events += self._answered(message)
            elif isinstance(message, Finding):
                events += self._finding(message)
            elif isinstance(message, Waiting):
                text = f"request {message.number} waits {message.seconds:.1f} s: {message.reason}"
                events.append(self._notice("info", "waiting", text, message.number, wait_s=message.seconds))
            elif isinstance(message, Remark):
                events.append(self._notice("warning", message.code, message.text, None))
            elif self.halted is None:
                self.halted = message
        if events:
            self._put(events)
        if self.halted is not None:
            self._halt(self.halted)

    async def settle(self) -> None:
        """Wait up to a second for requests whose client has gone, to learn their cost.

        Call it while `watch` runs, which is the only reader of the mailbox.
        """
        import anyio

        if self._lease.busy:
            self._idle = anyio.Event()
            with anyio.move_on_after(_SETTLE):
                await self._idle.wait()

    def finish(self) -> None:
        """Emit the last messages, and the requests that have not ended, with unknown tokens."""
        self.read()
        unended = [
            request for request in self._lease.in_flight if request.is_paid and request.left is not None
        ]
        self._lease.reported_unended.update(request.number for request in unended)
        if any(request.role == "main" for request in unended):
            self.finish_reason = None
        if unended:
            self._put([self._unended(request) for request in unended])

    def explain(self, ending: Ending, *, answer: str) -> Ending:
        """Add what the CLI does not report: it calls every broken connection `fetch failed`, it
        calls a prompt that was blocked after a tool call a success, and on the warm transport a
        filtered answer looks like an empty one."""
        failure = ending.failure
        is_empty = (
            failure.kind == "blocked" if failure else ending.outcome == "success" and not answer.strip()
        )
        if is_empty and self.finish_reason in _FILTERS:
            message = f"the API blocked the answer ({self.finish_reason})"
            failure = failure or Failure(
                kind="blocked", message=message, retryable=False, hint=hint_for("blocked")
            )
            return Ending(
                "failed", message, msgspec.structs.replace(failure, message=message, retryable=False)
            )
        fault = self.faults[-1].fault if self.faults else None
        if failure is None or failure.kind != "network" or fault is None:
            return ending
        text = self._recorder.redact(f"the API could not be reached: {fault}")
        explained = msgspec.structs.replace(failure, message=text)
        return Ending(ending.outcome, explained.message, explained)

    def _answered(self, answer: Answered) -> list[Event]:
        turn = self._turn_of(answer)
        events: list[Event] = []
        self.failed = None if answer.ok else (answer, time.monotonic())
        if not answer.ok:
            events.append(self._failure(answer))
        if answer.number in self._lease.reported_unended:
            return events
        if answer.role == "main":
            self.finish_reason = answer.finish
        if not answer.sent:
            return events
        used = self._used(answer, turn)
        events.append(used)
        if problem := self._log.add(used):
            events.append(self._recorder.notice("warning", "request_log", problem))
        if answer.finish not in _PLAIN_FINISH and answer.ok:
            events.append(self._cut_short(answer, str(answer.finish)))
        return events

    def _used(self, answer: Answered, turn: int) -> TokensUsed:
        failed = answer.status is not None and answer.status >= 400
        # An HTTP error costs nothing. An answer without final usage may have cost anything.
        counts = answer.counts
        unknown = 0 if failed else None
        used = TokensUsed(
            at=answer.at,
            seq=self._recorder.next(),
            attempt=self._recorder.attempt,
            turn=turn,
            request=answer.number,
            model=answer.served or answer.model,
            requested_model=answer.model,
            role=answer.role,
            status=answer.status,
            repeat=answer.repeat,
            input=counts.input if counts else unknown,
            cached=counts.cached if counts else unknown,
            output=counts.output if counts else unknown,
            thinking=counts.thinking if counts else unknown,
            tool=counts.tool if counts else unknown,
            calls=answer.calls,
            thoughts=answer.thoughts,
            waited_ms=answer.waited_ms,
            first_byte_ms=answer.first_byte_ms,
            duration_ms=answer.duration_ms,
        )
        return self._prices.priced(used)

    def _unended(self, request: InFlightRequest) -> TokensUsed:
        return TokensUsed(
            at=int(time.time() * 1000),
            seq=self._recorder.next(),
            attempt=self._recorder.attempt,
            turn=self._recorder.turn,
            request=request.number,
            model=request.model,
            requested_model=request.model,
            role=request.role,
            input=None,
            cached=None,
            output=None,
            thinking=None,
            tool=None,
        )

    def _turn_of(self, answer: Answered) -> int:
        """The turn of a request. A new main request starts a turn, a repeated one does not."""
        return self._first_turn + max(answer.turn - self._turns_before, 1) - 1

    def _finding(self, finding: Finding) -> list[Event]:
        level: Level = "info" if finding.code == "compression" else "warning"
        events: list[Event] = [self._notice(level, finding.code, finding.text, finding.request)]
        if finding.code == "discarded" and (problem := self._log.discarded(finding.request)):
            events.append(self._recorder.notice("warning", "request_log", problem))
        return events

    def _cut_short(self, answer: Answered, finish: str) -> Notice:
        text = f"the answer to request {answer.number} ended with {finish}: it may be incomplete"
        return self._notice("warning", finish.lower(), text, answer.number)

    def _failure(self, answer: Answered) -> Notice:
        request = f"request {answer.number} to {answer.model}"
        level: Level = "warning"
        if answer.status is not None and answer.status >= 400:
            why = f"HTTP {answer.status}" + (f": {answer.error}" if answer.error else "")
        elif answer.fault is not None:
            why = answer.fault
        else:
            why, level = "given up by the CLI before the answer was complete", "info"
        if answer.fault is not None or answer.status is None or answer.status >= 400:
            self.faults.append(answer)
        text = (
            f"{request} failed ({why}), attempt {answer.attempt}"
            if level == "warning"
            else f"{request} was {why}"
        )
        status = answer.status if answer.status and answer.status >= 400 else None
        # The CLI sends these again (retry.ts), unless it has no attempts left.
        is_retried = level == "warning" and (status is None or status in (429, 499) or status >= 500)
        code = "retry" if is_retried else "request"
        return self._notice(level, code, text, answer.number, Retry(answer.attempt, status))

    def _notice(
        self,
        level: Level,
        code: str,
        text: str,
        request: int | None,
        retry: Retry | None = None,
        *,
        wait_s: float | None = None,
    ) -> Notice:
        # An error message of the API may repeat a secret that a tool sent to it.
        text = self._recorder.redact(text)
        return self._recorder.notice(level, code, text, retry, request=request, wait_s=wait_s)


def ending_of(halt: Halt) -> Ending:
    """The ending of a run that the gateway stopped."""
    if halt.kind == "over_budget":
        return Ending("over_budget", f"{halt.message}\n{halt.hint}" if halt.hint else halt.message)
    failure = Failure(
        kind=_KINDS[halt.kind], message=halt.message, retryable=halt.kind == "gone", hint=halt.hint
    )
    return Ending("failed", halt.message, failure)
