"""Which lane a run takes: headless, or warm where somebody is to be asked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from geminids.events.model import Event
from geminids.gateway.request_log import RequestLog
from geminids.gateway.route import Route
from geminids.launch.plan import make_plan
from geminids.launch.refused import Refused
from geminids.launch.route import route_notice
from geminids.launch.scratch import Scratch
from geminids.options import Options
from geminids.run.cost import check_prices
from geminids.run.headless import HeadlessLane
from geminids.run.lease import RunLease
from geminids.run.reading import OnLine
from geminids.run.recorder import RunRecorder

if TYPE_CHECKING:
    from geminids.run.warm.lane import WarmLane
    from geminids.run.warm.permission import OnPermission

__all__ = ["Lanes", "for_one_attempt"]


def for_one_attempt(options: Options) -> Options:
    """Where we try a run again, the CLI tries each request once: its own ten attempts and ours would multiply."""
    if (options.retries or options.fallback_models) and options.max_attempts is None:
        return msgspec.structs.replace(options, max_attempts=1)
    return options


class Lanes:
    """Chooses and makes the lane of a run; `scratch` and `cwd` are what its plan has made and found."""

    def __init__(
        self,
        recorder: RunRecorder,
        on_session: Callable[[str], list[Event]],
        on_line: OnLine | None,
        on_permission: OnPermission | None,
        lease: RunLease,
        log: RequestLog,
    ) -> None:
        self._recorder = recorder
        self._on_session = on_session
        self._on_line = on_line
        self._on_permission = on_permission
        self._lease = lease
        self._log = log
        self.scratch: Scratch | None = None
        self.cwd = ""

    def choose(self, prompt: str, options: Options, resumed: Path | None) -> HeadlessLane | WarmLane:
        """A lane that is ready to start; raises `Refused` where none can work."""
        if self.scratch is not None:
            self.scratch.close()
            self.scratch = None
        check_prices(options)
        options = for_one_attempt(options)
        lane = self._warm(prompt, options) if self._on_permission is not None else None
        return self._headless(prompt, options, resumed) if lane is None else lane

    def _headless(self, prompt: str, options: Options, resumed: Path | None) -> HeadlessLane:
        plan = make_plan(
            prompt,
            options,
            run_id=self._recorder.run_id,
            connect=self._lease.connect,
            resumed=resumed,
            budget=self._lease.has_budget,
        )
        self._report_route(plan.route)
        self.scratch, self.cwd = plan.scratch, plan.cwd
        if plan.session_id is not None and (told := self._on_session(plan.session_id)):
            self._recorder.put(told)
        return HeadlessLane(
            plan, options, self._recorder, self._on_line, self._on_session, lease=self._lease, log=self._log
        )

    def _report_route(self, route: Route) -> None:
        """Say once what the route means for the caller's secrets and numbers."""
        if self._recorder.ledger.attempt == 1 and (notice := route_notice(route)) is not None:
            self._recorder.notice(*notice)

    def _warm(self, prompt: str, options: Options) -> WarmLane | None:
        """The lane on which somebody is asked; None, and a notice, where this run cannot take it."""
        from geminids.launch.warm import make_warm_plan, too_cold  # imported late: most runs ask nobody
        from geminids.run.warm.lane import WarmLane
        from geminids.run.warm.prompt import blocks_of, is_command

        why = too_cold(options)
        if why is None and is_command(prompt) and not options.literal:
            why = "commands are not run on the warm lane"
        if why is None:
            try:
                plan = make_warm_plan(
                    options, asks=True, connect=self._lease.connect, budget=self._lease.has_budget
                )
            except Refused as refused:
                if not refused.headless_can:
                    raise
                why = refused.failure.message
        if why is not None:
            told = f"the headless lane is taken, on which nobody is asked: {why}"
            self._recorder.notice("warning", "lane", told)
            return None
        self._report_route(plan.route)
        self.cwd = plan.cwd
        blocks = blocks_of(prompt, options, plan.cwd, self._recorder.run_id)
        asked = self._on_permission
        return WarmLane(
            plan, prompt, blocks, options, self._recorder, self._on_session, asked, self._lease, self._log
        )
