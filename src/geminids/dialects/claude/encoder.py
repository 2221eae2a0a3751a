"""A run as Claude Code prints it live: `claude -p --output-format stream-json --verbose`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from geminids.dialects.claude.ending import Clock, Ending, api_error, result
from geminids.dialects.claude.line_writer import UNNAMED, Voice
from geminids.dialects.claude.message_builder import Growing
from geminids.dialects.claude.model import (
    Assistant,
    Denial,
    ToolResultBlock,
    ToolUseBlock,
    Turnout,
    User,
    line_of,
    tool_use,
)
from geminids.dialects.claude.usage import stop_reason_of
from geminids.events.model import (
    Event,
    Finished,
    Notice,
    PermissionAsked,
    Started,
    Text,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
)

__all__ = ["Speaker"]


class Speaker:
    """Hears a run's events and says Claude Code's lines: one `assistant` line a message, `result` last, always.

    A message is said when its tokens are known, so that its line has them, or when something comes that must stand
    behind it. With `partial`, each piece of the agent's own messages is a `stream_event` besides, as it comes.
    """

    def __init__(self, partial: bool = False) -> None:
        self._partial = partial
        self._voice = Voice()
        self._clock = Clock()
        self._over = False
        self._denials: list[Denial] = []
        self._tool_cut_off = False
        self._first: Event | None = None
        self._latest: Event | None = None
        self._begin_attempt(None)

    def hear(self, events: Sequence[Event]) -> bytes:
        out = self._voice.out
        if self._first is None and events:
            self._first = events[0]
        for event in events:
            if self._over:
                break
            if type(event) is Text:
                if text := event.text:
                    message = self._growing.get(None)
                    if message is None or message.behind or event.turn > message.turn:
                        message = self._message_for(event.turn)
                    message.say(text)
            elif (take := _TAKES.get(type(event))) is not None:
                take(self, event)
            self._latest = event
        said = b"".join(out)
        out.clear()
        return said

    def end(self) -> bytes:
        if not self._over:
            self._end(None)
        said = b"".join(self._voice.out)
        self._voice.out.clear()
        return said

    def _begin_attempt(self, started: Started | None) -> None:
        # By the call whose subagent speaks; None is the agent itself.
        self._growing: dict[str | None, Growing] = {}
        # Requests whose message has not begun, oldest first.
        self._ahead: dict[str | None, list[TokensUsed]] = {}
        self._started_calls: dict[int, int] = {}
        # Why the API ended an answer early, by the number of its request.
        self._cut: dict[int, str] = {}
        self._calls: dict[str, str | None] = {}
        self._agents: dict[int, list[str]] = {}
        # The warm lane tells a call's input at its end: it is not said before, nor what its subagent does.
        self._unsaid: dict[str, ToolStarted] = {}
        self._held: dict[str, list[bytes]] = {}
        # All that is ever known of the input of a command that was not allowed there.
        self._commands: dict[str, str] = {}
        self._counted = 0
        self._has_journal = True
        self._model = (started.model if started else None) or UNNAMED

    def _started(self, event: Started) -> None:
        self._say_all(over=False)
        self._begin_attempt(event)
        self._voice.begin(event)

    def _notice(self, event: Notice) -> None:
        if event.session is not None:
            self._voice.hear_session(event.session.session_id)
        elif event.request is not None and (reason := stop_reason_of(event.code)) is not None:
            self._cut[event.request] = reason
        elif event.code == "journal":
            self._has_journal = False
            message = self._growing.get(None)
            if message is not None and message.calls:
                self._say(None)

    def _thought(self, event: Thought) -> None:
        parent = event.parent
        message = self._growing.get(parent)
        if parent is not None:
            self._say(None)
            if message is not None and (message.calls or message.requests):
                self._say(parent)
        elif message is not None and event.turn > message.turn:
            self._say(None)
        message = self._growing.get(parent) or self._begin(event.turn, parent)
        message.think(event.subject, event.text)
        if parent is None and message.calls and message.requests and not self._is_incomplete(None):
            self._say(None, over=False)

    def _tokens_used(self, event: TokensUsed) -> None:
        if event.is_http_error:
            return  # no message comes of it, and it costs nothing
        if event.role == "main":
            self._model = event.model or self._model
            self._counted = event.turn
            parent = None
        elif event.role == "subagent" and len(agents := self._agents.get(event.turn, [])) == 1:
            parent = agents[0]
        else:
            return  # of the CLI itself, or of one of several subagents: only the sum has it
        message = self._growing.get(parent)
        is_next = parent is not None and message is not None and bool(message.requests) and not event.repeat
        if message is not None and (
            event.turn > message.turn or (is_next and not self._is_incomplete(parent))
        ):
            self._say(parent)
            message = None
        if message is None or is_next:
            self._ahead.setdefault(parent, []).append(event)
        elif event.turn == message.turn:
            message.served_by(event)
            if parent is None and (message.calls or self._unsaid) and not self._is_incomplete(None):
                self._say(None, over=not self._unsaid)

    def _permission_asked(self, event: PermissionAsked) -> None:
        if event.command is not None:
            self._commands[event.id] = event.command
        # Somebody reads what led to the question.
        if event.parent is None:
            self._say(None, over=False)

    def _tool_started(self, event: ToolStarted) -> None:
        self._clock.begin(event)
        parent = event.parent
        if parent is not None:
            self._say(None)
        elif event.kind == "agent":
            self._agents.setdefault(event.turn, []).append(event.id)
        if parent is None:
            self._started_calls[event.turn] = self._started_calls.get(event.turn, 0) + 1
        self._calls[event.id] = parent
        if event.input is None:
            self._unsaid[event.id] = event
        else:
            self._call(self._use_of(event), event.turn, parent)
        if parent is None and not self._waits() and not self._is_incomplete(None):
            self._say(None, over=False)

    def _tool_finished(self, event: ToolFinished) -> None:
        self._clock.end(event)
        if event.id in self._growing and not self._is_incomplete(event.id):
            self._say(event.id)  # what is left of its subagent
        is_said = event.id in self._calls and event.id not in self._unsaid
        parent = self._calls.pop(event.id, event.parent)
        if not is_said or event.status == "denied":
            use = self._use_of(event)
            if not is_said:
                self._call(use, event.turn, parent)
            if event.status == "denied":
                self._denials.append(Denial(use.name, use.id, use.input))
        self._tool_cut_off = self._tool_cut_off or event.status == "cancelled"
        self._put(self._result_of(event, parent), parent)
        if not (parent is None and self._waits()) and not self._is_incomplete(parent):
            self._say(parent)

    def _result_of(self, event: ToolFinished, parent: str | None) -> bytes:
        told = event.output or event.error or ""
        block = ToolResultBlock(event.id, told, event.status != "ok")
        error = UNSET if event.error is None or event.error == told else f"Error: {event.error}"
        own = self._voice.line_id()
        return line_of(User(Turnout("user", [block]), parent, self._voice.session_id, own, error))

    def _finished(self, event: Finished) -> None:
        self._voice.name(event.run_id)
        self._end(event)

    def _end(self, finished: Finished | None) -> None:
        whole = finished is not None and finished.finish_reason in (None, "STOP")
        self._say_all(over=whole and finished is not None and finished.outcome == "success")
        first, last = self._first, finished or self._latest
        lasted = max(last.at - first.at, 0) if first and last else 0
        turns = last.turn if last else 0
        ending = Ending(self._clock, lasted, turns, self._denials, self._tool_cut_off)
        if finished is not None and (refused := api_error(finished, self._voice)) is not None:
            self._voice.out.append(line_of(refused))
        self._voice.out.append(line_of(result(finished, ending, self._voice)))
        self._over = True

    def _message_for(self, turn: int, parent: str | None = None) -> Growing:
        """The message that goes on, or a new one where it is another turn or results stand behind it already."""
        message = self._growing.get(parent)
        if message is not None:
            is_answered = bool(message.behind) and not self._is_incomplete(parent)
            if is_answered or turn > message.turn:
                self._say(parent)
                message = None
        return message or self._begin(turn, parent)

    def _begin(self, turn: int, parent: str | None) -> Growing:
        ahead = self._ahead.pop(parent, [])
        requests = [request for request in ahead if request.turn == turn]
        if parent is not None:
            # The gateway may report several requests of a subagent before its first message is known: one for each
            # message, with its repeats.
            count = next((n for n, one in enumerate(requests) if n and not one.repeat), len(requests))
            self._ahead[parent] = requests[count:]
            requests = requests[:count]
        model = (requests[-1].model if requests else None) or self._model
        live = self._partial and parent is None
        message = self._growing[parent] = Growing(self._voice, turn, model, requests, live=live)
        return message

    def _call(self, use: ToolUseBlock, turn: int, parent: str | None) -> None:
        self._unsaid.pop(use.id, None)
        message = self._message_for(turn, parent)
        message.call(use)
        message.behind += self._held.pop(use.id, ())

    def _use_of(self, event: ToolStarted | ToolFinished) -> ToolUseBlock:
        command = self._commands.pop(event.id, None)
        given = {"command": command} if event.input is None and command is not None else event.input
        return tool_use(event.id, event.name, given)

    def _waits(self) -> bool:
        """Whether the agent's message at hand shall wait for its tokens, which a journal tells within moments."""
        message = self._growing.get(None)
        if message is None or message.requests or message.turn == self._counted:
            return False
        return self._has_journal

    def _is_incomplete(self, parent: str | None) -> bool:
        """Whether the answer has tool calls or a thought that this message lacks: they come after its tokens."""
        message = self._growing.get(parent)
        if message is None or not message.requests:
            return False
        started = self._started_calls.get(message.turn, 0) if parent is None else message.calls
        answer = message.requests[-1]
        lacks_thought = bool(answer.thoughts) and not message.thoughts and self._has_journal
        return lacks_thought or (answer.calls or 0) > started

    def _say(self, parent: str | None, *, over: bool = True) -> None:
        message = self._growing.pop(parent, None)
        if message is None:
            return
        numbers = [request.request or 0 for request in message.requests]
        whole = message.whole(over=over, cut=self._cut.get(numbers[-1]) if numbers else None)
        own = self._voice.line_id()
        line = line_of(Assistant(whole, parent, self._voice.session_id, own))
        for said in (line, *message.behind):
            self._put(said, parent)

    def _say_all(self, *, over: bool) -> None:
        for parent in list(self._growing):
            self._say(parent, over=over)
        while self._unsaid:
            call = next(iter(self._unsaid.values()))
            self._call(self._use_of(call), call.turn, call.parent)
            self._say(call.parent, over=over)

    def _put(self, line: bytes, parent: str | None) -> None:
        message = self._growing.get(parent)
        if message is not None:
            message.behind.append(line)
        elif parent is not None and parent in self._unsaid:
            self._held.setdefault(parent, []).append(line)
        else:
            self._voice.out.append(line)


_TAKES: dict[type[Event], Callable[[Speaker, Any], None]] = {
    Started: Speaker._started,
    Thought: Speaker._thought,
    TokensUsed: Speaker._tokens_used,
    ToolStarted: Speaker._tool_started,
    ToolFinished: Speaker._tool_finished,
    PermissionAsked: Speaker._permission_asked,
    Notice: Speaker._notice,
    Finished: Speaker._finished,
}
