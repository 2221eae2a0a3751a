"""What the gateway has seen becomes events of the run, and its word is the ending's."""

from __future__ import annotations

from typing import Any

import pytest

from geminids import Notice, Options, TokensUsed
from geminids.events.ledger import Ledger
from geminids.events.model import Retry
from geminids.gateway.told import Answered, Counts, Halt, Remark, Waiting
from geminids.outcome import Failure
from geminids.run.gate import RunGate
from geminids.run.overseer import Overseer, ending_of
from geminids.run.usage import differences, overseen
from geminids.wire.endings import Ending


class Seen:
    """An overseer with what it has put out."""

    def __init__(self) -> None:
        self.gate = RunGate(Options())
        self.ledger = Ledger()
        self.events: list[Any] = []
        self.halts: list[Halt] = []
        self.overseer = Overseer(self.gate, self.ledger, self.events.extend, self.halts.append)

    def tell(self, *told: Any) -> list[Any]:
        self.events.clear()
        for one in told:
            self.gate.mailbox.put(one)
        self.overseer.look()
        return list(self.events)


@pytest.fixture
def seen() -> Seen:
    return Seen()


def answered(number: int = 1, **fields: Any) -> Answered:
    given: dict[str, Any] = {
        "number": number,
        "at": 1,
        "method": "stream",
        "model": "m",
        "served": None,
        "role": "main",
        "attempt": 1,
        "body": number,
        "status": 200,
        "counts": Counts(input=10, cached=1, output=2, thinking=3, tool=0),
        "finish": "STOP",
        "waited_ms": 0,
        "first_byte_ms": 4,
        "duration_ms": 5,
        "whole": True,
    }
    return Answered(**{**given, **fields})


def test_each_answer_is_told_with_its_tokens_and_times(seen: Seen) -> None:
    """The served model is the one that counts; numbers have no gaps."""
    (used,) = seen.tell(answered(served="m-001"))
    assert isinstance(used, TokensUsed)
    assert (used.model, used.input, used.cached, used.output, used.thinking) == ("m-001", 10, 1, 2, 3)
    assert (used.request, used.first_byte_ms, used.duration_ms, used.seq) == (1, 4, 5, 0)


def test_turns(seen: Seen) -> None:
    """Each new question of the main conversation is one; the same question again, and errands, are not."""
    told = [
        answered(1, role="utility", method="generate"),
        answered(2, body=7),
        answered(3, role="subagent"),
        answered(4, body=8),
        answered(5, body=8, attempt=2),
    ]
    assert [event.turn for event in seen.tell(*told)] == [1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("fields", "level", "code", "words", "status"),
    [
        ({"status": 429, "error": "slow down"}, "warning", "retry", "HTTP 429: slow down", 429),
        ({"status": None, "fault": "no route", "whole": False}, "warning", "retry", "no route", None),
        ({"whole": False}, "info", "request", "given up by the CLI", None),
    ],
)
def test_a_request_that_failed(
    seen: Seen, fields: dict[str, Any], level: str, code: str, words: str, status: int | None
) -> None:
    """It is told as it happens, with attempt and status; what was given up is no failure of the API."""
    (notice,) = seen.tell(answered(3, counts=None, attempt=2, **fields))
    assert isinstance(notice, Notice)
    assert (notice.level, notice.code, words in notice.message) == (level, code, True)
    assert notice.retry == Retry(2, status)


def test_waiting_and_remarks_are_notices(seen: Seen) -> None:
    """With their own codes."""
    told = seen.tell(
        Waiting(number=4, seconds=2.5, reason="the API asked for it"), Remark(code="replay", text="x")
    )
    assert [(one.code, one.level) for one in told] == [("waiting", "info"), ("replay", "warning")]


@pytest.mark.parametrize(
    ("kind", "outcome", "failure"),
    [
        ("over_budget", "over_budget", None),
        ("model", "failed", "config"),
        ("mismatch", "failed", "bad_request"),
        ("gone", "failed", "network"),
    ],
)
def test_a_halt_ends_the_run(seen: Seen, kind: Any, outcome: str, failure: str | None) -> None:
    """The lane is told, and the ending is the halt's."""
    halt = Halt(kind=kind, message="enough", hint="more")
    seen.tell(halt, Halt(kind="gone", message="later", hint=""))
    assert seen.halts[-1] == seen.overseer.halted == halt, "the first word counts"
    assert seen.ledger.stopped == "enough", "the CLI's own words for it are known by this"
    ending = ending_of(halt)
    assert ending.reason is not None
    assert (ending.outcome, ending.reason.splitlines()[0]) == (outcome, "enough")
    assert "more" in (ending.failure.hint if ending.failure else ending.reason), "the next step is told"
    assert (ending.failure.kind if ending.failure else None) == failure


def test_what_the_gateway_knows_better(seen: Seen) -> None:
    """A broken way is named; other failures stay as the CLI told them."""
    failure = Failure(kind="network", message="fetch failed", retryable=True, hint="h")
    bare = Ending("failed", "fetch failed", failure)
    assert seen.overseer.explained(bare) is bare
    seen.tell(answered(counts=None, status=None, whole=False, fault="no such host: x.invalid"))
    explained = seen.overseer.explained(bare)
    assert explained.failure is not None
    assert "no such host: x.invalid" in explained.failure.message
    other = Ending("failed", "m", Failure(kind="auth", message="m", retryable=False, hint="h"))
    assert seen.overseer.explained(other) is other


def used(role: str, input: int, output: int) -> TokensUsed:
    fields: dict[str, Any] = {"cached": 0, "thinking": 0, "tool": 0, "model": "m"}
    return TokensUsed(at=0, seq=0, attempt=1, turn=1, role=role, input=input, output=output, **fields)  # type: ignore[arg-type]


def test_sources_that_agree_say_nothing() -> None:
    """The journal has no errands of the CLI's own, and the sums have all."""
    seen = [used("utility", 5, 1), used("main", 100, 10), used("subagent", 50, 5)]
    assert differences(seen, seen[1:], (155, 16)) == []
    assert differences(seen, None, None) == []
    assert differences(seen, None, (None, None)) == []
    usage = overseen(seen)
    assert usage is not None
    assert (usage.input, usage.output, usage.total, usage.requests) == (155, 16, 171, 3)
    assert overseen([]) is None


def test_a_difference_is_told_with_both_numbers() -> None:
    """Of the journal, and of the CLI's own sums."""
    seen = [used("main", 100, 10)]
    (journal,) = differences(seen, [used("main", 90, 10)], (100, 10))
    assert "the journal has 90" in journal
    assert "100" in journal
    (sums,) = differences(seen, seen, (101, 10))
    assert "own sum has 101" in sums
