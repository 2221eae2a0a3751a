"""Where a conversation sits, and how it goes on when its process is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from geminids.errors import GeminidsError, SessionError
from geminids.events.model import Level
from geminids.ids import new_run_id
from geminids.launch.errors import Refused
from geminids.launch.permissions import Verdicts
from geminids.launch.route import route_notice
from geminids.launch.workspace import Found
from geminids.log import get_logger
from geminids.options import Approval, Options, make_options
from geminids.run.claim import Claim
from geminids.run.lease import RunLease
from geminids.run.result import Result, spawn_failed
from geminids.run.warm.always import Always
from geminids.run.warm.connection import RpcFailed
from geminids.run.warm.seat import Seat, why_not_open
from geminids.wire.acp_calls import SetMode, SetModel
from geminids.wire.endings import Ending

if TYPE_CHECKING:
    from geminids.run.warm.handover import Cut
    from geminids.run.warm.pool import Pool
    from geminids.run.warm.process import WarmProcess

__all__ = ["Seating"]

_log = get_logger("warm")

_COLD = "the conversation goes on by the headless lane, which resumes it from its file"


class Seating:
    """A conversation's place: a session in a process of the pool, or the headless lane.

    `handover` is what is put before the next prompt: the conversation so far, until the session is known to hold it.
    """

    def __init__(
        self, pool: Pool, options: Options, environ: Mapping[str, str] | None, *, asks: bool
    ) -> None:
        self.options = options
        self.environ = environ
        self.asks = asks
        self.session_id: str | None = options.resume
        self.verdicts: Verdicts = Verdicts(options.approval, options.permissions)
        self.handover = ""
        self.lease = RunLease(options, whose="this chat", budgets=pool.budgets, shares_process=True)
        self.seat: Seat | None = None
        self.process: WarmProcess | None = None
        self._pool = pool
        self._always = Always()
        self._claim = Claim(new_run_id())
        self._has_history = options.resume is not None
        self._cold = False
        self._cut: list[Cut] = []
        self._notices: list[tuple[Level, str, str]] = []
        self._neutralised: tuple[Found, ...] = ()
        self._route_reported = False

    async def begin(self) -> None:
        """Open a session ahead of the first prompt. Should that fail, the first turn tries again and says why."""
        if self._has_history:
            return
        try:
            self.seat = await self._sit()
        except Exception as error:
            _log.warning("the session could not be opened ahead; the next turn tries again", error=error)
            await self.leave()

    async def take(self) -> Seat | None:
        """A session for the next prompt; None where the conversation goes on by the headless lane."""
        if self._cold:
            return None
        self._settle_handover()
        if self.seat is not None and self.seat.is_usable:
            if not self.lease.is_dead and await self._pool.is_well(self.seat.process):
                return self.seat
            self.seat.process.stop()
        if self._has_history or self._has_begun():
            return await self._go_on()
        await self.leave()
        self.seat = await self._sit()
        return self.seat

    async def leave(self) -> None:
        """Let the session go: its shells are ended, its memory comes back with the process."""
        seat, self.seat = self.seat, None
        process, self.process = self.process, None
        if seat is not None and seat.process.alive and seat.process.shells.had_any(seat.session_id):
            await self._end_shells(seat)
        if process is not None:
            self._pool.left(process)

    async def _end_shells(self, seat: Seat) -> None:
        shells = seat.process.shells
        if self.options.leftovers == "end":
            from geminids.process import stop

            await stop.end_found(lambda: shells.of(seat.session_id), self.options.grace)
        shells.forget(seat.session_id)
        if shells.strays():
            # Nobody can say whose they are: they end with the process, which is kept for nobody else.
            seat.process.retiring = True

    def close(self) -> None:
        """The conversation is over."""
        self.let_go()
        self.lease.close()

    def let_go(self) -> None:
        """Hold the session no longer."""
        self._claim.release()

    async def set_model(self, model: str) -> None:
        self.options = make_options(self.options, model=model)
        if self.seat is not None and self.seat.is_usable:
            await self._change_model(self.seat, model)

    async def set_mode(self, mode: Approval) -> None:
        """Raises `GeminidsError` where the folder forbids it."""
        options = make_options(self.options, approval=mode)
        seat = self.seat
        if seat is not None and seat.is_usable:
            try:
                plan = self._pool.plan_for(options, self)
            except Refused as refused:
                raise GeminidsError(refused.failure.message, hint=refused.failure.hint) from None
            if plan.key == seat.process.plan.key:
                await _change_mode(seat, plan.mode)
            else:
                # Its rules are others: the conversation goes on in a process that has them.
                await self.leave()
        self.options = options
        self.verdicts = msgspec.structs.replace(self.verdicts, approval=mode)

    async def _go_on(self) -> Seat | None:
        """The process that had the conversation is gone, never had it, or has forgotten a turn that was cut."""
        level: Level = "info" if self.seat is not None and self.seat.process.alive else "warning"
        await self.leave()
        text = self._told_so_far() if self._pool.go_on == "handover" else None
        if text is None:
            self._cold = True
            self._notices.append(("warning", "lane", _COLD))
            return None
        before = self.session_id
        self.seat = await self._sit()
        self.handover, self._cut = text, []
        why = f"the conversation of session {before} was handed over to session {self.session_id}"
        self._notices.append((level, "lane", why))
        return self.seat

    def goes_cold(self, refused: Refused) -> bool:
        """Whether the headless lane is taken, turn by turn, since the warm one cannot have this conversation."""
        if self.environ is not None or not refused.headless_can:
            # The other lane has this process's own variables: who has given others runs it themselves.
            return False
        self._cold = True
        told = f"the headless lane is taken, on which nobody is asked: {refused.failure.message}"
        self._notices.append(("warning", "lane", told))
        return True

    async def _sit(self) -> Seat:
        import anyio

        plan, process = await self._pool.place_for(self)
        self.process = process
        self.verdicts = plan.verdicts
        self._neutralised = plan.neutralised
        if not self._route_reported and (notice := route_notice(plan.route)) is not None:
            self._notices.append(notice)
        self._route_reported = True
        with anyio.fail_after(self.options.start_timeout):
            opened = await process.new_session(plan.cwd, self.lease.session_token)
            seat = Seat(process, opened.session_id, plan.cwd, self._always, set(), self.lease)
            try:
                if plan.mode != "default":
                    await _change_mode(seat, plan.mode)
            except GeminidsError as error:
                raise Refused(
                    "untrusted_folder", error.message, error.hint or "", headless_can=True
                ) from None
            if plan.model is not None:
                await self._change_model(seat, plan.model)
        self._claim.release()
        self.session_id = opened.session_id
        self._hold(opened.session_id)
        return seat

    async def _change_model(self, seat: Seat, model: str) -> None:
        await seat.process.connection.call(SetModel(session_id=seat.session_id, model_id=model))

    def _hold(self, session_id: str) -> None:
        try:
            self._claim.take(session_id)
        except SessionError as error:
            self._notices.append(("warning", "session_busy", error.message))

    def _has_begun(self) -> bool:
        """A first turn that was cut off is in the session's file, with what it did."""
        return self.seat is not None and self._told_so_far() is not None

    def _told_so_far(self) -> str | None:
        from geminids.run.warm.handover import conversation_text, with_more

        assert self.session_id is not None
        if self.handover:
            return with_more(self.handover, self._cut)
        return conversation_text(self.session_id, self.options, self.environ, self._cut)

    def _settle_handover(self) -> None:
        """After an error of the API, or a stop before any answer, the CLI forgets the prompt, and what came with it."""
        if self.handover and self.session_id is not None:
            from geminids.run.warm.handover import has_arrived

            if has_arrived(self.session_id, self.options, self.environ):
                self.handover = ""

    def why_not(self, error: BaseException) -> Ending:
        """Why no session could be opened."""
        process = self.process
        if isinstance(error, OSError) and error.errno is not None and process is None:
            return spawn_failed(error, self.options.cwd)
        stderr = process.stderr_tail if process is not None else ""
        return why_not_open(error, stderr, process.exit_code if process is not None else None)

    def ended(self, prompt: str, result: Result) -> None:
        """A turn is over: from now on there is something to go on with."""
        self._has_history = self._has_history or bool(result.text) or result.ok
        if result.ok:
            self.handover, self._cut = "", []
            return
        if result.text or any(turn.tools for turn in result.turns):
            from geminids.run.warm.handover import Cut

            # The CLI takes a turn back that was stopped or failed; the model shall know of it all the same.
            self._cut.append(Cut(prompt, result))
            if self.seat is not None and self._pool.go_on == "handover":
                self.seat.broken = True

    def take_notices(self) -> Sequence[tuple[Level, str, str]]:
        notices, self._notices = self._notices, []
        return notices

    def take_neutralised(self) -> tuple[Found, ...]:
        found, self._neutralised = self._neutralised, ()
        return found


async def _change_mode(seat: Seat, mode: str) -> None:
    try:
        await seat.process.connection.call(SetMode(session_id=seat.session_id, mode_id=mode))
    except RpcFailed as failed:
        what = f"the approval mode cannot be {mode}: {failed.error.details or failed.error.message}"
        hint = "A folder that is not trusted stays in the default mode."
        raise GeminidsError(what, hint=hint) from None
