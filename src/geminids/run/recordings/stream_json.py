"""Convert the CLI's recorded output (stream-json) into the events of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal

import msgspec

from geminids.events.cost import Cost
from geminids.events.model import Event, Finished, Notice, ToolFinished
from geminids.events.translate.stream_json import StreamTranslator
from geminids.gemini.protocol.outcome.judge import Ending, Evidence, cut_off, judge
from geminids.gemini.protocol.stream_json import (
    InitLine,
    MessageLine,
    ProcessStats,
    UnexpectedLine,
    WireLine,
    decode_block,
    error_of,
    stats_of,
)
from geminids.redact import Redactor
from geminids.run.accounting.cost import usage_of_stats
from geminids.run.attempt import AttemptFacts
from geminids.run.recorder import RunRecorder

__all__ = ["events_of_stream"]


def events_of_stream(blocks: Iterable[bytes]) -> Iterator[Sequence[Event]]:
    """Convert blocks of recorded lines into batches of events, from `Started` to `Finished`.

    Each block consists of whole lines. The same lines always give the same events: the times are
    those of the lines, and the run id is a hash of the first line. Recorded lines contain neither
    the working folder nor the CLI's version, process id and exit code. So these fields are empty,
    and `Finished.complete` is False.
    """
    translation = _Translation()
    for block in blocks:
        if batch := translation.read(block):
            yield batch
    yield translation.finish()


class _Translation:
    """Translates the lines of one recording into events."""

    def __init__(self) -> None:
        self._recorder = RunRecorder()
        self._stream = StreamTranslator(self._recorder, Redactor())
        self._opening: list[WireLine | UnexpectedLine] = []
        self._recorder.run_id = ""
        self._began: int | None = None
        self._latest = 0

    def read(self, block: bytes) -> list[Event]:
        if not self._recorder.run_id:
            first = block.partition(b"\n")[0]
            self._recorder.run_id = f"run-{hashlib.sha256(first).hexdigest()[:16]}"
        lines = decode_block(block)
        if self._began is not None:
            return self._translate(lines)
        # Wait for the second line. It contains the prompt, which is a field of `Started`.
        self._opening += lines
        return (
            [] if all(isinstance(line, InitLine | UnexpectedLine) for line in self._opening) else self._open()
        )

    def finish(self) -> list[Event]:
        opened = self._open() if self._began is None else []
        last: list[Event] = [self._cancelled(event) for event in self._stream.finish()]
        self._recorder.accumulate(last)
        return [*opened, *last, self._finished()]

    def _open(self) -> list[Event]:
        lines, self._opening = self._opening, []
        init = next((line for line in lines if isinstance(line, InitLine)), InitLine())
        second = next((line for line in lines if not isinstance(line, InitLine | UnexpectedLine)), None)
        stamps = (_ms(line.timestamp) for line in lines if not isinstance(line, UnexpectedLine))
        self._began = self._latest = next((at for at in stamps if at is not None), 0)
        self._recorder.run_id = self._recorder.run_id or "run-0"
        started = self._recorder.make_started(
            at=self._began,
            session_id=init.session_id,
            model=init.model,
            cwd="",
            cli_version=None,
            transport="headless",
            pid=0,
            prompt=second.content if isinstance(second, MessageLine) and second.role == "user" else None,
        )
        self._recorder.accumulate([started])
        return [started, *self._translate(lines)]

    def _translate(self, lines: Sequence[WireLine | UnexpectedLine]) -> list[Event]:
        batch: list[Event] = []
        latest = self._latest
        for event in self._stream.translate(lines):
            if type(event) is Notice:
                # The output contains no times for notices: use the time of the previous event.
                batch.append(msgspec.structs.replace(event, at=latest))
            else:
                latest = event.at
                batch.append(event)
        self._latest = latest
        self._recorder.accumulate(batch)
        return batch

    def _cancelled(self, event: Event) -> Event:
        """Return a copy of an event, with the time of the last recorded event.

        The event is not in the recording: geminids added it because the recording ended too early.
        If the event reports the end of a tool call, the copy has the duration None, because the
        duration is unknown.
        """
        if isinstance(event, ToolFinished):
            return msgspec.structs.replace(event, at=self._latest, duration_ms=None)
        return msgspec.structs.replace(event, at=self._latest)

    def _finished(self) -> Finished:
        result = self._stream.result
        stats = stats_of(result.stats) if result else None
        at = max(self._latest, (_ms(result.timestamp) if result else None) or 0)
        ending = self._ending(stats)
        facts = AttemptFacts(ending=ending, session_id=self._stream.session_id, usage=usage_of_stats(stats))
        finished = self._recorder.make_finished(ending, [facts], began=0.0)
        usd = stats.total_cost_usd if stats else None
        cost = None if usd is None else Cost(usd=Decimal(str(usd)), basis="estimate")
        reported = stats.duration_ms if stats else None
        duration = at - (self._began or 0) if reported is None else reported
        return msgspec.structs.replace(finished, at=at, duration_ms=duration, cost=cost)

    def _ending(self, stats: ProcessStats | None) -> Ending:
        result = self._stream.result
        error = error_of(result.error) if result else None
        evidence = Evidence(
            result_status=result.status if result else None,
            error_type=error[0] if error else None,
            error_message=error[1] if error else None,
            error_lines=tuple((line.severity, line.message) for line in self._stream.errors),
            answer=self._recorder.answer,
            total_tokens=stats.total_tokens if stats else None,
            tool_calls=stats.tool_calls if stats else None,
        )
        if result is None:
            return cut_off(evidence, "the recording has no result: the run was cut off or had not ended yet")
        return judge(evidence)


def _ms(stamp: str) -> int | None:
    try:
        return int(datetime.fromisoformat(stamp).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
