"""Build an ATIF document from the events of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from geminids.dialects.atif.model import VERSION, Agent, FinalMetrics, Metrics, Step, Trajectory
from geminids.dialects.atif.steps import CallState, ModelTurn, encoded, iso_timestamp, metrics_of, totals_of
from geminids.events.model import (
    Event,
    Finished,
    PermissionAsked,
    PermissionDecided,
    Started,
    Text,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
)

__all__ = ["Encoder"]

_encode_lines = msgspec.json.Encoder().encode_lines
_NOTES = (
    "Made by geminids from the events of a run of Gemini CLI. Tokens of tool prompts are counted as prompt tokens, "
    "thinking as completion; the totals include subagents and what the CLI asked for itself."
)


class Encoder:
    """Collects the events of a run, and returns its ATIF document at the end.

    If the run had several attempts, the document contains only the last attempt.
    """

    def __init__(self) -> None:
        self._begin(None)
        self._finished: Finished | None = None
        self._attempts = 0

    def _begin(self, started: Started | None) -> None:
        self._started = started
        self._turns: dict[int, ModelTurn] = {}
        self._newest: tuple[ModelTurn, ...] = ()
        self._agents: dict[str, list[ModelTurn]] = {}
        self._calls: dict[str, CallState] = {}
        self._tokens: list[TokensUsed] = []

    def feed(self, events: Sequence[Event]) -> bytes:
        """Collect events. Always return empty bytes, because the document is complete only at the
        end."""
        turns = self._turns
        for event in events:
            if self._finished is not None:
                break
            if type(event) is Text:
                # `Text` is the most frequent event, so it is handled here, for speed.
                answer = turns.get(event.turn) or self._answer(event)
                (answer.text or answer.open_text()).write(event.text)
            elif isinstance(event, ToolStarted):
                self._begin_call(event)
            elif isinstance(event, ToolFinished):
                self._end_call(event)
            elif isinstance(event, Thought):
                self._answer(event, event.parent, thinking=True).think(event)
            elif isinstance(event, TokensUsed):
                self._count(event)
            elif isinstance(event, PermissionAsked | PermissionDecided):
                self._on_permission(event)
            elif isinstance(event, Started):
                self._begin(event)
                self._attempts += 1
                turns = self._turns
            elif isinstance(event, Finished):
                self._finished = event
        return b""

    def finish(self) -> bytes:
        """Return the document as one line of JSON."""
        steps = [encoded(step) for step in self._steps()]
        inner = [self._embedded(agent, answers) for agent, answers in self._agents.items()]
        document = Trajectory(
            schema_version=VERSION,
            session_id=self._session_id(),
            steps=steps,
            subagent_trajectories=inner or None,
            agent=self._agent(),
            final_metrics=self._totals(len(steps)),
            notes=_NOTES,
            extra=self._ending() or None,
        )
        return _encode_lines([document])  # adds the newline without a second copy of a long document

    def _answer(self, event: Event, parent: str | None = None, *, thinking: bool = False) -> ModelTurn:
        """Return the turn of the model that an event belongs to. If this turn does not exist yet,
        begin it.

        `parent` is the id of the tool call that started the subagent; None for the main agent.
        `thinking` is True if the event is a thought.

        A subagent has only one open turn at a time. A new turn of the subagent begins with the
        first event after all tool calls of the open turn have ended. It also begins with a thought
        that follows a tool call, even if this call has not ended.
        """
        if parent is None:
            return self._turns.get(event.turn) or self._next_turn(event)
        answers = self._agents.setdefault(parent, [])
        if not answers or answers[-1].is_over or (thinking and answers[-1].calls):
            self._compact(answers[-1:])
            answers.append(ModelTurn(event.at, event.turn))
        return answers[-1]

    def _next_turn(self, event: Event) -> ModelTurn:
        self._compact(self._newest)
        answer = self._turns[event.turn] = ModelTurn(event.at, event.turn)
        self._newest = (answer,)
        return answer

    def _compact(self, answers: Sequence[ModelTurn]) -> None:
        for answer in answers:
            for call in answer.compact(self._agents):
                if self._calls.get(call.id) is call:
                    del self._calls[call.id]

    def _on_permission(self, event: PermissionAsked | PermissionDecided) -> None:
        if (call := self._calls.get(event.id)) is None:
            return
        if isinstance(event, PermissionAsked):
            call.command = event.command
        else:
            call.decided = event

    def _begin_call(self, event: ToolStarted | ToolFinished) -> CallState:
        call = CallState(event)
        self._answer(event, event.parent).calls.append(call)
        self._calls[event.id] = call
        return call

    def _end_call(self, event: ToolFinished) -> None:
        call = self._calls.get(event.id)
        if call is None or call.finished is not None:
            call = self._begin_call(event)
        call.finished = event

    def _count(self, event: TokensUsed) -> None:
        """Add the tokens of a request to the totals and, if the main agent sent the request, to its
        turn.

        The turns of subagents get no tokens, because the events do not say which subagent sent a
        request. Failed requests have no tokens and are ignored.
        """
        if event.is_http_error:
            return
        self._tokens.append(event)
        if event.role == "main":
            self._answer(event).tokens.append(event)

    def _steps(self) -> Iterator[Step]:
        """Yield the steps. After each turn has become a step, free the memory of the turn.

        Without this, all turns and the finished document would be in memory at the same time.
        """
        number = 0
        started, end = self._started, self._finished
        if started is not None and started.prompt is not None:
            number += 1
            yield Step(step_id=1, timestamp=iso_timestamp(started.at), source="user", message=started.prompt)
        for turn in sorted(self._turns):
            number += 1
            yield self._turns.pop(turn).step(number, self._agents, end.discarded if end else ())
        if not number or (end is not None and end.outcome != "success"):
            # Say why the run ended. A document without steps gets this step too: ATIF requires at
            # least one.
            timestamp = iso_timestamp(end.at) if end else None
            reason = (end.reason or end.outcome) if end else ""
            yield Step(step_id=number + 1, timestamp=timestamp, source="system", message=reason)

    def _embedded(self, agent: str, answers: Sequence[ModelTurn]) -> msgspec.Raw:
        call = self._calls.get(agent)
        arguments = (call.arguments() if call else None) or {}
        name, prompt = arguments.get("agent_name"), arguments.get("prompt")
        steps = []
        if call is not None and isinstance(prompt, str):
            steps.append(
                Step(step_id=1, timestamp=iso_timestamp(call.started.at), source="user", message=prompt)
            )
        for answer in answers:
            steps.append(answer.step(len(steps) + 1, self._agents))
        document = Trajectory(
            schema_version=VERSION,
            trajectory_id=agent,
            session_id=self._session_id(),
            agent=Agent(name=name if isinstance(name, str) and name else "subagent", version=self._version()),
            steps=[encoded(step) for step in steps],
        )
        return msgspec.Raw(msgspec.json.encode(document))

    def _agent(self) -> Agent:
        served = next((used.model for used in self._tokens if used.role == "main" and used.model), None)
        requested = self._started.model if self._started else None
        return Agent(
            name="gemini-cli",
            version=self._version(),
            model_name=served,
            extra={"requested_model": requested} if requested else None,
        )

    def _totals(self, steps: int) -> FinalMetrics:
        """Return the token totals and the cost of the run. `steps` is the number of steps in the
        document.

        The totals come from `Finished`. If `Finished` contains none, they are the sums over all
        requests.
        """
        usage = self._finished.usage if self._finished else None
        cost = self._finished.cost if self._finished else None
        usd = float(cost.usd) if cost is not None and cost.usd is not None else None
        if usage is not None and usage.input is not None:
            return msgspec.structs.replace(totals_of(usage, steps), total_cost_usd=usd)
        sums = metrics_of(self._tokens) or Metrics()
        return FinalMetrics(
            total_prompt_tokens=sums.prompt_tokens,
            total_completion_tokens=sums.completion_tokens,
            total_cached_tokens=sums.cached_tokens,
            total_cost_usd=usd,
            total_steps=steps,
        )

    def _ending(self) -> dict[str, Any]:
        end, started = self._finished, self._started
        fields = {
            "run_id": end.run_id if end else started.run_id if started else None,
            "outcome": end.outcome if end else None,
            "failure": end.failure.kind if end and end.failure else None,
            "exit_code": end.exit_code if end else None,
            "duration_ms": end.duration_ms if end else None,
            "attempts": self._attempts or None,
            "complete": end.complete if end else False,
            "finish_reason": end.finish_reason if end else None,
            "discarded_requests": list(end.discarded) or None if end else None,
        }
        return {name: value for name, value in fields.items() if value is not None}

    def _session_id(self) -> str | None:
        session_id = self._finished.session_id if self._finished else None
        return session_id or (self._started.session_id if self._started else None)

    def _version(self) -> str:
        return (self._started.cli_version if self._started else None) or "unknown"
