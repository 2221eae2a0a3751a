"""A turn is cancelled in the CLI's own way; what that has not ended is ended, and its neighbours notice nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from geminids.options import Options
from geminids.run.stopping import Stopping
from geminids.run.warm.connection import Pending
from geminids.run.warm.prompt_answer import PromptAnswer
from geminids.run.warm.seat import Seat
from geminids.run.warm.shells import OwnShells
from geminids.wire.acp_calls import Cancel

if TYPE_CHECKING:
    import psutil

    from geminids.process.tree import Ended

__all__ = ["cancel"]

_SHELL_GRACE = 1.0


async def cancel(
    seat: Seat,
    pending: Pending,
    answer: PromptAnswer,
    shells: OwnShells,
    options: Options,
    stopping: Stopping,
    *,
    shells_since: float | None,
    sent_at: float,
) -> list[Ended]:
    """Cancel the prompt and wait for its answer, at most the grace; then end its shells. What had to be ended."""
    import anyio

    from geminids.process import stop

    since = shells_since
    seat.process.connection.note(Cancel(session_id=seat.session_id))
    until = time.monotonic() + options.grace
    while not pending.over and time.monotonic() < until and not stopping.hurry:
        with anyio.move_on_after(0.02):
            await pending.wait()
    if not pending.over:
        answer.unanswered = seat.broken = True
        since = since or sent_at  # a tool may have begun that we have not heard of
        seat.process.heard_at = 0.0  # whoever wants to sit there next asks whether it is well
    if since is None:
        return []
    began = since

    # What the CLI's own cancel has not ended; what earlier turns have left on purpose stays.
    def find() -> list[psutil.Process]:
        return shells.born_since(began)

    return await stop.end_found(find, min(options.grace, _SHELL_GRACE))
