"""Merge the events from the CLI's stdout, its stderr and its session file into one sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from geminids.events.model import Event
from geminids.events.translate.stream_json import StreamTranslator
from geminids.launch.plan import Plan
from geminids.options import Options
from geminids.process.child import Child
from geminids.run.accounting.cost import load_prices_early
from geminids.run.headless.journal import Journal, Merge, journal_of_run
from geminids.run.headless.reader import OutputCallbacks, PipeReader
from geminids.run.recorder import RunRecorder
from geminids.run.stopping import Deadlines, Stopping

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

__all__ = ["OnSession", "Sources"]

OnSession = Callable[[str], list[Event]]
"""A function that is called once, with the session id of the CLI. It returns events to emit."""


class Sources:
    """Reads the CLI's pipes and its session file, and emits all events as one sequence.

    The session file is called the journal.
    """

    def __init__(
        self,
        plan: Plan,
        options: Options,
        recorder: RunRecorder,
        deadlines: Deadlines,
        stopping: Stopping,
        callbacks: OutputCallbacks,
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
            callbacks=callbacks,
            why_not=plan.verdicts.why_not,
        )

    @property
    def stream(self) -> StreamTranslator:
        return self.reader.stream

    @property
    def complete(self) -> bool:
        """Whether the events contain everything that the CLI's session file contains."""
        return self._journal is not None and self._journal.whole

    def emit(self, events: list[Event]) -> None:
        """Emit events that come from neither the pipes nor the journal (the session file).

        If earlier events still wait for the journal, the new events are emitted after them. The new
        events must not contain the end of a tool call, because this method does not wait for the
        call's result in the journal.
        """
        self._merge.add(events, ends_tool=False)

    def follow(self, tasks: TaskGroup, *, since: int) -> None:
        """Start a task that reads the journal (the session file) while the CLI writes it.

        `since` is the start time of the attempt, in Unix milliseconds.
        """
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
        """Read the data that is still in the pipes, and emit its events."""
        self.reader.drain(child)

    def finish(self, child: Child) -> None:
        """Read what is still in the pipes and in the session file, and emit its events.

        Call this at the end of the attempt.
        """
        self.drain(child)
        self.reader.finish()
        if self._journal is not None:
            self._journal.finish()

    def release(self) -> None:
        """Emit all events that were held back until their record appears in the session file.

        They are emitted even if the record is still missing.
        """
        self._merge.release(now=True)

    def _read(self, events: list[Event], size: int = 0) -> None:
        """Emit events that were created from the CLI's output on the pipes (stdout and stderr).

        `size` is the number of bytes of this output.

        If the events report the end of a tool call, read the journal at once, because the journal
        contains the tool's result.
        """
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
