"""Define the interface of one attempt of a run, and the facts about an attempt that has ended."""

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
    """How one attempt of a run ended.

    The struct is created once, at the end of the attempt. `usage` contains the token counts
    of the attempt, or is None if they are unknown. `prices` computes the cost of the tokens, or is
    None if no prices are available.
    """

    ending: Ending
    stop: StopReason | None = None
    """Why geminids stopped the attempt; None if the attempt ended by itself."""
    session_id: str | None = None
    exit_code: int | None = None
    ended: tuple[EndedProcess, ...] = ()
    """The processes of the attempt that geminids had to terminate."""
    complete: bool = False
    """Whether the events contain everything that the CLI's session file contains."""
    decisions: tuple[Decision, ...] = ()
    usage: Usage | None = None
    prices: Prices | None = None
    finish_reason: str | None = None
    was_sent: bool = True
    """Whether the prompt was sent. False if no session could be opened."""
    stall: Stall | None = None
    """What the attempt waited for, if it was stopped because the CLI sent nothing; otherwise None.
    """


class Attempt(Protocol):
    """Interface of one attempt of a run.

    The attempt starts a CLI process of its own (headless), or uses a CLI process that stays alive
    between prompts (warm). `start` is synchronous, so that the CLI loads while Python still imports
    modules.
    """

    @property
    def pid(self) -> int | None: ...
    @property
    def mark(self) -> Mark | None:
        """A value in the environment of every process of the attempt. It is used to find them.

        It can be None while no process exists.
        """

    @property
    def session_id(self) -> str | None: ...
    def start(self) -> None:
        """Start the CLI, if the attempt needs a new process.

        Raises `OSError` if the process cannot be started.
        """

    async def drive(self) -> None:
        """Run the attempt to its end.

        When `drive` returns, all processes of the attempt have ended. There are two exceptions: a
        warm process, and processes that are left running because of the option `leftovers="keep"`.
        """

    def stop(self, reason: StopReason) -> None:
        """Stop the attempt.

        The CLI gets a grace period in which it can exit by itself. The second call with a reason of
        the kind `caller` skips the grace period.
        """

    def facts(self) -> AttemptFacts:
        """Return how the attempt ended. This works even if `drive` was cancelled."""


_CODE = "workspace"


def workspace_notices(ignored: Sequence[WorkspaceItem]) -> Iterator[tuple[Level, str, str]]:
    """Yield notices about items of an untrusted folder, such as hooks, that the run ignores.

    Each notice is a tuple of level, code and text. The first notice is a summary of all items,
    except if all items are `.env` files without variables for Gemini: then there is no summary. One
    notice for each item follows.
    """
    if any(item.kind != "env file" or item.name for item in ignored):
        kinds = Counter(item.kind for item in ignored)
        counted = ", ".join(_counted(kind, count) for kind, count in kinds.items())
        text = f"ignored in this untrusted folder: {counted}; use `trust_workspace` to allow it"
        yield "warning", _CODE, text
    for item in ignored:
        yield "info", _CODE, f"ignored: {item}"


def _counted(kind: str, count: int) -> str:
    if count == 1:
        return f"1 {kind}"
    return f"{count} {kind.removesuffix('y')}ies" if kind.endswith("y") else f"{count} {kind}s"
