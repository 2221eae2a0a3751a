"""Write the lines of one run in Claude Code's format. All lines contain the session id. The id of
each line is made from the run id."""

from __future__ import annotations

from geminids.dialects.claude.model import Init, LineIds, encoded, line_of
from geminids.events.model import Started

__all__ = ["UNNAMED", "LineWriter"]

# The model in a line if the run does not name its model: the line must contain a model.
UNNAMED = "gemini"
_STREAM_EVENT = b'{"type":"stream_event","event":%b%b%012x"}\n'
_MODES = {"auto_edit": "acceptEdits", "yolo": "bypassPermissions", "plan": "plan"}


class LineWriter:
    """Collects the lines of a run in `out`.

    The first line, `init`, contains the session id. It is written when the session id is known, but
    at the latest before any other line.
    """

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self._run_id = ""
        self._ids: LineIds | None = None
        self._held_start: Started | None = None
        self._use_session("")

    def begin(self, started: Started) -> None:
        self.set_run_id(started.run_id)
        self._held_start = started
        self._use_session(started.session_id or "")
        if self.session_id:
            self._write_init()

    def set_run_id(self, run_id: str) -> None:
        """Set the run id, from which the ids of all lines are made.

        Call this method before the first line is written. A second call has no effect.
        """
        self._run_id = self._run_id or run_id

    def set_session(self, session_id: str) -> None:
        """Set the session id that the CLI reported. The call has no effect if the session id is
        already known."""
        if not self.session_id:
            self._use_session(session_id)
            if self._held_start is not None:
                self._write_init()

    def line_id(self) -> str:
        if self._held_start is not None:
            self._write_init()
        return self.ids.line()

    @property
    def ids(self) -> LineIds:
        if self._ids is None:
            self._ids = LineIds(self._run_id)
            self._build_tail()
        return self._ids

    def stream(self, *events: bytes) -> None:
        """Write a `stream_event` line for each of `events`, which are JSON objects."""
        if self._held_start is not None:
            self._write_init()
        # Format by hand, for speed: most lines of a run are `stream_event` lines.
        number = (self._ids or self.ids).number
        for event in events:
            self.out.append(_STREAM_EVENT % (event, self._tail, number()))

    def delta_head(self, index: int) -> bytes:
        """Return the beginning of all lines that contain a piece of text for the block `index`.
        Pass the result to `delta` as `head`."""
        return (
            b'{"type":"stream_event","event":{"type":"content_block_delta","index":%d,'
            b'"delta":{"type":"text_delta","text":' % index
        )

    def delta(self, head: bytes, text: str) -> None:
        self.out.append(b'%b%b}}%b%012x"}\n' % (head, encoded(text), self._tail, self.ids.number()))

    def _use_session(self, session_id: str) -> None:
        self.session_id = session_id
        self._build_tail()

    def _build_tail(self) -> None:
        """Build the text at the end of each `stream_event` line, except the number of the line. The
        number is added when the line is written."""
        stem = self._ids.stem if self._ids else ""
        head = b',"session_id":%b,"parent_tool_use_id":null,"uuid":"' % encoded(self.session_id)
        self._tail = head + stem.encode()

    def _write_init(self) -> None:
        started, self._held_start = self._held_start, None
        if started is not None:
            mode = _MODES.get(started.approval or "", "default")
            model = started.model or UNNAMED
            line = Init.of(
                cwd=started.cwd, session_id=self.session_id, model=model, mode=mode, line_id=self.ids.line()
            )
            self.out.append(line_of(line))
