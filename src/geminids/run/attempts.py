"""The attempts of one run: after each, whether it stands, is tried again, or is asked for a valid answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from geminids.events.model import ModelUsage, Usage
from geminids.options import Options
from geminids.outcome import Failure
from geminids.run.retrying import Again, retry_of
from geminids.run.wanted import Wanted
from geminids.wire.endings import Ending
from geminids.wire.hints import hint_for

__all__ = ["Attempts", "sum_of"]

_ASK_AGAIN = (
    "Your answer is not valid by the JSON Schema that was asked for:\n\n{problems}\n\n"
    "Answer again, with the whole JSON value in one ```json block and nothing after it."
)


class Attempts:
    """What has been tried so far. `value` is the answer in the form that was asked for, once it is valid."""

    def __init__(self, options: Options, wanted: Wanted | None) -> None:
        self._options = options
        self._wanted = wanted
        self._failures = 0
        self._asked = 0
        self._models: list[str | None] = [options.model]
        self._acted = False
        self._usages: list[Usage | None] = []
        self.value: Any = None
        self.plain: Any = None
        """The same as JSON has it."""

    @property
    def may_be_several(self) -> bool:
        return bool(self._options.retries or self._options.fallback_models or self._wanted is not None)

    def worded(self, prompt: str) -> str:
        """The prompt, with what is asked of the answer."""
        return prompt if self._wanted is None else f"{prompt}\n\n{self._wanted.instruction()}"

    def over(
        self,
        ending: Ending,
        *,
        answer: str,
        session_id: str | None,
        tool_calls: int,
        usage: Usage | None,
    ) -> tuple[Ending, Again | None]:
        """One attempt is over: its ending, and the next attempt where there is one."""
        self._acted = self._acted or tool_calls > 0
        if ending.outcome == "success" and self._wanted is not None:
            ending, again = self._valid(ending, answer, session_id)
        elif ending.outcome == "failed":
            self._failures += 1
            again = retry_of(
                ending,
                self._options,
                failures=self._failures,
                session_id=session_id,
                has_acted=self._acted or self._asked > 0,
                used_models=tuple(self._models),
            )
        else:
            again = None
        if again is not None:
            self._usages.append(usage)
            if again.model not in self._models:
                self._models.append(again.model)
        return ending, again

    def usage(self, last: Usage | None) -> Usage | None:
        """The tokens of all attempts."""
        return sum_of([*self._usages, last]) if self._usages else last

    def _valid(self, ending: Ending, answer: str, session_id: str | None) -> tuple[Ending, Again | None]:
        from geminids.run.extract import checked  # imported late: jsonschema

        assert self._wanted is not None
        found = checked(answer, self._wanted.schema)
        problems = found.problems
        if found.found:
            try:
                self.value, self.plain = self._wanted.value_of(found.value), found.value
                return ending, None
            except ValueError as error:
                problems = (str(error)[:1000],)
        told = "; ".join(problems[:3])
        failure = Failure(
            kind="schema_mismatch",
            message=f"the answer is not valid by the schema: {told}",
            retryable=False,
            hint=hint_for("schema_mismatch"),
        )
        if self._asked >= self._options.schema_tries or session_id is None:
            return Ending("failed", failure.message, failure), None
        self._asked += 1
        lines = "\n".join(f"- {problem}" for problem in problems)
        return ending, Again(
            delay=0.0,
            resume=session_id,
            model=self._models[-1],
            prompt=_ASK_AGAIN.format(problems=lines),
            why=f"schema_mismatch: {told}; asked again in session {session_id}",
        )


def sum_of(usages: Sequence[Usage | None]) -> Usage | None:
    """The tokens of several attempts together; what one of them does not know, nobody knows."""
    if any(usage is None for usage in usages):
        known = [usage for usage in usages if usage is not None]
        # An attempt that never reached the model has no usage, and has cost nothing that is known.
        return sum_of(known) if known else None
    names = ("input", "cached", "output", "thinking", "tool", "total", "requests")
    totals = {name: _sum([getattr(usage, name) for usage in usages]) for name in names}
    models: dict[str, list[ModelUsage]] = {}
    for usage in usages:
        for model in usage.models if usage is not None else ():
            models.setdefault(model.model, []).append(model)
    return Usage(
        **totals,
        models=tuple(
            ModelUsage(
                model=name, **{part: _sum([getattr(one, part) for one in same]) for part in names[:-1]}
            )
            for name, same in models.items()
        ),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    return None if None in counts else sum(count or 0 for count in counts)
