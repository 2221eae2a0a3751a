"""What the CLI does unseen follows from its requests alone: each has the conversation as the CLI holds it."""

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
    """Sends requests, one after the other unless `open_`; remembers what was found."""

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
    def found(self) -> list[tuple[str, int]]:
        return [(one.code, one.request) for sent in self.sent for one in sent.findings]

    @property
    def repeats(self) -> list[int | None]:
        return [sent.repeats for sent in self.sent]

    @property
    def turns(self) -> list[bool]:
        return [sent.is_new_turn for sent in self.sent]


@pytest.fixture(params=[False, True], ids=["plain", "code_assist"])
def wire(request: pytest.FixtureRequest) -> Wire:
    made = Wire()
    made.is_wrapped = request.param
    return made


def test_a_plain_conversation(wire: Wire) -> None:
    """Tools are called, the user goes on, made-up signatures come and go: nothing is found."""
    wire.ask(HELLO, call=True)
    wire.ask(HELLO, call(1), result(1), call=True)
    wire.ask(HELLO, call(1), result(1), call(2), result(2))
    wire.ask(
        HELLO, call(1, signed=False), result(1), call(2, signed=False), result(2), model("done"), user("more")
    )
    assert wire.found == []
    assert wire.turns == [True] * 4
    assert wire.repeats == [None] * 4


@pytest.mark.parametrize("status", [429, 500, None])
def test_a_failed_request_is_sent_again(wire: Wire, status: int | None) -> None:
    """It is a repeat, of the same turn, and nothing was discarded: the retry is reported elsewhere."""
    wire.ask(HELLO, status=status, whole=False)
    wire.ask(HELLO)
    assert (wire.found, wire.repeats, wire.turns) == ([], [None, 1], [True, False])


def test_an_interrupted_answer(wire: Wire) -> None:
    """What came of it is discarded."""
    wire.ask(HELLO, whole=False)
    wire.ask(HELLO)
    assert (wire.found, wire.repeats, wire.turns) == ([("discarded", 1)], [None, 1], [True, False])


def test_an_empty_answer(wire: Wire) -> None:
    """0.61 adds a sentence to the prompt when it asks again, once; it is a repeat all the same."""
    wire.ask(HELLO)
    wire.ask(user("<session_context>", "hello", "\n" + NUDGE))
    wire.ask(user("<session_context>", "hello", "\n" + NUDGE), call=True)
    wire.ask(HELLO, call(1), result(1))
    assert wire.found == [("repeat", 2), ("discarded", 1), ("repeat", 3), ("discarded", 2)]
    assert wire.repeats == [None, 1, 2, None]
    assert wire.turns == [True, False, False, True]


def test_an_empty_answer_to_a_tool(wire: Wire) -> None:
    """There the sentence is a message of its own, after an answer that the CLI made up."""
    wire.ask(HELLO, call=True)
    wire.ask(HELLO, call(1), result(1))
    wire.ask(HELLO, call(1), result(1), model("[Tool execution completed.]"), user(NUDGE))
    assert wire.found == [("repeat", 3), ("discarded", 2)]
    assert wire.turns == [True, True, False]


def test_an_unusable_answer(wire: Wire) -> None:
    """A malformed call, or no finish reason: the very same request again."""
    wire.ask(HELLO)
    wire.ask(HELLO)
    assert wire.found == [("repeat", 2), ("discarded", 1)]


def test_loop_recovery(wire: Wire) -> None:
    """The CLI breaks off the answer and puts its own message in place of the prompt. The gateway may not have seen the
    end of the answer yet."""
    wire.ask(HELLO, open_=True)
    wire.ask(user("<session_context>", RECOVERY))
    wire.ask(user("<session_context>", RECOVERY), model("better"), user("thanks"))
    assert wire.found == [("loop_recovery", 2), ("discarded", 1)]
    assert wire.repeats == [None, None, None]
    assert wire.turns == [True, False, True]


def test_loop_recovery_after_a_tool(wire: Wire) -> None:
    """An answer that the CLI made up stands in for the one it broke off."""
    wire.ask(HELLO, call=True)
    wire.ask(HELLO, call(1), result(1), call=True)
    wire.ask(HELLO, call(1, signed=False), result(1), model(INTERRUPTED), user(RECOVERY))
    assert wire.found == [("loop_recovery", 3), ("discarded", 2)]
    assert wire.turns == [True, True, False]


def test_loop_recovery_after_a_check(wire: Wire) -> None:
    """A model was asked before the request was sent: the last answer stays, its tool results do not."""
    wire.ask(HELLO, call=True)
    check: dict[str, Any] = {
        "generationConfig": {"responseJsonSchema": {"properties": {"unproductive_state_confidence": {}}}}
    }
    wire.ask(user("is this a loop?"), utility=check)
    wire.ask(user("is this a loop?"), utility=check, model="pro")
    wire.ask(HELLO, call(1, signed=False), user(RECOVERY))
    assert wire.found == [("loop_recovery", 4)]
    assert wire.turns == [True, False, False, True]


def test_a_prompt_about_loops(wire: Wire) -> None:
    """A user who quotes the CLI's message is not the CLI."""
    wire.ask(user("<session_context>", RECOVERY), call=True)
    wire.ask(user("<session_context>", RECOVERY), call(1), result(1))
    assert wire.found == []


def test_a_fallback(wire: Wire) -> None:
    """The same question to another model, because the first failed; afterwards that model is no news."""
    wire.ask(HELLO, model="lite", status=429)
    wire.ask(HELLO, model="flash", call=True)
    wire.ask(HELLO, call(1), result(1), model="flash")
    assert wire.found == [("fallback", 2)]
    assert wire.repeats == [None, 1, None]
    assert wire.turns == [True, False, True]


def test_another_model_for_the_next_turn(wire: Wire) -> None:
    """What the router chooses is no fallback."""
    wire.ask(HELLO, model="pro", call=True)
    wire.ask(HELLO, call(1), result(1), model="flash")
    assert wire.found == []


DISTILL = {
    "systemInstruction": {
        "parts": [
            {"text": "You are a specialized system component responsible for distilling chat history into"}
        ]
    }
}


def test_compression(wire: Wire) -> None:
    """It is reported once for its two requests, and discards nothing: the history is replaced on purpose."""
    wire.ask(HELLO, call=True)
    wire.ask(HELLO, call(1), result(1))
    wire.ask(HELLO, call(1), result(1), user("Generate a new <state_snapshot>"), utility=DISTILL)
    wire.ask(HELLO, call(1), result(1), model("snapshot"), user("Critically evaluate"), utility=DISTILL)
    summary = (user("<session_context>", "snapshot"), model("Got it. Thanks for the additional context!"))
    wire.ask(*summary, user("second"), call=True)
    wire.ask(*summary, user("second"), call(2), result(2))
    assert wire.found == [("compression", 3)]
    assert wire.turns == [True, True, False, False, True, True]


def test_compression_without_effect(wire: Wire) -> None:
    """A summary that is longer than what it replaces changes nothing, and the CLI tries again later: that is another
    compression, not a repeat."""
    for number in (1, 2):
        wire.ask(HELLO, *(part for one in range(1, number) for part in (call(one), result(one))), call=True)
        wire.ask(HELLO, user("Generate a new <state_snapshot>"), utility=DISTILL)
    assert wire.found == [("compression", 2), ("compression", 4)]
    assert wire.repeats == [None] * 4


def test_truncated_history(wire: Wire) -> None:
    """Older answers that are dropped without a word are not the last answer."""
    wire.ask(HELLO, call(1), result(1), call(2), result(2), call=True)
    wire.ask(HELLO, call(2), result(2), call(3), result(3))
    assert wire.found == []
    assert wire.turns == [True, True]


def test_subagents_side_by_side(wire: Wire) -> None:
    """Each has a conversation of its own, also with the same prompt, and none is the main one."""
    wire.ask(HELLO, call=True)
    for prompt in ("look", "look", "other"):
        wire.ask(user(prompt), subagent=True, open_=True)
    for number in (2, 3, 4):
        wire.activity.ended(number, is_whole=True, has_call=True)
    for prompt in ("look", "other", "look"):
        wire.ask(user(prompt), call(1), result(1), subagent=True, call=True)
    wire.ask(HELLO, call(9), result(9))
    assert wire.found == []
    assert wire.turns == [True, *[False] * 6, True]


def test_the_same_subagent_again(wire: Wire) -> None:
    """It is asked the same by the model, not by the CLI: its first answer was used."""
    wire.ask(HELLO, call=True)
    wire.ask(user("look"), subagent=True, call=True)
    wire.ask(user("look"), subagent=True, call=True)
    wire.ask(HELLO, call(9), result(9), call=True)
    wire.ask(user("look"), subagent=True, call=True)
    assert (wire.found, wire.repeats) == ([], [None] * 5)


def test_a_subagent_is_asked_again(wire: Wire) -> None:
    """An empty answer is repeated in a subagent as in the main conversation, and is no turn of that."""
    wire.ask(HELLO, call=True)
    wire.ask(user("look"), subagent=True)
    wire.ask(user("look", "\n" + NUDGE), subagent=True, call=True)
    wire.ask(user("look"), call(1), result(1), subagent=True, status=500)
    wire.ask(user("look"), call(1), result(1), subagent=True, call=True)
    wire.ask(HELLO, call(9), result(9))
    assert wire.found == [("repeat", 3), ("discarded", 2)]
    assert wire.repeats == [None, None, 2, None, 4, None]
    assert wire.turns == [True, False, False, False, False, True]


def test_a_subagent_of_the_oldest_release_is_asked_again(wire: Wire) -> None:
    """0.54 adds the sentence to the system instruction in place of the prompt."""
    tools = [{"functionDeclarations": [{"name": "complete_task"}]}]
    text = "You look around. " * 200
    wire.ask(user("look"), more={"tools": tools, "systemInstruction": user(text)})
    wire.ask(user("look"), more={"tools": tools, "systemInstruction": user(f"{text}\n{NUDGE}")})
    wire.ask(user("look"), more={"tools": tools, "systemInstruction": user("Another agent.")})
    assert wire.found == [("repeat", 2), ("discarded", 1)]
    assert wire.repeats == [None, 1, None]


ROUTE: dict[str, Any] = {"generationConfig": {"responseJsonSchema": {"properties": {"complexity_score": {}}}}}


def test_the_router_is_asked_again(wire: Wire) -> None:
    """Its answer was no JSON, or the API failed."""
    wire.ask(HELLO, utility=ROUTE)
    wire.ask(HELLO, utility=ROUTE, status=503)
    wire.ask(HELLO, utility=ROUTE)
    wire.ask(HELLO)
    assert wire.found == [("repeat", 2), ("discarded", 1)]
    assert wire.repeats == [None, 1, 2, None]
    assert wire.turns == [False, False, False, True]


def test_the_same_search_twice(wire: Wire) -> None:
    """The model asked for it twice: no repeat, unless the first one failed."""
    search: dict[str, Any] = {"tools": [{"googleSearch": {}}]}
    wire.ask(HELLO, call=True)
    wire.ask(user("pears"), utility=search)
    wire.ask(user("pears"), utility=search, status=503)
    wire.ask(user("pears"), utility=search, model="pro")
    assert wire.found == [("fallback", 4)]
    assert wire.repeats == [None, None, None, 3]


def test_two_searches_side_by_side(wire: Wire) -> None:
    """Both fail and are sent again: each repeats its own first request."""
    search: dict[str, Any] = {"tools": [{"googleSearch": {}}]}
    wire.ask(HELLO, call=True)
    for _ in range(2):
        wire.ask(user("pears"), utility=search, status=503)
        wire.ask(user("plums"), utility=search, status=503)
    assert wire.repeats == [None, None, None, 2, 3]


def test_nested_requests_are_left_out() -> None:
    """A run inside the run has its own conversation."""
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
def test_odd_bodies(raw: bytes) -> None:
    """They are compared byte by byte where they cannot be read, and never raise."""
    activity = Activity()
    request = Request.read(1, 0.0, "POST", "/v1beta/models/flash:streamGenerateContent", {}, raw)
    assert activity.sent(1, fingerprint_of(request, "main")).is_new_turn
    activity.began(1, 500)
    activity.ended(1, is_whole=True, has_call=False)
    assert activity.sent(2, fingerprint_of(request, "main")).findings == ()
    activity.began(7, 200)
    activity.ended(7, is_whole=True, has_call=False)


def test_half_a_character() -> None:
    """A conversation with half of a surrogate pair is followed like any other."""
    wire = Wire()
    half = user("half \ud83d")
    wire.ask(half, call=True)
    wire.ask(half, call(1), result(1))
    wire.ask(half, call(1), result(1))
    assert wire.found == [("repeat", 3), ("discarded", 2)]
