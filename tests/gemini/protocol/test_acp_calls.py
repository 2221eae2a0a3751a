"""ACP messages that we send: the protocol's own models accept every one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_models import schema
from geminids.gemini.protocol.acp.calls import (
    ApiKeyMeta,
    AudioContent,
    Authenticate,
    Cancel,
    ClientInfo,
    ImageContent,
    Initialize,
    NewSession,
    Resource,
    ResourceBlob,
    ResourceLink,
    ResourceText,
    SendPrompt,
    SetMode,
    SetModel,
    TextContent,
    encode_answer,
    encode_call,
    encode_error,
    encode_notification,
)

_TEXT = st.text(max_size=30)
_MIME = st.none() | _TEXT
_BLOCKS = st.one_of(
    st.builds(TextContent, text=_TEXT),
    st.builds(ImageContent, data=_TEXT, mime_type=_TEXT),
    st.builds(AudioContent, data=_TEXT, mime_type=_TEXT),
    st.builds(ResourceLink, uri=_TEXT, name=_TEXT),
    st.builds(Resource, resource=st.builds(ResourceText, uri=_TEXT, text=_TEXT, mime_type=_MIME)),
    st.builds(Resource, resource=st.builds(ResourceBlob, uri=_TEXT, blob=_TEXT, mime_type=_MIME)),
)
_CALLS = st.one_of(
    st.builds(Initialize, client_info=st.builds(ClientInfo, name=_TEXT, version=_TEXT)),
    st.builds(Authenticate, meta=st.builds(ApiKeyMeta, key=_TEXT)),
    st.builds(NewSession, cwd=_TEXT),
    st.builds(SendPrompt, session_id=_TEXT, prompt=st.lists(_BLOCKS, max_size=4).map(tuple)),
    st.builds(SetMode, session_id=_TEXT, mode_id=_TEXT),
    st.builds(SetModel, session_id=_TEXT, model_id=_TEXT),
)
_MODELS = {
    "initialize": "InitializeRequest",
    "authenticate": "AuthenticateRequest",
    "session/new": "NewSessionRequest",
    "session/prompt": "PromptRequest",
    "session/set_mode": "SetSessionModeRequest",
    "session/set_model": "SetSessionModelRequest",
    "session/cancel": "CancelNotification",
}


def _decode_line(line: bytes) -> dict[str, Any]:
    """Decode the message of exactly one line."""
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    message: dict[str, Any] = json.loads(line)
    assert message.pop("jsonrpc") == "2.0"
    return message


def _assert_accepted(model: str, value: Any) -> None:
    """Assert that the model accepts the value, knows every field and loses nothing."""
    read = getattr(schema(), model).model_validate(value, by_name=False)
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == value


@given(st.integers(0, 2**53), _CALLS)
@settings(max_examples=200)
def test_every_call_is_accepted(number: int, call: Any) -> None:
    """The model of the call's method accepts everything that we send."""
    message = _decode_line(encode_call(number, call))
    assert message.keys() == {"id", "method", "params"} and message["id"] == number
    _assert_accepted(_MODELS[message["method"]], message["params"])


def test_every_call_is_tested() -> None:
    """Every call of ours is in the table of this test."""
    from geminids.gemini.protocol.acp import calls as acp_calls

    assert set(acp_calls._METHODS.values()) == set(_MODELS)
    assert {call.__name__ for call in acp_calls._METHODS} == {
        "Authenticate",
        "Initialize",
        "NewSession",
        "SendPrompt",
        "SetMode",
        "SetModel",
        "Cancel",
    }


def test_we_offer_no_capabilities() -> None:
    """We offer the CLI neither files nor terminals, so that its tools work under the CLI's own
    rules.
    """
    hello = _decode_line(encode_call(1, Initialize(client_info=ClientInfo(name="geminids", version="1"))))
    assert hello["params"]["clientCapabilities"] == {} and hello["params"]["protocolVersion"] == 1
    read = schema().InitializeRequest.model_validate(hello["params"]).client_capabilities
    assert not read.terminal and not (read.fs.read_text_file or read.fs.write_text_file)
    assert _decode_line(encode_call(2, NewSession(cwd="/w")))["params"] == {"cwd": "/w", "mcpServers": []}


def test_an_extension_method() -> None:
    """A call by name alone is sent as an extension method with empty parameters."""
    assert _decode_line(encode_call(7, "_geminids/ping")) == {
        "id": 7,
        "method": "_geminids/ping",
        "params": {},
    }


@given(_TEXT)
def test_the_cancel_notification_is_accepted(session_id: str) -> None:
    """The cancel notification has no id, and its model accepts it."""
    message = _decode_line(encode_notification(Cancel(session_id=session_id)))
    assert message.keys() == {"method", "params"}
    _assert_accepted(_MODELS[message["method"]], message["params"])


@given(st.integers() | _TEXT, st.none() | _TEXT)
def test_an_answer_is_accepted(number: Any, option: str | None) -> None:
    """A permission answer has the id of the request, and the chosen option or `cancelled`."""
    if isinstance(number, int):
        number = max(-(2**63), min(number, 2**63 - 1))
    message = _decode_line(encode_answer(number, option))
    assert message.keys() == {"id", "result"} and message["id"] == number
    _assert_accepted("RequestPermissionResponse", message["result"])
    outcome = message["result"]["outcome"]
    assert (outcome["outcome"], outcome.get("optionId")) == (
        "selected" if option is not None else "cancelled",
        option,
    )


@given(st.integers(-(2**31), 2**31), _TEXT)
def test_an_error_is_accepted(code: int, why: str) -> None:
    """An error response has an id, and the model of errors accepts it."""
    message = _decode_line(encode_error("x", code, why))
    assert message.keys() == {"id", "error"}
    _assert_accepted("Error", message["error"])


def test_half_a_character_is_replaced() -> None:
    """A lone surrogate, as from a file name that is not UTF-8, is sent as `?`, because JSON cannot
    encode it.
    """
    line = encode_call(1, SendPrompt(session_id="s", prompt=(TextContent(text="a\udcffb"),)))
    assert msgspec.json.decode(line)["params"]["prompt"][0]["text"] == "a?b"
