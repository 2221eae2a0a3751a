"""What a headless run says, in one order: its two pipes, and the journal of its session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from geminids.events.model import Event
from geminids.events.translate.stream_json import StreamTranslator
from geminids.launch.plan import Plan
from geminids.options import Options
from geminids.process.child import Child
from geminids.run.accounting.cost import load_prices_early
from geminids.run.headless.journal import Merge
from geminids.run.headless.reader import OnLine, Reading
from geminids.run.recorder import RunRecorder
from geminids.run.stopping import Deadlines, Stopping

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from geminids.run.headless.journal import Journal

__all__ = ["OnSession", "Sources"]

# Is told the id of a new session, once, and may have something to say of it.
OnSession = Callable[[str], list[Event]]


class Sources:
    """Reads the pipes and follows the journal, and puts out what they tell; `reading` has what the pipes said."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        recorder: RunRecorder,
        deadlines: Deadlines,
        stopping: Stopping,
        on_line: OnLine | None,
        on_session: OnSession | None,
    ) -> None:
        self._plan = plan
        self._options = options
        self._recorder = recorder
        self._on_session = on_session
        self._merge = Merge(recorder.emit)
        self._tools_ended = 0
        self._journal: Journal | None = None
        self.reading = Reading(
            recorder,
            deadlines,
            stopping,
            self._read,
            line_limit=options.line_limit,
            on_line=on_line,
            why_not=plan.verdicts.why_not,
        )

    @property
    def stream(self) -> StreamTranslator:
        return self.reading.stream

    @property
    def complete(self) -> bool:
        """Whether the events hold all that the journal does."""
        return self._journal is not None and self._journal.whole

    def tell(self, events: list[Event]) -> None:
        """What somebody else has to say, in the same order; no tool has ended among it."""
        self._merge.add(events, ends_tool=False)

    def follow(self, tasks: TaskGroup, *, since: int) -> None:
        """Follow the journal of the session."""
        from geminids.run.headless.journal import journal_of_run  # imported while the CLI loads

        self._journal = journal_of_run(
            self._plan,
            self._options,
            self._merge,
            self.stream,
            self._recorder,
            since=since,
        )
        tasks.start_soon(self._journal.watch)

    def drain(self, child: Child) -> None:
        """Take what is in the pipes already."""
        self.reading.drain(child)

    def finish(self, child: Child) -> None:
        """The run is over: take all that is there."""
        self.drain(child)
        self.reading.finish()
        if self._journal is not None:
            self._journal.finish()

    def release(self) -> None:
        """Nothing waits any longer."""
        self._merge.release(now=True)

    def _read(self, events: list[Event], size: int = 0) -> None:
        """What the pipes said. A look at the journal follows, so that neither is far ahead of the other."""
        ended, self._tools_ended = self._tools_ended, self.stream.tools_ended
        has_ended = ended != self._tools_ended
        if self._journal is not None and has_ended:
            self._journal.find()
        self._merge.add(events, size, ends_tool=has_ended)
        if self.stream.init is not None:
            load_prices_early(self._options)
        if self._on_session is not None and self.stream.init is not None:
            tell, self._on_session = self._on_session, None
            self.tell(tell(self.stream.init.session_id or ""))
        if self._journal is not None and has_ended:
            self._journal.look()
