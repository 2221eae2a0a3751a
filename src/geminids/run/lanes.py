"""Which lane a run takes: headless, or warm where somebody is to be asked and the release can ask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from geminids.events.fold import Fold
from geminids.events.ledger import Ledger
from geminids.events.model import Event
from geminids.launch.plan import make_plan
from geminids.launch.refused import Refused
from geminids.launch.scratch import Scratch
from geminids.options import Options
from geminids.run.gate import RunGate
from geminids.run.headless import HeadlessLane
from geminids.run.outbox import Outbox
from geminids.run.reading import OnLine

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
        run_id: str,
        ledger: Ledger,
        outbox: Outbox,
        fold: Fold,
        on_session: Callable[[str], list[Event]],
        on_line: OnLine | None,
        on_permission: OnPermission | None,
        gate: RunGate,
    ) -> None:
        self._run_id = run_id
        self._ledger = ledger
        self._outbox = outbox
        self._fold = fold
        self._on_session = on_session
        self._on_line = on_line
        self._on_permission = on_permission
        self._gate = gate
        self.scratch: Scratch | None = None
        self.cwd = ""

    def choose(self, prompt: str, options: Options, resumed: Path | None) -> HeadlessLane | WarmLane:
        """A lane that is ready to start; raises `Refused` where none can work."""
        if self.scratch is not None:
            self.scratch.close()
            self.scratch = None
        options = for_one_attempt(options)
        lane = self._warm(prompt, options) if self._on_permission is not None else None
        return self._headless(prompt, options, resumed) if lane is None else lane

    def _headless(self, prompt: str, options: Options, resumed: Path | None) -> HeadlessLane:
        plan = make_plan(prompt, options, run_id=self._run_id, gate=self._gate, resumed=resumed)
        self._tell_gate()
        self.scratch, self.cwd = plan.scratch, plan.cwd
        if plan.session_id is not None and (told := self._on_session(plan.session_id)):
            self._outbox.put(told)
        return HeadlessLane(
            plan,
            options,
            self._run_id,
            self._ledger,
            self._outbox,
            self._fold,
            self._on_line,
            self._on_session,
            self._gate if self._gate.is_open else None,
        )

    def _tell_gate(self) -> None:
        self._outbox.put([self._ledger.notice(*notice) for notice in self._gate.take_notices()])

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
                plan = make_warm_plan(options, asks=True, gate=self._gate)
            except Refused as refused:
                if refused.failure.kind not in ("cli_unsupported", "untrusted_folder"):
                    raise
                why = refused.failure.message
        if why is not None:
            told = f"the headless lane is taken, on which nobody is asked: {why}"
            self._outbox.put([self._ledger.notice("warning", "lane", told)])
            return None
        self._tell_gate()
        self.cwd = plan.cwd
        blocks = blocks_of(prompt, options, plan.cwd, self._run_id)
        return WarmLane(
            plan,
            prompt,
            blocks,
            options,
            self._run_id,
            self._ledger,
            self._outbox,
            self._fold,
            self._on_session,
            self._on_permission,
            self._gate if self._gate.is_open else None,
        )
