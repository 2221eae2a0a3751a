"""What a warm turn says, in one order: the updates of its session, and the journal that knows more of them."""

from __future__ import annotations

import msgspec

from geminids.events.model import Event, ToolFinished
from geminids.events.translate.acp import AcpTranslator
from geminids.events.translate.acp_journal import WarmJournalTranslator
from geminids.gemini.protocol.tool_results import told
from geminids.options import Options
from geminids.run.headless.journal import Journal, Merge
from geminids.run.recorder import RunRecorder
from geminids.warm.session import AcpSession

__all__ = ["WarmSources"]


class WarmSources:
    """Puts out what updates and journal tell. `updates` and `journal_translator` have what is known by now."""

    def __init__(self, session: AcpSession, options: Options, recorder: RunRecorder) -> None:
        self._why_not = session.process.plan.verdicts.why_not
        self._recorder = recorder
        redactor, home = session.process.redactor, options.home
        self._merge = Merge(self._put)
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
        """Whether the events hold all that the journal does."""
        return self.journal.whole

    def emit(self, events: list[Event]) -> None:
        """Events, wherever they come from, in the one order."""
        self._merge.add(events)

    def add_updates(self, events: list[Event]) -> None:
        """What the updates have told; the end of a tool waits for what the journal has of it."""
        ends = self.updates.tools_ended
        self._merge.add(events)
        if ends and self._merge.held:
            self.journal.look()

    def finish(self) -> None:
        """The turn is over: take all that is there."""
        self.journal.look()
        self._merge.add(self.updates.finish())
        self.journal.finish()

    def release(self) -> None:
        """Nothing waits any longer."""
        self._merge.release(now=True)

    def _put(self, events: list[Event], size: int = 0) -> None:
        events = [self._explained(event) for event in events]
        self._recorder.emit(events, size)

    def _explained(self, event: Event) -> Event:
        """A call that a rule denied, with our own reason: that needs the arguments, which the journal has told."""
        if type(event) is not ToolFinished or event.status != "denied" or event.input is None:
            return event
        why = self._why_not(event.name, event.input)
        if why is None or (event.error or "").startswith(why):
            return event
        return msgspec.structs.replace(event, error=told(why, event.error))
