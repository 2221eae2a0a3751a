"""What the CLI says on ACP: whatever the protocol's own models can say arrives, and nothing else does harm."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acp_models import JSON, dumped, made, schema
from geminids.gemini.protocol.acp.calls import opened_of, stopped_of
from geminids.gemini.protocol.acp.messages import Answer, Note, ToolCall, Unknown, Update, decode_lines

_QUIET = {"available_commands_update", "current_mode_update", "session_info_update", "config_option_update"}
_CHUNKS = {"agent_message_chunk", "agent_thought_chunk", "user_message_chunk"}
HELLO = (
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":'
    b'{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hello"}}}}'
)
ASK = (
    b'{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s",'
    b'"options":[{"optionId":"proceed_once","name":"Allow","kind":"allow_once"}],"toolCall":{"toolCallId":"t"}}}'
)
DONE = b'{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}'


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"


def _one(message: dict[str, Any]) -> Any:
    (found,) = decode_lines(_line(message))
    return found


def _assert_same_call(call: ToolCall, said: dict[str, Any]) -> None:
    """All of a tool call that we read, against what was said."""
    assert call.tool_call_id == said["toolCallId"]
    assert (call.title, call.kind, call.status) == (said.get("title"), said.get("kind"), said.get("status"))
    assert call.paths == tuple(one["path"] for one in said.get("locations") or () if one["path"])
    content = said.get("content") or ()
    texts = [one["content"]["text"] for one in content if one.get("content", {}).get("type") == "text"]
    assert call.text == ("".join(texts) if texts else None)
    diffs = [one for one in content if one["type"] == "diff" and one["path"]]
    assert call.diffs == tuple((one["path"], one.get("oldText"), one["newText"]) for one in diffs)


@given(st.data())
@settings(max_examples=300)
def test_every_update_of_the_protocol_arrives(data: st.DataObject) -> None:
    """Texts to the character, calls with all that they say; the others are known to be no news, or `Unknown`."""
    said = dumped(data.draw(made(schema().SessionNotification)))
    found, update = _one({"method": "session/update", "params": said}), said["update"]
    assert found.session_id == said["sessionId"]
    kind = update["sessionUpdate"]
    if kind in _CHUNKS and update["content"]["type"] == "text":
        assert isinstance(found, Update) and (found.kind, found.text) == (kind, update["content"]["text"])
    elif kind in ("tool_call", "tool_call_update"):
        assert isinstance(found, Update) and found.tool is not None and found.kind == kind
        _assert_same_call(found.tool, update)
    elif kind in _QUIET:
        assert found == Update(session_id=said["sessionId"], kind=kind)
    else:
        assert isinstance(found, Unknown) and found.why == "unknown_update"


@pytest.mark.parametrize("name", ["ToolCallStart", "ToolCallProgress"])
@given(st.data())
@settings(max_examples=150)
def test_every_content_of_a_tool_arrives(name: str, data: st.DataObject) -> None:
    """Texts, diffs and terminals, several of them, whatever else the call says."""
    models = schema()
    kinds = (models.ContentToolCallContent, models.FileEditToolCallContent, models.TerminalToolCallContent)
    texts = made(models.TextContentBlock).map(lambda block: {"type": "content", "content": dumped(block)})
    content = st.lists(texts | st.one_of([made(kind).map(dumped) for kind in kinds]), min_size=1, max_size=4)
    model = getattr(models, name)
    said = {**dumped(data.draw(made(model))), "content": data.draw(content)}
    said = dumped(model.model_validate(said))
    found = _one({"method": "session/update", "params": {"sessionId": "s", "update": said}})
    assert isinstance(found, Update) and found.tool is not None
    _assert_same_call(found.tool, said)


@given(st.data(), st.integers(0, 2**53) | st.text(max_size=8))
@settings(max_examples=150)
def test_every_request_for_permission_arrives(data: st.DataObject, number: Any) -> None:
    """With the id to answer by, the call, and the options with their kinds."""
    said = dumped(data.draw(made(schema().RequestPermissionRequest)))
    found = _one({"id": number, "method": "session/request_permission", "params": said})
    assert isinstance(found, Note) and found.id == number and found.permission is not None
    assert found.permission.session_id == said["sessionId"]
    _assert_same_call(found.permission.tool_call, said["toolCall"])
    options = [(one.option_id, one.name, one.kind) for one in found.permission.options]
    assert options == [(one["optionId"], one["name"], one["kind"]) for one in said["options"]]


@given(st.data())
def test_every_end_of_a_prompt_arrives(data: st.DataObject) -> None:
    """Its reason, whatever else is in it."""
    said = dumped(data.draw(made(schema().PromptResponse)))
    found = _one({"id": 1, "result": said})
    assert isinstance(found, Answer) and found.error is None
    assert stopped_of(found.result).reason == said["stopReason"]


@given(st.data())
def test_every_new_session_arrives(data: st.DataObject) -> None:
    """Its id, and its model if the CLI names one."""
    said = dumped(data.draw(made(schema().NewSessionResponse)))
    found = opened_of(_one({"id": 1, "result": said}).result)
    assert found.session_id == said["sessionId"]
    named = opened_of(_one({"id": 1, "result": {**said, "models": {"currentModelId": "flash"}}}).result)
    assert named.model == "flash"
    assert opened_of(_one({"id": 1, "result": {**said, "models": [1]}}).result).model is None


@given(st.data(), st.integers(0, 2**31))
def test_every_error_arrives(data: st.DataObject, number: int) -> None:
    """Code, message and data."""
    said = dumped(data.draw(made(schema().Error)))
    found = _one({"id": number, "error": said})
    assert isinstance(found, Answer) and found.id == number and found.error is not None
    assert (found.error.code, found.error.message, found.error.data) == (
        said["code"],
        said["message"],
        said.get("data"),
    )
    assert found.error.details is None or isinstance(found.error.details, str)


@given(st.text(max_size=20), st.dictionaries(st.text(max_size=8), JSON, max_size=3))
def test_an_update_that_nobody_knows_is_unknown(kind: str, fields: dict[str, Any]) -> None:
    """A later release's: told with its session, never an exception."""
    update = {**fields, "sessionUpdate": f"new_{kind}", "content": fields}
    found = _one({"method": "session/update", "params": {"sessionId": "s", "update": update}})
    assert isinstance(found, Unknown) and (found.why, found.session_id) == ("unknown_update", "s")


@pytest.mark.parametrize("line", [HELLO, ASK, DONE])
def test_meta_is_passed_over_wherever_it_is(line: bytes) -> None:
    """The protocol lets everybody put it everywhere."""

    def with_meta(value: Any) -> Any:
        if isinstance(value, dict):
            return {"_meta": {"x": [1]}, **{name: with_meta(inner) for name, inner in value.items()}}
        return [with_meta(one) for one in value] if isinstance(value, list) else value

    (plain,), (other,) = decode_lines(line), decode_lines(json.dumps(with_meta(json.loads(line))).encode())
    if isinstance(plain, Answer) and isinstance(other, Answer):
        assert stopped_of(other.result) == stopped_of(plain.result)
    else:
        assert other == plain


_LINES = st.one_of(
    st.sampled_from((HELLO, ASK, DONE)),
    st.binary(max_size=40),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.tuples(st.sampled_from((HELLO, ASK, DONE)), st.integers(0, 200)).map(lambda cut: cut[0][: cut[1]]),
    st.dictionaries(st.sampled_from(("id", "method", "params", "result", "error")), JSON).map(
        lambda value: json.dumps(value).encode()
    ),
    st.tuples(st.sampled_from(("session/update", "session/request_permission")), JSON).map(
        lambda one: _line({"method": one[0], "params": one[1], "id": 1}).strip()
    ),
)


@given(st.lists(_LINES, max_size=6).map(b"\n".join))
@example(b'{"id":1,"result":' + b"[" * 5000)
@example(b'{"id":1,"result":' + b"[" * 50_000 + b"]" * 50_000 + b"}")
@example(b'{"id":' + b"1" * 5000 + b',"result":{}}')
@example(b'{"id":1,"result":1e999,"x":"\\ud800"}')
@example(b'{"id":1,"x":"\\ud800","result":' + b"1" * 400 + b"}")
@example(b'{"id":1,"result":{"stopReason":"\xff"}}')
def test_no_bytes_raise(block: bytes) -> None:
    """Noise, cut lines and values of other types become `Unknown`, or what can still be read of them."""
    for message in decode_lines(block):
        msgspec.json.encode(msgspec.structs.asdict(message))
        if isinstance(message, Answer):
            for read in (stopped_of, opened_of):
                try:
                    read(message.result)
                except msgspec.DecodeError:
                    pass


@given(st.integers(0, len(HELLO) - 1))
def test_a_cut_line_costs_itself_alone(size: int) -> None:
    """Its neighbours arrive."""
    found = decode_lines(b"\n".join((HELLO, HELLO[:size], HELLO)) + b"\n")
    assert found[0] == found[-1] == decode_lines(HELLO)[0]
    assert all(isinstance(one, Unknown) for one in found[1:-1])


@pytest.mark.parametrize(("half", "whole"), [(rb"a\ud83d b", "a\ufffd b"), (b"a\xffb", "a\ufffdb")])
def test_half_a_character_costs_that_character(half: bytes, whole: str) -> None:
    """The CLI cuts texts at any UTF-16 unit: neither the text nor, worse, an answer may be lost by it."""
    (text,) = decode_lines(HELLO.replace(b"hello", half))
    assert isinstance(text, Update) and text.text == whole
    (ask,) = decode_lines(ASK.replace(b'"toolCallId"', b'"title":"' + half + b'","toolCallId"'))
    assert isinstance(ask, Note) and ask.permission is not None and ask.permission.tool_call.title == whole
    (failed,) = decode_lines(b'{"id":3,"error":{"code":500,"message":"' + half + b'"}}')
    assert isinstance(failed, Answer) and failed.error is not None and failed.error.message == whole
    (done,) = decode_lines(DONE.replace(b'"}}', b'","_meta":{"x":"' + half + b'"}}}'))
    assert isinstance(done, Answer) and stopped_of(done.result).reason == "end_turn"


@pytest.mark.parametrize("error", ['"no"', "7", '{"code":"x"}', '{"code":5.5,"message":"m"}', "[]"])
def test_whoever_waits_is_answered(error: str) -> None:
    """An error that is none of JSON-RPC's is still the answer, and its words are told."""
    (found,) = decode_lines(f'{{"id":3,"error":{error}}}'.encode())
    assert isinstance(found, Answer) and found.id == 3 and found.error is not None
    assert found.error.message == error


@pytest.mark.parametrize("params", ["null", "{}", '{"sessionId":"s","toolCall":7}', '{"sessionId":1}'])
def test_a_question_that_cannot_be_read_can_be_answered(params: str) -> None:
    """The agent waits for an answer: the request arrives with its id, and without a permission."""
    (found,) = decode_lines(f'{{"id":0,"method":"session/request_permission","params":{params}}}'.encode())
    assert found == Note(id=0, method="session/request_permission", permission=None)


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        ("[in src]", ("src",)),
        ("[in src/a b] (Lists [all] files)", ("src/a b",)),
        ("[in a]b] [background]", ("a]b", "a]b] [background")),
        ("[in a] (b] (c)", ("a", "a] (b")),
        ("[in a] (b] [background]", ("a] (b", "a] (b] [background")),
        ("[current working directory /p] (in [in x])", ()),
        ("", ()),
    ],
)
def test_the_folder_of_a_command(text: str, folders: tuple[str, ...]) -> None:
    """The CLI tells it where the model named one; what it tells otherwise is where the CLI itself runs.

    Where it can be read in two ways, both are told.
    """
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    assert ToolCall(tool_call_id="t", content=content).folders == folders
