"""One attempt of a run: what both transports implement, and the facts that an attempt ends with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from geminids.events.model import Decision, EndedProcess, Level, Usage
from geminids.events.stall import Stall
from geminids.gemini.protocol.outcome.judge import Ending
from geminids.launch.workspace import WorkspaceItem
from geminids.run.accounting.cost import Prices
from geminids.run.stopping import StopReason

if TYPE_CHECKING:
    from geminids.process.marker import Mark

__all__ = ["Attempt", "AttemptFacts", "workspace_notices"]


class AttemptFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt came to. Made once, when the attempt is over."""

    ending: Ending
    stop: StopReason | None = None
    """Why it was stopped, if it was."""
    session_id: str | None = None
    exit_code: int | None = None
    ended: tuple[EndedProcess, ...] = ()
    """Processes that had to be terminated."""
    complete: bool = False
    """Whether the events hold all that the session's journal does."""
    decisions: tuple[Decision, ...] = ()
    usage: Usage | None = None
    prices: Prices | None = None
    finish_reason: str | None = None
    was_sent: bool = True
    """Whether the prompt was sent: False if no session could be opened."""
    stall: Stall | None = None
    """What it waited for, if its silence ended it."""


class Attempt(Protocol):
    """One attempt on one transport. `start` is synchronous: the CLI loads while Python still imports."""

    @property
    def pid(self) -> int | None: ...
    @property
    def mark(self) -> Mark | None:
        """What every process of the attempt carries in its environment."""

    @property
    def session_id(self) -> str | None: ...
    def start(self) -> None:
        """Spawn the CLI if the attempt needs a new process; raises OSError."""

    async def drive(self) -> None:
        """Run the attempt to its end. Afterwards nothing of it is left running, except on purpose."""

    def stop(self, reason: StopReason) -> None:
        """Ask for the end; a second call of the caller skips the grace period."""

    def facts(self) -> AttemptFacts:
        """What it came to; also after `drive` was interrupted."""


_CODE = "workspace"


def workspace_notices(found: Sequence[WorkspaceItem]) -> Iterator[tuple[Level, str, str]]:
    """Level, code and text for what an untrusted folder contains and this run ignores: a summary, then each item.

    An `.env` file that does not mention Gemini gets no summary.
    """
    if any(one.kind != "env file" or one.name for one in found):
        kinds = Counter(one.kind for one in found)
        counted = ", ".join(_counted(kind, count) for kind, count in kinds.items())
        text = f"this folder is not trusted, and so without power: {counted} (trust_workspace gives it)"
        yield "warning", _CODE, text
    for one in found:
        yield "info", _CODE, f"{one} has no power in this run"


def _counted(kind: str, count: int) -> str:
    if count == 1:
        return f"1 {kind}"
    return f"{count} {kind.removesuffix('y')}ies" if kind.endswith("y") else f"{count} {kind}s"
