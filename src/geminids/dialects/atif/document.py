"""Convert a stored conversation to an ATIF document (Agent Trajectory Interchange Format, v1.8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from geminids.dialects.atif.model import VERSION
from geminids.errors import SessionError
from geminids.gemini.protocol.journal.records import StoredMessage, StoredToolCall
from geminids.gemini.protocol.journal.stream import open_journal
from geminids.gemini.protocol.stream_json import text_of
from geminids.sessions.message_parts import calls_of, exchanges, thoughts_of
from geminids.sessions.transcript import Agents

__all__ = ["trajectory"]

_NOTES = (
    "Made by geminids from a session file of Gemini CLI. Tokens of tool prompts are counted as prompt tokens, "
    "thinking as completion; the totals include subagents."
)


def trajectory(
    messages: Iterable[StoredMessage],
    *,
    session_id: str,
    agents: Agents | None = None,
    version: str = "unknown",
) -> Iterator[bytes]:
    """Convert the messages of a session to an ATIF document, and yield the document in pieces.

    The whole session does not have to fit into memory. `agents` finds the session files of
    subagents; without `agents`, the document does not contain the subagents. `version` is the
    version of the CLI; session files do not contain it.

    Raises `SessionError` before the first piece if there are no messages.
    """
    document = _Document(session_id, agents, version)
    steps = document.steps(messages)
    first = next(steps, None)
    if first is None:
        raise SessionError(
            f"session {session_id} has no messages, but an ATIF document needs at least one",
            hint="Choose a session with a prompt: geminids sessions list",
        )
    yield msgspec.json.encode({"schema_version": VERSION, "session_id": session_id})[:-1]
    yield b',"steps":[' + msgspec.json.encode(first)
    for step in steps:
        yield b"," + msgspec.json.encode(step)
    yield b"]"
    for number, inner in enumerate(document.embedded()):
        yield b"," if number else b',"subagent_trajectories":['
        yield msgspec.json.encode(inner)
    yield (b"]" if document.embeds else b"") + b"," + msgspec.json.encode(document.rest())[1:] + b"\n"


class _Document:
    """Builds the parts of one ATIF document: the steps, then the documents of subagents, then the
    totals."""

    def __init__(self, session_id: str, agents: Agents | None, version: str) -> None:
        self._agents = agents
        self._version = version
        self._session_id = session_id
        self._waiting: dict[str, tuple[str, Path]] = {}
        self._totals = dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens"), 0)
        self._steps = 0
        self._model: str | None = None
        self.embeds = False

    def steps(self, messages: Iterable[StoredMessage]) -> Iterator[dict[str, Any]]:
        for record, answers in exchanges(messages):
            step = self._step(record, list(calls_of(record, answers)))
            if step is not None:
                self._steps += 1
                yield {"step_id": self._steps, **step}

    def embedded(self) -> Iterator[dict[str, Any]]:
        """Yield the documents of all subagents.

        First come the subagents to which a tool call refers, then all other subagents of the
        session.
        """
        while self._waiting:
            agent = next(iter(self._waiting))
            yield self._embedded(agent, *self._waiting.pop(agent))
        for agent in self._agents.rest() if self._agents else ():
            if self._agents and (file := self._agents.take(agent)):
                yield self._embedded(agent, "subagent", file)

    def _embedded(self, agent: str, name: str, file: Path) -> dict[str, Any]:
        self.embeds = True
        # Encode each step separately: inside the document, it could exceed the encoder's nesting
        # limit.
        steps = [msgspec.Raw(msgspec.json.encode(step)) for step in self.steps_of(file)]
        return {
            "schema_version": VERSION,
            "trajectory_id": agent,
            "session_id": self._session_id,
            "agent": {"name": name, "version": self._version},
            # A tool call refers to this document, so the document must be valid: ATIF requires at
            # least one step.
            "steps": steps or [{"step_id": 1, "source": "system", "message": ""}],
        }

    def steps_of(self, file: Path) -> Iterator[dict[str, Any]]:
        outer, self._steps = self._steps, 0
        try:
            yield from self.steps(open_journal(file).messages)
        except OSError:
            pass  # the session file of the subagent was removed while we read it
        finally:
            self._steps = outer

    def rest(self) -> dict[str, Any]:
        model = {"model_name": self._model} if self._model else {}
        totals = {f"total_{name}": number for name, number in self._totals.items()}
        return {
            "agent": {"name": "gemini-cli", "version": self._version, **model},
            "final_metrics": {**totals, "total_steps": self._steps},
            "notes": _NOTES,
        }

    def _step(self, record: StoredMessage, calls: list[StoredToolCall]) -> dict[str, Any] | None:
        if record.type == "gemini":
            body = {"source": "agent", "message": record.text, **self._agent_fields(record)}
        elif record.is_prompt:
            body = {"source": "user", "message": record.text}
        else:
            body = {"source": "system", "message": "" if record.is_tool_results else record.text}
            if not body["message"] and not calls:
                return None
        if calls:
            body |= self._call_fields(calls, is_agent=record.type == "gemini")
        timestamp = {"timestamp": record.timestamp} if _is_time(record.timestamp) else {}
        media = [kind for part in _parts(record.content) if (kind := _media_type(part))]
        return {
            **timestamp,
            **body,
            "extra": {"message_id": record.id, **({"media": media} if media else {})},
        }

    def _agent_fields(self, record: StoredMessage) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if record.model:
            self._model = self._model or record.model
            body["model_name"] = record.model
        thoughts = [f"{subject}: {text}" if subject else text for subject, text in thoughts_of(record)]
        if thoughts:
            body["reasoning_content"] = "\n".join(thoughts)
        if (used := record.tokens) is not None:
            metrics = {
                "prompt_tokens": used.input + used.tool,
                "completion_tokens": used.output + used.thoughts,
                "cached_tokens": used.cached,
            }
            for name, number in metrics.items():
                self._totals[name] += number
            extra = {"thoughts_tokens": used.thoughts, "tool_tokens": used.tool}
            body |= {"metrics": {**metrics, "extra": extra}, "llm_call_count": 1}
        return body

    def _call_fields(self, calls: list[StoredToolCall], *, is_agent: bool) -> dict[str, Any]:
        """Return the fields of a step for its tool calls and their results.

        `is_agent` is True for a step of the model. For other steps, only the results are returned.
        """
        ids = [call.id or f"call_{number}" for number, call in enumerate(calls, 1)]
        results = [self._result(name, call, is_agent) for name, call in zip(ids, calls, strict=True)]
        observation = {"observation": {"results": [result for result in results if result is not None]}}
        fields: dict[str, Any] = observation if observation["observation"]["results"] else {}
        if is_agent:
            fields["tool_calls"] = [
                {"tool_call_id": name, "function_name": call.name or "unknown", "arguments": call.args}
                for name, call in zip(ids, calls, strict=True)
            ]
        return fields

    def _result(self, name: str, call: StoredToolCall, is_agent: bool) -> dict[str, Any] | None:
        fields: dict[str, Any] = {}
        if call.result:
            fields["content"] = _content(call.result)
        file = self._agents.take(call.agent_id) if self._agents else None
        if file is not None and call.agent_id:
            agent = call.args.get("agent_name")
            self._waiting[call.agent_id] = (agent if isinstance(agent, str) and agent else call.name, file)
            fields["subagent_trajectory_ref"] = [{"trajectory_id": call.agent_id}]
        if not fields:
            return None
        if call.status in ("error", "cancelled"):
            fields["extra"] = {"status": call.status}
        return {"source_call_id": name, **fields} if is_agent else fields


def _content(result: Any) -> str:
    """Return the result of a tool call as the text that the model received; an empty text if the
    result contains none."""
    for part in _parts(result):
        answer = part.get("functionResponse") if isinstance(part, dict) else None
        response = answer.get("response") if isinstance(answer, dict) else None
        if isinstance(response, dict):
            return text_of(response.get("output") or response.get("error") or response)
    return result if isinstance(result, str) else ""


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]


def _media_type(part: Any) -> str | None:
    data = part.get("inlineData") if isinstance(part, dict) else None
    kind = data.get("mimeType") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else None


def _is_time(timestamp: str) -> bool:
    try:
        return datetime.fromisoformat(timestamp).tzinfo is not None
    except ValueError:
        return False
