"""Merge the events of a turn from two sources: ACP updates and the CLI's session file.

The session file is called the journal.
"""

from __future__ import annotations

import msgspec

from geminids.events.model import Event, ToolFinished
from geminids.events.translate.acp import AcpTranslator
from geminids.events.translate.acp_journal import WarmJournalTranslator
from geminids.gemini.protocol.tool_results import denial_text
from geminids.options import Options
from geminids.run.headless.journal import Journal, Merge
from geminids.run.recorder import RunRecorder
from geminids.warm.acp.session import AcpSession

__all__ = ["WarmSources"]


class WarmSources:
    """Merges the events of a turn's ACP updates and of its journal into one sequence, and emits
    them.

    The translators `updates` and `journal_translator` contain the state of the turn.
    """

    def __init__(self, session: AcpSession, options: Options, recorder: RunRecorder) -> None:
        self._why_not = session.process.plan.verdicts.why_not
        self._recorder = recorder
        redactor, home = session.process.redactor, options.home
        self._merge = Merge(self._emit)
        self.updates = AcpTranslator(
            recorder, redactor, session.session_id, session.cwd, self._why_not, self._merge.expect_no_record
        )
        self.journal_translator = WarmJournalTranslator(
            recorder, redactor, self.updates, session.reported_calls
        )
        self.journal = Journal(
            self._merge,
            self.updates,
            recorder,
            lambda _: session.find_journal(home),
            resumed=session.find_journal(home),
            resumed_id=session.session_id,
            translator=self.journal_translator,
        )

    @property
    def complete(self) -> bool:
        """Whether the whole journal was read and its events were emitted."""
        return self.journal.whole

    def emit(self, events: list[Event]) -> None:
        """Emit events of another source, such as stderr, in the order of their arrival."""
        self._merge.add(events)

    def add_updates(self, events: list[Event]) -> None:
        """Emit events of ACP updates.

        The event that reports the end of a tool call is held back until the journal contains the
        call's result, but only for a short time.
        """
        ends = self.updates.tools_ended
        self._merge.add(events)
        if ends and self._merge.held:
            self.journal.look()

    def finish(self) -> None:
        """After the end of the turn, read the rest of the journal and emit the last events."""
        self.journal.look()
        self._merge.add(self.updates.finish())
        self.journal.finish()

    def release(self) -> None:
        """Emit all events that are held back until the journal contains a result.

        Call this at the end: the events are emitted even if the result is still missing.
        """
        self._merge.release(now=True)

    def _emit(self, events: list[Event], size: int = 0) -> None:
        events = [self._with_reason(event) for event in events]
        self._recorder.emit(events, size)

    def _with_reason(self, event: Event) -> Event:
        """Add our reason to the error of a call that a rule denied. Return the event.

        Our reason is put before the CLI's error. To find our reason, the arguments of the call are
        needed, so an event without them is returned unchanged. All events that do not report a
        denied call are returned unchanged too.
        """
        if type(event) is not ToolFinished or event.status != "denied" or event.input is None:
            return event
        reason = self._why_not(event.name, event.input)
        if reason is None or (event.error or "").startswith(reason):
            return event
        return msgspec.structs.replace(event, error=denial_text(reason, event.error))
