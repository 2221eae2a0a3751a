"""The result of a run: what `Finished` said, with the questions that callers ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

import msgspec

from geminids.errors import RunFailed
from geminids.events.cost import Cost
from geminids.events.fold import turns_of
from geminids.events.model import Decision, EndedProcess, Finished, Turn, Usage
from geminids.events.stall import Stall
from geminids.outcome import Failure, Outcome

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar  # without a default before Python 3.13, and nobody asks for it when it runs

    T = TypeVar("T")

__all__ = ["Result"]

_SHOWN = 200


class Result(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """How a run ended. `ask` never raises for that; `raise_for_failure` does, where you want it."""

    run_id: str
    outcome: Outcome
    failure: Failure | None
    reason: str | None
    text: str
    answer: str
    session_id: str | None
    clear_session: bool
    usage: Usage | None
    attempts: int
    exit_code: int | None
    duration_ms: int
    ended: tuple[EndedProcess, ...]
    complete: bool
    decisions: tuple[Decision, ...] = ()
    """The audit trail: every permission that was asked for."""
    cost: Cost | None = None
    """What it costs, all attempts together; None where nothing was started."""
    value: T = None  # type: ignore[assignment]
    """The answer as a schema asked for it, of the caller's own type where one was given; None unless `ok`."""
    stall: Stall | None = None
    """What a run waited for that was ended for its silence (`idle_timeout`, `start_timeout`)."""
    finish_reason: str | None = None
    """The API's word for the last answer of the main conversation: `STOP`, `MAX_TOKENS`, `SAFETY` and so on."""
    discarded: tuple[int, ...] = ()
    """The numbers of the requests whose answers the CLI discarded. They are paid for."""
    conversation: bytes = b""
    """What `turns` is made of, packed: most callers never ask, and the values would take much more memory."""

    @classmethod
    def of(cls, finished: Finished, conversation: bytes = b"") -> Result:
        given = {name: getattr(finished, name) for name in cls.__struct_fields__ if name != "conversation"}
        return cls(**given, conversation=conversation)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The conversation of the last attempt in its true order (the events come in the order of arrival).

        Made anew each time: keep it in a variable.
        """
        return turns_of(self.text, self.conversation)

    def __repr__(self) -> str:
        # Texts are cut: when asyncio.run is over it formats what its task returned (signal.getsignal makes an
        # enum of the handler, and of that failure a message that is thrown away), all megabytes of it.
        shown = (f"{name}={_short(getattr(self, name))}" for name in self.__struct_fields__)
        return f"Result({', '.join(shown)})"

    @property
    def ok(self) -> bool:
        return self.outcome == "success"

    def raise_for_failure(self) -> Result[T]:
        """Raise `RunFailed` unless the run succeeded; return the result itself, so that calls chain."""
        if self.ok:
            return self
        what = f"{self.outcome} ({self.failure.kind})" if self.failure else self.outcome
        hint = self.failure.hint if self.failure else None
        raise RunFailed(f"{what}: {self.reason or 'no reason known'}", result=self, hint=hint)


def _short(value: object) -> str:
    if isinstance(value, bytes):
        return f"({len(value)} bytes)"
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"{value[:_SHOWN]!r}... ({len(value)} characters)"
    return repr(value)
