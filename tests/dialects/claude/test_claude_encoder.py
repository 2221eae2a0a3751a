"""A run as Claude Code prints it live."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from geminids.dialects.claude.encoder import Encoder
from geminids.events.model import (
    AnyEvent,
    Event,
    Finished,
    ModelUsage,
    Notice,
    PermissionAsked,
    SessionStart,
    Started,
    Text,
    Thought,
    TokensUsed,
    ToolFinished,
    ToolStarted,
    Usage,
)
from geminids.outcome import Failure
from golden import GOLDEN, check_golden
from random_events import RECORDED, any_events, lawful_runs, recorded

Line = dict[str, Any]
_BASE: dict[str, Any] = {"at": 1000, "seq": 0, "attempt": 1, "turn": 1}
_SESSION = "5f0c0f5e-0000-4000-8000-000000000001"


def spoken(events: Sequence[Event], *, partial: bool = False, at_once: bool = False) -> bytes:
    encoder = Encoder(partial)
    if at_once:
        return encoder.feed(events) + encoder.finish()
    return b"".join(encoder.feed((event,)) for event in events) + encoder.finish()


def lines(events: Sequence[Event], *, partial: bool = False) -> list[Line]:
    return [msgspec.json.decode(line) for line in spoken(events, partial=partial).splitlines()]


def of_kind(said: Iterable[Line], kind: str) -> list[Line]:
    return [line for line in said if line["type"] == kind]


def blocks(said: Iterable[Line], kind: str) -> list[Line]:
    """Blocks of the agent and of its subagents, and none that was made in their name."""
    return [
        block
        for line in said
        if line["type"] in ("assistant", "user") and "error" not in line
        for block in line["message"]["content"]
        if block["type"] == kind
    ]


def replayed(said: Iterable[Line]) -> list[Line]:
    """The messages that the stream events make, as a reader of Claude's API would put them together."""
    made: list[Line] = []
    message: Line = {}
    for event in (line["event"] for line in of_kind(said, "stream_event")):
        match event["type"]:
            case "message_start":
                message = event["message"]
                index, is_open = -1, False
            case "content_block_start":
                assert not is_open
                assert event["index"] == index + 1
                index, is_open = event["index"], True
                message["content"].append(event["content_block"])
            case "content_block_delta":
                assert is_open
                assert event["index"] == index
                _add(message["content"][index], event["delta"])
            case "content_block_stop":
                assert is_open
                assert event["index"] == index
                is_open = False
            case "message_delta":
                assert not is_open
                message |= {"usage": event["usage"], **event["delta"]}
            case "message_stop":
                made.append(message)
                message = {}
    assert message == {}
    return made


def _add(block: Line, delta: Line) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] += delta["signature"]
        case "input_json_delta":
            block["input"] = msgspec.json.decode(delta["partial_json"])


def started(**fields: Any) -> Started:
    given: dict[str, Any] = {
        "run_id": "run-1",
        "session_id": _SESSION,
        "model": "flash",
        "cwd": "/repo",
        "cli_version": "0.61.0",
        "lane": "headless",
        "pid": 1,
    }
    return Started(**_BASE, **{**given, **fields})


def text(said: str, turn: int = 1) -> Text:
    return Text(**{**_BASE, "turn": turn}, text=said)


def thought(said: str, turn: int = 1, parent: str | None = None) -> Thought:
    return Thought(**{**_BASE, "turn": turn}, subject=None, text=said, parent=parent)


def call(name: str, given: dict[str, Any] | None, turn: int = 1, **fields: Any) -> ToolStarted:
    own = {"id": name, "kind": "other", "title": name, **fields}
    return ToolStarted(**{**_BASE, "turn": turn}, name=name, input=given, **own)


def back(name: str, given: dict[str, Any] | None, turn: int = 1, **fields: Any) -> ToolFinished:
    own = {"id": name, "status": "ok", "output": "out", **fields}
    return ToolFinished(**{**_BASE, "turn": turn}, name=name, input=given, **own)


def tokens(turn: int = 1, role: Any = "main", count: int = 100, **fields: Any) -> TokensUsed:
    counts: dict[str, Any] = {"input": count, "cached": 40, "output": 5, "thinking": 2, "tool": 0}
    return TokensUsed(**{**_BASE, "turn": turn, "model": "gemini-x", "role": role, **counts, **fields})


def finished(**fields: Any) -> Finished:
    given: dict[str, Any] = {
        "run_id": "run-1",
        "outcome": "success",
        "failure": None,
        "reason": None,
        "text": "",
        "answer": "",
        "session_id": _SESSION,
        "clear_session": False,
        "usage": None,
        "attempts": 1,
        "exit_code": 0,
        "duration_ms": 10,
        "ended": (),
        "complete": True,
    }
    return Finished(**_BASE, **{**given, **fields})


@pytest.mark.parametrize("name", RECORDED)
def test_golden(name: str) -> None:
    """What is said of a recorded run stays the same to the byte, whole messages and pieces alike."""
    events = recorded(name)
    check_golden(GOLDEN / "claude" / f"{name}.jsonl", spoken(events))
    check_golden(GOLDEN / "claude-partial" / f"{name}.jsonl", spoken(events, partial=True))


@given(any_events, st.booleans())
def test_any_events(events: list[AnyEvent], partial: bool) -> None:
    """Whatever is heard, each line is JSON with a uuid of its own, and one result is the last."""
    said = lines(events, partial=partial)
    assert [line["type"] for line in said].index("result") == len(said) - 1
    ids = [line["uuid"] for line in said]
    assert len(set(ids)) == len(ids)
    assert all(str(UUID(one)) == one for one in ids)


@given(any_events, st.booleans())
def test_results_behind_their_calls(events: list[AnyEvent], partial: bool) -> None:
    """Every tool_result has its tool_use before it, and none is lost."""
    open_calls: list[str] = []
    results = 0
    for line in lines(events, partial=partial):
        open_calls += [block["id"] for block in blocks([line], "tool_use")]
        for block in blocks([line], "tool_result"):
            results += 1
            assert block["tool_use_id"] in open_calls
    heard = events[: next((n for n, event in enumerate(events) if isinstance(event, Finished)), len(events))]
    assert results == sum(isinstance(event, ToolFinished) for event in heard)


@given(lawful_runs(), st.booleans())
def test_lawful_runs(events: list[AnyEvent], partial: bool) -> None:
    """Text is preserved to the character, every call is said once, and the first line of a run is `init`."""
    said = lines(events, partial=partial)
    told = "".join(event.text for event in events if isinstance(event, Text))
    assert "".join(block["text"] for block in blocks(said, "text")) == told
    calls = [event.id for event in events if isinstance(event, ToolStarted)]
    assert sorted(block["id"] for block in blocks(said, "tool_use")) == sorted(calls)
    assert (said[0]["type"], said[0]["subtype"]) == ("system", "init")
    assert len(of_kind(said, "system")) <= sum(isinstance(event, Started) for event in events)


@given(any_events)
def test_pieces_make_the_messages(events: list[AnyEvent]) -> None:
    """Stream events come in Claude's order, and make the very messages of the agent's own `assistant` lines."""
    said = lines(events, partial=True)
    whole = [line["message"] for line in of_kind(said, "assistant") if line["parent_tool_use_id"] is None]
    made = replayed(said)
    assert [{**one, "model": ""} for one in made] == [
        {**one, "model": ""} for one in whole if one["model"] != "<synthetic>"
    ]


@given(any_events, st.booleans())
def test_batches_do_not_matter(events: list[AnyEvent], partial: bool) -> None:
    """One event at a time or all at once: the bytes are the same."""
    assert spoken(events, partial=partial, at_once=True) == spoken(events, partial=partial)


@given(any_events)
def test_message_ids_are_counted_once(events: list[AnyEvent]) -> None:
    """A message has one line: whoever adds up and whoever counts by id finds the same tokens."""
    ids = [line["message"]["id"] for line in of_kind(lines(events), "assistant")]
    assert len(set(ids)) == len(ids)


# Answers that the CLI discarded are in no message: `loop` and `empty` have such.
@pytest.mark.parametrize(
    "name", [name for name in RECORDED if name not in ("subagent", "empty", "bad_key", "loop")]
)
def test_tokens_of_messages_make_the_whole(name: str) -> None:
    """The tokens of the messages of a recorded run add up to those of its result."""
    said = lines(recorded(name))
    whole = said[-1].get("usage", {})
    told = [line["message"]["usage"] for line in of_kind(said, "assistant")]
    for count, number in whole.items():
        assert sum(usage.get(count, 0) for usage in told) == number


def test_thinking_first() -> None:
    """Thoughts, which come when an answer is whole, stand before it; with its pieces told already, behind them."""
    events = [started(), text("An"), thought("Hm."), text("swer"), tokens(), finished()]
    [line] = of_kind(lines(events), "assistant")
    assert [block["type"] for block in line["message"]["content"]] == ["thinking", "text"]
    assert line["message"]["content"][1] == {"type": "text", "text": "Answer"}
    [line] = of_kind(lines(events, partial=True), "assistant")
    assert [block["type"] for block in line["message"]["content"]] == ["text", "thinking", "text"]


def test_thoughts_of_the_next_turn() -> None:
    """A thought of a later turn begins a message of its own."""
    said = of_kind(lines([started(), text("a"), thought("Hm.", 2), text("b", 2), finished()]), "assistant")
    assert [len(line["message"]["content"]) for line in said] == [1, 2]


def test_a_call_is_said_when_its_tokens_are_known() -> None:
    """A call waits for the tokens of its message, and not for its own end."""
    encoder = Encoder()
    assert encoder.feed([started(), text("See."), call("read_file", {"file_path": "a"})]).count(b"\n") == 1
    assert b'"tool_use"' in encoder.feed([tokens()])


def test_a_call_when_the_journal_is_lost() -> None:
    """When the journal is not followed any more, nothing waits for it."""
    encoder = Encoder()
    encoder.feed([started(), call("read_file", {"file_path": "a"})])
    lost = Notice(**_BASE, level="warning", code="journal", message="gone")
    assert b'"tool_use"' in encoder.feed([lost])
    assert b'"tool_use"' in encoder.feed([call("glob", {"pattern": "*"})])
    assert encoder.feed([lost]) == b""


def test_a_call_whose_input_comes_late() -> None:
    """On the warm lane a call is said with its end, which tells its input; the text before it is said at once."""
    encoder = Encoder()
    encoder.feed([started(lane="warm"), tokens(), text("I write.")])
    said = encoder.feed([call("write_file", None)])
    assert b"I write." in said
    assert b'"tool_use"' not in said
    said = encoder.feed([back("write_file", {"file_path": "a", "content": "b"})])
    use, result = map(msgspec.json.decode, said.splitlines())
    assert use["message"]["content"][0]["input"] == {"file_path": "a", "content": "b"}
    assert use["message"]["usage"] == {}
    assert result["message"]["content"][0]["tool_use_id"] == "write_file"


def test_words_before_a_call_whose_input_comes_late() -> None:
    """What the agent said before such a call is said when its tokens are known, and not at the call's end."""
    encoder = Encoder()
    assert b"I write." not in encoder.feed([started(lane="warm"), text("I write."), call("write_file", None)])
    message = msgspec.json.decode(encoder.feed([tokens()]))["message"]
    assert (message["usage"]["input_tokens"], message["stop_reason"]) == (60, None)


def test_a_call_whose_input_never_comes() -> None:
    """What was never told is {}: a call that was cut off, and one that was denied, but for the command asked for."""
    shell: dict[str, Any] = {"kind": "execute", "title": "rm x"}
    asked = PermissionAsked(
        **_BASE, id="run_shell_command", tool="run_shell_command", command="rm x", **shell
    )
    said = lines(
        [
            started(lane="warm"),
            call("run_shell_command", None, **shell),
            asked,
            back("run_shell_command", None, status="denied", output=None, error="no"),
            call("glob", None, 2),
            finished(outcome="interrupted"),
        ]
    )
    assert [block["input"] for block in blocks(said, "tool_use")] == [{"command": "rm x"}, {}]
    assert said[-1]["permission_denials"] == [
        {"tool_name": "Bash", "tool_use_id": "run_shell_command", "tool_input": {"command": "rm x"}}
    ]


def test_a_question_shows_what_led_to_it() -> None:
    """Before somebody is asked, what the agent has said is said."""
    encoder = Encoder()
    encoder.feed([started(lane="warm"), text("May I?"), call("write_file", None)])
    asked = PermissionAsked(**_BASE, id="write_file", tool="write_file", kind="write", title="Write a")
    assert b"May I?" in encoder.feed([asked])
    assert encoder.feed([msgspec.structs.replace(asked, parent="x")]) == b""


def test_subagents() -> None:
    """A subagent's lines name the call that it is, stand behind it, and have its own tokens."""
    sub: dict[str, Any] = {"parent": "invoke_agent"}
    said = lines(
        [
            started(),
            call("invoke_agent", {"agent_name": "a", "prompt": "p"}, kind="agent"),
            tokens(count=200),
            thought("Hm.", parent="invoke_agent"),
            tokens(role="subagent"),
            call("glob", {"pattern": "*"}, **sub),
            back("glob", {"pattern": "*"}, **sub),
            tokens(role="subagent", count=300),
            thought("So.", parent="invoke_agent"),
            back("invoke_agent", {"agent_name": "a", "prompt": "p"}),
            finished(),
        ]
    )
    told = [(line["type"], line["parent_tool_use_id"]) for line in said[1:-1]]
    assert told == [
        ("assistant", None),
        ("assistant", "invoke_agent"),
        ("user", "invoke_agent"),
        ("assistant", "invoke_agent"),
        ("user", None),
    ]
    read = [line["message"]["usage"]["input_tokens"] for line in of_kind(said, "assistant")]
    assert read == [160, 60, 260]


def test_tokens_of_two_subagents() -> None:
    """Nobody says which of two subagents at once a request was of: their messages have none, the result has them."""
    agent: dict[str, Any] = {"kind": "agent", "name": "invoke_agent", "input": {}}
    both = [ToolStarted(**_BASE, id=one, title=one, **agent) for one in ("a", "b")]
    said = lines(
        [started(), *both, tokens(), thought("Hm.", parent="a"), tokens(role="subagent"), finished()]
    )
    assert of_kind(said, "assistant")[1]["message"]["usage"] == {}


def test_a_subagent_of_a_call_that_is_not_said_yet() -> None:
    """On the warm lane a subagent's lines wait for the call that it is, however it ends."""
    sub: dict[str, Any] = {"parent": "invoke_agent"}
    begun = [
        started(lane="warm"),
        call("invoke_agent", None, kind="agent"),
        call("glob", {"pattern": "*"}, **sub),
        back("glob", {"pattern": "*"}, **sub),
    ]
    for end in ([back("invoke_agent", {"agent_name": "a", "prompt": "p"}), finished()], []):
        said = lines([*begun, *end])
        assert [block["name"] for block in blocks(said, "tool_use")] == ["Task", "Glob"]


def test_two_requests_in_one_message() -> None:
    """Where one message took two requests it has the tokens of both."""
    [line] = of_kind(lines([started(), text("a"), tokens(), text("b"), tokens(), finished()]), "assistant")
    assert line["message"]["usage"]["input_tokens"] == 120
    unknown = msgspec.structs.replace(tokens(), input=None, thinking=None)
    [line] = of_kind(lines([started(), text("a"), tokens(), unknown, finished()]), "assistant")
    assert line["message"]["usage"] == {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 80}


def test_tokens_that_come_too_late_or_too_early() -> None:
    """Tokens are those of their own turn's message or of none."""
    late = lines([started(), text("a"), text("b", 2), tokens(1), finished()])
    assert [line["message"]["usage"] for line in of_kind(late, "assistant")] == [{}, {}]
    early = lines([started(), text("a"), tokens(2), text("b", 2), finished()])
    assert [bool(line["message"]["usage"]) for line in of_kind(early, "assistant")] == [False, True]
    router = lines([started(), text("a"), tokens(role="router"), finished()])
    assert of_kind(router, "assistant")[0]["message"]["usage"] == {}


def test_a_request_that_the_api_refused() -> None:
    """It is no part of a message: the message waits for the tokens of the request that answers."""
    refused = tokens(request=1, status=503, model="flash")
    answered = tokens(request=2, repeat=True, model="pro")
    (told,) = of_kind(lines([started(), refused, text("a"), answered, finished()]), "assistant")
    (alone,) = of_kind(lines([started(), text("a"), answered, finished()]), "assistant")
    assert told["message"] == alone["message"]


def test_requests_before_their_message() -> None:
    """All requests of a turn that were answered are in its message, also those told before its first word."""
    said = lines([started(), tokens(1, request=1), tokens(1, request=2, repeat=True), text("a"), finished()])
    once = lines([started(), tokens(1, request=1), text("a"), finished()])
    (both,), (one,) = of_kind(said, "assistant"), of_kind(once, "assistant")
    assert both["message"]["usage"]["input_tokens"] == 2 * one["message"]["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("reason", "expected"), [("MAX_TOKENS", "max_tokens"), ("SAFETY", "refusal"), ("OTHER", None)]
)
def test_the_stop_reason_of_an_answer_that_was_cut(reason: str, expected: str | None) -> None:
    """The message and the result say why the API ended the answer; nothing where Claude has no word for it."""
    notice = Notice(**_BASE, level="warning", code=reason.lower(), message="cut", request=1)
    end = msgspec.structs.replace(finished(), finish_reason=reason)
    said = lines([started(), text("a"), tokens(1, request=1), notice, end])
    (message,) = of_kind(said, "assistant")
    assert message["message"]["stop_reason"] == expected
    assert said[-1].get("stop_reason") == expected


def test_a_run_with_unknown_tokens() -> None:
    """Its result has no usage, and no model whose sums lack a request."""
    known = ModelUsage(model="pro", input=1, cached=0, output=2, thinking=0, tool=0, total=3)
    usage = Usage(
        input=1, output=2, requests=2, unknown=1, models=(known, ModelUsage(model="flash", unknown=1))
    )
    last = lines([started(), msgspec.structs.replace(finished(), usage=usage)])[-1]
    assert "usage" not in last
    assert list(last["modelUsage"]) == ["pro"]


def test_the_session_is_waited_for() -> None:
    """The first line has the session's id, though it may be known later than the start."""
    encoder = Encoder()
    assert encoder.feed([started(session_id=None)]) == b""
    odd = Notice(**_BASE, level="debug", code="session", message="session (odd), model x")
    assert encoder.feed([odd]) == b""
    told = msgspec.structs.replace(odd, session=SessionStart(_SESSION, "flash"))
    assert msgspec.json.decode(encoder.feed([told]))["session_id"] == _SESSION
    assert encoder.feed([told]) == b""


def test_a_session_that_is_never_known() -> None:
    """An id that nobody told is empty, never made up."""
    said = lines([started(session_id=None), text("a"), finished(session_id=None)])
    assert [line["session_id"] for line in said] == ["", "", ""]


def test_a_second_attempt() -> None:
    """What the first attempt said is said, and the second has a first line of its own."""
    again = msgspec.structs.replace(started(session_id="another"), attempt=2)
    said = lines([started(), text("half"), again, text("whole"), finished(session_id="another")])
    assert [line["type"] for line in said] == ["system", "assistant", "system", "assistant", "result"]
    assert [line["session_id"] for line in said] == [_SESSION] * 2 + ["another"] * 3


def test_modes() -> None:
    """Approval modes have Claude's names."""
    for approval, mode in [
        ("default", "default"),
        ("auto_edit", "acceptEdits"),
        ("yolo", "bypassPermissions"),
        ("plan", "plan"),
        (None, "default"),
    ]:
        assert lines([started(approval=approval)])[0]["permissionMode"] == mode


def test_a_run_that_never_began() -> None:
    """Where nothing was spawned there is one line, which says why."""
    failure = Failure(kind="bad_prompt", message="empty", retryable=False, hint="")
    [line] = lines([finished(outcome="failed", failure=failure)])
    assert (line["type"], line["errors"]) == ("result", ["empty"])
    assert lines([])[-1]["errors"] == ["the run gave no result"]


def test_no_end() -> None:
    """Without an end the run is an error, with the time that its events tell; nothing is said twice."""
    later = msgspec.structs.replace(text("half", 3), at=1500)
    encoder = Encoder()
    encoder.feed([started(), later])
    line = msgspec.json.decode(encoder.finish().splitlines()[-1])
    assert (line["subtype"], line["is_error"], line["errors"]) == (
        "error_during_execution",
        True,
        ["the run gave no result"],
    )
    assert (line["duration_ms"], line["num_turns"]) == (500, 3)
    assert "usage" not in line
    assert encoder.finish() == encoder.feed([text("more")]) == b""


@pytest.mark.parametrize(
    ("outcome", "kind", "subtype", "reason"),
    [
        ("success", None, "success", "completed"),
        ("max_turns", None, "error_max_turns", "max_turns"),
        ("over_budget", None, "error_max_budget_usd", None),
        ("interrupted", None, "error_during_execution", "aborted_streaming"),
        ("timed_out", None, "error_during_execution", "aborted_streaming"),
        ("failed", "loop", "error_during_execution", None),
        ("failed", "schema_mismatch", "error_max_structured_output_retries", None),
        ("failed", "server", "success", None),
    ],
)
def test_endings(outcome: Any, kind: Any, subtype: str, reason: str | None) -> None:
    """Each way to end has Claude's name; what is no success says so."""
    failure = Failure(kind=kind, message="m", retryable=False, hint="h", http_status=503) if kind else None
    last = lines([started(), finished(outcome=outcome, failure=failure, reason="why", answer="A")])[-1]
    assert (last["subtype"], last.get("terminal_reason")) == (subtype, reason)
    assert last["is_error"] == (outcome != "success")
    assert "total_cost_usd" not in last
    if subtype == "success":
        assert last["result"] == ("A" if outcome == "success" else "why")
        assert "errors" not in last
    else:
        assert last["errors"] == ["why"]
    assert last.get("api_error_status") == (503 if kind == "server" else None)


def test_an_api_failure_is_said_in_the_agents_name() -> None:
    """Where the API refuses, a made line says so before the last, with the kind of the error."""
    said = lines(recorded("bad_key"))
    assert [line["type"] for line in said] == ["system", "assistant", "result"]
    assert (said[1]["error"], said[1]["message"]["model"]) == ("authentication_failed", "<synthetic>")
    assert said[2]["api_error_status"] == 403


def test_a_tool_that_was_cut_off() -> None:
    """An end while a tool ran is told as such."""
    cut = back("glob", {}, status="cancelled", output=None)
    last = lines([started(), call("glob", {}), cut, finished(outcome="interrupted")])[-1]
    assert last["terminal_reason"] == "aborted_tools"


def test_time_without_tools() -> None:
    """The API's time is what no tool took; tools side by side are counted once, and a subagent's time is not taken."""

    def at(ms: int, event: Any) -> Any:
        return msgspec.structs.replace(event, at=ms)

    last = lines(
        [
            at(0, started()),
            at(100, call("a", {})),
            at(150, call("b", {})),
            at(200, back("a", {})),
            at(300, back("b", {})),
            at(300, call("invoke_agent", {}, kind="agent")),
            at(500, back("invoke_agent", {})),
            finished(duration_ms=1000),
        ]
    )[-1]
    assert (last["duration_ms"], last["duration_api_ms"]) == (1000, 800)


def test_odd_characters_and_depths() -> None:
    """Half a character, numbers of any size, and an input as deep as can be are said as well as they can be."""
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    odd = [
        started(cwd="/\ud800", run_id="r\ud800"),
        text("a\ud800b"),
        call("odd", {"\ud800": ["\ud800", 2**80]}),
        call("deep", deep),
        thought("\ud800"),
        finished(answer="\udfff"),
    ]
    said = lines(odd, partial=True)
    assert blocks(said, "text")[0]["text"] == "a?b"
    assert [block["input"] for block in blocks(said, "tool_use")] == [{"?": ["?", 2**80]}, {}]


def test_results_of_tools() -> None:
    """A result is what the model was told; an error that it was not told stands beside it."""
    told = [
        back("a", {}, output="fine"),
        back("b", {}, status="failed", output=None, error="bad"),
        back("c", {}, status="denied", output="not found", error="denied by a rule"),
        back("d", {}, output=None),
    ]
    said = of_kind(lines([started(), *told, finished()]), "user")
    content = [
        (line["message"]["content"][0]["content"], line["message"]["content"][0]["is_error"]) for line in said
    ]
    assert content == [("fine", False), ("bad", True), ("not found", True), ("", False)]
    assert [line.get("tool_use_result") for line in said] == [None, None, "Error: denied by a rule", None]
