"""Follow the journals of a session and its subagents, and merge them with the stream."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from geminids.events.model import Event, ToolFinished
from geminids.events.translate.journal import JournalTranslator, Truth, at_of, with_truth
from geminids.gemini.protocol.journal.records import Header, Message, decode_record
from geminids.launch.plan import Plan
from geminids.log import get_logger
from geminids.options import Options
from geminids.run.recorder import RunRecorder
from geminids.sessions.follow import Follower

__all__ = ["Journal", "Merge", "Put", "StreamState", "Subagents", "Translator", "journal_of_run"]

Put = Callable[[list[Event], int], None]

# How long the end of a tool waits for its journal record, which is written within milliseconds of
# it.
_HOLD = 0.25


class Merge:
    """Passes events on in order.

    The end of a tool, and the events after it, wait for the tool's record in the journal (its
    truth): at most 0.25 s, and not at all unless a journal is followed (`following`).

    `missed` counts the calls whose record never came.
    """

    def __init__(self, put: Put, clock: Callable[[], float] = time.monotonic) -> None:
        self._put = put
        self._clock = clock
        self._waiting: deque[tuple[Event, float, int]] = deque()
        self._truths: dict[str, Truth] = {}
        self._excused: set[str] = set()
        self.following = False
        self.missed = 0

    @property
    def held(self) -> bool:
        return bool(self._waiting)

    def add(self, events: Sequence[Event], size: int = 0, *, ends_tool: bool = True) -> None:
        """Add events of either source. `ends_tool` is False if no tool ends among them."""
        if not self._waiting and not (self.following and ends_tool):
            self._put(list(events), size)
            return
        until = self._clock() + _HOLD
        share = size // len(events) if events else 0
        self._waiting.extend((event, until, share) for event in events)
        self._pass_on(gives_up=False)

    def add_truths(self, truths: dict[str, Truth]) -> None:
        """Add the journal's records of tool calls, by call id."""
        self._truths |= truths

    def excuse(self, call_id: str) -> None:
        """Do not wait for this call: no journal will have a record of it."""
        self._excused.add(call_id)

    def release(self, *, now: bool = False) -> None:
        """Pass on the events that have waited long enough; with `now`, all of them.

        Call it only after reading the journal: on a busy machine the wait may be over before the
        first read, and the record may be there.
        """
        self._pass_on(gives_up=True, now=now)

    def _pass_on(self, *, gives_up: bool, now: bool = False) -> None:
        out: list[Event] = []
        size = 0
        while self._waiting:
            event, until, share = self._waiting[0]
            if type(event) is ToolFinished and event.parent is None and event.id not in self._excused:
                truth = self._truths.pop(event.id, None)
                if truth is not None:
                    event = with_truth(event, truth)
                    size += len(truth.output or "")
                elif self.following and not now and not (gives_up and self._clock() >= until):
                    break
                else:
                    self.missed += self.following
            out.append(event)
            size += share
            self._waiting.popleft()
        if out:
            self._put(out, size)


_log = get_logger("run")

# Seconds between two reads: while a tool runs or an event waits, and otherwise.
_SOON, _IDLE = 0.02, 0.1
# The longest time between two searches for the journal.
_SELDOM = 5.0
_SUFFIX = ".jsonl"
FindFile = Callable[[str], Path | None]


class StreamState(Protocol):
    """What the CLI's output has shown so far: session, tools, and turns that called agents."""

    @property
    def session_id(self) -> str | None: ...
    @property
    def tools_running(self) -> bool: ...
    @property
    def agent_turns(self) -> dict[str, int]: ...


class Translator(Protocol):
    """Translates messages of the session's own journal into events and tool records (truths)."""

    def translate(self, message: Message) -> tuple[list[Event], dict[str, Truth]]: ...


class Journal:
    """Reads new records of the journals and passes them to the merge.

    `find` returns the file of a session id. `resumed` is the file of a resumed session: records
    that it already has do not belong to this run, nor do records from before `since` (Unix ms) if
    the CLI rewrites the file. A problem with the files never ends the run; their events are missing
    then.
    """

    def __init__(
        self,
        merge: Merge,
        stream: StreamState,
        recorder: RunRecorder,
        find: FindFile,
        resumed: Path | None = None,
        resumed_id: str | None = None,
        since: int = 0,
        translator: Translator | None = None,
    ) -> None:
        self._since = since if resumed is not None else 0
        self._merge = merge
        self._stream = stream
        self._recorder = recorder
        self._find = find
        self._main: Translator = translator or JournalTranslator(recorder, recorder.redactor)
        self._agents = Subagents(merge, stream, recorder)
        self._follower: Follower | None = None
        self._search_at, self._search_gap = 0.0, _IDLE
        self._header_seen = False
        self._lost = False
        self._given_up = False
        if resumed is not None and resumed_id is not None and resumed.suffix == _SUFFIX:
            # The CLI does not append to the `.json` file of an older release; it starts a journal
            # beside it.
            self._follower = Follower(resumed, from_end=True)
            self._header_seen = merge.following = True
            self._agents.begin(resumed.parent / resumed_id, old=True)

    @property
    def whole(self) -> bool:
        """Whether the journal was read from its first record on, without a loss."""
        follower = self._follower
        if follower is None or not self._header_seen or self._lost or self._given_up:
            return False
        intact = not (follower.dropped or follower.restarts or self._merge.missed)
        return intact and self._agents.whole

    def find(self) -> None:
        """Search for the journal: the CLI creates it before it reports the session id."""
        session_id = self._stream.session_id
        now = time.monotonic()
        if self._follower is None and session_id and now >= self._search_at:
            # Search less and less often: each search lists all sessions of the folder.
            self._search_at, self._search_gap = now + self._search_gap, min(2 * self._search_gap, _SELDOM)
            try:
                file = self._find(session_id)
            except (OSError, ValueError):
                return
            if file is not None:
                self._follower = Follower(file)
                self._agents.begin(file.parent / session_id)
                self._merge.following = True

    def look(self) -> None:
        """Read new records; costs one `stat` if there are none."""
        if not self._given_up:
            try:
                self._look()
            except Exception as error:
                # Any process can write to these files, also the agent: their content must not end
                # the run.
                _log.warning("the session journal is not followed any more", error=error)
                self._given_up, self._merge.following = True, False
                problem = self._recorder.redact(f"{type(error).__name__}: {error}")
                text = f"the session journal is not followed any more: {problem}"
                self._merge.add([self._recorder.notice("warning", "journal", text)])
        self._merge.release()

    def _look(self) -> None:
        self.find()
        follower = self._follower
        if follower is None:
            return
        while lines := follower.read_new():
            for line in lines:
                self._take(line)
            if not follower.behind:
                break
        # While the journal cannot be read, no tool waits for it.
        is_unreadable = follower.path is None or follower.problem is not None
        self._lost |= is_unreadable
        self._merge.following = not is_unreadable
        self._agents.look()

    async def watch(self) -> None:
        """Read new records repeatedly, until cancelled."""
        import anyio

        while True:
            soon = self._merge.held or self._stream.tools_running
            await anyio.sleep(_SOON if soon else _IDLE)
            self.look()

    def finish(self) -> None:
        """Read the last records, and pass on all waiting events."""
        self.look()
        if not self._given_up:
            self._agents.finish()
        self._merge.release(now=True)
        self._merge.following = False

    def _take(self, line: bytes) -> None:
        record = decode_record(line)
        if record is None:
            self._lost |= bool(line.strip())  # cut off, or not written by the CLI
        elif isinstance(record, Header):
            self._header_seen = True
        elif isinstance(record, Message) and not 0 < at_of(record.timestamp) < self._since:
            events, truths = self._main.translate(record)
            self._merge.add_truths(truths)
            self._agents.assign({truth.agent_id: call for call, truth in truths.items() if truth.agent_id})
            if events:
                self._merge.add(events)


def journal_of_run(
    plan: Plan,
    options: Options,
    merge: Merge,
    stream: StreamState,
    recorder: RunRecorder,
    *,
    since: int,
) -> Journal:
    """The journal of a headless run."""
    from geminids.sessions.finder import journal_of

    return Journal(
        merge,
        stream,
        recorder,
        lambda session_id: journal_of(session_id, plan.cwd, home=options.home, environ=plan.env),
        resumed=plan.resumed,
        resumed_id=options.resume,
        since=since,
    )


# Seconds between two listings of the folder.
_LIST_AGAIN = 0.1


class Calls(Protocol):
    """The turns in which subagents were called, by the ids of the calls."""

    @property
    def agent_turns(self) -> dict[str, int]: ...


class Subagents:
    """Follows the journals of subagents: `chats/<session>/<agent>.jsonl`.

    The main journal reports which call an agent belongs to when the call ends. Before that, we know
    it only if a single call is open; otherwise the agent's events wait.
    """

    def __init__(self, merge: Merge, stream: Calls, recorder: RunRecorder) -> None:
        self._merge = merge
        self._stream = stream
        self._recorder = recorder
        self._folder: Path | None = None
        self._old: frozenset[str] = frozenset()
        self._listed = 0.0
        self._followers: dict[str, Follower] = {}
        self._translators: dict[str, JournalTranslator] = {}
        self._calls: dict[str, str] = {}
        self._assigned: set[str] = set()
        self._waiting: dict[str, list[Message]] = {}

    @property
    def whole(self) -> bool:
        """Whether the journal of every agent that a call names was read, without a loss."""
        return self._assigned <= self._followers.keys() and not any(
            follower.path is None or follower.dropped or follower.problem or follower.restarts
            for follower in self._followers.values()
        )

    def begin(self, folder: Path, *, old: bool = False) -> None:
        """Set the folder of the journals; with `old`, ignore the files that it has now."""
        self._folder = folder
        if old:
            self._old = frozenset(_names(folder))

    def assign(self, calls: Mapping[str | None, str]) -> None:
        """Record the calls that agents belong to."""
        known = {agent: call for agent, call in calls.items() if agent}
        self._calls |= known
        self._assigned |= known.keys()
        self._listed = 0.0  # list the folder at once: the agent's file exists, and its call is about to end

    def look(self, *, again: bool = False) -> None:
        """Read new records. List new files every 0.1 s, or at once if `again`."""
        if not self._stream.agent_turns:
            return
        self._list(again)
        for agent, follower in self._followers.items():
            self._read(agent, follower)
        for agent in list(self._waiting):
            self._emit(agent)

    def _read(self, agent: str, follower: Follower) -> None:
        while lines := follower.read_new():
            messages = [record for line in lines if isinstance(record := decode_record(line), Message)]
            if messages:
                self._waiting.setdefault(agent, []).extend(messages)
            if not follower.behind:
                break

    def finish(self) -> None:
        """Read the last records, and emit the events of agents whose call is unknown."""
        self.look(again=True)
        for agent in list(self._waiting):
            self._emit(agent, at_last=True)

    def _list(self, again: bool) -> None:
        now = time.monotonic()
        if self._folder is None or (not again and now - self._listed < _LIST_AGAIN):
            return
        self._listed = now
        for name in _names(self._folder):
            if name not in self._old and name.removesuffix(_SUFFIX) not in self._followers:
                self._followers[name.removesuffix(_SUFFIX)] = Follower(self._folder / name)

    def _emit(self, agent: str, *, at_last: bool = False) -> None:
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
        turn = self._stream.agent_turns.get(call or "", self._recorder.turn)
        return JournalTranslator(self._recorder, self._recorder.redactor, parent=call or agent, turn=turn)

    def _only_call(self, agent: str) -> str | None:
        free = [call for call in self._stream.agent_turns if call not in self._calls.values()]
        unclaimed = [name for name in self._followers if name not in self._calls]
        return free[0] if len(free) == 1 and unclaimed == [agent] else None


def _names(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))
    except OSError:
        return []
