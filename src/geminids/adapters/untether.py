"""Untether's interface: a runner that yields the events of a run (`started`, actions, and one
`completed` at the end).

from geminids.adapters.untether import CompletedEvent, GeminiRunner

async for event in GeminiRunner(cwd="repo").run("Fix the test."):
    if isinstance(event, CompletedEvent):
        print(event.answer if event.ok else event.error)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from geminids.adapters.sublang.feed import Feed
from geminids.client import open_run
from geminids.config.loader import load_options
from geminids.dialects.untether import Translator
from geminids.dialects.untether.model import (
    ENGINE,
    Action,
    ActionEvent,
    CompletedEvent,
    StartedEvent,
    UntetherEvent,
)
from geminids.dialects.untether.tools import tool_kind_and_title
from geminids.errors import GeminidsError
from geminids.events.model import Finished
from geminids.ids import new_run_id
from geminids.log import get_logger
from geminids.options import Options, make_options
from geminids.sessions.lock import Holder, Lock, hold
from geminids.sessions.resume_token import ResumeToken, extract_resume_token, format_resume_line

if TYPE_CHECKING:
    from geminids.warm.permissions.answer import OnPermission

__all__ = [
    "Action",
    "ActionEvent",
    "CompletedEvent",
    "GeminiRunner",
    "ResumeToken",
    "StartedEvent",
    "UntetherEvent",
    "tool_kind_and_title",
]

_log = get_logger("adapters")


class GeminiRunner:
    """Runs Gemini CLI and yields Untether's events.

    Without `options`, each run loads its options as `geminids run` does, for example from the table
    `[gemini]` of the user's configuration file. `fields` are fields of `Options`; they override
    `options` and the loaded options. `on_permission` answers the CLI's permission requests.

    >>> GeminiRunner().format_resume(ResumeToken("gemini", "abc123def"))
    '`gemini --resume abc123def`'
    """

    engine = ENGINE

    def __init__(
        self,
        options: Options | None = None,
        /,
        *,
        on_permission: OnPermission | None = None,
        **fields: Any,
    ) -> None:
        """Create the runner, but start no run. Raises `OptionsError` if an option is invalid."""
        make_options(options, **fields)
        self._options = options
        self._fields = fields
        self._on_permission = on_permission

    async def run(self, prompt: str, resume: ResumeToken | None = None) -> AsyncIterator[UntetherEvent]:
        """Yield the events of one run. The last one is always a `CompletedEvent`, even if the CLI
        is missing.

        `resume` is the token of the session to resume. Raises `ValueError` if `resume` is a token
        of another engine (another kind of agent). If you leave the loop early, all processes of the
        run end when the iterator is closed.
        """
        if resume is not None:
            _check_engine(resume)
        # The feed reads the run in its own task: a run must not be open across a `yield`.
        feed: Feed[UntetherEvent] = Feed([lambda: self._events(prompt, resume)])
        feed.start()
        try:
            while True:
                await feed.arrival()
                if not feed.is_empty:
                    yield feed.take()
                elif feed.error is not None:
                    raise feed.error  # Ctrl-C or SystemExit: `_events` reports all other errors in `CompletedEvent`
                else:
                    return
        finally:
            await feed.close()

    async def _events(self, prompt: str, resume: ResumeToken | None) -> AsyncIterator[UntetherEvent]:
        translator = Translator()
        error: str | None = None
        try:
            options = self._options_of(resume)
            async with open_run(prompt, options, on_permission=self._on_permission) as run:
                while (batch := await run.next_batch()) is not None:
                    is_lost = any(isinstance(event, Finished) and event.clear_session for event in batch)
                    for event in translator.feed(batch):
                        if isinstance(event, CompletedEvent) and event.resume is None and not is_lost:
                            # The run has failed before it had a session: the chat keeps its session.
                            event = msgspec.structs.replace(event, resume=resume)
                        yield event
        except Exception as problem:
            if not isinstance(problem, GeminidsError):
                _log.error("a run of Untether's runner failed", error=problem)
            error = f"gemini: {problem}"
        for event in translator.finish(error):
            yield event

    def _options_of(self, resume: ResumeToken | None) -> Options:
        options = self._options
        if options is None:
            loaded = load_options(self._fields.get("cwd"))
            for warning in loaded.warnings:
                _log.warning("%s", warning)
            options = loaded.options
        options = make_options(options, **self._fields)
        if resume is None:
            return options
        session = "latest" if resume.is_continue else resume.value
        return msgspec.structs.replace(options, resume=session, session_id=None)

    def format_resume(self, token: ResumeToken) -> str:
        """Return the line that resumes the session of `token`. A chat shows this line below an
        answer.

        Raises `ValueError` if `token` is for another engine (another kind of agent).
        """
        return format_resume_line(token)

    def extract_resume(self, text: str | None) -> ResumeToken | None:
        """Return the token of the last resume line in a text; None if the text contains no resume
        line."""
        return extract_resume_token(text)

    def is_resume_line(self, line: str) -> bool:
        """Return whether a line of a chat is a resume line and nothing else.

        A long dash in place of `--` is accepted, because some chat programs replace it:

        >>> GeminiRunner().is_resume_line("  `gemini —resume abc123def`")
        True
        """
        return len(line.strip().splitlines()) == 1 and extract_resume_token(line.strip()) is not None

    def lock_key(self, token: ResumeToken) -> str:
        """Return the name of the lock for the session of `token`.

        >>> GeminiRunner().lock_key(ResumeToken("gemini", "abc123def"))
        'gemini:abc123def'
        """
        _check_engine(token)
        return f"{token.engine}:{token.value}"

    def lock_for(
        self, token: ResumeToken, *, on_wait: Callable[[Holder], None] | None = None
    ) -> AbstractAsyncContextManager[Lock]:
        """Lock a session for the duration of an `async with` block. Runs in all processes respect
        the lock.

        If a run is using the session, wait until this run ends; `on_wait` is called with a
        description of the run. Do not resume the session inside the block: a run needs the same
        lock, so it would wait until the block ends.

        Raises `ValueError` for a token of another engine, or for a token that means the newest
        session.
        """
        _check_engine(token)
        if token.is_continue:
            raise ValueError(
                "cannot lock the session: the resume token means the newest session; "
                "use a token that contains a session id"
            )
        return hold(token.value, new_run_id(), on_wait=on_wait)


def _check_engine(token: ResumeToken) -> None:
    if token.engine != ENGINE:
        raise ValueError(f"this resume token belongs to the engine {token.engine!r}, not to 'gemini'")
