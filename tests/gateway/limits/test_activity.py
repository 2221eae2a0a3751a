"""Tests of `Activity`, which detects repeats, fallbacks and the like from the requests alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminids.gateway.limits.activity import Activity, Sent, fingerprint_of
from geminids.gateway.limits.roles import role_of
from geminids.gateway.request import Request

Message = dict[str, Any]

NUDGE = (
    "[System: You previously returned an empty response with no text or thoughts. Please ensure you provide your "
    "final answer or call a tool now.]"
)
RECOVERY = "System: Potential loop detected. Details: Repeating content detected. Please take a step back and confirm"
INTERRUPTED = "[The previous response was interrupted before it completed.]"


def user(*texts: str) -> Message:
    return {"parts": [{"text": text} for text in texts], "role": "user"}


def model(text: str) -> Message:
    return {"parts": [{"text": text}], "role": "model"}


def call(number: int, *, signed: bool = True) -> Message:
    part: dict[str, Any] = {
        "functionCall": {"id": f"ls_{number}", "args": {"n": number}, "name": "list_directory"}
    }
    return {"parts": [{**part, "thoughtSignature": "made up"} if signed else part], "role": "model"}


def result(number: int) -> Message:
    response = {"name": "list_directory", "response": {"output": "a.txt"}, "id": f"ls_{number}"}
    return {"parts": [{"functionResponse": response}], "role": "user"}


HELLO = user("<session_context>", "hello")


class Wire:
    """Sends requests to an `Activity` and stores the results.
    Each request ends before the next one is sent, unless `open_` is set."""

    def __init__(self) -> None:
        self.activity = Activity()
        self.sent: list[Sent] = []
        self.is_wrapped = False

    def ask(
        self,
        *contents: Message,
        model: str = "flash",
        status: int | None = 200,
        whole: bool = True,
        call: bool = False,
        open_: bool = False,
        utility: dict[str, Any] | None = None,
        subagent: bool = False,
        more: dict[str, Any] | None = None,
    ) -> int:
        body: dict[str, Any] = {"contents": list(contents), **(utility or {}), **(more or {})}
        if subagent:
            body["tools"] = [{"functionDeclarations": [{"name": "complete_task"}]}]
        method = "streamGenerateContent" if utility is None else "generateContent"
        path = f"/v1beta/models/{model}:{method}"
        if self.is_wrapped:
            body, path = {"model": model, "project": "p", "request": body}, f"/v1internal:{method}"
        number = len(self.sent) + 1
        raw = json.dumps(body, separators=(",", ":")).encode()
        request = Request.read(number, 0.0, "POST", path, {}, raw)
        self.sent.append(self.activity.sent(number, fingerprint_of(request, role_of(request))))
        if status is not None:
            self.activity.began(number, status)
        if not open_:
            self.activity.ended(number, is_whole=whole, has_call=call)
        return number

    @property
    def findings(self) -> list[tuple[str, int]]:
        return [(finding.code, finding.request) for sent in self.sent for finding in sent.findings]

    @property
    def repeats(self) -> list[int | None]:
        return [sent.repeats for sent in self.sent]

    @property
    def turns(self) -> list[bool]:
        return [sent.is_new_turn for sent in self.sent]


@pytest.fixture(params=[False, True], ids=["plain", "code_assist"])
def wire(request: pytest.FixtureRequest) -> Wire:
    wire = Wire()
    wire.is_wrapped = request.param
    return wire


def test_ordinary_conversation_has_no_findings(wire: Wire) -> None:
    """Tool calls, a second prompt and added or removed signatures are not findings."""
    wire.ask(HELLO, call=True)
    wire.ask(HELLO, call(1), result(1), call=True)
    wire.ask(HELLO, call(1), result(1), call(2), result(2))
    wire.ask(
        HELLO, call(1, signed=False), result(1), call(2, signed=False), result(2), model("done"), user("more")
    )
    assert wire.findings == []
    assert wire.turns == [True] * 4
    assert wire.repeats == [None] * 4


@pytest.mark.parametrize("status", [429, 500, None])
def test_retry_of_a_failed_request_is_a_repeat(wire: Wire, status: int | None) -> None:
    """A request that is sent again after a failure is a repeat in the same turn.
    It is not a finding, because the retry is reported elsewhere."""
    wire.ask(HELLO, status=status, whole=False)
    wire.ask(HELLO)
    assert (wire.findings, wire.repeats, wire.turns) == ([], [None, 1], [True, False])


def test_interrupted_answer_is_discarded(wire: Wire) -> None:
    """If an answer was cut off and the request is repeated, the partial
    answer counts as discarded."""
    wire.ask(HELLO, whole=False)
    wire.ask(HELLO)
    assert (wire.findings, wire.repeats, wire.turns) == ([("discarded", 1)], [None, 1], [True, False])


def test_repeat_after_an_empty_answer(wire: Wire) -> None:
    """After an empty answer, CLI 0.61 sends the prompt again with one more sentence.
    That request still counts as a repeat."""
    wire.ask(HELLO)
    wire.ask(user("<session_context>", "hello", "\n" + NUDGE))
    wire.ask(user("<session_context>", "hello", "\n" + NUDGE), call=True)
    wire.ask(HELLO, call(1), result(1))
    assert wire.findings == [("repeat", 2), ("discarded", 1), ("repeat", 3), ("discarded", 2)]
    assert wire.repeats == [None, 1, 2, None]
    assert wire.turns == [True, False, False, True]


def test_repeat_after_an_empty_answer_to_a_tool_result(wire: Wire) -> None:
    """After an empty answer to a tool result, the CLI adds an invented answer and a user message.
    The request still counts as a repeat."""
    wire.ask(HELLO, call=True)
    wire.ask(HELLO, call(1), result(1))
    wire.ask(HELLO, call(1), result(1), model("[Tool execution completed.]"), user(NUDGE))
    assert wire.findings == [("repeat", 3), ("discarded", 2)]
    assert wire.turns == [True, True, False]


def test_repeat_after_an_unusable_answer(wire: Wire) -> None:
    """If the CLI cannot use a complete answer, it sends the same request again.
    That is a repeat, and the first answer counts as discarded."""
    wire.ask(HELLO)
    wire.ask(HELLO)
    assert wire.findings == [("repeat", 2), ("discarded", 1)]


def test_loop_recovery(wire: Wire) -> None:
    """For loop recovery, the CLI breaks off the answer and replaces the prompt by its own message.
    This is detected even while the gateway still receives that answer."""
    wire.ask(HELLO, open_=True)
    wire.ask(user("<session_context>", RECOVERY))
    wire.ask(user("<session_context>", RECOVERY), model("better"), user("thanks"))
    assert wire.findings == [("loop_recovery", 2), ("discarded", 1)]
    assert wire.repeats == [None, None, None]
    assert wire.turns == [True, False, True]


def test_loop_recovery_after_a_tool_result(wire: Wire) -> None:
    """Loop recovery is also detected if the CLI replaced the answer to a
    tool result by a placeholder."""
    wire.ask(HELLO, call=True)
    wire.ask(HELLO, call(1), result(1), call=True)
    wire.ask(HELLO, call(1, signed=False), result(1), model(INTERRUPTED), user(RECOVERY))
    assert wire.findings == [("loop_recovery", 3), ("discarded", 2)]
    assert wire.turns == [True, True, False]


def test_loop_recovery_after_a_loop_check(wire: Wire) -> None:
    """After a loop check by a model, the CLI keeps its last answer and drops the tool results.
    Nothing counts as discarded, and the request starts a new turn."""
    wire.ask(HELLO, call=True)
    check: dict[str, Any] = {
        "generationConfig": {"responseJsonSchema": {"properties": {"unproductive_state_confidence": {}}}}
    }
    wire.ask(user("is this a loop?"), utility=check)
    wire.ask(user("is this a loop?"), utility=check, model="pro")
    wire.ask(HELLO, call(1, signed=False), user(RECOVERY))
    assert wire.findings == [("loop_recovery", 4)]
    assert wire.turns == [True, False, False, True]


def test_user_quotes_the_recovery_message(wire: Wire) -> None:
    """A first prompt that quotes the CLI's recovery message is not loop recovery."""
    wire.ask(user("<session_context>", RECOVERY), call=True)
    wire.ask(user("<session_context>", RECOVERY), call(1), result(1))
    assert wire.findings == []


def test_fallback_to_another_model(wire: Wire) -> None:
    """The same request to another model after a failure is a fallback.
    Later requests to that model are not reported again."""
    wire.ask(HELLO, model="lite", status=429)
    wire.ask(HELLO, model="flash", call=True)
    wire.ask(HELLO, call(1), result(1), model="flash")
    assert wire.findings == [("fallback", 2)]
    assert wire.repeats == [None, 1, None]
    assert wire.turns == [True, False, True]


def test_another_model_for_the_next_turn(wire: Wire) -> None:
    """A different model for the next turn is the router's choice, not a fallback."""
    wire.ask(HELLO, model="pro", call=True)
    wire.ask(HELLO, call(1), result(1), model="flash")
    assert wire.findings == []


DISTILL = {
    "systemInstruction": {
        "parts": [
            {"text": "You are a specialized system component responsible for distilling chat history into"}
        ]
    }
}


def test_compression(wire: Wire) -> None:
    """The two requests of one compression are reported once.
    The replaced history does not count as discarded."""
    wire.ask(HELLO, call=True)
    wire.ask(HELLO, call(1), result(1))
    wire.ask(HELLO, call(1), result(1), user("Generate a new <state_snapshot>"), utility=DISTILL)
    wire.ask(HELLO, call(1), result(1), model("snapshot"), user("Critically evaluate"), utility=DISTILL)
    summary = (user("<session_context>", "snapshot"), model("Got it. Thanks for the additional context!"))
    wire.ask(*summary, user("second"), call=True)
    wire.ask(*summary, user("second"), call(2), result(2))
    assert wire.findings == [("compression", 3)]
    assert wire.turns == [True, True, False, False, True, True]


def test_compression_without_effect(wire: Wire) -> None:
    """If a summary is too long to help, the CLI compresses again later.
    That is a second compression, not a repeat."""
    for number in (1, 2):
        wire.ask(HELLO, *(message for n in range(1, number) for message in (call(n), result(n))), call=True)
        wire.ask(HELLO, user("Generate a new <state_snapshot>"), utility=DISTILL)
    assert wire.findings == [("compression", 2), ("compression", 4)]
    assert wire.repeats == [None] * 4


def test_truncated_history(wire: Wire) -> None:
    """If the CLI drops older answers from the history, the last answer is not discarded."""
    wire.ask(HELLO, call(1), result(1), call(2), result(2), call=True)
    wire.ask(HELLO, call(2), result(2), call(3), result(3))
    assert wire.findings == []
    assert wire.turns == [True, True]


def test_parallel_subagents(wire: Wire) -> None:
    """Parallel subagents have separate conversations, even with the same prompt.
    None of their requests starts a turn of the main conversation."""
    wire.ask(HELLO, call=True)
    for prompt in ("look", "look", "other"):
        wire.ask(user(prompt), subagent=True, open_=True)
    for number in (2, 3, 4):
        wire.activity.ended(number, is_whole=True, has_call=True)
    for prompt in ("look", "other", "look"):
        wire.ask(user(prompt), call(1), result(1), subagent=True, call=True)
    wire.ask(HELLO, call(9), result(9))
    assert wire.findings == []
    assert wire.turns == [True, *[False] * 6, True]


def test_model_starts_the_same_subagent_again(wire: Wire) -> None:
    """A subagent that the model starts twice with the same prompt is not a repeat."""
    wire.ask(HELLO, call=True)
    wire.ask(user("look"), subagent=True, call=True)
    wire.ask(user("look"), subagent=True, call=True)
    wire.ask(HELLO, call(9), result(9), call=True)
    wire.ask(user("look"), subagent=True, call=True)
    assert (wire.findings, wire.repeats) == ([], [None] * 5)


def test_repeat_inside_a_subagent(wire: Wire) -> None:
    """A repeat after an empty answer is also found inside a subagent.
    It starts no turn of the main conversation."""
    wire.ask(HELLO, call=True)
    wire.ask(user("look"), subagent=True)
    wire.ask(user("look", "\n" + NUDGE), subagent=True, call=True)
    wire.ask(user("look"), call(1), result(1), subagent=True, status=500)
    wire.ask(user("look"), call(1), result(1), subagent=True, call=True)
    wire.ask(HELLO, call(9), result(9))
    assert wire.findings == [("repeat", 3), ("discarded", 2)]
    assert wire.repeats == [None, None, 2, None, 4, None]
    assert wire.turns == [True, False, False, False, False, True]


def test_repeat_inside_a_subagent_of_0_54(wire: Wire) -> None:
    """CLI 0.54 adds the retry sentence to the system instruction; the request is still a repeat."""
    tools = [{"functionDeclarations": [{"name": "complete_task"}]}]
    text = "You look around. " * 200
    wire.ask(user("look"), more={"tools": tools, "systemInstruction": user(text)})
    wire.ask(user("look"), more={"tools": tools, "systemInstruction": user(f"{text}\n{NUDGE}")})
    wire.ask(user("look"), more={"tools": tools, "systemInstruction": user("Another agent.")})
    assert wire.findings == [("repeat", 2), ("discarded", 1)]
    assert wire.repeats == [None, 1, None]


ROUTE: dict[str, Any] = {"generationConfig": {"responseJsonSchema": {"properties": {"complexity_score": {}}}}}


def test_repeat_of_a_router_request(wire: Wire) -> None:
    """A router request that is sent again is a repeat, after an unusable answer or an API error."""
    wire.ask(HELLO, utility=ROUTE)
    wire.ask(HELLO, utility=ROUTE, status=503)
    wire.ask(HELLO, utility=ROUTE)
    wire.ask(HELLO)
    assert wire.findings == [("repeat", 2), ("discarded", 1)]
    assert wire.repeats == [None, 1, 2, None]
    assert wire.turns == [False, False, False, True]


def test_the_same_search_twice(wire: Wire) -> None:
    """A second identical search is not a repeat, unless the search before it failed."""
    search: dict[str, Any] = {"tools": [{"googleSearch": {}}]}
    wire.ask(HELLO, call=True)
    wire.ask(user("pears"), utility=search)
    wire.ask(user("pears"), utility=search, status=503)
    wire.ask(user("pears"), utility=search, model="pro")
    assert wire.findings == [("fallback", 4)]
    assert wire.repeats == [None, None, None, 3]


def test_parallel_searches_repeat_separately(wire: Wire) -> None:
    """If two parallel searches fail and are sent again, each one repeats its own first request."""
    search: dict[str, Any] = {"tools": [{"googleSearch": {}}]}
    wire.ask(HELLO, call=True)
    for _ in range(2):
        wire.ask(user("pears"), utility=search, status=503)
        wire.ask(user("plums"), utility=search, status=503)
    assert wire.repeats == [None, None, None, 2, 3]


def test_nested_requests_are_ignored() -> None:
    """Requests of a nested run start no turn and have no findings."""
    activity = Activity()
    raw = json.dumps({"contents": [HELLO]}).encode()
    request = Request.read(1, 0.0, "POST", "/v1beta/models/flash:streamGenerateContent", {}, raw)
    for number, role in enumerate(("main", "nested", "nested"), start=1):
        sent = activity.sent(number, fingerprint_of(request, role))  # type: ignore[arg-type]
        activity.began(number, 200)
        activity.ended(number, is_whole=True, has_call=False)
        assert sent == Sent(is_new_turn=role == "main")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"{",
        b"\xff",
        b'{"contents": []}',
        b'{"contents": "hi"}',
        b'{"contents": [{"parts": null}]}',
        b'{"contents": [{"parts": []}]}',
        b'{"contents": [{"role": "model", "parts": [1, null, "x"]}]}',
        b'{"request": {"contents": 3}}',
        b'{"contents": [{"parts": [{"text": "half \\ud83d"}]}]}',
    ],
)
def test_unreadable_bodies_do_not_raise(raw: bytes) -> None:
    """A body that is not a conversation is compared as bytes. It never raises an error."""
    activity = Activity()
    request = Request.read(1, 0.0, "POST", "/v1beta/models/flash:streamGenerateContent", {}, raw)
    assert activity.sent(1, fingerprint_of(request, "main")).is_new_turn
    activity.began(1, 500)
    activity.ended(1, is_whole=True, has_call=False)
    assert activity.sent(2, fingerprint_of(request, "main")).findings == ()
    activity.began(7, 200)
    activity.ended(7, is_whole=True, has_call=False)


def test_lone_surrogate() -> None:
    """A conversation that contains a lone surrogate is tracked like any other."""
    wire = Wire()
    half = user("half \ud83d")
    wire.ask(half, call=True)
    wire.ask(half, call(1), result(1))
    wire.ask(half, call(1), result(1))
    assert wire.findings == [("repeat", 3), ("discarded", 2)]
