"""Merge the two event sources of a warm turn in order: the session's updates and the CLI's journal."""

from __future__ import annotations

import msgspec

from geminids.events.model import Event, ToolFinished
from geminids.events.translate.acp import AcpTranslator
from geminids.events.translate.acp_journal import WarmJournalTranslator
from geminids.gemini.protocol.tool_results import denial_text
from geminids.options import Options
from geminids.run.headless.journal import Journal, Merge
from geminids.run.recorder import RunRecorder
from geminids.warm.session import AcpSession

__all__ = ["WarmSources"]


class WarmSources:
    """Emits the events of updates and journal. `updates` and `journal_translator` hold the state so far."""

    def __init__(self, session: AcpSession, options: Options, recorder: RunRecorder) -> None:
        self._why_not = session.process.plan.verdicts.why_not
        self._recorder = recorder
        redactor, home = session.process.redactor, options.home
        self._merge = Merge(self._emit_explained)
        self.updates = AcpTranslator(
            recorder, redactor, session.session_id, session.cwd, self._why_not, self._merge.excuse
        )
        self.journal_translator = WarmJournalTranslator(recorder, redactor, self.updates, session.known)
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
        """Whether the whole journal was read into events."""
        return self.journal.whole

    def emit(self, events: list[Event]) -> None:
        """Emit events of any other source, in order."""
        self._merge.add(events)

    def add_updates(self, events: list[Event]) -> None:
        """Add events of the updates. The end of a tool call is held until the journal has its result."""
        ends = self.updates.tools_ended
        self._merge.add(events)
        if ends and self._merge.held:
            self.journal.look()

    def finish(self) -> None:
        """The turn is over: read the rest of the journal."""
        self.journal.look()
        self._merge.add(self.updates.finish())
        self.journal.finish()

    def release(self) -> None:
        """Emit all events that are still held."""
        self._merge.release(now=True)

    def _emit_explained(self, events: list[Event], size: int = 0) -> None:
        events = [self._explained(event) for event in events]
        self._recorder.emit(events, size)

    def _explained(self, event: Event) -> Event:
        """Replace the error of a call that a rule denied with our reason. Needs the arguments from the journal."""
        if type(event) is not ToolFinished or event.status != "denied" or event.input is None:
            return event
        reason = self._why_not(event.name, event.input)
        if reason is None or (event.error or "").startswith(reason):
            return event
        return msgspec.structs.replace(event, error=denial_text(reason, event.error))
