"""A single run on the warm lane: a process of its own, one session, one prompt; for runs in which somebody is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import EndedProcess, Event, SessionStart, TokensUsed, Usage
from geminids.gateway.request_log import RequestLog
from geminids.launch.plan import WarmPlan
from geminids.options import Options
from geminids.process.marker import Mark
from geminids.run.lease import RunLease
from geminids.run.recorder import RunRecorder, Traces, without_power
from geminids.run.stopping import Stopping, StopReason, listed, stopped_ending
from geminids.run.warm.always import Always
from geminids.run.warm.connection import Gone, RpcFailed
from geminids.run.warm.permission import Desk, OnPermission
from geminids.run.warm.process import WarmProcess
from geminids.run.warm.seat import Seat, why_not_open
from geminids.run.warm.turn import WarmTurn
from geminids.wire.acp_calls import Content, SetMode, SetModel
from geminids.wire.endings import Ending

if TYPE_CHECKING:
    import anyio

__all__ = ["WarmLane"]

_SLOW = "timed out: the CLI did not open a session"


class WarmLane:
    """Drives one attempt, as the headless lane does: `start` spawns, `drive` sees it through."""

    def __init__(
        self,
        plan: WarmPlan,
        prompt: str,
        blocks: Sequence[Content],
        options: Options,
        recorder: RunRecorder,
        on_session: Callable[[str], list[Event]],
        on_permission: OnPermission | None,
        lease: RunLease,
        log: RequestLog,
    ) -> None:
        self._plan = plan
        self._said = prompt
        self._blocks = blocks
        self._options = options
        self._recorder = recorder
        self._on_session = on_session
        self._on_permission = on_permission
        self._lease = lease
        self._log = log
        self._process = WarmProcess(plan, grace=options.grace, line_limit=options.line_limit)
        self._stopping = Stopping()
        self._turn: WarmTurn | None = None
        self._not_open: Exception | None = None
        self._began = 0.0
        self._opening: anyio.CancelScope | None = None
        self._session_id: str | None = None

    def start(self) -> None:
        """Spawn the CLI; raises OSError where the system says no."""
        self._process.start()
        self._began = time.monotonic()
        told = list(without_power(self._plan.neutralised, self._recorder.ledger))
        started = self._recorder.started(
            session_id=None,
            model=self._options.model,
            cwd=self._plan.cwd,
            cli_version=self._plan.gemini.version,
            lane="warm",
            pid=self._process.pid,
            approval=self._options.approval,
            prompt=self.redacted(self._said),
        )
        self._recorder.put([*told, started])

    def stop(self, reason: str) -> None:
        """The caller asks for the end; asked a second time, the grace is cut short."""
        stop = StopReason("caller", reason)
        self._stopping.ask()
        self._stopping.begin(stop)
        if self._turn is not None:
            self._turn.stop(stop)
        elif self._opening is not None:
            self._opening.cancel()

    def leave(self, reason: str) -> None:
        """The caller is gone: stop, but whoever has asked for that before has not asked twice."""
        if not self._stopping.asked:
            self.stop(reason)

    async def drive(self) -> None:
        """See the process through to its end, and everything of it gone."""
        import anyio

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._process.serve)
            try:
                seat = await self._open()
                if seat is not None:
                    await self._prompt(seat)
            finally:
                with anyio.CancelScope(shield=True):
                    self._process.stop()
                    await self._process.gone()

    async def _open(self) -> Seat | None:
        import anyio

        options = self._options
        patience = min((one for one in (options.timeout, options.start_timeout) if one), default=None)
        seat: Seat | None = None
        with anyio.move_on_after(patience) as self._opening:
            if self._stopping.reason is not None:
                self._opening.cancel()
            try:
                seat = await self._seated()
            except (Gone, RpcFailed, msgspec.DecodeError) as error:
                self._not_open = error
        if seat is None and self._not_open is None and self._stopping.reason is None:
            self._stopping.begin(StopReason("start_timeout", f"{_SLOW} in {patience:g} s"))
        self._opening = None
        return seat

    async def _seated(self) -> Seat:
        process, plan = self._process, self._plan
        await process.open()
        opened = await process.new_session(plan.cwd)
        self._session_id = opened.session_id
        seat = Seat(process, opened.session_id, plan.cwd, Always(), set(), self._lease)
        if plan.mode != "default":
            await process.connection.call(SetMode(session_id=seat.session_id, mode_id=plan.mode))
        if plan.model is not None:
            await process.connection.call(SetModel(session_id=seat.session_id, model_id=plan.model))
        return seat

    async def _prompt(self, seat: Seat) -> None:
        recorder, options = self._recorder, self._options
        named = SessionStart(seat.session_id, options.model or "auto")
        told = f"session {named.session_id}, model {named.model}"
        recorder.put([recorder.ledger.notice("debug", "session", told, session=named)])
        recorder.put(self._on_session(seat.session_id))
        if options.timeout is not None:
            left = max(0.001, options.timeout - (time.monotonic() - self._began))
            options = msgspec.structs.replace(options, timeout=left)
        desk = Desk(
            recorder.ledger,
            self._process.redactor,
            self._plan.verdicts,
            seat.always,
            self._on_permission,
            options.permission_timeout,
        )
        turn = self._turn = WarmTurn(seat, options, recorder, desk, self._log)
        if self._stopping.reason is not None:
            turn.stop(self._stopping.reason)
        await turn.drive(self._blocks)

    def ending(self) -> Ending:
        """What it was."""
        if self._turn is not None:
            return self._turn.ending()
        if self._not_open is not None:
            return why_not_open(self._not_open, self._process.stderr_tail, self._process.exit_code)
        assert self._stopping.reason is not None
        return stopped_ending(self._stopping.reason)

    def usage(self, requests: Sequence[TokensUsed]) -> Usage | None:
        """The tokens of this attempt."""
        return self._turn.usage(requests) if self._turn is not None else None

    def redacted(self, text: str) -> str:
        return self._process.redactor.text(text)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def mark(self) -> Mark:
        return self._process.mark

    @property
    def stop_reason(self) -> StopReason | None:
        """Why it was stopped, if it was."""
        return self._stopping.reason if self._turn is None else self._turn.stop_reason

    @property
    def exit_code(self) -> int | None:
        """None: that a process which we ended had a code says nothing of the run."""
        return self._process.exit_code if self._turn is None or self._turn.lost_process else None

    @property
    def session_id(self) -> str | None:
        return self._session_id

    @property
    def ended(self) -> tuple[EndedProcess, ...]:
        """What had to be ended beside the process itself."""
        of_turn = self._turn.ended if self._turn is not None else []
        others = [one for one in self._process.ended if one.pid != self._process.pid]
        return listed([*of_turn, *others], self._process.redactor)

    def traces(self) -> Traces:
        """What it leaves behind."""
        if self._turn is not None:
            return self._turn.traces(session_id=self.session_id, exit_code=self.exit_code, ended=self.ended)
        return Traces(
            session_id=self.session_id, exit_code=self.exit_code, ended=self.ended, redacted=self.redacted
        )
