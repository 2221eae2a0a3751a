"""Convert the gateway's messages into events: requests with tokens and price, failures, waits.

The gateway is the local server to which the CLI sends its requests.
"""

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

# When a run ends, it waits at most this many seconds for the end of its requests. They end soon,
# because the CLI has closed its connections.
_SETTLE = 1.0
# While the price list is being loaded (once in a process), check this often, in seconds, whether
# the CLI has declared its tools.
_TICK = 0.005
# These finish reasons mean that a filter of the API ended the answer or refused the prompt. The
# filter would probably do so again for the same request. The names are from `FinishReason` and
# `BlockedReason` in the CLI's SDK. The CLI treats OTHER as a filter too (geminiChat.ts of Gemini
# CLI).
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
    """Converts the gateway's messages about one attempt, or about one turn of a chat, into events.

    The events are passed to `put`. When the gateway stops the run, `halt` is called with the
    gateway's message, and `halted` contains that message; before that, `halted` is None. `faults`
    are the failed requests, the newest last.
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
        self._has_reported_tools = False
        lease.begin_attempt()
        self._idle: anyio.Event | None = None
        self.halted: Halt | None = None
        self.faults: list[Answered] = []
        self.failed: tuple[Answered, float] | None = None
        """The last ended request, with the time of its end (monotonic), if that request failed.

        None if it succeeded, or if no request has ended yet.
        """
        self.finish_reason: str | None = None
        """The reason with which the API ended its last answer, such as `STOP`.

        Only answers in the main conversation count, not those of subagents. None if there is no
        answer, or if the last one was interrupted before the API sent the reason.
        """

    @property
    def in_flight(self) -> list[InFlightRequest]:
        """The requests that the CLI has sent to the gateway and that have not ended."""
        return self._lease.in_flight

    async def watch(self) -> None:
        """Wait for messages of the gateway and emit their events, until cancelled."""

        while True:
            await self._lease.queue.wait()
            # Report the tools before the prices are loaded, which takes time: the notice must be
            # emitted before the first output.
            self._report_tools()
            if not self._prices.loaded:
                await self._load_prices()
            self.read()
            if self._idle is not None and not self._lease.busy:
                self._idle.set()

    async def _load_prices(self) -> None:
        """Load the price list. Meanwhile, report which tools the CLI offers to the model, as soon
        as this is known.
        """
        import anyio

        async with anyio.create_task_group() as tasks:
            # Use a thread, because loading the price list takes a sixth of a second.
            tasks.start_soon(anyio.to_thread.run_sync, self._prices.load)
            while not self._prices.loaded:
                self._report_tools()
                await anyio.sleep(_TICK)

    def read(self) -> None:
        """Emit events for the messages that have arrived since the last call."""
        self._report_tools()
        events: list[Event] = []
        for message in self._lease.queue.take():
            if isinstance(message, Answered):
                events += self._answered(message)
            elif isinstance(message, Finding):
                events += self._finding(message)
            elif isinstance(message, Waiting):
                events.append(self._waiting(message))
            elif isinstance(message, Remark):
                events.append(self._notice("warning", message.code, message.text, None))
            elif self.halted is None:
                self.halted = message
        if events:
            self._put(events)
        if self.halted is not None:
            self._halt(self.halted)

    async def settle(self) -> None:
        """Wait up to a second for the end of open requests, so that their cost is known.

        Call this after the CLI has closed its connections, because its open requests then end soon.
        Call it while `watch` runs, because only `watch` reads the messages of the gateway.
        """
        import anyio

        if self._lease.busy:
            self._idle = anyio.Event()
            with anyio.move_on_after(_SETTLE):
                await self._idle.wait()

    def finish(self) -> None:
        """Emit the events of the last messages, and an event for each request that has not ended.

        The token counts of a request that has not ended are unknown.
        """
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
        """Return `ending`, with a more exact reason if the gateway knows one.

        `ending` is what the CLI reported, and `answer` is the text of its answer. In two cases, the
        gateway knows more than the CLI:
        - A connection to the API breaks. The CLI reports only `fetch failed`.
        - The API's filter blocks the prompt or the answer. The CLI may report success, with an
          empty answer.
        """
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

    def _report_tools(self) -> None:
        """Emit a notice with the tools that the CLI has declared to the model.

        The notice is emitted only once, after the first request of the attempt.
        """
        tools = self._lease.tools
        if self._has_reported_tools or tools is None:
            return
        self._has_reported_tools = True
        noun = "tool" if len(tools) == 1 else "tools"
        text = f"the CLI declared {len(tools)} {noun} to the model"
        self._put([self._recorder.notice("debug", "tools", text, tools=tools)])

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
        if problem := self._log.add(used, known_as=answer.free_as):
            events.append(self._recorder.notice("warning", "request_log", problem))
        if answer.finish not in _PLAIN_FINISH and answer.ok:
            events.append(self._cut_short(answer, str(answer.finish)))
        return events

    def _used(self, answer: Answered, turn: int) -> TokensUsed:
        failed = answer.status is not None and answer.status >= 400
        # A request with an HTTP error costs nothing. If an answer has no final token count, its
        # cost is unknown.
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
            free=answer.free_as is not None,
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
        """Return the number of the turn to which the answered request belongs.

        Each new request of the main conversation starts a turn. A retry of an earlier request
        belongs to the turn of that request.
        """
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
        # After these failures, the CLI sends the request again (retry.ts of Gemini CLI), unless
        # this was the last attempt.
        is_retried = level == "warning" and (status is None or status in (429, 499) or status >= 500)
        code = "retry" if is_retried else "request"
        return self._notice(level, code, text, answer.number, Retry(answer.attempt, status))

    def _waiting(self, message: Waiting) -> Notice:
        reason = self._recorder.redact(message.reason)
        return self._recorder.notice(
            "info",
            "waiting",
            f"request {message.number} waits {message.seconds:.1f} s: {reason}",
            request=message.number,
            wait_s=message.seconds,
            wait_reason=reason,
        )

    def _notice(
        self, level: Level, code: str, text: str, request: int | None, retry: Retry | None = None
    ) -> Notice:
        # An error message of the API may contain a secret that a tool sent to the API.
        return self._recorder.notice(level, code, self._recorder.redact(text), retry, request=request)


def ending_of(halt: Halt) -> Ending:
    """Return the ending of a run that the gateway stopped. `halt` is the gateway's message."""
    if halt.kind == "over_budget":
        hint = halt.hint or hint_for("over_budget")
        failure = Failure(kind="over_budget", message=halt.message, retryable=False, hint=hint)
        return Ending("over_budget", halt.message, failure)
    failure = Failure(
        kind=_KINDS[halt.kind], message=halt.message, retryable=halt.kind == "gone", hint=halt.hint
    )
    return Ending("failed", halt.message, failure)
