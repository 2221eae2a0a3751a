"""What a headless run was: by its result line, its exit code and its last words, and by who has stopped it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminids.events.fold import Fold
from geminids.launch.plan import Plan
from geminids.options import Options
from geminids.outcome import Failure
from geminids.run.gateway_events import GatewayEvents, ending_of
from geminids.run.reading import Reading
from geminids.run.stopping import LINGERING, Stopping
from geminids.wire.endings import Ending, Evidence, judge
from geminids.wire.stream_json import error_of, stats_of

if TYPE_CHECKING:
    from geminids.gateway.told import Halt

__all__ = ["Verdict"]

_LINGERING_HINT = "Run again; if it stays so, try another release with `geminids install`."


class Verdict:
    """Judges one attempt. `result_came_first`: the CLI had told its result before it was stopped."""

    def __init__(
        self,
        plan: Plan,
        options: Options,
        fold: Fold,
        reading: Reading,
        stopping: Stopping,
        gateway: GatewayEvents | None,
    ) -> None:
        self._plan = plan
        self._options = options
        self._fold = fold
        self._reading = reading
        self._stopping = stopping
        self._gateway = gateway
        self.result_came_first = False

    @property
    def halted(self) -> Halt | None:
        """Why the gateway has stopped the run, if it has."""
        return self._gateway.halted if self._gateway is not None else None

    def ending(self, exit_code: int | None) -> Ending:
        """What it was."""
        stopping, halted = self._stopping, self.halted
        if halted is not None and not self._said_success:
            # The gateway blocked a request: report our reason, not the error that the CLI derives from it.
            return ending_of(halted)
        if stopping.reason == LINGERING and self._reading.stream.result is None:
            failure = Failure(
                kind="cut_off",
                message=LINGERING,
                retryable=True,
                hint=_LINGERING_HINT,
                exit_code=exit_code,
                stderr_tail=self._reading.stderr_tail[-4000:] or None,
            )
            return Ending("failed", LINGERING, failure)
        if not stopping.wanted or self.result_came_first or self._said_success:
            ending = self._judged(exit_code)
            if self._gateway is None:
                return ending
            return self._gateway.explain(ending, answer=self._fold.answer)
        return Ending("timed_out" if stopping.by_deadline else "interrupted", stopping.reason)

    def keeps_leftovers(self, exit_code: int | None) -> bool:
        """Only a run that succeeded, and that nobody stopped, may leave something on purpose."""
        if self._options.leftovers != "keep" or self._stopping.wanted or not self._said_success:
            return False
        return self._judged(exit_code).outcome == "success"

    @property
    def _said_success(self) -> bool:
        result = self._reading.stream.result
        return result is not None and result.status == "success"

    def _judged(self, exit_code: int | None) -> Ending:
        stream = self._reading.stream
        result = stream.result
        error = error_of(result.error) if result else None
        stats = stats_of(result.stats) if result else None
        return judge(
            Evidence(
                exit_code=exit_code,
                result_status=result.status if result else None,
                error_type=error[0] if error else None,
                error_message=error[1] if error else None,
                error_lines=tuple((line.severity, line.message) for line in stream.errors),
                answer=self._fold.answer,
                stderr=self._reading.stderr_tail,
                resume=self._options.resume,
                total_tokens=stats.total_tokens if stats else None,
                tool_calls=stats.tool_calls if stats else None,
            )
        )
