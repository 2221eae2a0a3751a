"""ACP messages of the CLI: everything that the protocol's own models allow is decoded."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acp_models import JSON, instances_of, schema, to_message
from geminids.gemini.protocol.acp.calls import new_session_result, prompt_result
from geminids.gemini.protocol.acp.messages import (
    AcpToolCall,
    RpcRequest,
    RpcResponse,
    Unknown,
    Update,
    decode_lines,
)

_IGNORED_UPDATES = {
    "available_commands_update",
    "current_mode_update",
    "session_info_update",
    "config_option_update",
}
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


def _decode_one(message: dict[str, Any]) -> Any:
    (decoded,) = decode_lines(_line(message))
    return decoded


def _assert_same_call(call: AcpToolCall, sent: dict[str, Any]) -> None:
    """Compare every field of a decoded tool call with the one that was sent."""
    assert call.tool_call_id == sent["toolCallId"]
    assert (call.title, call.kind, call.status) == (sent.get("title"), sent.get("kind"), sent.get("status"))
    assert call.paths == tuple(item["path"] for item in sent.get("locations") or () if item["path"])
    content = sent.get("content") or ()
    texts = [item["content"]["text"] for item in content if item.get("content", {}).get("type") == "text"]
    assert call.text == ("".join(texts) if texts else None)
    diffs = [item for item in content if item["type"] == "diff" and item["path"]]
    assert call.diffs == tuple((item["path"], item.get("oldText"), item["newText"]) for item in diffs)


@given(st.data())
@settings(max_examples=300)
def test_every_update_is_decoded(data: st.DataObject) -> None:
    """Every update of the protocol is decoded.

    Texts and tool calls are exact, ignored kinds are empty updates, and the rest is `Unknown`.
    """
    sent = to_message(data.draw(instances_of(schema().SessionNotification)))
    decoded, update = _decode_one({"method": "session/update", "params": sent}), sent["update"]
    assert decoded.session_id == sent["sessionId"]
    kind = update["sessionUpdate"]
    if kind in _CHUNKS and update["content"]["type"] == "text":
        assert isinstance(decoded, Update) and (decoded.kind, decoded.text) == (
            kind,
            update["content"]["text"],
        )
    elif kind in ("tool_call", "tool_call_update"):
        assert isinstance(decoded, Update) and decoded.tool is not None and decoded.kind == kind
        _assert_same_call(decoded.tool, update)
    elif kind in _IGNORED_UPDATES:
        assert decoded == Update(session_id=sent["sessionId"], kind=kind)
    else:
        assert isinstance(decoded, Unknown) and decoded.why == "unknown_update"


@pytest.mark.parametrize("name", ["ToolCallStart", "ToolCallProgress"])
@given(st.data())
@settings(max_examples=150)
def test_every_content_of_a_tool_is_decoded(name: str, data: st.DataObject) -> None:
    """All texts, diffs and terminals of a tool call are decoded."""
    models = schema()
    kinds = (models.ContentToolCallContent, models.FileEditToolCallContent, models.TerminalToolCallContent)
    texts = instances_of(models.TextContentBlock).map(
        lambda block: {"type": "content", "content": to_message(block)}
    )
    content = st.lists(
        texts | st.one_of([instances_of(kind).map(to_message) for kind in kinds]), min_size=1, max_size=4
    )
    model = getattr(models, name)
    sent = {**to_message(data.draw(instances_of(model))), "content": data.draw(content)}
    sent = to_message(model.model_validate(sent))
    decoded = _decode_one({"method": "session/update", "params": {"sessionId": "s", "update": sent}})
    assert isinstance(decoded, Update) and decoded.tool is not None
    _assert_same_call(decoded.tool, sent)


@given(st.data(), st.integers(0, 2**53) | st.text(max_size=8))
@settings(max_examples=150)
def test_every_permission_request_is_decoded(data: st.DataObject, number: Any) -> None:
    """A permission request is decoded with its id, its tool call and its options."""
    sent = to_message(data.draw(instances_of(schema().RequestPermissionRequest)))
    decoded = _decode_one({"id": number, "method": "session/request_permission", "params": sent})
    assert isinstance(decoded, RpcRequest) and decoded.id == number and decoded.permission is not None
    assert decoded.permission.session_id == sent["sessionId"]
    _assert_same_call(decoded.permission.tool_call, sent["toolCall"])
    options = [(option.option_id, option.name, option.kind) for option in decoded.permission.options]
    assert options == [(option["optionId"], option["name"], option["kind"]) for option in sent["options"]]


@given(st.data())
def test_every_stop_reason_is_decoded(data: st.DataObject) -> None:
    """The stop reason of every prompt response is decoded."""
    sent = to_message(data.draw(instances_of(schema().PromptResponse)))
    decoded = _decode_one({"id": 1, "result": sent})
    assert isinstance(decoded, RpcResponse) and decoded.error is None
    assert prompt_result(decoded.result).reason == sent["stopReason"]


@given(st.data())
def test_every_new_session_is_decoded(data: st.DataObject) -> None:
    """The id of a new session is decoded, and its model if the CLI names one."""
    sent = to_message(data.draw(instances_of(schema().NewSessionResponse)))
    decoded = new_session_result(_decode_one({"id": 1, "result": sent}).result)
    assert decoded.session_id == sent["sessionId"]
    named = new_session_result(
        _decode_one({"id": 1, "result": {**sent, "models": {"currentModelId": "flash"}}}).result
    )
    assert named.model == "flash"
    assert new_session_result(_decode_one({"id": 1, "result": {**sent, "models": [1]}}).result).model is None


@given(st.data(), st.integers(0, 2**31))
def test_every_error_is_decoded(data: st.DataObject, number: int) -> None:
    """An error is decoded with code, message and data."""
    sent = to_message(data.draw(instances_of(schema().Error)))
    decoded = _decode_one({"id": number, "error": sent})
    assert isinstance(decoded, RpcResponse) and decoded.id == number and decoded.error is not None
    assert (decoded.error.code, decoded.error.message, decoded.error.data) == (
        sent["code"],
        sent["message"],
        sent.get("data"),
    )
    assert decoded.error.details is None or isinstance(decoded.error.details, str)


@given(st.text(max_size=20), st.dictionaries(st.text(max_size=8), JSON, max_size=3))
def test_an_unknown_update(kind: str, fields: dict[str, Any]) -> None:
    """An unknown update, as of a later release, is decoded as `Unknown` with its session id."""
    update = {**fields, "sessionUpdate": f"new_{kind}", "content": fields}
    decoded = _decode_one({"method": "session/update", "params": {"sessionId": "s", "update": update}})
    assert isinstance(decoded, Unknown) and (decoded.why, decoded.session_id) == ("unknown_update", "s")


@pytest.mark.parametrize("line", [HELLO, ASK, DONE])
def test_meta_is_ignored_at_every_level(line: bytes) -> None:
    """A `_meta` field is ignored at every level of a message."""

    def with_meta(value: Any) -> Any:
        if isinstance(value, dict):
            return {"_meta": {"x": [1]}, **{name: with_meta(inner) for name, inner in value.items()}}
        return [with_meta(one) for one in value] if isinstance(value, list) else value

    (plain,), (other,) = decode_lines(line), decode_lines(json.dumps(with_meta(json.loads(line))).encode())
    if isinstance(plain, RpcResponse) and isinstance(other, RpcResponse):
        assert prompt_result(other.result) == prompt_result(plain.result)
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
    """Noise, cut lines and values of wrong types raise nothing; they become `Unknown` or are
    decoded in part.
    """
    for message in decode_lines(block):
        msgspec.json.encode(msgspec.structs.asdict(message))
        if isinstance(message, RpcResponse):
            for read in (prompt_result, new_session_result):
                try:
                    read(message.result)
                except msgspec.DecodeError:
                    pass


@given(st.integers(0, len(HELLO) - 1))
def test_a_cut_line_affects_no_other_line(size: int) -> None:
    """A cut line does not affect the lines before and after it."""
    decoded = decode_lines(b"\n".join((HELLO, HELLO[:size], HELLO)) + b"\n")
    assert decoded[0] == decoded[-1] == decode_lines(HELLO)[0]
    assert all(isinstance(message, Unknown) for message in decoded[1:-1])


@pytest.mark.parametrize(("half", "whole"), [(rb"a\ud83d b", "a\ufffd b"), (b"a\xffb", "a\ufffdb")])
def test_half_a_character_is_replaced(half: bytes, whole: str) -> None:
    """Half a character is replaced, and the message is kept.

    The CLI cuts texts between UTF-16 units.
    """
    (text,) = decode_lines(HELLO.replace(b"hello", half))
    assert isinstance(text, Update) and text.text == whole
    (ask,) = decode_lines(ASK.replace(b'"toolCallId"', b'"title":"' + half + b'","toolCallId"'))
    assert (
        isinstance(ask, RpcRequest) and ask.permission is not None and ask.permission.tool_call.title == whole
    )
    (failed,) = decode_lines(b'{"id":3,"error":{"code":500,"message":"' + half + b'"}}')
    assert isinstance(failed, RpcResponse) and failed.error is not None and failed.error.message == whole
    (done,) = decode_lines(DONE.replace(b'"}}', b'","_meta":{"x":"' + half + b'"}}}'))
    assert isinstance(done, RpcResponse) and prompt_result(done.result).reason == "end_turn"


@pytest.mark.parametrize("error", ['"no"', "7", '{"code":"x"}', '{"code":5.5,"message":"m"}', "[]"])
def test_a_malformed_error_is_a_response(error: str) -> None:
    """An error that is not in the form of JSON-RPC is still decoded as a response, and its text is
    kept.
    """
    (decoded,) = decode_lines(f'{{"id":3,"error":{error}}}'.encode())
    assert isinstance(decoded, RpcResponse) and decoded.id == 3 and decoded.error is not None
    assert decoded.error.message == error


@pytest.mark.parametrize("params", ["null", "{}", '{"sessionId":"s","toolCall":7}', '{"sessionId":1}'])
def test_an_unreadable_permission_request_keeps_its_id(params: str) -> None:
    """A permission request that cannot be read keeps its id, so that it can be answered."""
    (decoded,) = decode_lines(f'{{"id":0,"method":"session/request_permission","params":{params}}}'.encode())
    assert decoded == RpcRequest(id=0, method="session/request_permission", permission=None)


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
    """The folder of a command is read from its text if the model named one.

    If the text is ambiguous, both readings are returned.
    """
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    assert AcpToolCall(tool_call_id="t", content=content).folders == folders
