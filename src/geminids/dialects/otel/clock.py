"""When a request to the model began, and whose it was. The gateway reports how long it took, other sources do not."""

from __future__ import annotations

import msgspec

from geminids.events.model import Notice, Started, TokensUsed, ToolFinished, ToolStarted

__all__ = ["Floors"]


class _Agent(msgspec.Struct):
    """A call of a subagent: its span of time, and when it last had the word."""

    parent: str | None
    began: int
    word: int
    ended: int | None = None


class Floors:
    """Who has had the word since when. The model has it when a turn's last tool has ended, or at the start."""

    def __init__(self) -> None:
        self._began = 0
        self._turns: dict[int, int] = {}
        self._agents: dict[str, _Agent] = {}

    def begin(self, event: Started) -> None:
        """A new attempt: its turns are counted anew."""
        self._began = event.at
        self._turns = {event.turn: event.at}

    def noticed(self, event: Notice) -> None:
        if event.code == "session" and event.turn in self._turns:
            # The CLI has loaded: before this it could not ask.
            self._turns[event.turn] = max(self._turns[event.turn], event.at)

    def agent_began(self, event: ToolStarted) -> None:
        self._agents[event.id] = _Agent(event.parent, event.at, event.at)

    def tool_ended(self, event: ToolFinished) -> None:
        if (agent := self._agents.get(event.id)) is not None:
            agent.ended = event.at
        if event.parent is None:
            self._turns[event.turn + 1] = max(self._turns.get(event.turn + 1, 0), event.at)
            self._turns.pop(event.turn - 2, None)  # nobody asks for it any more
        elif (caller := self._agents.get(event.parent)) is not None:
            caller.word = max(caller.word, event.at)

    def of_request(self, event: TokensUsed) -> tuple[str | None, int]:
        """The call of the subagent that made a request, None for the agent itself; and since when it waited."""
        if event.role == "subagent":
            if (name := self._whose(event.at)) is None:
                return None, _measured(event, event.at)
            agent = self._agents[name]
            since, agent.word = agent.word, max(agent.word, event.at)
            return name, _measured(event, since)
        waits = self._turns.get(event.turn, event.at) if event.role == "main" else event.at
        return None, _measured(event, waits)

    def _whose(self, at: int) -> str | None:
        """The one subagent that was at work then; None where there were several, one not the other's caller."""
        there = {
            name: agent
            for name, agent in self._agents.items()
            if agent.began <= at and (agent.ended is None or at <= agent.ended)
        }
        for agent in list(there.values()):
            if agent.parent is not None:
                there.pop(agent.parent, None)
        return next(iter(there)) if len(there) == 1 else None


def _measured(event: TokensUsed, waits: int) -> int:
    """When a request was sent; `waits` is since when its asker has waited, if nobody has measured it."""
    return min(waits, event.at) if event.duration_ms is None else event.at - event.duration_ms
