"""Whether a silent CLI reads: thoughts that a headless run does not tell, or what a shell tool prints."""

from __future__ import annotations

from geminids.run.stall.situation import Situation

__all__ = ["Reads"]

# A piece of an answer is longer, with all that stands around it; the ping of an MCP server is shorter.
_LEAST_ANSWER = 64
_LEAST_PRINTED = 12
# Node reads 8 bytes now and then to wake itself up; on a busy machine several times between two looks.
_WAKES_UP = 8


class Reads:
    """Counts what one process reads, where nobody else tells; on Linux, which alone counts that."""

    def __init__(self) -> None:
        self._pid: int | None = None
        self._before: tuple[int, int] | None = None

    @property
    def are_known(self) -> bool:
        return self._before is not None

    def grew(self, situation: Situation) -> bool:
        """Whether it has read something worth the name since it was last asked; costs microseconds."""
        if not _say_more(situation):
            self._before = None
            return False
        from geminids.run.stall.processes import reads_of

        assert situation.pid is not None
        before, self._before = self._before, reads_of(situation.pid)
        if before is None or self._before is None or situation.pid != self._pid:
            self._pid = situation.pid
            return False
        read, calls = (now - then for now, then in zip(self._before, before, strict=True))
        least = _LEAST_PRINTED if situation.shells else _LEAST_ANSWER
        return read >= least and read > calls * _WAKES_UP


def _say_more(situation: Situation) -> bool:
    """Not where a gateway sees the answers, nor where other chats read in the same process."""
    if situation.pid is None or situation.own is not None or situation.permission is not None:
        return False
    return bool(situation.shells) or not situation.gateway
