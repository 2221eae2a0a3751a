"""The end of a run: who asked for it and how often, and what becomes of the processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminids.config.places import Places, private_dir
from geminids.events.model import EndedProcess
from geminids.log import get_logger
from geminids.process.child import Child
from geminids.process.marker import Mark
from geminids.redact import Redactor

if TYPE_CHECKING:
    from geminids.process.tree import Ended

__all__ = ["LINGERING", "WRONG_SESSION", "Stopping", "end_processes", "end_processes_now", "listed"]

_log = get_logger("run")

LINGERING = "the CLI closed its output and did not exit"
WRONG_SESSION = "the CLI began another session than the one to resume"
_LONGEST_COMMAND = 200


class Stopping:
    """Keeps the first reason to stop; only a caller who asks a second time is in a hurry."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.by_deadline = False
        self.hurry = False
        self.asked = False

    def ask(self) -> None:
        """The caller asks; asked again, the grace is cut short."""
        self.hurry = self.asked
        self.asked = True

    def begin(self, reason: str, *, by_deadline: bool) -> bool:
        """Note why the run is stopped; false where it is being stopped already."""
        if self.reason is not None:
            return False
        _log.info("stopping the run: %s", reason)
        self.reason = reason
        self.by_deadline = by_deadline
        return True

    @property
    def wanted(self) -> bool:
        """Whether anybody wanted the run to end, as against a CLI that went wrong by itself and was ended for it."""
        return self.reason not in (None, LINGERING, WRONG_SESSION)


async def end_processes(
    child: Child, mark: Mark, grace: float, stopping: Stopping, *, keep: bool
) -> list[Ended]:
    """End the tree where we stop it, and what is left where it ended by itself; `keep`: the CLI alone."""
    from geminids.process import stop  # imported late: psutil

    def hurry() -> bool:
        return stopping.hurry

    if keep:
        ended = await stop.end_child(child, grace, hurry=hurry) if child.exit_code is None else []
        _record_kept(mark)
        return ended
    if child.exit_code is None:
        return await stop.end_tree(child, mark, grace, hurry=hurry)
    return await stop.end_leftovers(mark, grace, hurry=hurry)


def end_processes_now(child: Child, mark: Mark) -> list[Ended]:
    """Kill them all, without an event loop."""
    from geminids.process import stop

    return stop.end_now(child, mark)


def listed(ended: list[Ended], redactor: Redactor) -> tuple[EndedProcess, ...]:
    """What was ended, as the run tells it; redacted before it is cut: half a secret is not known for one."""
    return tuple(
        EndedProcess(one.pid, _cut(redactor.text(one.command)), "KILL" if one.signal == "KILL" else "TERM")
        for one in ended
    )


def _cut(command: str) -> str:
    return command if len(command) <= _LONGEST_COMMAND else command[: _LONGEST_COMMAND - 3] + "..."


def _record_kept(mark: Mark) -> None:
    """Leave word of what was left on purpose, for whoever looks for orphans later."""
    from geminids.process.tree import marked

    if marked(str(mark)):
        try:
            (private_dir(Places.of().kept) / mark.run_id).touch(mode=0o600)
        except OSError as error:
            # No reason to fail a run that has succeeded.
            _log.warning("cannot record that run %s left processes on purpose", mark.run_id, error=error)
