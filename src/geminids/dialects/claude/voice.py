"""What all lines of one run share: who speaks, in which session, and what has been said so far."""

from __future__ import annotations

from typing import Any

from geminids.dialects.claude.lines import Init, LineIds, encoded, line_of
from geminids.events.model import Started
from geminids.ids import is_session_id

__all__ = ["UNNAMED", "Voice"]

# A model that nobody has named: the line must have one.
UNNAMED = "gemini"
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

    def hear_session(self, notice: str) -> None:
        """The CLI's own announcement, which is a text: `session <id>, model <name>`."""
        found = notice.removeprefix("session ").partition(", model ")[0]
        if not self.session_id and is_session_id(found):
            self._in_session(found)
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
        return self._ids

    def stream_event(self, event: dict[str, Any]) -> None:
        # By hand, since most lines of a run are such.
        own = self.line_id().encode()
        self.out.append(b'{"type":"stream_event","event":%b%b%b"}\n' % (encoded(event), self._tail, own))

    def delta_head(self, index: int) -> bytes:
        """How a line with a piece of text begins."""
        return (
            b'{"type":"stream_event","event":{"type":"content_block_delta","index":%d,'
            b'"delta":{"type":"text_delta","text":' % index
        )

    def delta(self, head: bytes, text: str) -> None:
        self.out.append(b'%b%b}}%b%b"}\n' % (head, encoded(text), self._tail, self.ids.line().encode()))

    def _in_session(self, session_id: str) -> None:
        self.session_id = session_id
        self._tail = b',"session_id":%b,"parent_tool_use_id":null,"uuid":"' % encoded(session_id)

    def _open(self) -> None:
        started, self._waiting = self._waiting, None
        if started is not None:
            mode = _MODES.get(started.approval or "", "default")
            model = started.model or UNNAMED
            line = Init.of(
                cwd=started.cwd, session_id=self.session_id, model=model, mode=mode, own=self.ids.line()
            )
            self.out.append(line_of(line))
