"""Encode a run in the format that `claude -p --output-format stream-json --verbose` prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from geminids.dialects.claude.line_writer import UNNAMED, LineWriter
from geminids.dialects.claude.message_builder import MessageBuilder
from geminids.dialects.claude.model import (
    Assistant,
    Denial,
    ToolResultBlock,
    ToolResults,
    ToolUseBlock,
    User,
    line_of,
    tool_use,
)
from geminids.dialects.claude.result_line import ResultDetails, ToolClock, api_error, result
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

__all__ = ["Encoder"]


class Encoder:
    """Encodes the events of a run as the lines that Claude Code prints.

    Each message of the model is an `assistant` line. The last line is always a `result`.

    A message is written when its token counts are known, or at the latest before the first line
    that must follow the message. With `partial=True`, each piece of the agent's messages is also
    written immediately, as a `stream_event` line. Messages of subagents have no `stream_event`
    lines.
    """

    def __init__(self, partial: bool = False) -> None:
        self._partial = partial
        self._writer = LineWriter()
        self._clock = ToolClock()
        self._over = False
        self._denials: list[Denial] = []
        self._tool_cut_off = False
        self._first: Event | None = None
        self._latest: Event | None = None
        self._begin_attempt(None)

    def feed(self, events: Sequence[Event]) -> bytes:
        out = self._writer.out
        if self._first is None and events:
            self._first = events[0]
        for event in events:
            if self._over:
                break
            if type(event) is Text:
                if text := event.text:
                    message = self._open_messages.get(None)
                    if message is None or message.following or event.turn > message.turn:
                        message = self._message_for(event.turn)
                    message.add_text(text)
            elif (handle := _HANDLERS.get(type(event))) is not None:
                handle(self, event)
            self._latest = event
        output = b"".join(out)
        out.clear()
        return output

    def finish(self) -> bytes:
        if not self._over:
            self._end(None)
        output = b"".join(self._writer.out)
        self._writer.out.clear()
        return output

    def _begin_attempt(self, started: Started | None) -> None:
        # The messages that are not written yet. The key is the id of the call that started the
        # subagent; None for the main agent.
        self._open_messages: dict[str | None, MessageBuilder] = {}
        # Requests that were reported before their message began, oldest first. The keys are as
        # above.
        self._early_requests: dict[str | None, list[TokensUsed]] = {}
        self._started_calls: dict[int, int] = {}
        # The reason why the API ended an answer early, by the number of the request.
        self._cut_reasons: dict[int, str] = {}
        self._call_parents: dict[str, str | None] = {}
        self._agents: dict[int, list[str]] = {}
        # Calls whose input is not known yet, because the warm transport reports it when a call
        # ends. Until then, these calls and the lines of their subagents are held back.
        self._unwritten_calls: dict[str, ToolStarted] = {}
        self._held_lines: dict[str, list[bytes]] = {}
        # The commands in permission requests, by the id of the call. If a command is denied on the
        # warm transport, no other event contains it.
        self._commands: dict[str, str] = {}
        self._counted_turn = 0
        self._has_journal = True
        self._model = (started.model if started else None) or UNNAMED

    def _started(self, event: Started) -> None:
        self._write_all(over=False)
        self._begin_attempt(event)
        self._writer.begin(event)

    def _notice(self, event: Notice) -> None:
        if event.session is not None:
            self._writer.set_session(event.session.session_id)
        elif event.request is not None and (reason := stop_reason_of(event.code)) is not None:
            self._cut_reasons[event.request] = reason
        elif event.code == "journal":
            self._has_journal = False
            message = self._open_messages.get(None)
            if message is not None and message.calls:
                self._write_message(None)

    def _thought(self, event: Thought) -> None:
        parent = event.parent
        message = self._open_messages.get(parent)
        if parent is not None:
            self._write_message(None)
            if message is not None and (message.calls or message.requests):
                self._write_message(parent)
        elif message is not None and event.turn > message.turn:
            self._write_message(None)
        message = self._open_messages.get(parent) or self._begin(event.turn, parent)
        message.add_thought(event.subject, event.text)
        if parent is None and message.calls and message.requests and not self._is_incomplete(None):
            self._write_message(None, over=False)

    def _tokens_used(self, event: TokensUsed) -> None:
        if event.is_http_error:
            return  # a failed request has no message and costs nothing
        if event.role == "main":
            self._model = event.model or self._model
            self._counted_turn = event.turn
            parent = None
        elif event.role == "subagent" and len(agents := self._agents.get(event.turn, [])) == 1:
            parent = agents[0]
        else:
            return  # a request of the CLI itself, or of one of several subagents: counted in the total only
        message = self._open_messages.get(parent)
        is_next = parent is not None and message is not None and bool(message.requests) and not event.repeat
        if message is not None and (
            event.turn > message.turn or (is_next and not self._is_incomplete(parent))
        ):
            self._write_message(parent)
            message = None
        if message is None or is_next:
            self._early_requests.setdefault(parent, []).append(event)
        elif event.turn == message.turn:
            message.add_request(event)
            if parent is None and (message.calls or self._unwritten_calls) and not self._is_incomplete(None):
                self._write_message(None, over=not self._unwritten_calls)

    def _permission_asked(self, event: PermissionAsked) -> None:
        if event.command is not None:
            self._commands[event.id] = event.command
        # Write the text that led to the permission request now, so that the user can read it.
        if event.parent is None:
            self._write_message(None, over=False)

    def _tool_started(self, event: ToolStarted) -> None:
        self._clock.start(event)
        parent = event.parent
        if parent is not None:
            self._write_message(None)
        elif event.kind == "agent":
            self._agents.setdefault(event.turn, []).append(event.id)
        if parent is None:
            self._started_calls[event.turn] = self._started_calls.get(event.turn, 0) + 1
        self._call_parents[event.id] = parent
        if event.input is None:
            self._unwritten_calls[event.id] = event
        else:
            self._add_call(self._use_of(event), event.turn, parent)
        if parent is None and not self._should_wait() and not self._is_incomplete(None):
            self._write_message(None, over=False)

    def _tool_finished(self, event: ToolFinished) -> None:
        self._clock.stop(event)
        if event.id in self._open_messages and not self._is_incomplete(event.id):
            self._write_message(event.id)  # the last message of the subagent that this call started
        is_written = event.id in self._call_parents and event.id not in self._unwritten_calls
        parent = self._call_parents.pop(event.id, event.parent)
        if not is_written or event.status == "denied":
            use = self._use_of(event)
            if not is_written:
                self._add_call(use, event.turn, parent)
            if event.status == "denied":
                self._denials.append(Denial(use.name, use.id, use.input))
        self._tool_cut_off = self._tool_cut_off or event.status == "cancelled"
        self._put(self._result_of(event, parent), parent)
        if not (parent is None and self._should_wait()) and not self._is_incomplete(parent):
            self._write_message(parent)

    def _result_of(self, event: ToolFinished, parent: str | None) -> bytes:
        content = event.output or event.error or ""
        block = ToolResultBlock(event.id, content, event.status != "ok")
        error = UNSET if event.error is None or event.error == content else f"Error: {event.error}"
        line_id = self._writer.line_id()
        return line_of(User(ToolResults("user", [block]), parent, self._writer.session_id, line_id, error))

    def _finished(self, event: Finished) -> None:
        self._writer.set_run_id(event.run_id)
        self._end(event)

    def _end(self, finished: Finished | None) -> None:
        is_stop = finished is not None and finished.finish_reason in (None, "STOP")
        self._write_all(over=is_stop and finished is not None and finished.outcome == "success")
        first, last = self._first, finished or self._latest
        duration_ms = max(last.at - first.at, 0) if first and last else 0
        turns = last.turn if last else 0
        ending = ResultDetails(self._clock, duration_ms, turns, self._denials, self._tool_cut_off)
        if finished is not None and (error := api_error(finished, self._writer)) is not None:
            self._writer.out.append(line_of(error))
        self._writer.out.append(line_of(result(finished, ending, self._writer)))
        self._over = True

    def _message_for(self, turn: int, parent: str | None = None) -> MessageBuilder:
        """Return the open message, to which a block or text can be added. Begin a new message if
        necessary.

        A new message is necessary if no message is open, or if the turn has changed. It is also
        necessary if the open message is complete and tool results already follow it. `parent` is
        the id of the tool call that started the subagent; None for the main agent.
        """
        message = self._open_messages.get(parent)
        if message is not None:
            is_answered = bool(message.following) and not self._is_incomplete(parent)
            if is_answered or turn > message.turn:
                self._write_message(parent)
                message = None
        return message or self._begin(turn, parent)

    def _begin(self, turn: int, parent: str | None) -> MessageBuilder:
        early = self._early_requests.pop(parent, [])
        requests = [request for request in early if request.turn == turn]
        if parent is not None:
            # The gateway may report several requests of a subagent before the subagent's first
            # message begins. Only the first request and its repeats belong to this message.
            count = next((n for n, request in enumerate(requests) if n and not request.repeat), len(requests))
            self._early_requests[parent] = requests[count:]
            requests = requests[:count]
        model = (requests[-1].model if requests else None) or self._model
        live = self._partial and parent is None
        message = self._open_messages[parent] = MessageBuilder(self._writer, turn, model, requests, live=live)
        return message

    def _add_call(self, use: ToolUseBlock, turn: int, parent: str | None) -> None:
        self._unwritten_calls.pop(use.id, None)
        message = self._message_for(turn, parent)
        message.add_call(use)
        message.following += self._held_lines.pop(use.id, ())

    def _use_of(self, event: ToolStarted | ToolFinished) -> ToolUseBlock:
        command = self._commands.pop(event.id, None)
        tool_input = {"command": command} if event.input is None and command is not None else event.input
        return tool_use(event.id, event.name, tool_input)

    def _should_wait(self) -> bool:
        """Return whether the main agent's open message must wait for its token counts.

        Token counts come late if they are read from the journal, the session file that the CLI
        writes.
        """
        message = self._open_messages.get(None)
        if message is None or message.requests or message.turn == self._counted_turn:
            return False
        return self._has_journal

    def _is_incomplete(self, parent: str | None) -> bool:
        """Return whether tool calls or a thought of the open message are still missing.

        The event with the token counts of a message also says how many tool calls and thoughts the
        message has. The events of these calls and thoughts can come later.

        `parent` is the id of the tool call that started the subagent; None for the main agent.
        Return False if no message is open.
        """
        message = self._open_messages.get(parent)
        if message is None or not message.requests:
            return False
        started = self._started_calls.get(message.turn, 0) if parent is None else message.calls
        answer = message.requests[-1]
        lacks_thought = bool(answer.thoughts) and not message.thoughts and self._has_journal
        return lacks_thought or (answer.calls or 0) > started

    def _write_message(self, parent: str | None, *, over: bool = True) -> None:
        message = self._open_messages.pop(parent, None)
        if message is None:
            return
        numbers = [request.request or 0 for request in message.requests]
        finished = message.finish(over=over, cut=self._cut_reasons.get(numbers[-1]) if numbers else None)
        line_id = self._writer.line_id()
        line = line_of(Assistant(finished, parent, self._writer.session_id, line_id))
        for output in (line, *message.following):
            self._put(output, parent)

    def _write_all(self, *, over: bool) -> None:
        for parent in list(self._open_messages):
            self._write_message(parent, over=over)
        while self._unwritten_calls:
            call = next(iter(self._unwritten_calls.values()))
            self._add_call(self._use_of(call), call.turn, call.parent)
            self._write_message(call.parent, over=over)

    def _put(self, line: bytes, parent: str | None) -> None:
        message = self._open_messages.get(parent)
        if message is not None:
            message.following.append(line)
        elif parent is not None and parent in self._unwritten_calls:
            self._held_lines.setdefault(parent, []).append(line)
        else:
            self._writer.out.append(line)


_HANDLERS: dict[type[Event], Callable[[Encoder, Any], None]] = {
    Started: Encoder._started,
    Thought: Encoder._thought,
    TokensUsed: Encoder._tokens_used,
    ToolStarted: Encoder._tool_started,
    ToolFinished: Encoder._tool_finished,
    PermissionAsked: Encoder._permission_asked,
    Notice: Encoder._notice,
    Finished: Encoder._finished,
}
