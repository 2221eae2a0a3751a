"""Encode runs as Claude Code prints them live."""

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
from random_events import RECORDED, any_events, recorded, valid_runs

Line = dict[str, Any]
_BASE: dict[str, Any] = {"at": 1000, "seq": 0, "attempt": 1, "turn": 1}
_SESSION = "5f0c0f5e-0000-4000-8000-000000000001"


def encode(events: Sequence[Event], *, partial: bool = False, at_once: bool = False) -> bytes:
    encoder = Encoder(partial)
    if at_once:
        return encoder.feed(events) + encoder.finish()
    return b"".join(encoder.feed((event,)) for event in events) + encoder.finish()


def lines(events: Sequence[Event], *, partial: bool = False) -> list[Line]:
    return [msgspec.json.decode(line) for line in encode(events, partial=partial).splitlines()]


def lines_of_type(output: Iterable[Line], kind: str) -> list[Line]:
    return [line for line in output if line["type"] == kind]


def blocks(output: Iterable[Line], kind: str) -> list[Line]:
    """Return the blocks of this type from the lines of the agent and its subagents, without
    synthetic error lines."""
    return [
        block
        for line in output
        if line["type"] in ("assistant", "user") and "error" not in line
        for block in line["message"]["content"]
        if block["type"] == kind
    ]


def assemble_messages(output: Iterable[Line]) -> list[Line]:
    """Return the messages that the stream events describe, assembled as a reader of Claude's API
    does."""
    messages: list[Line] = []
    message: Line = {}
    for event in (line["event"] for line in lines_of_type(output, "stream_event")):
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
                messages.append(message)
                message = {}
    assert message == {}
    return messages


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
    defaults: dict[str, Any] = {
        "run_id": "run-1",
        "session_id": _SESSION,
        "model": "flash",
        "cwd": "/repo",
        "cli_version": "0.61.0",
        "transport": "headless",
        "pid": 1,
    }
    return Started(**_BASE, **{**defaults, **fields})


def text(content: str, turn: int = 1) -> Text:
    return Text(**{**_BASE, "turn": turn}, text=content)


def thought(content: str, turn: int = 1, parent: str | None = None) -> Thought:
    return Thought(**{**_BASE, "turn": turn}, subject=None, text=content, parent=parent)


def tool_started(name: str, arguments: dict[str, Any] | None, turn: int = 1, **fields: Any) -> ToolStarted:
    defaults = {"id": name, "kind": "other", "title": name, **fields}
    return ToolStarted(**{**_BASE, "turn": turn}, name=name, input=arguments, **defaults)


def tool_finished(name: str, arguments: dict[str, Any] | None, turn: int = 1, **fields: Any) -> ToolFinished:
    defaults = {"id": name, "status": "ok", "output": "out", **fields}
    return ToolFinished(**{**_BASE, "turn": turn}, name=name, input=arguments, **defaults)


def tokens(turn: int = 1, role: Any = "main", count: int = 100, **fields: Any) -> TokensUsed:
    counts: dict[str, Any] = {"input": count, "cached": 40, "output": 5, "thinking": 2, "tool": 0}
    return TokensUsed(**{**_BASE, "turn": turn, "model": "gemini-x", "role": role, **counts, **fields})


def finished(**fields: Any) -> Finished:
    defaults: dict[str, Any] = {
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
    return Finished(**_BASE, **{**defaults, **fields})


@pytest.mark.parametrize("name", RECORDED)
def test_golden(name: str) -> None:
    """The output for a recorded run equals its golden files, with and without partial messages."""
    events = recorded(name)
    check_golden(GOLDEN / "claude" / f"{name}.jsonl", encode(events))
    check_golden(GOLDEN / "claude-partial" / f"{name}.jsonl", encode(events, partial=True))


@given(any_events, st.booleans())
def test_any_events(events: list[AnyEvent], partial: bool) -> None:
    """For any events, each line is JSON with its own uuid, and the last one is the result."""
    output = lines(events, partial=partial)
    assert [line["type"] for line in output].index("result") == len(output) - 1
    ids = [line["uuid"] for line in output]
    assert len(set(ids)) == len(ids)
    assert all(str(UUID(one)) == one for one in ids)


@given(any_events, st.booleans())
def test_results_come_after_their_calls(events: list[AnyEvent], partial: bool) -> None:
    """Each tool_result comes after its tool_use, and none is lost."""
    open_calls: list[str] = []
    results = 0
    for line in lines(events, partial=partial):
        open_calls += [block["id"] for block in blocks([line], "tool_use")]
        for block in blocks([line], "tool_result"):
            results += 1
            assert block["tool_use_id"] in open_calls
    before_end = events[
        : next((n for n, event in enumerate(events) if isinstance(event, Finished)), len(events))
    ]
    assert results == sum(isinstance(event, ToolFinished) for event in before_end)


@given(valid_runs(), st.booleans())
def test_text_calls_and_init_of_valid_runs(events: list[AnyEvent], partial: bool) -> None:
    """For a valid run, text is preserved, each call appears once, and the first line is `init`."""
    output = lines(events, partial=partial)
    text_sent = "".join(event.text for event in events if isinstance(event, Text))
    assert "".join(block["text"] for block in blocks(output, "text")) == text_sent
    calls = [event.id for event in events if isinstance(event, ToolStarted)]
    assert sorted(block["id"] for block in blocks(output, "tool_use")) == sorted(calls)
    assert (output[0]["type"], output[0]["subtype"]) == ("system", "init")
    assert len(lines_of_type(output, "system")) <= sum(isinstance(event, Started) for event in events)


@given(any_events)
def test_stream_events_assemble_to_the_messages(events: list[AnyEvent]) -> None:
    """Stream events come in Claude's order and assemble to the messages of the agent's own
    `assistant` lines."""
    output = lines(events, partial=True)
    expected = [
        line["message"] for line in lines_of_type(output, "assistant") if line["parent_tool_use_id"] is None
    ]
    assembled = assemble_messages(output)
    assert [{**message, "model": ""} for message in assembled] == [
        {**message, "model": ""} for message in expected if message["model"] != "<synthetic>"
    ]


@given(any_events, st.booleans())
def test_batches_do_not_matter(events: list[AnyEvent], partial: bool) -> None:
    """Events give the same bytes one at a time and all at once."""
    assert encode(events, partial=partial, at_once=True) == encode(events, partial=partial)


@given(any_events)
def test_message_ids_are_counted_once(events: list[AnyEvent]) -> None:
    """Each message has one line with its own id, so that no reader counts its tokens twice."""
    ids = [line["message"]["id"] for line in lines_of_type(lines(events), "assistant")]
    assert len(set(ids)) == len(ids)


# `loop` and `empty` have answers that the CLI discarded; their tokens are in no message.
@pytest.mark.parametrize(
    "name", [name for name in RECORDED if name not in ("subagent", "empty", "bad_key", "loop")]
)
def test_tokens_of_messages_add_up(name: str) -> None:
    """The tokens of the messages of a recorded run add up to those of its result."""
    output = lines(recorded(name))
    totals = output[-1].get("usage", {})
    reported = [line["message"]["usage"] for line in lines_of_type(output, "assistant")]
    for count, total in totals.items():
        assert sum(usage.get(count, 0) for usage in reported) == total


def test_thinking_first() -> None:
    """Thoughts come before the text of their message. With partial messages, they come after the
    pieces that were already sent."""
    events = [started(), text("An"), thought("Hm."), text("swer"), tokens(), finished()]
    [line] = lines_of_type(lines(events), "assistant")
    assert [block["type"] for block in line["message"]["content"]] == ["thinking", "text"]
    assert line["message"]["content"][1] == {"type": "text", "text": "Answer"}
    [line] = lines_of_type(lines(events, partial=True), "assistant")
    assert [block["type"] for block in line["message"]["content"]] == ["text", "thinking", "text"]


def test_thoughts_of_the_next_turn() -> None:
    """A thought of a later turn begins a new message."""
    output = lines_of_type(
        lines([started(), text("a"), thought("Hm.", 2), text("b", 2), finished()]), "assistant"
    )
    assert [len(line["message"]["content"]) for line in output] == [1, 2]


def test_a_call_is_emitted_when_its_tokens_are_known() -> None:
    """A call is emitted when the tokens of its message are known. It does not wait for its own
    end."""
    encoder = Encoder()
    assert (
        encoder.feed([started(), text("See."), tool_started("read_file", {"file_path": "a"})]).count(b"\n")
        == 1
    )
    assert b'"tool_use"' in encoder.feed([tokens()])


def test_a_call_when_the_journal_is_lost() -> None:
    """After the journal is lost, calls are emitted without waiting for tokens."""
    encoder = Encoder()
    encoder.feed([started(), tool_started("read_file", {"file_path": "a"})])
    lost = Notice(**_BASE, level="warning", code="journal", message="gone")
    assert b'"tool_use"' in encoder.feed([lost])
    assert b'"tool_use"' in encoder.feed([tool_started("glob", {"pattern": "*"})])
    assert encoder.feed([lost]) == b""


def test_a_call_whose_input_comes_late() -> None:
    """In a warm run a call is emitted at its end, when its input is known. The text before it is
    emitted at once."""
    encoder = Encoder()
    encoder.feed([started(transport="warm"), tokens(), text("I write.")])
    output = encoder.feed([tool_started("write_file", None)])
    assert b"I write." in output
    assert b'"tool_use"' not in output
    output = encoder.feed([tool_finished("write_file", {"file_path": "a", "content": "b"})])
    use, result = map(msgspec.json.decode, output.splitlines())
    assert use["message"]["content"][0]["input"] == {"file_path": "a", "content": "b"}
    assert use["message"]["usage"] == {}
    assert result["message"]["content"][0]["tool_use_id"] == "write_file"


def test_text_before_a_call_whose_input_comes_late() -> None:
    """Text before a call whose input comes late is emitted when its tokens are known, not at the
    end of the call."""
    encoder = Encoder()
    assert b"I write." not in encoder.feed(
        [started(transport="warm"), text("I write."), tool_started("write_file", None)]
    )
    message = msgspec.json.decode(encoder.feed([tokens()]))["message"]
    assert (message["usage"]["input_tokens"], message["stop_reason"]) == (60, None)


def test_a_call_whose_input_never_comes() -> None:
    """A call whose input never comes has the input {}. A denied call has the command of its
    permission request."""
    shell: dict[str, Any] = {"kind": "execute", "title": "rm x"}
    asked = PermissionAsked(
        **_BASE, id="run_shell_command", tool="run_shell_command", command="rm x", **shell
    )
    output = lines(
        [
            started(transport="warm"),
            tool_started("run_shell_command", None, **shell),
            asked,
            tool_finished("run_shell_command", None, status="denied", output=None, error="no"),
            tool_started("glob", None, 2),
            finished(outcome="interrupted"),
        ]
    )
    assert [block["input"] for block in blocks(output, "tool_use")] == [{"command": "rm x"}, {}]
    assert output[-1]["permission_denials"] == [
        {"tool_name": "Bash", "tool_use_id": "run_shell_command", "tool_input": {"command": "rm x"}}
    ]


def test_text_is_emitted_before_a_permission_request() -> None:
    """A permission request emits the text before it. A subagent's permission request emits
    nothing."""
    encoder = Encoder()
    encoder.feed([started(transport="warm"), text("May I?"), tool_started("write_file", None)])
    asked = PermissionAsked(**_BASE, id="write_file", tool="write_file", kind="write", title="Write a")
    assert b"May I?" in encoder.feed([asked])
    assert encoder.feed([msgspec.structs.replace(asked, parent="x")]) == b""


def test_subagents() -> None:
    """Lines of a subagent name its call as parent, come after that call, and have the subagent's
    own tokens."""
    sub: dict[str, Any] = {"parent": "invoke_agent"}
    output = lines(
        [
            started(),
            tool_started("invoke_agent", {"agent_name": "a", "prompt": "p"}, kind="agent"),
            tokens(count=200),
            thought("Hm.", parent="invoke_agent"),
            tokens(role="subagent"),
            tool_started("glob", {"pattern": "*"}, **sub),
            tool_finished("glob", {"pattern": "*"}, **sub),
            tokens(role="subagent", count=300),
            thought("So.", parent="invoke_agent"),
            tool_finished("invoke_agent", {"agent_name": "a", "prompt": "p"}),
            finished(),
        ]
    )
    reported = [(line["type"], line["parent_tool_use_id"]) for line in output[1:-1]]
    assert reported == [
        ("assistant", None),
        ("assistant", "invoke_agent"),
        ("user", "invoke_agent"),
        ("assistant", "invoke_agent"),
        ("user", None),
    ]
    read = [line["message"]["usage"]["input_tokens"] for line in lines_of_type(output, "assistant")]
    assert read == [160, 60, 260]


def test_tokens_of_two_subagents() -> None:
    """If two subagents run at once, a request cannot be assigned to one of them, so their messages
    have no tokens."""
    agent: dict[str, Any] = {"kind": "agent", "name": "invoke_agent", "input": {}}
    calls = [ToolStarted(**_BASE, id=call_id, title=call_id, **agent) for call_id in ("a", "b")]
    output = lines(
        [started(), *calls, tokens(), thought("Hm.", parent="a"), tokens(role="subagent"), finished()]
    )
    assert lines_of_type(output, "assistant")[1]["message"]["usage"] == {}


def test_a_subagent_of_a_call_that_is_not_emitted_yet() -> None:
    """In a warm run the lines of a subagent come after its call, whether or not the call ends."""
    sub: dict[str, Any] = {"parent": "invoke_agent"}
    beginning = [
        started(transport="warm"),
        tool_started("invoke_agent", None, kind="agent"),
        tool_started("glob", {"pattern": "*"}, **sub),
        tool_finished("glob", {"pattern": "*"}, **sub),
    ]
    for end in ([tool_finished("invoke_agent", {"agent_name": "a", "prompt": "p"}), finished()], []):
        output = lines([*beginning, *end])
        assert [block["name"] for block in blocks(output, "tool_use")] == ["Task", "Glob"]


def test_two_requests_in_one_message() -> None:
    """A message of two requests has the sum of their tokens. A sum with an unknown part is left
    out."""
    [line] = lines_of_type(
        lines([started(), text("a"), tokens(), text("b"), tokens(), finished()]), "assistant"
    )
    assert line["message"]["usage"]["input_tokens"] == 120
    unknown = msgspec.structs.replace(tokens(), input=None, thinking=None)
    [line] = lines_of_type(lines([started(), text("a"), tokens(), unknown, finished()]), "assistant")
    assert line["message"]["usage"] == {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 80}


def test_tokens_that_come_too_late_or_too_early() -> None:
    """Tokens are added only to the message of their own turn."""
    late = lines([started(), text("a"), text("b", 2), tokens(1), finished()])
    assert [line["message"]["usage"] for line in lines_of_type(late, "assistant")] == [{}, {}]
    early = lines([started(), text("a"), tokens(2), text("b", 2), finished()])
    assert [bool(line["message"]["usage"]) for line in lines_of_type(early, "assistant")] == [False, True]
    router = lines([started(), text("a"), tokens(role="router"), finished()])
    assert lines_of_type(router, "assistant")[0]["message"]["usage"] == {}


def test_a_request_that_the_api_refused() -> None:
    """A request that the API refused changes nothing in the message: its tokens are those of the
    answered request."""
    refused = tokens(request=1, status=503, model="flash")
    answered = tokens(request=2, repeat=True, model="pro")
    (reported,) = lines_of_type(lines([started(), refused, text("a"), answered, finished()]), "assistant")
    (alone,) = lines_of_type(lines([started(), text("a"), answered, finished()]), "assistant")
    assert reported["message"] == alone["message"]


def test_requests_before_their_message() -> None:
    """The message of a turn counts all answered requests of the turn, also those before its first
    text."""
    with_two = lines(
        [started(), tokens(1, request=1), tokens(1, request=2, repeat=True), text("a"), finished()]
    )
    with_one = lines([started(), tokens(1, request=1), text("a"), finished()])
    (two_requests,), (one_request,) = (
        lines_of_type(with_two, "assistant"),
        lines_of_type(with_one, "assistant"),
    )
    assert (
        two_requests["message"]["usage"]["input_tokens"]
        == 2 * one_request["message"]["usage"]["input_tokens"]
    )


@pytest.mark.parametrize(
    ("reason", "expected"), [("MAX_TOKENS", "max_tokens"), ("SAFETY", "refusal"), ("OTHER", None)]
)
def test_the_stop_reason_of_an_answer_that_was_cut(reason: str, expected: str | None) -> None:
    """The message and the result have Claude's stop reason for the API's finish reason, or none if
    Claude has no such reason."""
    notice = Notice(**_BASE, level="warning", code=reason.lower(), message="cut", request=1)
    end = msgspec.structs.replace(finished(), finish_reason=reason)
    output = lines([started(), text("a"), tokens(1, request=1), notice, end])
    (message,) = lines_of_type(output, "assistant")
    assert message["message"]["stop_reason"] == expected
    assert output[-1].get("stop_reason") == expected


def test_a_run_with_unknown_tokens() -> None:
    """The result of a run with unknown tokens has no usage, and `modelUsage` leaves out models with
    unknown tokens."""
    known = ModelUsage(model="pro", input=1, cached=0, output=2, thinking=0, tool=0, total=3)
    usage = Usage(
        input=1, output=2, requests=2, unknown=1, models=(known, ModelUsage(model="flash", unknown=1))
    )
    last = lines([started(), msgspec.structs.replace(finished(), usage=usage)])[-1]
    assert "usage" not in last
    assert list(last["modelUsage"]) == ["pro"]


def test_the_session_is_waited_for() -> None:
    """The first line is written when the session id is known, which can be after the start."""
    encoder = Encoder()
    assert encoder.feed([started(session_id=None)]) == b""
    without_id = Notice(**_BASE, level="debug", code="session", message="session (odd), model x")
    assert encoder.feed([without_id]) == b""
    reported = msgspec.structs.replace(without_id, session=SessionStart(_SESSION, "flash"))
    assert msgspec.json.decode(encoder.feed([reported]))["session_id"] == _SESSION
    assert encoder.feed([reported]) == b""


def test_a_session_that_is_never_known() -> None:
    """If the session id is never known, it is empty in all lines."""
    output = lines([started(session_id=None), text("a"), finished(session_id=None)])
    assert [line["session_id"] for line in output] == ["", "", ""]


def test_a_second_attempt() -> None:
    """The text of the first attempt is kept, and the second attempt has its own `init` line."""
    again = msgspec.structs.replace(started(session_id="another"), attempt=2)
    output = lines([started(), text("half"), again, text("whole"), finished(session_id="another")])
    assert [line["type"] for line in output] == ["system", "assistant", "system", "assistant", "result"]
    assert [line["session_id"] for line in output] == [_SESSION] * 2 + ["another"] * 3


def test_permission_modes() -> None:
    """`permissionMode` has Claude's name for the approval mode."""
    for approval, mode in [
        ("default", "default"),
        ("auto_edit", "acceptEdits"),
        ("yolo", "bypassPermissions"),
        ("plan", "plan"),
        (None, "default"),
    ]:
        assert lines([started(approval=approval)])[0]["permissionMode"] == mode


def test_a_run_that_never_began() -> None:
    """A run that never started has one line: a result with the error."""
    failure = Failure(kind="bad_prompt", message="empty", retryable=False, hint="")
    [line] = lines([finished(outcome="failed", failure=failure)])
    assert (line["type"], line["errors"]) == ("result", ["empty"])
    assert lines([])[-1]["errors"] == ["the run gave no result"]


def test_a_run_without_an_end() -> None:
    """A run without an end has an error as its result, with the duration of its events. A second
    `finish` and later events print nothing."""
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
    """Each outcome has Claude's result subtype. Every outcome but success is an error with the
    reason."""
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


def test_an_api_failure_is_emitted_in_the_agents_name() -> None:
    """A failure of the API gives a synthetic assistant line before the result, with Claude's name
    of the error."""
    output = lines(recorded("bad_key"))
    assert [line["type"] for line in output] == ["system", "assistant", "result"]
    assert (output[1]["error"], output[1]["message"]["model"]) == ("authentication_failed", "<synthetic>")
    assert output[2]["api_error_status"] == 403


def test_a_tool_that_was_cut_off() -> None:
    """A run that is interrupted while a tool runs has the terminal reason `aborted_tools`."""
    cut = tool_finished("glob", {}, status="cancelled", output=None)
    last = lines([started(), tool_started("glob", {}), cut, finished(outcome="interrupted")])[-1]
    assert last["terminal_reason"] == "aborted_tools"


def test_time_without_tools() -> None:
    """The API time is the time without tools. Parallel tools are subtracted once, and subagents are
    not subtracted."""

    def at(ms: int, event: Any) -> Any:
        return msgspec.structs.replace(event, at=ms)

    last = lines(
        [
            at(0, started()),
            at(100, tool_started("a", {})),
            at(150, tool_started("b", {})),
            at(200, tool_finished("a", {})),
            at(300, tool_finished("b", {})),
            at(300, tool_started("invoke_agent", {}, kind="agent")),
            at(500, tool_finished("invoke_agent", {})),
            finished(duration_ms=1000),
        ]
    )[-1]
    assert (last["duration_ms"], last["duration_api_ms"]) == (1000, 800)


def test_unusual_characters_and_deep_inputs() -> None:
    """Lone surrogates become `?`, huge numbers are kept, and an input that is nested too deeply
    becomes {}."""
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    events = [
        started(cwd="/\ud800", run_id="r\ud800"),
        text("a\ud800b"),
        tool_started("odd", {"\ud800": ["\ud800", 2**80]}),
        tool_started("deep", deep),
        thought("\ud800"),
        finished(answer="\udfff"),
    ]
    output = lines(events, partial=True)
    assert blocks(output, "text")[0]["text"] == "a?b"
    assert [block["input"] for block in blocks(output, "tool_use")] == [{"?": ["?", 2**80]}, {}]


def test_results_of_tools() -> None:
    """A tool_result has the output that the model received. If the error differs from it,
    `tool_use_result` has the error."""
    reported = [
        tool_finished("a", {}, output="fine"),
        tool_finished("b", {}, status="failed", output=None, error="bad"),
        tool_finished("c", {}, status="denied", output="not found", error="denied by a rule"),
        tool_finished("d", {}, output=None),
    ]
    output = lines_of_type(lines([started(), *reported, finished()]), "user")
    content = [
        (line["message"]["content"][0]["content"], line["message"]["content"][0]["is_error"])
        for line in output
    ]
    assert content == [("fine", False), ("bad", True), ("not found", True), ("", False)]
    assert [line.get("tool_use_result") for line in output] == [None, None, "Error: denied by a rule", None]
