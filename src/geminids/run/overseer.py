"""What the gateway sees of a run becomes its events: each request's tokens, what failed, what had to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from geminids.events.ledger import Ledger
from geminids.events.model import Event, Level, Retry, TokensUsed
from geminids.gateway.told import Answered, Halt, Remark, Waiting
from geminids.outcome import Failure, FailureKind
from geminids.run.gate import RunGate
from geminids.wire.endings import Ending

if TYPE_CHECKING:
    import anyio

    from geminids.gateway.under_way import UnderWay

__all__ = ["Overseer", "ending_of"]

# How long the end of a run waits for the end of its requests: a connection that is closed ends its request at once.
_SETTLE = 1.0
# Requests that are paid for.
_ANSWERS = ("stream", "generate")
# So much of a message is enough to know it by; the CLI escapes what comes in later lines of it.
_TELLING = 40
_KINDS: dict[str, FailureKind] = {
    "model": "config",
    "mismatch": "bad_request",
    "gone": "network",
    "unkept": "config",
}


class Overseer:
    """Listens to the mailbox of a run's gate. `put` takes the events, `halt` is called when the run has to end.

    `halted` says why; `faults` are what broke between gateway and API, newest last.
    """

    def __init__(
        self,
        gate: RunGate,
        ledger: Ledger,
        put: Callable[[list[Event]], None],
        halt: Callable[[Halt], None],
    ) -> None:
        self._gate = gate
        self._mailbox = gate.mailbox
        self._ledger = ledger
        self._put = put
        self._halt = halt
        self._bodies: list[int] = []
        self._first_turn = ledger.turn
        self._idle: anyio.Event | None = None
        self.halted: Halt | None = None
        self.faults: list[Answered] = []
        self.failed: tuple[Answered, float] | None = None
        """The request that failed last, and when (monotonic), until one has gone well."""
        ledger.aside = []

    @property
    def under_way(self) -> list[UnderWay]:
        """The requests that have not come to their end, as they stand now."""
        return self._gate.under_way

    async def watch(self) -> None:
        """Tell what comes, as it comes."""
        while True:
            await self._mailbox.wait()
            self.look()
            if self._idle is not None and not self._gate.busy:
                self._idle.set()

    def look(self) -> None:
        """Tell what has come."""
        events: list[Event] = []
        for told in self._mailbox.take():
            if isinstance(told, Answered):
                events += self._answered(told)
            elif isinstance(told, Waiting):
                text = f"request {told.number} waits for {told.seconds:.1f} s: {told.reason}"
                events.append(self._ledger.notice("info", "waiting", text))
            elif isinstance(told, Remark):
                events.append(self._ledger.notice("warning", told.code, told.text))
            elif self.halted is None:
                self.halted = told
                self._ledger.stopped = told.message[:_TELLING]
        if events and self._gate.errands is not None:
            events += self._gate.errands.note(events)
        if events:
            self._put(events)
        if self.halted is not None:
            self._halt(self.halted)

    def _answered(self, told: Answered) -> list[Event]:
        turn = self._turn_of(told)
        events: list[Event] = []
        self.failed = None if told.ok else (told, time.monotonic())
        if not told.ok:
            events.append(self._failure(told))
        if told.method in _ANSWERS and _is_uncounted(told):
            self._ledger.uncounted += 1
        if told.counts is not None:
            counts = told.counts
            events.append(
                TokensUsed(
                    at=told.at,
                    seq=self._ledger.next(),
                    attempt=self._ledger.attempt,
                    turn=turn,
                    model=told.served or told.model,
                    role=told.role,
                    input=counts.input,
                    cached=counts.cached,
                    output=counts.output,
                    thinking=counts.thinking,
                    tool=counts.tool,
                    request=told.number,
                    waited_ms=told.waited_ms,
                    first_byte_ms=told.first_byte_ms,
                    duration_ms=told.duration_ms,
                )
            )
        return events

    def _turn_of(self, told: Answered) -> int:
        """Each new question of the main conversation is a turn; the same one asked again is not."""
        if told.role != "main":
            return max(self._ledger.turn, self._first_turn + len(self._bodies) - 1)
        if told.body not in self._bodies[-1:]:
            self._bodies.append(told.body)
        return self._first_turn + len(self._bodies) - 1

    def _failure(self, told: Answered) -> Event:
        what = f"request {told.number} to {told.model}"
        level: Level = "warning"
        if told.status is not None and told.status >= 400:
            why = f"HTTP {told.status}" + (f": {told.error}" if told.error else "")
        elif told.fault is not None:
            why = told.fault
        else:
            why, level = "given up by the CLI before the answer was whole", "info"
        if told.fault is not None or told.status is None or told.status >= 400:
            self.faults.append(told)
        text = f"{what} failed ({why}), attempt {told.attempt}" if level == "warning" else f"{what} was {why}"
        retry = Retry(told.attempt, told.status if told.status and told.status >= 400 else None)
        return self._ledger.notice(level, "retry" if level == "warning" else "request", text, retry)

    def explained(self, ending: Ending) -> Ending:
        """The ending, with what the gateway knows better: the CLI calls every broken way `fetch failed`."""
        failure = ending.failure
        fault = self.faults[-1].fault if self.faults else None
        if failure is None or failure.kind != "network" or fault is None:
            return ending
        told = msgspec.structs.replace(failure, message=f"the API could not be reached: {fault}")
        return Ending(ending.outcome, told.message, told)

    async def settle(self) -> None:
        """Wait a moment for requests whose client is gone: what they have cost is told when they end.

        While `watch` goes on: there is one reader of the mailbox.
        """
        import anyio

        if self._gate.busy:
            self._idle = anyio.Event()
            with anyio.move_on_after(_SETTLE):
                await self._idle.wait()
            self._ledger.uncounted += self._gate.busy


def _is_uncounted(told: Answered) -> bool:
    """Whether it may have cost what nobody has told: an error costs nothing, an answer that was cut may."""
    failed = told.status is not None and told.status >= 400
    return not failed and (told.counts is None or not told.whole)


def ending_of(halt: Halt) -> Ending:
    """What it means for a run that the gateway has stopped it."""
    if halt.kind == "over_budget":
        return Ending("over_budget", f"{halt.message}\n{halt.hint}" if halt.hint else halt.message)
    kind = _KINDS[halt.kind]
    failure = Failure(kind=kind, message=halt.message, retryable=halt.kind == "gone", hint=halt.hint)
    return Ending("failed", halt.message, failure)
