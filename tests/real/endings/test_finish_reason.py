"""The finish reason of an answer (`STOP`, `MAX_TOKENS`, `SAFETY` …) is reported, and leads to the
same outcome on both transports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

import geminids
from fake_google import FakeGoogle, Fault
from gateway_runs import KEY, options_for
from geminids import Notice
from geminids.gateway import Call, Reply, Request

pytestmark = pytest.mark.real
deep = pytest.mark.deep

Answer = Reply | Fault

TOOL_CALL = Reply(calls=[Call("list_directory", {"dir_path": "."})])
CUT_TOOL_CALL = Reply(calls=TOOL_CALL.calls, finish="MAX_TOKENS")
ONCE: dict[str, Any] = {"max_attempts": 1}


@dataclass(frozen=True)
class Ending:
    """How a run ended. `notices` are the code and the request number of each notice about a
    request."""

    finish_reason: str | None
    notices: list[tuple[str, int]] = field(default_factory=list)
    outcome: str = "success"
    kind: str | None = None
    retryable: bool | None = None
    text: str = ""


@dataclass(frozen=True)
class Case:
    """The API's answers, and how the run ends. The last answer repeats for all further requests."""

    answers: tuple[Answer, ...]
    ending: Ending
    options: dict[str, Any] = field(default_factory=lambda: ONCE)


def blocked_ending(reason: str, *, retryable: bool = False, request: int = 1) -> Ending:
    return Ending(reason, [(reason.lower(), request)], "failed", "blocked", retryable)


CASES: dict[str, Case] = {
    "stop": Case((Reply(text="all"),), Ending("STOP", text="all")),
    "text, max tokens": Case(
        (Reply(text="half", finish="MAX_TOKENS"),), Ending("MAX_TOKENS", [("max_tokens", 1)], text="half")
    ),
    "text, safety": Case(
        (Reply(text="half", finish="SAFETY"),), Ending("SAFETY", [("safety", 1)], text="half")
    ),
    "empty, max tokens": Case((Reply(finish="MAX_TOKENS"),), blocked_ending("MAX_TOKENS", retryable=True)),
    "empty, safety": Case((Reply(finish="SAFETY"),), blocked_ending("SAFETY")),
    "empty, other": Case((Reply(finish="OTHER"),), blocked_ending("OTHER")),
    "prompt, safety": Case((Reply(blocked="SAFETY"),), blocked_ending("SAFETY")),
    "prompt, prohibited content": Case(
        (Reply(blocked="PROHIBITED_CONTENT"),), blocked_ending("PROHIBITED_CONTENT")
    ),
    "tool, then empty, safety": Case(
        (TOOL_CALL, Reply(finish="SAFETY")), blocked_ending("SAFETY", request=2)
    ),
    # 0.61.0 itself calls this a success: after a tool it accepts an answer without text
    # (geminiChat.ts).
    "tool, then prompt, safety": Case(
        (TOOL_CALL, Reply(blocked="SAFETY")), blocked_ending("SAFETY", request=2)
    ),
    "tool, max tokens, then stop": Case(
        (CUT_TOOL_CALL, Reply(text="done")), Ending("STOP", [("max_tokens", 1)], text="done")
    ),
    "tool, then interrupted": Case(
        (TOOL_CALL, Fault("reset", Reply(text=["one ", "two ", "three "]), after=2)),
        Ending(None, [("retry", 2)], "failed", "network", True, "one two "),
    ),
    "tool, then server error": Case(
        (TOOL_CALL, Reply(status=500)), Ending(None, [("retry", 2)], "failed", "server", True)
    ),
    "tool, then silence": Case(
        (TOOL_CALL, Reply(text="one", stall=True)),
        Ending(None, [("request", 2)], "timed_out", "timed_out", retryable=False, text="one"),
        {**ONCE, "timeout": 10.0},
    ),
    "empty, safety, asked again": Case(
        (Reply(finish="SAFETY"), Reply(text="done")),
        Ending("STOP", [("safety", 1), ("repeat", 2), ("discarded", 1)], text="done"),
        {"max_attempts": 2},
    ),
    "empty, safety, asked again in vain": Case(
        (Reply(finish="SAFETY"),),
        Ending(
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


def parameters() -> list[Any]:
    params = []
    for release in ("0.61.0", "0.54.4"):
        for name in CASES:
            for transport in ("headless", "warm"):
                marks = () if release == "0.61.0" and name in QUICK else deep
                test_id = f"{release}-{transport}-{name}"
                params.append(pytest.param(release, transport, name, marks=marks, id=test_id))
    return params


def make_script(answers: tuple[Answer, ...]) -> Callable[[Request], Answer | None]:
    remaining = list(answers)

    def script(request: Request) -> Answer | None:
        if request.method != "stream":
            return None
        return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    return script


async def run_case(world: Any, case: Case, transport: str) -> tuple[geminids.Result[Any], list[Any]]:
    """Send one prompt, and return the result and the events."""
    with FakeGoogle(make_script(case.answers), with_key=KEY) as google:
        options = options_for(world, google, **{"timeout": 60.0, **case.options})
        if transport == "headless":
            async with geminids.open_run("hello", options) as run:
                events = [event async for event in run]
            return run.result, events
        async with geminids.Pool(options, size=1) as pool, pool.chat() as chat:
            turn = chat.send("hello")
            events = [event async for event in turn]
        return turn.result, events


@pytest.mark.parametrize(("release", "transport", "name"), parameters())
def test_finish_reason_and_outcome(make_world: Any, release: str, transport: str, name: str) -> None:
    """`finish_reason` is the API's reason for the last main answer, or None if that answer was
    interrupted. A notice reports each answer that ended with another reason than STOP. Outcome and
    failure are the same on both transports."""
    case = CASES[name]
    result, events = anyio.run(run_case, make_world(release), case, transport)
    failure = result.failure
    assert case.ending == Ending(
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
