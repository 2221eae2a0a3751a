"""What all lines of one run share: who speaks, in which session, and what has been said so far."""

from __future__ import annotations

from geminids.dialects.claude.model import Init, LineIds, encoded, line_of
from geminids.events.model import Started

__all__ = ["UNNAMED", "Voice"]

# A model that nobody has named: the line must have one.
UNNAMED = "gemini"
_PIECE = b'{"type":"stream_event","event":%b%b%012x"}\n'
_MODES = {"auto_edit": "acceptEdits", "yolo": "bypassPermissions", "plan": "plan"}


class Voice:
    """Lines in their order. The first of an attempt is held until its session is known, or another must be said."""

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self._run_id = ""
        self._ids: LineIds | None = None
        self._waiting: Started | None = None
        self._in_session("")

    def begin(self, started: Started) -> None:
        self.name(started.run_id)
        self._waiting = started
        self._in_session(started.session_id or "")
        if self.session_id:
            self._open()

    def name(self, run_id: str) -> None:
        """Ids come from the run's own, which is known before anything is said, where it is known at all."""
        self._run_id = self._run_id or run_id

    def hear_session(self, session_id: str) -> None:
        """The CLI has announced it."""
        if not self.session_id:
            self._in_session(session_id)
            if self._waiting is not None:
                self._open()

    def line_id(self) -> str:
        if self._waiting is not None:
            self._open()
        return self.ids.line()

    @property
    def ids(self) -> LineIds:
        if self._ids is None:
            self._ids = LineIds(self._run_id)
            self._end_tail()
        return self._ids

    def stream(self, *events: bytes) -> None:
        """A line for each of these events, which are JSON already."""
        if self._waiting is not None:
            self._open()
        # By hand, since most lines of a run are such.
        number = (self._ids or self.ids).number
        for event in events:
            self.out.append(_PIECE % (event, self._tail, number()))

    def delta_head(self, index: int) -> bytes:
        """How a line with a piece of text begins."""
        return (
            b'{"type":"stream_event","event":{"type":"content_block_delta","index":%d,'
            b'"delta":{"type":"text_delta","text":' % index
        )

    def delta(self, head: bytes, text: str) -> None:
        self.out.append(b'%b%b}}%b%012x"}\n' % (head, encoded(text), self._tail, self.ids.number()))

    def _in_session(self, session_id: str) -> None:
        self.session_id = session_id
        self._end_tail()

    def _end_tail(self) -> None:
        """How each line with a piece ends, but for its number."""
        stem = self._ids.stem if self._ids else ""
        head = b',"session_id":%b,"parent_tool_use_id":null,"uuid":"' % encoded(self.session_id)
        self._tail = head + stem.encode()

    def _open(self) -> None:
        started, self._waiting = self._waiting, None
        if started is not None:
            mode = _MODES.get(started.approval or "", "default")
            model = started.model or UNNAMED
            line = Init.of(
                cwd=started.cwd, session_id=self.session_id, model=model, mode=mode, own=self.ids.line()
            )
            self.out.append(line_of(line))
