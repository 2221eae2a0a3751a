"""Requests that the CLI made for itself in a run, written down as they come: no session file holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from geminids.config.places import Places
from geminids.events.ledger import Ledger
from geminids.events.model import Event, TokensUsed
from geminids.options import Options

__all__ = ["Errands"]

# The session and the folder, as far as they are known by then.
Where = Callable[[], tuple[str | None, str | None]]


class Errands:
    """Those of one run or turn."""

    def __init__(self, run_id: str, ledger: Ledger, where: Where, *, free: bool = False) -> None:
        """`free`: no real model is asked. Then all requests are written down, as what was never spent."""
        self._run_id = run_id
        self._ledger = ledger
        self._where = where
        self._free = free
        self._off = False
        self._places: Places | None = None

    @classmethod
    def of(cls, run_id: str, options: Options, ledger: Ledger, where: Where) -> Errands:
        return cls(run_id, ledger, where, free=options.offline or options.replay is not None)

    def note(self, events: Iterable[Event]) -> list[Event]:
        """Write down those among the events; the notice that it cannot be done, once."""
        if self._off:
            return []
        for event in events:
            if isinstance(event, TokensUsed) and (self._free or event.role != "main"):
                try:
                    self._write(event)
                except Exception as error:  # whatever it is, it must not cost the caller the run
                    self._off = True
                    text = f"errands are not in `geminids usage` from here on: {error}"
                    return [self._ledger.notice("warning", "errands", text)]
        return []

    def _write(self, event: TokensUsed) -> None:
        from geminids.sessions.errands import Errand, write_down  # imported late: most runs have none

        self._places = self._places or Places.of()
        session, folder = self._where()
        errand = Errand(
            at=event.at,
            run=self._run_id,
            number=event.seq,
            session=session,
            project=folder or None,
            model=event.model,
            input=event.input or 0,
            cached=event.cached or 0,
            output=event.output or 0,
            thinking=event.thinking or 0,
            tool=event.tool or 0,
            free=self._free,
            agent=event.role == "subagent",
        )
        write_down(errand, self._places)
