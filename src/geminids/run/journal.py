"""Follows the journal of a run's session, and those of its subagents, while the run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from geminids.events.from_journal import JournalTranslator, Truth, at_of
from geminids.events.ledger import Ledger
from geminids.events.model import Event
from geminids.launch.plan import Plan
from geminids.log import get_logger
from geminids.options import Options
from geminids.redact import Redactor
from geminids.run.merge import Merge
from geminids.run.subagents import Subagents
from geminids.sessions.follow import Follower
from geminids.wire.journal import Header, Message, decode_record

__all__ = ["Heard", "Journal", "Translator", "journal_of_run"]

_log = get_logger("run")

# Between two looks: while a tool runs or an event waits, and while nothing does.
_SOON, _IDLE = 0.02, 0.1
_SELDOM = 5.0
_SUFFIX = ".jsonl"
FindFile = Callable[[str], Path | None]


class Heard(Protocol):
    """What the lane itself has heard so far: its session, its tools, and the turns in which agents were called."""

    @property
    def session_id(self) -> str | None: ...
    @property
    def tools_running(self) -> bool: ...
    @property
    def agent_turns(self) -> dict[str, int]: ...


class Translator(Protocol):
    """Makes events and truths of the messages of the session's own journal."""

    def translate(self, message: Message) -> tuple[list[Event], dict[str, Truth]]: ...


class Journal:
    """Reads what is new in the journals and hands it to the merge.

    `find` gives the file of a session id. A resumed session's file is given as `resumed`: what is in it already
    is not of this run, nor is what was said before `since` (Unix ms), wherever it is written anew.
    Whatever happens to the files, the run goes on: what they would have told is not told.
    """

    def __init__(
        self,
        merge: Merge,
        stream: Heard,
        ledger: Ledger,
        redactor: Redactor,
        find: FindFile,
        resumed: Path | None = None,
        resumed_id: str | None = None,
        since: int = 0,
        translator: Translator | None = None,
    ) -> None:
        self._since = since if resumed is not None else 0
        self._merge = merge
        self._stream = stream
        self._ledger = ledger
        self._redactor = redactor
        self._find = find
        self._main: Translator = translator or JournalTranslator(ledger, redactor)
        self._agents = Subagents(merge, stream, ledger, redactor)
        self._follower: Follower | None = None
        self._search_at, self._search_gap = 0.0, _IDLE
        self._header_seen = False
        self._lost = False
        self._given_up = False
        if resumed is not None and resumed_id is not None and resumed.suffix == _SUFFIX:
            # An older release's `.json` is not gone on with: the CLI begins a journal beside it.
            self._follower = Follower(resumed, from_end=True)
            self._header_seen = merge.following = True
            self._agents.begin(resumed.parent / resumed_id, old=True)

    @property
    def whole(self) -> bool:
        """Whether the journal was there from the first record on, and nothing of it was lost."""
        follower = self._follower
        if follower is None or not self._header_seen or self._lost or self._given_up:
            return False
        intact = not (follower.dropped or follower.restarts or self._merge.missed)
        return intact and self._agents.whole

    def find(self) -> None:
        """See whether the journal is there: the CLI makes it before it says which session it is in."""
        session_id = self._stream.session_id
        now = time.monotonic()
        if self._follower is None and session_id and now >= self._search_at:
            # Seldom, once it was not there: to look for it is to list all sessions of the folder.
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
        """Take what is new; one `stat` where nothing is."""
        if not self._given_up:
            try:
                self._look()
            except Exception as error:
                # Anybody can write to these files, the agent too: nothing in them may cost the run.
                _log.warning("the session journal is not followed any more", error=error)
                self._given_up, self._merge.following = True, False
                told = self._redactor.text(f"{type(error).__name__}: {error}")
                self._merge.add([self._ledger.notice("warning", "journal", f"not followed any more: {told}")])
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
        # While it cannot be read, no tool waits for it.
        gone = follower.path is None or follower.problem is not None
        self._lost |= gone
        self._merge.following = not gone
        self._agents.look()

    async def watch(self) -> None:
        """Look again and again, for as long as the run goes on."""
        import anyio

        while True:
            soon = self._merge.held or self._stream.tools_running
            await anyio.sleep(_SOON if soon else _IDLE)
            self.look()

    def finish(self) -> None:
        """The run is over: take what is there, and let nothing wait any longer."""
        self.look()
        if not self._given_up:
            self._agents.finish()
        self._merge.release(now=True)
        self._merge.following = False

    def _take(self, line: bytes) -> None:
        record = decode_record(line)
        if record is None:
            self._lost |= bool(line.strip())  # cut off, or written by nobody we know
        elif isinstance(record, Header):
            self._header_seen = True
        elif isinstance(record, Message) and not 0 < at_of(record.timestamp) < self._since:
            events, truths = self._main.translate(record)
            self._merge.know(truths)
            self._agents.name({t.agent_id: call for call, t in truths.items() if t.agent_id})
            if events:
                self._merge.add(events)


def journal_of_run(
    plan: Plan,
    options: Options,
    merge: Merge,
    stream: Heard,
    ledger: Ledger,
    redactor: Redactor,
    *,
    since: int,
) -> Journal:
    """The journal of a headless run."""
    from geminids.sessions.listing import journal_of

    return Journal(
        merge,
        stream,
        ledger,
        redactor,
        lambda session_id: journal_of(session_id, plan.cwd, home=options.home, environ=plan.env),
        resumed=plan.resumed,
        resumed_id=options.resume,
        since=since,
    )
