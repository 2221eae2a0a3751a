"""A run as callers hold it: `async with open_run(…) as run: async for event in run: …`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from geminids.errors import GeminidsError, SessionError
from geminids.events.fold import Fold
from geminids.events.ledger import Ledger
from geminids.events.model import Event, Level, TokensUsed, Usage
from geminids.ids import new_run_id
from geminids.launch.plan import TELEMETRY, Refused, look_ahead
from geminids.options import Options, make_options
from geminids.run.attempts import Attempts
from geminids.run.claim import Claim, busy
from geminids.run.finishing import finished_of
from geminids.run.gate import RunGate
from geminids.run.lanes import Lanes
from geminids.run.mishaps import cannot_lock, our_fault, spawn_failed
from geminids.run.outbox import Events, Outbox
from geminids.run.patience import see_through
from geminids.run.reading import OnLine
from geminids.run.result import Result
from geminids.wire.endings import Ending

if TYPE_CHECKING:
    import anyio
    from anyio.abc import TaskGroup

    from geminids.gateway.purse import Purse
    from geminids.prices import Budget
    from geminids.run.headless import HeadlessLane
    from geminids.run.retrying import Again
    from geminids.run.wanted import Wanted
    from geminids.run.warm.lane import WarmLane
    from geminids.run.warm.permission import OnPermission

__all__ = ["Run", "open_run"]

_BY_CALLER = "interrupted by the caller"


def open_run(
    prompt: str,
    options: Options | None = None,
    /,
    *,
    on_line: OnLine | None = None,
    on_permission: OnPermission | None = None,
    budget: Budget | None = None,
    **fields: Any,
) -> Run:
    """A run of the agent, ended with all its processes when the block is left.

    Raises `OptionsError` for bad options at once. `fields` are fields of `Options`. `on_line(line, events)` is
    called with each line that the CLI printed, secrets masked, and the events that it became (headless lane only).
    `on_permission(asked)` decides when the agent asks: the run then takes the warm lane, where it can. A `budget` is
    shared with all other runs and chats that it is given to. `schema` is a JSON Schema, or a msgspec, pydantic or
    dataclass type: `result.value` is then of that type.
    """
    wanted = None
    schema = fields.pop("schema", None) or (options.schema if isinstance(options, Options) else None)
    if schema is not None:
        from geminids.run.wanted import wanted_of  # imported late: few runs want a form

        wanted = wanted_of(schema)
        fields["schema"] = wanted.text
    return Run(
        prompt,
        make_options(options, **fields),
        on_line=on_line,
        on_permission=on_permission,
        budgets=() if budget is None else (budget,),
        wanted=wanted,
    )


class Run:
    """One run. Iterate it for its events; `result` is there afterwards, also when cancelled."""

    def __init__(
        self,
        prompt: str,
        options: Options,
        *,
        on_line: OnLine | None = None,
        on_permission: OnPermission | None = None,
        notices: Sequence[tuple[Level, str, str]] = (),
        budgets: Sequence[Purse] = (),
        wanted: Wanted | None = None,
    ) -> None:
        self.id = new_run_id()
        self.options = options
        self._ledger = Ledger()
        self._outbox = Outbox()
        self._fold = Fold()
        self._lane: HeadlessLane | WarmLane | None = None
        self._claim = Claim(self.id)
        self._waits = False
        self._timeout = options.timeout
        self._stop_waiting: str | None = None
        self._between: anyio.Event | None = None
        """Set while the run waits for its next attempt."""
        self._counted: HeadlessLane | WarmLane | None = None
        """The lane whose tokens are told, with its usage."""
        self._last_usage: Usage | None = None
        self._began = time.monotonic()
        self._launched = False
        self._result: Result | None = None
        self._done: anyio.Event | None = None
        self._tasks: TaskGroup | None = None
        self._events = Events(self._outbox)
        self._gate = RunGate(options, budgets=budgets)
        if wanted is None and options.schema is not None:
            from geminids.run.wanted import wanted_of

            wanted = wanted_of(options.schema)
        self._attempts = Attempts(options, wanted)
        self._prompt = self._attempts.worded(prompt)
        self._lanes = Lanes(
            self.id,
            self._ledger,
            self._outbox,
            self._fold,
            self._on_session,
            on_line,
            on_permission,
            self._gate,
        )
        self._outbox.put([self._ledger.notice(*notice) for notice in notices])

    def launch(self) -> None:
        """Spawn the CLI now, before an event loop runs; entering the block does it otherwise."""
        if self._launched:
            return
        self._launched = True
        self._began = time.monotonic()
        try:
            self.options = self._claim.look_up(self.options)
            if self._claim.fresh is not None:
                told = f"a new session is begun: {self._claim.fresh}"
                self._outbox.put([self._ledger.notice("warning", "fresh_session", told)])
            holder = self._claim.take(self._session)
            if holder is None:
                self._spawn()
            elif self.options.when_busy == "fail":
                failure = busy(str(self._session), holder)
                self._finish(Ending("failed", failure.message, failure))
            else:
                self._waits = True
                told = f"waiting for session {self._session}, in use by {holder}"
                self._outbox.put([self._ledger.notice("warning", "session_busy", told)])
        except SessionError as error:
            self._finish(cannot_lock(error))
        except Refused as refused:
            self._finish(Ending("failed", refused.failure.message, refused.failure))
        except Exception as error:
            self._finish(our_fault(error, self._redacted))

    @property
    def _session(self) -> str | None:
        """The session that the caller has named, to go on with it or to begin it."""
        return self.options.resume or self.options.session_id

    def _spawn(self) -> None:
        try:
            prompt = self._prompt
            if not self._attempts.may_be_several:
                self._prompt = ""  # it may be large, and is said once
            lane = self._lanes.choose(prompt, self.options, self._claim.file)
            try:
                lane.start()
            except OSError as error:
                self._finish(spawn_failed(error, self._lanes.cwd))
            else:
                self._lane = lane
                self._gate.begin()
        except Refused as refused:
            self._finish(Ending("failed", refused.failure.message, refused.failure))
        except Exception as error:
            self._finish(our_fault(error, self._redacted))

    def _on_session(self, session_id: str) -> list[Event]:
        """A new session has its id: nobody else shall resume it while this run goes on."""
        try:
            self._claim.take(session_id)
        except SessionError as error:
            return [self._ledger.notice("warning", "session_busy", error.message)]
        return []

    @property
    def pid(self) -> int | None:
        """The CLI's pid, or None where nothing was spawned."""
        return self._lane.pid if self._lane else None

    @property
    def mark(self) -> str | None:
        """What every process of this run carries in its environment."""
        return str(self._lane.mark) if self._lane else None

    @property
    def result(self) -> Result:
        """How the run ended; raises `GeminidsError` while it goes on."""
        if self._result is None:
            raise GeminidsError(
                "the run is not over yet", hint="Read its events to the end, or leave its block."
            )
        return self._result

    def stop(self, reason: str = _BY_CALLER) -> None:
        """Ask the run to end; asked again, it is ended at once. The events say when it has."""
        if self._between is not None:
            self._stop_waiting = self._stop_waiting or reason
            self._between.set()
        elif self._lane is not None:
            self._lane.stop(reason)
        elif self._waits:
            self._stop_waiting = self._stop_waiting or reason
        elif not self._launched:
            self._launched = True
            self._finish(Ending("interrupted", reason))

    async def __aenter__(self) -> Run:
        import anyio

        if not self._launched:
            # In a thread: an unknown CLI is asked for its version. Nothing of the run is spawned there, so that a
            # caller who is cancelled meanwhile leaves nothing behind.
            await anyio.to_thread.run_sync(look_ahead, self.options)
            self.launch()
        self._done = anyio.Event()
        if self._lane is None and not self._waits:
            self._done.set()
            return self
        tasks = anyio.create_task_group()
        await tasks.__aenter__()
        self._tasks = tasks
        tasks.start_soon(self._drive)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks is None:
            return
        assert self._done is not None
        if self._lane is not None and self._between is None:
            self._lane.leave(_BY_CALLER)
        else:
            self.stop()
        try:
            # A caller in a hurry waits no grace, but is not let go before all is ended either.
            await see_through(self._done, self.stop)
        finally:
            # The block's own error is not handed to the task group, which would wrap it.
            await self._tasks.__aexit__(None, None, None)

    def __aiter__(self) -> AsyncIterator[Event]:
        # One for all: who breaks out, or is cancelled, and iterates again goes on where they were.
        return self._events

    async def next_batch(self) -> Sequence[Event] | None:
        """The events that have come since the last batch; waits for one, None after the last."""
        return await self._outbox.take()

    async def _drive(self) -> None:
        """See the lane through, whatever becomes of the consumer: leaving the block asks it to stop."""
        import anyio

        assert self._done is not None
        with anyio.CancelScope(shield=True):
            if self._waits:
                await self._wait_for_session()
            if self._lane is None:
                self._done.set()
                return
            try:
                ending = await self._through()
            except Exception as error:
                ending = our_fault(error, self._redacted)
            except BaseException:
                # An event loop that is taken down: all was killed at once, and the run still says how it ended.
                self._finish(self._lane.ending())
                self._done.set()
                raise
            try:
                self._finish(ending)
            finally:
                self._done.set()
                self._outbox.close()

    async def _through(self) -> Ending:
        """See one attempt after the other through; the last one's ending is the run's."""
        assert self._lane is not None
        while True:
            lane = self._lane
            await lane.drive()
            ending = lane.ending()
            if not self._attempts.may_be_several or self._stop_waiting is not None:
                return ending
            usage = self._usage()
            ending, again = self._attempts.over(
                ending,
                answer=lane.redacted(self._fold.answer),
                session_id=lane.session_id,
                tool_calls=self._fold.tool_calls,
                usage=usage,
            )
            if again is None or not await self._begin_again(again):
                return ending if self._stop_waiting is None else Ending("interrupted", self._stop_waiting)

    async def _begin_again(self, again: Again) -> bool:
        """The next attempt, after its delay; False where nobody wants it any more, or it could not be begun."""
        import anyio

        level: Level = "info" if again.why.startswith("schema_mismatch") else "warning"
        self._outbox.put([self._ledger.notice(level, "attempt", self._redacted(again.why))])
        self._between = anyio.Event()
        with anyio.move_on_after(again.delay):
            await self._between.wait()
        self._between = None
        if self._stop_waiting is not None:
            return False
        self._ledger.attempt += 1
        self.options = msgspec.structs.replace(
            self.options, resume=again.resume, model=again.model, timeout=self._time_left()
        )
        try:
            self.options = self._claim.look_up(self.options)
            lane = self._lanes.choose(again.prompt or self._prompt, self.options, self._claim.file)
            lane.start()
        except (Refused, OSError) as error:
            text = error.failure.message if isinstance(error, Refused) else str(error)
            self._outbox.put([self._ledger.notice("error", "attempt", f"no further attempt: {text}")])
            return False
        self._lane = lane
        return True

    def _time_left(self) -> float | None:
        """`timeout` is the whole run's, however many attempts it takes."""
        if self._timeout is None:
            return None
        return max(0.001, self._timeout - (time.monotonic() - self._began))

    async def _wait_for_session(self) -> None:
        """Wait until the session is free, then spawn; the caller's patience and `timeout` hold here too."""
        timeout = self.options.timeout
        until = None if timeout is None else self._began + timeout
        try:
            free = await self._claim.wait(str(self._session), lambda: self._stop_waiting is None, until)
        except Exception as error:
            self._finish(our_fault(error, self._redacted))
            return
        finally:
            self._waits = False
        if free:
            self._spawn()
        elif self._stop_waiting is not None:
            self._finish(Ending("interrupted", self._stop_waiting))
        else:
            self._finish(Ending("timed_out", f"timed out after {timeout:g} s of waiting for the session"))

    def _redacted(self, text: str) -> str:
        return self._lane.redacted(text) if self._lane is not None else text

    def _finish(self, ending: Ending) -> None:
        """Say how it ended, once, and let go of all that the run has held."""
        lane, ledger = self._lane, self._ledger
        try:
            usage = self._attempts.usage(self._usage())
            conversation = self._fold.conversation(lane.redacted) if lane else b""
        except Exception as error:
            # A mistake of ours about tokens must not cost the caller the ending.
            self._outbox.put([ledger.notice("error", "protocol", f"tokens: {type(error).__name__}: {error}")])
            usage, conversation = None, b""
        if self._lanes.scratch is not None:
            self._lanes.scratch.close()
        self._claim.release()
        fresh = self._claim.fresh is not None and self.options.fresh
        finished, self._result = finished_of(
            self.id,
            ending,
            lane,
            self._fold,
            ledger,
            usage,
            began=self._began,
            clear_session=fresh,
            conversation=conversation,
            value=self._attempts.plain,
        )
        if self._attempts.value is not None:
            self._result = msgspec.structs.replace(self._result, value=self._attempts.value)
        self._outbox.put([finished])
        self._outbox.close()
        self._gate.close()

    def _usage(self) -> Usage | None:
        """The tokens, request by request where those are known; what is told here for the first time is put out."""
        if self._lane is None:
            return None
        if self._counted is self._lane:
            return self._last_usage
        self._counted = self._lane
        new, usage = self._lane.usage(self._fold.tokens, self._written_down())
        self._fold.add(new)
        self._outbox.put(new)
        self._last_usage = usage
        return usage

    def _written_down(self) -> list[TokensUsed] | None:
        """The requests that the CLI has written down, where it was told to."""
        if self._lanes.scratch is None or not self.options.telemetry:
            return None
        from geminids.events.from_telemetry import tokens_used
        from geminids.wire.telemetry import responses_in

        return tokens_used(responses_in(self._lanes.scratch.folder / TELEMETRY), Ledger())
