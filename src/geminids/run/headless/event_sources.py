"""Merge the events of a headless run into one order: stdout, stderr and the journal."""

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
from geminids.run.headless.reader import OnLine, PipeReader
from geminids.run.recorder import RunRecorder
from geminids.run.stopping import Deadlines, Stopping

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from geminids.run.headless.journal import Journal

__all__ = ["OnSession", "Sources"]

OnSession = Callable[[str], list[Event]]
"""Called once with the id of a new session; returns events to emit."""


class Sources:
    """Reads the pipes, follows the journal and emits their events; `reader` reads the pipes."""

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
        self.reader = PipeReader(
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
        return self.reader.stream

    @property
    def complete(self) -> bool:
        """Whether the events contain everything that the journal does."""
        return self._journal is not None and self._journal.whole

    def emit(self, events: list[Event]) -> None:
        """Emit events of another source, in the same order. They must not end a tool."""
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
        """Read what is left in the pipes."""
        self.reader.drain(child)

    def finish(self, child: Child) -> None:
        """Read what is left in the pipes and in the journal, at the end of the run."""
        self.drain(child)
        self.reader.finish()
        if self._journal is not None:
            self._journal.finish()

    def release(self) -> None:
        """Emit all events that wait for the journal."""
        self._merge.release(now=True)

    def _read(self, events: list[Event], size: int = 0) -> None:
        """Take events of the pipes, then read the journal, so that both stay in step."""
        ended, self._tools_ended = self._tools_ended, self.stream.tools_ended
        has_ended = ended != self._tools_ended
        if self._journal is not None and has_ended:
            self._journal.find()
        self._merge.add(events, size, ends_tool=has_ended)
        if self.stream.init is not None:
            load_prices_early(self._options)
        if self._on_session is not None and self.stream.init is not None:
            on_session, self._on_session = self._on_session, None
            self.emit(on_session(self.stream.init.session_id or ""))
        if self._journal is not None and has_ended:
            self._journal.look()
