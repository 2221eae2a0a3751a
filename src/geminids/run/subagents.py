"""The journals of a run's subagents: what they thought, did and used."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from geminids.events.from_journal import JournalTranslator
from geminids.events.ledger import Ledger
from geminids.redact import Redactor
from geminids.run.merge import Merge
from geminids.sessions.follow import Follower
from geminids.wire.journal import Message, decode_record

__all__ = ["Subagents"]

_SUFFIX = ".jsonl"
# How often the folder is asked for files that were not there before.
_LIST_AGAIN = 0.1


class Calls(Protocol):
    """The turns in which subagents were called, by the ids of the calls."""

    @property
    def agent_turns(self) -> dict[str, int]: ...


class Subagents:
    """The journals of subagents: `chats/<session>/<agent>.jsonl`.

    Which call an agent belongs to is told when the call is over. Before that it is certain where one call alone
    is open; else the agent's events wait.
    """

    def __init__(self, merge: Merge, stream: Calls, ledger: Ledger, redactor: Redactor) -> None:
        self._merge = merge
        self._stream = stream
        self._ledger = ledger
        self._redactor = redactor
        self._folder: Path | None = None
        self._old: frozenset[str] = frozenset()
        self._listed = 0.0
        self._followers: dict[str, Follower] = {}
        self._translators: dict[str, JournalTranslator] = {}
        self._calls: dict[str, str] = {}
        self._named: set[str] = set()
        self._waiting: dict[str, list[Message]] = {}

    @property
    def whole(self) -> bool:
        """Whether the journal of every agent that was named was there, and nothing of it was lost."""
        found = self._followers.values()
        return self._named <= self._followers.keys() and not any(
            one.path is None or one.dropped or one.problem or one.restarts for one in found
        )

    def begin(self, folder: Path, *, old: bool = False) -> None:
        """Where they will be; with `old`, what is there now is not of this run."""
        self._folder = folder
        if old:
            self._old = frozenset(_names(folder))

    def name(self, calls: Mapping[str | None, str]) -> None:
        """Agents and the calls that they belong to."""
        told = {agent: call for agent, call in calls.items() if agent}
        self._calls |= told
        self._named |= told.keys()
        self._listed = 0.0  # its file is there, and its end is about to be told

    def look(self, *, again: bool = False) -> None:
        """Take what is new; files that are new are looked for now and then, or `again` at once."""
        if not self._stream.agent_turns:
            return
        self._list(again)
        for agent, follower in self._followers.items():
            self._read(agent, follower)
        for agent in list(self._waiting):
            self._tell(agent)

    def _read(self, agent: str, follower: Follower) -> None:
        while lines := follower.read_new():
            found = [record for line in lines if isinstance(record := decode_record(line), Message)]
            if found:
                self._waiting.setdefault(agent, []).extend(found)
            if not follower.behind:
                break

    def finish(self) -> None:
        """Whoever is left without a call is told without one rather than not at all."""
        self.look(again=True)
        for agent in list(self._waiting):
            self._tell(agent, at_last=True)

    def _list(self, again: bool) -> None:
        now = time.monotonic()
        if self._folder is None or (not again and now - self._listed < _LIST_AGAIN):
            return
        self._listed = now
        for name in _names(self._folder):
            if name not in self._old and name.removesuffix(_SUFFIX) not in self._followers:
                self._followers[name.removesuffix(_SUFFIX)] = Follower(self._folder / name)

    def _tell(self, agent: str, *, at_last: bool = False) -> None:
        translator = self._translators.get(agent) or self._translator(agent, at_last)
        if translator is None:
            return
        self._translators[agent] = translator
        for message in self._waiting.pop(agent):
            events, _ = translator.translate(message)
            if events:
                self._merge.add(events)

    def _translator(self, agent: str, at_last: bool) -> JournalTranslator | None:
        call = self._calls.get(agent) or self._only_call(agent)
        if call is None and not at_last:
            return None
        self._calls[agent] = call or ""
        turn = self._stream.agent_turns.get(call or "", self._ledger.turn)
        return JournalTranslator(self._ledger, self._redactor, parent=call or agent, turn=turn)

    def _only_call(self, agent: str) -> str | None:
        free = [call for call in self._stream.agent_turns if call not in self._calls.values()]
        unclaimed = [name for name in self._followers if name not in self._calls]
        return free[0] if len(free) == 1 and unclaimed == [agent] else None


def _names(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))
    except OSError:
        return []
