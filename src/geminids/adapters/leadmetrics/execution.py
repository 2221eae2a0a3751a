"""`execute(context)`: run an agent for an orchestrator, from its configuration to its result."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from geminids.adapters.leadmetrics.config import options_of
from geminids.adapters.leadmetrics.context import (
    AdapterExecutionContext,
    CallbackReturn,
    Spawned,
    billing_type,
    has_unusable_session,
    stored_session,
    variables_of,
    with_workspace,
)
from geminids.client import open_run
from geminids.dialects.leadmetrics.model import AdapterExecutionResult, SessionParams
from geminids.dialects.leadmetrics.result import Encoder, refused
from geminids.dialects.leadmetrics.transcript import iso_time
from geminids.errors import OptionsError
from geminids.events.model import Event, Finished, Notice, Started
from geminids.gemini.protocol.stream_json import MessageLine, decode_block
from geminids.launch.prompt.compose import names_in
from geminids.log import get_logger
from geminids.options import Options

__all__ = ["execute"]

_log = get_logger("adapters")

# Codes of notices about a line of stdout. `on_log` receives that line instead of the notice.
_STDOUT_NOTICES = {
    "noise",
    "unknown_event",
    "unknown_role",
    "protocol",
    "encoding",
    "line_too_long",
    "cli",
    "loop",
    "session",
}
# Codes of notices that come from geminids and not from the CLI. In the log, they begin with
# `[geminids]`.
_OWN_NOTICES = {"workspace", "journal", "session_busy", "transport", "fresh_session", "on_line"}
_TOO_LONG = re.compile(r"token count .* exceeds the maximum", re.IGNORECASE)


async def execute(context: AdapterExecutionContext) -> AdapterExecutionResult:
    """Run the agent and return its result. A failed run or an invalid configuration does not raise
    an exception.

    A stored session is resumed if it belongs to the run's folder. If the stored session is lost, or
    too long for the model, the prompt is sent once more in a new session, and `clear_session` in
    the result is true. Cancelling the call ends every process of the run.
    """
    return await _Execution(context).run()


class _Execution:
    """One call of `execute`: one run, or two if the session cannot be resumed."""

    def __init__(self, context: AdapterExecutionContext) -> None:
        self._context = context
        self._broken: set[str] = set()
        self._failed_callbacks: list[str] = []
        self._lines: list[str] = []
        self._attempt_number = 1
        self._sent: dict[int, str] = {}
        """The prompt of each attempt as the CLI received it."""

    async def run(self) -> AdapterExecutionResult:
        context = self._context
        try:
            options = _prepared(options_of(context.config), context)
        except OptionsError as error:
            return _misconfigured(error)
        session, problem = stored_session(context.runtime, options.cwd)
        encoder = _encoder(options)
        if problem is not None:
            await self._log_notice(encoder, problem)
        try:
            await self._attempt(encoder, options, session)
            retried = session is not None and _is_lost(encoder.finished)
            if retried:
                encoder = await self._run_in_new_session(encoder, options)
        except OptionsError as error:
            return _misconfigured(error)
        return self._result(encoder, options, None if retried else session, retried)

    async def _run_in_new_session(self, first: Encoder, options: Options) -> Encoder:
        """Send the prompt again, in a new session. `first` is the encoder of the run whose session
        could not be resumed."""
        why = first.finished.reason if first.finished else None
        second = _encoder(options)
        await self._log_notice(second, f"cannot resume the session ({why}); starting a new session")
        await self._attempt(second, options, None)
        return second

    async def _attempt(self, encoder: Encoder, options: Options, session: str | None) -> None:
        prompt = self._context.context.get("prompt")
        is_composed = options.template is not None or options.instructions is not None
        # Only the CLI's output contains the complete prompt, with template and instructions.
        on_line = self._take_line if self._context.on_log is not None or is_composed else None
        self._sent = {}
        async with open_run(
            prompt if isinstance(prompt, str) else "", options, on_line=on_line, resume=session
        ) as run:
            while (batch := await run.next_batch()) is not None:
                encoder.feed(batch)
                await self._call_back(batch)
            await self._call_back(())
        for attempt, sent in self._sent.items():
            encoder.transcript.set_prompt(sent, attempt=attempt)
        for text in self._failed_callbacks:
            encoder.transcript.add_note(text, at=_now())
        self._failed_callbacks = []

    def _take_line(self, line: str, events: Sequence[Event]) -> None:
        if self._context.on_log is not None:
            self._lines.append(line + "\n")
        if events:
            self._attempt_number = events[-1].attempt
        # Decode only lines that may repeat the prompt: decoding every line would be slow.
        if '"user"' in line and self._attempt_number not in self._sent:
            for decoded in decode_block(line.encode("utf-8", "surrogatepass")):
                if isinstance(decoded, MessageLine) and decoded.role == "user":
                    self._sent[self._attempt_number] = decoded.content

    async def _call_back(self, batch: Sequence[Event]) -> None:
        """Pass the new lines of stdout, and then the events in `batch`, to the caller's callbacks.

        Lines of stderr come from the events, so they follow all lines of stdout. The true order of
        the lines is not known, because the CLI writes stdout and stderr to two different pipes.
        """
        context = self._context
        lines, self._lines = self._lines, []
        if context.on_log is not None and lines:
            await self._call("on_log", context.on_log, "stdout", "".join(lines))
        for event in batch:
            if isinstance(event, Started) and context.on_spawn is not None:
                spawned = Spawned(pid=event.pid, process_group_id=event.pid, started_at=iso_time(event.at))
                await self._call("on_spawn", context.on_spawn, spawned)
            elif (
                isinstance(event, Notice) and event.code not in _STDOUT_NOTICES and context.on_log is not None
            ):
                ours = "[geminids] " if event.code in _OWN_NOTICES else ""
                await self._call("on_log", context.on_log, "stderr", f"{ours}{event.message}\n")
        if context.on_events is not None and batch:
            await self._call("on_events", context.on_events, batch)

    async def _log_notice(self, encoder: Encoder, text: str) -> None:
        encoder.transcript.add_note(text, at=_now())
        if self._context.on_log is not None:
            await self._call("on_log", self._context.on_log, "stderr", f"[geminids] {text}\n")

    async def _call(self, name: str, callback: Callable[..., CallbackReturn], *arguments: object) -> None:
        """Call one of the caller's callbacks. If the callback is a coroutine function, wait until
        the coroutine ends.

        A callback that raises an exception is not called again. The transcript reports this
        failure, and the run continues.
        """
        if name in self._broken:
            return
        try:
            returned = callback(*arguments)
            if isinstance(returned, Awaitable):
                await returned
        except Exception as error:
            _log.warning("callback %s failed and is not called again", name, error=error)
            self._broken.add(name)
            self._failed_callbacks.append(f"{name} failed and is not called again: {type(error).__name__}")

    def _result(
        self, encoder: Encoder, options: Options, session: str | None, retried: bool
    ) -> AdapterExecutionResult:
        result = encoder.result()
        params = result.session_params
        if result.session_id is None and session is not None and not result.clear_session:
            # The CLI ended before it opened its session, so the stored session is still valid.
            kept = msgspec.structs.replace(result, session_id=session, session_display_id=session)
            result, params = kept, SessionParams(session_id=session, cwd=os.path.abspath(options.cwd))
        is_billed = not options.is_simulated and result.auth_mode != "none"
        return msgspec.structs.replace(
            result,
            billing_type=billing_type({**os.environ, **options.env}) if is_billed else None,
            session_params=with_workspace(params, self._context.runtime) if params else None,
            clear_session=result.clear_session or retried or has_unusable_session(self._context.runtime),
        )


def _encoder(options: Options) -> Encoder:
    return Encoder(timeout=math.inf if options.timeout is None else options.timeout)


def _prepared(options: Options, context: AdapterExecutionContext) -> Options:
    """Return `options` with two additions: the values for the template, and the orchestrator's
    token.

    Raises `OptionsError` if the template contains a name that has no value.
    """
    if options.template is not None:
        variables = variables_of(context)
        if missing := [name for name in names_in(options.template) if name not in variables]:
            names = ", ".join(f"{{{{{name}}}}}" for name in missing)
            raise OptionsError([("promptTemplate", f"the context of this run has no value for {names}")])
        options = msgspec.structs.replace(options, variables=variables)
    if context.auth_token and "PAPERCLIP_API_KEY" not in options.env:
        env = {**options.env, "PAPERCLIP_API_KEY": context.auth_token}
        options = msgspec.structs.replace(options, env=env)
    return options


def _is_lost(finished: Finished | None) -> bool:
    """Return whether the run failed because the resumed session is gone, or is too long for the
    model."""
    failure = finished.failure if finished else None
    if failure is None:
        return False
    return failure.kind == "session_not_found" or bool(_TOO_LONG.search(failure.message))


def _misconfigured(error: OptionsError) -> AdapterExecutionResult:
    message = "; ".join(f"{name}: {text}" for name, text in error.problems)
    return refused(message, problems=error.problems)


def _now() -> int:
    return int(time.time() * 1000)
