"""Read the session files of the CLI while it writes them, and merge their events with the stream.

A session file is called a journal here. Each subagent has its own journal. The stream is the CLI's
output on stdout.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from geminids.events.model import Event, ToolFinished
from geminids.events.translate.journal import JournalTranslator, ToolRecord, at_of, with_tool_record
from geminids.gemini.protocol.journal.records import Header, StoredMessage, decode_record
from geminids.launch.plan import Plan
from geminids.log import get_logger
from geminids.options import Options
from geminids.run.recorder import RunRecorder
from geminids.sessions.follow import Follower

__all__ = ["Journal", "Merge", "MessageTranslator", "Put", "StreamState", "Subagents", "journal_of_run"]

Put = Callable[[list[Event], int], None]

# The event of a tool call's end waits at most this many seconds for the call's record in the
# journal. The CLI writes the record within milliseconds after the end.
_HOLD = 0.25


class Merge:
    """Adds the results of tool calls, which are only in the journal, to the events of the stream.

    The journal is the CLI's session file. The event of a tool call's end, and all events after it,
    wait until the journal contains the result, but at most 0.25 s. `following` is True while a
    journal is being read; while it is False, no event waits. `missed` is the number of tool calls
    whose result did not arrive in time.
    """

    def __init__(self, put: Put, clock: Callable[[], float] = time.monotonic) -> None:
        self._put = put
        self._clock = clock
        self._waiting: deque[tuple[Event, float, int]] = deque()
        self._records: dict[str, ToolRecord] = {}
        self._excused: set[str] = set()
        self.following = False
        self.missed = 0

    @property
    def held(self) -> bool:
        return bool(self._waiting)

    def add(self, events: Sequence[Event], size: int = 0, *, ends_tool: bool = True) -> None:
        """Emit events of the stream or of the journal, or hold them back if they must wait.

        `size` is the number of bytes of CLI output from which the events were created. `ends_tool`
        is False if the events certainly do not contain the end of a tool call.
        """
        if not self._waiting and not (self.following and ends_tool):
            self._put(list(events), size)
            return
        until = self._clock() + _HOLD
        share = size // len(events) if events else 0
        self._waiting.extend((event, until, share) for event in events)
        self._pass_on(gives_up=False)

    def add_tool_records(self, records: dict[str, ToolRecord]) -> None:
        """Add results of tool calls from the session file. `records` maps call ids to results."""
        self._records |= records

    def expect_no_record(self, call_id: str) -> None:
        """Do not wait for the result of this call, because no journal will contain it."""
        self._excused.add(call_id)

    def release(self, *, now: bool = False) -> None:
        """Emit the events that have waited for 0.25 s. If `now` is True, emit all waiting events.

        Read the journal before you call this. Otherwise an event may be emitted without a result
        that the journal already contains: on a busy machine, 0.25 s can pass before the first read.
        """
        self._pass_on(gives_up=True, now=now)

    def _pass_on(self, *, gives_up: bool, now: bool = False) -> None:
        out: list[Event] = []
        size = 0
        while self._waiting:
            event, until, share = self._waiting[0]
            if type(event) is ToolFinished and event.parent is None and event.id not in self._excused:
                record = self._records.pop(event.id, None)
                if record is not None:
                    event = with_tool_record(event, record)
                    size += len(record.output or "")
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

# Seconds between two reads of the journal: `_SOON` while a tool runs or an event waits, otherwise
# `_IDLE`.
_SOON, _IDLE = 0.02, 0.1
# The longest time between two searches for the journal, in seconds.
_SELDOM = 5.0
_SUFFIX = ".jsonl"
FindFile = Callable[[str], Path | None]


class StreamState(Protocol):
    """What is known so far from the CLI's output on stdout.

    `agent_turns` maps the id of each call of a subagent to the number of the turn in which the
    subagent was called.
    """

    @property
    def session_id(self) -> str | None: ...
    @property
    def tools_running(self) -> bool: ...
    @property
    def agent_turns(self) -> dict[str, int]: ...


class MessageTranslator(Protocol):
    """Translates a message of the journal into events, and into the results of tool calls.

    The results are a dict from the ids of tool calls to their results.
    """

    def translate(self, message: StoredMessage) -> tuple[list[Event], dict[str, ToolRecord]]: ...


class Journal:
    """Reads new records of a session's journal (its file) and of its subagents' journals.

    The events of these records are passed to `merge`. `find` is a function that returns the journal
    file for a session id, or None. A problem with a journal never ends the run, but events may then
    be missing.

    `resumed` is the journal of a resumed session. The records that it already contains do not
    belong to this run. If the CLI rewrites this file, records that are older than `since` (Unix
    milliseconds) do not belong to this run either.
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
        translator: MessageTranslator | None = None,
    ) -> None:
        self._since = since if resumed is not None else 0
        self._merge = merge
        self._stream = stream
        self._recorder = recorder
        self._find = find
        self._main: MessageTranslator = translator or JournalTranslator(recorder, recorder.redactor)
        self._agents = Subagents(merge, stream, recorder)
        self._follower: Follower | None = None
        self._search_at, self._search_gap = 0.0, _IDLE
        self._header_seen = False
        self._lost = False
        self._given_up = False
        if resumed is not None and resumed_id is not None and resumed.suffix == _SUFFIX:
            # This is only possible for `.jsonl` files. Older releases wrote `.json` files. The CLI
            # does not append to such a file, but starts a new journal in the same folder.
            self._follower = Follower(resumed, from_end=True)
            self._header_seen = merge.following = True
            self._agents.begin(resumed.parent / resumed_id, old=True)

    @property
    def whole(self) -> bool:
        """Whether all journals were read completely, from their first record on."""
        follower = self._follower
        if follower is None or not self._header_seen or self._lost or self._given_up:
            return False
        intact = not (follower.dropped or follower.restarts or self._merge.missed)
        return intact and self._agents.whole

    def find(self) -> None:
        """Search for the journal (the session file), if the session id is known.

        The CLI creates the file before it reports the id. If the file is not found, a later call
        searches again. After the file was found, this does nothing.
        """
        session_id = self._stream.session_id
        now = time.monotonic()
        if self._follower is None and session_id and now >= self._search_at:
            # Each search lists all sessions of the folder, so double the time between searches.
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
        """Read new records and emit their events.

        If there are no new records, this takes only one `stat` call.
        """
        if not self._given_up:
            try:
                self._look()
            except Exception as error:
                # Every process, including the agent, can write to these files. Wrong content must
                # not end the run.
                _log.warning("the session file is not read any more", error=error)
                self._given_up, self._merge.following = True, False
                problem = self._recorder.redact(f"{type(error).__name__}: {error}")
                text = f"cannot read more of the CLI's session file, so some events may be missing: {problem}"
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
        # Events wait for the journal only while it can be read.
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
        """Read the last records, and emit all events, even those that still wait for a result."""
        self.look()
        if not self._given_up:
            self._agents.finish()
        self._merge.release(now=True)
        self._merge.following = False

    def _take(self, line: bytes) -> None:
        record = decode_record(line)
        if record is None:
            self._lost |= bool(line.strip())  # the line is incomplete, or not written by the CLI
        elif isinstance(record, Header):
            self._header_seen = True
        elif isinstance(record, StoredMessage) and not 0 < at_of(record.timestamp) < self._since:
            events, records = self._main.translate(record)
            self._merge.add_tool_records(records)
            self._agents.assign(
                {record.agent_id: call for call, record in records.items() if record.agent_id}
            )
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
    """Return the object that reads the journal of a headless run.

    `since` is the start time of the attempt, in Unix milliseconds.
    """
    from geminids.sessions.finder import journal_of  # imported late (6 ms), after the spawn

    return Journal(
        merge,
        stream,
        recorder,
        lambda session_id: journal_of(session_id, plan.cwd, home=options.home, environ=plan.env),
        resumed=plan.resumed,
        resumed_id=options.resume,
        since=since,
    )


# Seconds between two listings of the folder with the subagents' journals.
_LIST_AGAIN = 0.1


class SubagentCalls(Protocol):
    """Provides the number of the turn in which each subagent was called.

    `agent_turns` maps the id of each call to the number of that turn.
    """

    @property
    def agent_turns(self) -> dict[str, int]: ...


class Subagents:
    """Reads the journals of subagents: the files `chats/<session>/<agent>.jsonl`.

    Each event of a subagent contains the id of the tool call that started the subagent. The main
    journal contains this id only after the call has ended. Before the end, the id is known only if
    exactly one subagent is running; otherwise the events wait until the id is known.
    """

    def __init__(self, merge: Merge, stream: SubagentCalls, recorder: RunRecorder) -> None:
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
        self._waiting: dict[str, list[StoredMessage]] = {}

    @property
    def whole(self) -> bool:
        """Whether the journals of all known subagents were read completely."""
        return self._assigned <= self._followers.keys() and not any(
            follower.path is None or follower.dropped or follower.problem or follower.restarts
            for follower in self._followers.values()
        )

    def begin(self, folder: Path, *, old: bool = False) -> None:
        """Set the folder that contains the journals of the subagents.

        If `old` is True, the files that the folder contains now are from an earlier run, and are
        ignored.
        """
        self._folder = folder
        if old:
            self._old = frozenset(_names(folder))

    def assign(self, calls: Mapping[str | None, str]) -> None:
        """Store which tool call started each subagent. `calls` maps subagent ids to call ids."""
        known = {agent: call for agent, call in calls.items() if agent}
        self._calls |= known
        self._assigned |= known.keys()
        # List the folder in the next `look`: the agent's file exists, and its call ends soon.
        self._listed = 0.0

    def look(self, *, again: bool = False) -> None:
        """Read new records of all subagents, and emit their events.

        To find new journals, the folder of the subagents' journals is also listed, but at most once
        every 0.1 s, except if `again` is True: then the folder is always listed.
        """
        if not self._stream.agent_turns:
            return
        self._list(again)
        for agent, follower in self._followers.items():
            self._read(agent, follower)
        for agent in list(self._waiting):
            self._emit(agent)

    def _read(self, agent: str, follower: Follower) -> None:
        while lines := follower.read_new():
            messages = [record for line in lines if isinstance(record := decode_record(line), StoredMessage)]
            if messages:
                self._waiting.setdefault(agent, []).extend(messages)
            if not follower.behind:
                break

    def finish(self) -> None:
        """Read the last records, and emit the events of all subagents.

        Events are emitted even if the call that started the subagent is still unknown.
        """
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
