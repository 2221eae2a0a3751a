"""The budget of one run or turn: kept by the gateway, which sees each request, or by what the events tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from geminids.events.ledger import Ledger
from geminids.events.model import Event, TokensUsed, Usage
from geminids.run.overseer import Overseer
from geminids.run.usage import counted, settled
from geminids.wire.endings import Ending

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from geminids.gateway.told import Halt
    from geminids.run.gate import RunGate

__all__ = ["RunBudget", "used_up"]

OnHalt = Callable[["Halt"], None]


class RunBudget:
    """Who keeps the budget, if anybody does. `halt` is called when the gateway has let a request go no further, and
    `spent` when the events tell that there is no room for the next one, which nobody else will stop."""

    def __init__(
        self,
        gate: RunGate | None,
        ledger: Ledger,
        put: Callable[[list[Event]], None],
        halt: OnHalt,
        spent: OnHalt,
    ) -> None:
        overseen = gate is not None and gate.lease is not None
        self.overseer = Overseer(gate, ledger, put, halt) if gate is not None and overseen else None
        self._allowance = gate.allowance() if gate is not None else None
        self._spent = spent

    @property
    def hurry(self) -> Callable[[], bool] | None:
        """Says whether the tokens of a request are waited for; None where nobody waits for them."""
        return None if self._allowance is None else self._allowance.is_behind

    def begin(self) -> Halt | None:
        """Why not even a first request may leave."""
        return None if self._allowance is None else self._allowance.begin()

    def hear(self, events: Sequence[Event]) -> None:
        """Count what is told."""
        if self._allowance is not None and (halt := self._allowance.hear(events)):
            self._spent(halt)

    def halted(self, reason: str | None) -> Halt | None:
        """What has stopped it, where that was its budget or the gateway; `reason` is why it was stopped."""
        if self.overseer is not None:
            return self.overseer.halted
        halted = self._allowance.halted if self._allowance is not None else None
        # The allowance counts to the end: what it finds when all is over has stopped nothing.
        return halted if halted is not None and halted.message == reason else None

    def watch(self, tasks: TaskGroup) -> None:
        """Hear the gateway, as long as the run goes on."""
        if self.overseer is not None:
            tasks.start_soon(self.overseer.watch)

    async def settle(self) -> None:
        """Wait a moment for what the last requests have cost."""
        if self.overseer is not None:
            await self.overseer.settle()

    def finish(self) -> None:
        """Hear what the gateway has told last."""
        if self.overseer is not None:
            self.overseer.look()

    def explained(self, ending: Ending) -> Ending:
        """The ending, with what the gateway knows better."""
        return ending if self.overseer is None else self.overseer.explained(ending)


def used_up(
    known: Sequence[TokensUsed], written: Sequence[TokensUsed] | None, ledger: Ledger
) -> tuple[list[TokensUsed], Usage | None]:
    """The usage of a run that was killed for its budget, before the CLI could sum up (see `usage.settled`).

    How many requests it was nobody says: one more may have been on its way.
    """
    new, _ = settled(None, known, written, ledger)
    return new, counted([*known, *new], (None, None), ledger, each=False)[1]
