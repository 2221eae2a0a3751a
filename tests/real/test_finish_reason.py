"""The finish reason of an answer (`STOP`, `MAX_TOKENS`, `SAFETY` …) is reported. It leads to the same outcome on both
transports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

import geminids
from fake_google import FakeGoogle, Fault
from geminids import Notice
from geminids.gateway import Call, Reply, Request
from through_gateway import KEY, through

pytestmark = pytest.mark.real
deep = pytest.mark.deep

Answer = Reply | Fault

LOOK = Reply(calls=[Call("list_directory", {"dir_path": "."})])
CUT_LOOK = Reply(calls=LOOK.calls, finish="MAX_TOKENS")
ONCE: dict[str, Any] = {"max_attempts": 1}


@dataclass(frozen=True)
class Ended:
    """How a run ended. `notices` are those about a request: code and number."""

    finish_reason: str | None
    notices: list[tuple[str, int]] = field(default_factory=list)
    outcome: str = "success"
    kind: str | None = None
    retryable: bool | None = None
    text: str = ""


@dataclass(frozen=True)
class Case:
    """The API's answers (the last one is for all further requests), and how the run ends."""

    answers: tuple[Answer, ...]
    ended: Ended
    options: dict[str, Any] = field(default_factory=lambda: ONCE)


def blocked(reason: str, *, retryable: bool = False, request: int = 1) -> Ended:
    return Ended(reason, [(reason.lower(), request)], "failed", "blocked", retryable)


CASES: dict[str, Case] = {
    "stop": Case((Reply(text="all"),), Ended("STOP", text="all")),
    "text, max tokens": Case(
        (Reply(text="half", finish="MAX_TOKENS"),), Ended("MAX_TOKENS", [("max_tokens", 1)], text="half")
    ),
    "text, safety": Case(
        (Reply(text="half", finish="SAFETY"),), Ended("SAFETY", [("safety", 1)], text="half")
    ),
    "empty, max tokens": Case((Reply(finish="MAX_TOKENS"),), blocked("MAX_TOKENS", retryable=True)),
    "empty, safety": Case((Reply(finish="SAFETY"),), blocked("SAFETY")),
    "empty, other": Case((Reply(finish="OTHER"),), blocked("OTHER")),
    "prompt, safety": Case((Reply(blocked="SAFETY"),), blocked("SAFETY")),
    "prompt, prohibited content": Case((Reply(blocked="PROHIBITED_CONTENT"),), blocked("PROHIBITED_CONTENT")),
    "tool, then empty, safety": Case((LOOK, Reply(finish="SAFETY")), blocked("SAFETY", request=2)),
    # 0.61.0 itself calls this a success: after a tool it accepts an answer without text (geminiChat.ts).
    "tool, then prompt, safety": Case((LOOK, Reply(blocked="SAFETY")), blocked("SAFETY", request=2)),
    "tool, max tokens, then stop": Case(
        (CUT_LOOK, Reply(text="done")), Ended("STOP", [("max_tokens", 1)], text="done")
    ),
    "tool, then interrupted": Case(
        (LOOK, Fault("reset", Reply(text=["one ", "two ", "three "]), after=2)),
        Ended(None, [("retry", 2)], "failed", "network", True, "one two "),
    ),
    "tool, then server error": Case(
        (LOOK, Reply(status=500)), Ended(None, [("retry", 2)], "failed", "server", True)
    ),
    "tool, then silence": Case(
        (LOOK, Reply(text="one", stall=True)),
        Ended(None, [("request", 2)], "timed_out", text="one"),
        {**ONCE, "timeout": 10.0},
    ),
    "empty, safety, asked again": Case(
        (Reply(finish="SAFETY"), Reply(text="done")),
        Ended("STOP", [("safety", 1), ("repeat", 2), ("discarded", 1)], text="done"),
        {"max_attempts": 2},
    ),
    "empty, safety, asked again in vain": Case(
        (Reply(finish="SAFETY"),),
        Ended(
            "SAFETY",
            [("safety", 1), ("repeat", 2), ("discarded", 1), ("safety", 2)],
            "failed",
            "blocked",
            False,
        ),
        {"max_attempts": 2},
    ),
}
QUICK = ("text, max tokens", "empty, safety")


def rows() -> list[Any]:
    made = []
    for release in ("0.61.0", "0.54.4"):
        for name in CASES:
            for transport in ("headless", "warm"):
                marks = () if release == "0.61.0" and name in QUICK else deep
                row = f"{release}-{transport}-{name}"
                made.append(pytest.param(release, transport, name, marks=marks, id=row))
    return made


def script_of(answers: tuple[Answer, ...]) -> Callable[[Request], Answer | None]:
    left = list(answers)

    def script(request: Request) -> Answer | None:
        if request.method != "stream":
            return None
        return left.pop(0) if len(left) > 1 else left[0]

    return script


async def play(world: Any, case: Case, transport: str) -> tuple[geminids.Result[Any], list[Any]]:
    """The result and the events of one prompt."""
    with FakeGoogle(script_of(case.answers), with_key=KEY) as google:
        options = through(world, google, **{"timeout": 60.0, **case.options})
        if transport == "headless":
            async with geminids.open_run("hello", options) as run:
                events = [event async for event in run]
            return run.result, events
        async with geminids.Pool(options, size=1) as pool, pool.chat() as chat:
            turn = chat.send("hello")
            events = [event async for event in turn]
        return turn.result, events


@pytest.mark.parametrize(("release", "transport", "name"), rows())
def test_the_end_of_an_answer(make_world: Any, release: str, transport: str, name: str) -> None:
    """`finish_reason` is the API's word for the last main answer, None if that was interrupted. A notice reports each
    answer that ended otherwise than with STOP. Outcome and failure are the same on both transports."""
    case = CASES[name]
    result, events = anyio.run(play, make_world(release), case, transport)
    failure = result.failure
    assert case.ended == Ended(
        finish_reason=result.finish_reason,
        notices=[
            (event.code, event.request)
            for event in events
            if isinstance(event, Notice) and event.request is not None
        ],
        outcome=result.outcome,
        kind=failure.kind if failure else None,
        retryable=failure.retryable if failure else None,
        text=result.text,
    )
    if failure is not None and failure.kind == "blocked" and not failure.retryable:
        assert failure.message == f"the API blocked the answer ({result.finish_reason})"
