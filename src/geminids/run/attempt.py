"""One attempt of a run: the interface of both transports, and the facts at its end."""

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
    """How an attempt ended. Built once, at its end."""

    ending: Ending
    stop: StopReason | None = None
    """Why it was stopped, if it was."""
    session_id: str | None = None
    exit_code: int | None = None
    ended: tuple[EndedProcess, ...] = ()
    """Processes that had to be terminated."""
    complete: bool = False
    """Whether the events contain everything that the session's journal does."""
    decisions: tuple[Decision, ...] = ()
    usage: Usage | None = None
    prices: Prices | None = None
    finish_reason: str | None = None
    was_sent: bool = True
    """Whether the prompt was sent: False if no session could be opened."""
    stall: Stall | None = None
    """What it waited for, if it was stopped for its silence."""


class Attempt(Protocol):
    """One attempt on one transport.

    `start` is synchronous, so that the CLI loads while Python still imports.
    """

    @property
    def pid(self) -> int | None: ...
    @property
    def mark(self) -> Mark | None:
        """The mark in the environment of every process of the attempt."""

    @property
    def session_id(self) -> str | None: ...
    def start(self) -> None:
        """Spawn the CLI if the attempt needs a new process; raises OSError."""

    async def drive(self) -> None:
        """Run the attempt to its end.

        Afterwards none of its processes runs, except those kept on purpose.
        """

    def stop(self, reason: StopReason) -> None:
        """Stop the attempt; a second call with kind `caller` skips the grace period."""

    def facts(self) -> AttemptFacts:
        """How it ended; also valid after `drive` was cancelled."""


_CODE = "workspace"


def workspace_notices(ignored: Sequence[WorkspaceItem]) -> Iterator[tuple[Level, str, str]]:
    """Notices about what this run ignores in an untrusted folder: a summary, then each item.

    An `.env` file that does not mention Gemini gets no summary.
    """
    if any(item.kind != "env file" or item.name for item in ignored):
        kinds = Counter(item.kind for item in ignored)
        counted = ", ".join(_counted(kind, count) for kind, count in kinds.items())
        text = f"ignored in this untrusted folder: {counted}; set trust_workspace to allow it"
        yield "warning", _CODE, text
    for item in ignored:
        yield "info", _CODE, f"ignored: {item}"


def _counted(kind: str, count: int) -> str:
    if count == 1:
        return f"1 {kind}"
    return f"{count} {kind.removesuffix('y')}ies" if kind.endswith("y") else f"{count} {kind}s"
