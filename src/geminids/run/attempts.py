"""The attempts of one run: after each, whether it stands, is tried again, or is asked for a valid answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import msgspec

from geminids.events.model import Usage
from geminids.options import Options
from geminids.outcome import Failure
from geminids.run.retrying import Again, Stands, retry_of
from geminids.run.usage import sum_of
from geminids.run.wanted import Wanted
from geminids.wire.endings import Ending
from geminids.wire.hints import hint_for

__all__ = ["After", "Attempts"]

_ASK_AGAIN = (
    "Your answer is not valid by the JSON Schema that was asked for:\n\n{problems}\n\n"
    "Answer again, with the whole JSON value in one ```json block and nothing after it."
)


class After(msgspec.Struct, frozen=True):
    """What an attempt has led to: how the run ends if it ends here, the next attempt, or why there is none."""

    ending: Ending
    again: Again | None = None
    why_not: str | None = None


class Attempts:
    """What has been tried so far. `value` is the answer in the form that was asked for, once it is valid."""

    def __init__(self, prompt: str, options: Options, wanted: Wanted | None) -> None:
        self.options = options
        """With the session to resume as it was found."""
        self._wanted = wanted
        self._failures = 0
        self._asked = 0
        self._models: list[str | None] = [options.model]
        self._usages: list[Usage | None] = []
        # A command may run a shell before the model is asked, and what stands behind it are its arguments.
        is_command = _is_command(prompt, options)
        self._acted = is_command
        says = _is_text(prompt) and bool(prompt.strip() or options.template)
        self._says_form = wanted is not None and says and not is_command
        self.prompt = f"{prompt}\n\n{wanted.instruction()}" if wanted and self._says_form else prompt
        """What the first attempt says: with what is asked of the answer."""
        self.value: Any = None
        self.plain: Any = None
        """The same as JSON has it."""

    @property
    def may_be_several(self) -> bool:
        return bool(self.options.retries or self.options.fallback_models or self._wanted is not None)

    @property
    def has_form(self) -> bool:
        """Whether the answer must be of a form."""
        return self._wanted is not None

    def over(
        self,
        ending: Ending,
        *,
        answer: str,
        session_id: str | None,
        tool_calls: int,
        given_up: Callable[[], str | None] = lambda: None,
    ) -> After:
        """One attempt is over. It may take a while: an answer can be long, and a schema slow; `given_up` says why
        nobody waits for that any more."""
        self._acted = self._acted or tool_calls > 0
        if ending.outcome == "success" and self._wanted is not None:
            return self._valid(self._wanted, ending, answer, session_id, given_up)
        if ending.outcome != "failed":
            return After(ending)
        self._failures += 1
        again = retry_of(
            ending,
            self.options,
            failures=self._failures,
            session_id=session_id,
            has_acted=self._acted,
            used_models=tuple(self._models),
        )
        if isinstance(again, Stands):
            return After(ending, why_not=again.why)
        return After(ending, again)

    def begun(self, again: Again, usage: Usage | None) -> None:
        """The next attempt goes on now; `usage` is that of the one before."""
        self._usages.append(usage)
        if again.model != self._models[-1]:
            self._models.append(again.model)

    def usage(self, last: Usage | None) -> Usage | None:
        """The tokens of all attempts."""
        return sum_of([*self._usages, last]) if self._usages else last

    def _valid(
        self,
        wanted: Wanted,
        ending: Ending,
        answer: str,
        session_id: str | None,
        given_up: Callable[[], str | None],
    ) -> After:
        from geminids.run.extract_aside import checked_in_time  # imported late: jsonschema

        found = checked_in_time(answer, wanted.schema, given_up=given_up)
        if found is None:
            return After(Ending("interrupted", given_up()))
        problems = found.problems
        if found.found:
            try:
                self.value, self.plain = wanted.value_of(found.value), found.value
                return After(ending)
            except ValueError as error:
                problems = (str(error)[:1000],)
        told = "; ".join(problems[:3])
        failure = Failure(
            kind="schema_mismatch",
            message=f"the answer is not valid by the schema: {told}",
            retryable=False,
            hint=hint_for("schema_mismatch"),
        )
        failed = Ending("failed", failure.message, failure)
        if session_id is None or (self._says_form and self._asked >= self.options.schema_tries):
            return After(failed)
        lines = "\n".join(f"- {problem}" for problem in problems)
        again = Again(
            delay=0.0,
            resume=session_id,
            model=self._models[-1],
            prompt=_ASK_AGAIN.format(problems=lines) if self._says_form else wanted.instruction(),
            why=f"schema_mismatch: {told}; asked again in session {session_id}",
        )
        self._asked += self._says_form
        self._acted = self._says_form = True
        return After(failed, again)


def _is_command(prompt: str, options: Options) -> bool:
    """Whether the CLI may take the words for a command."""
    if options.literal or options.instructions is not None:
        return False
    return any(_is_text(text) and text.lstrip().startswith("/") for text in (prompt, options.template))


def _is_text(given: Any) -> TypeGuard[str]:
    """What is no text is refused when the run is planned, not here."""
    return isinstance(given, str)
