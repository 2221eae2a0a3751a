"""What we say on ACP, judged by the protocol's own models: every message, whatever is in it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_models import schema
from geminids.gemini.protocol.acp.calls import (
    ApiKey,
    Audio,
    Authenticate,
    Cancel,
    ClientInfo,
    Image,
    Initialize,
    NewSession,
    Prompt,
    Resource,
    ResourceBlob,
    ResourceLink,
    ResourceText,
    SetMode,
    SetModel,
    Text,
    encode_answer,
    encode_call,
    encode_error,
    encode_note,
)

_TEXT = st.text(max_size=30)
_MIME = st.none() | _TEXT
_BLOCKS = st.one_of(
    st.builds(Text, text=_TEXT),
    st.builds(Image, data=_TEXT, mime_type=_TEXT),
    st.builds(Audio, data=_TEXT, mime_type=_TEXT),
    st.builds(ResourceLink, uri=_TEXT, name=_TEXT),
    st.builds(Resource, resource=st.builds(ResourceText, uri=_TEXT, text=_TEXT, mime_type=_MIME)),
    st.builds(Resource, resource=st.builds(ResourceBlob, uri=_TEXT, blob=_TEXT, mime_type=_MIME)),
)
_CALLS = st.one_of(
    st.builds(Initialize, client_info=st.builds(ClientInfo, name=_TEXT, version=_TEXT)),
    st.builds(Authenticate, meta=st.builds(ApiKey, key=_TEXT)),
    st.builds(NewSession, cwd=_TEXT),
    st.builds(Prompt, session_id=_TEXT, prompt=st.lists(_BLOCKS, max_size=4).map(tuple)),
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


def _said(line: bytes) -> dict[str, Any]:
    """The message of one line, which is all that was written."""
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    message: dict[str, Any] = json.loads(line)
    assert message.pop("jsonrpc") == "2.0"
    return message


def _assert_taken(model: str, value: Any) -> None:
    """The model takes it, knows every field of it, and loses nothing."""
    read = getattr(schema(), model).model_validate(value, by_name=False)
    assert read.model_dump(mode="json", by_alias=True, exclude_unset=True) == value


@given(st.integers(0, 2**53), _CALLS)
@settings(max_examples=200)
def test_every_call_is_one_of_the_protocol(number: int, call: Any) -> None:
    """Its method has a model, which reads back all that was sent, to the character."""
    message = _said(encode_call(number, call))
    assert message.keys() == {"id", "method", "params"} and message["id"] == number
    _assert_taken(_MODELS[message["method"]], message["params"])


def test_no_call_is_left_out_of_this_test() -> None:
    """A new call needs a row in the table above."""
    from geminids.gemini.protocol.acp import calls as acp_calls

    assert set(acp_calls._METHODS.values()) == set(_MODELS)
    assert {one.__name__ for one in acp_calls._METHODS} == {
        "Authenticate",
        "Initialize",
        "NewSession",
        "Prompt",
        "SetMode",
        "SetModel",
        "Cancel",
    }


def test_a_session_of_ours_offers_nothing_of_ours() -> None:
    """Neither files nor terminals: the CLI's tools do their own work, where the CLI's own rules see it."""
    hello = _said(encode_call(1, Initialize(client_info=ClientInfo(name="geminids", version="1"))))
    assert hello["params"]["clientCapabilities"] == {} and hello["params"]["protocolVersion"] == 1
    read = schema().InitializeRequest.model_validate(hello["params"]).client_capabilities
    assert not read.terminal and not (read.fs.read_text_file or read.fs.write_text_file)
    assert _said(encode_call(2, NewSession(cwd="/w")))["params"] == {"cwd": "/w", "mcpServers": []}


def test_a_bare_name_is_an_extension_of_the_protocol() -> None:
    """Such methods begin with `_`: the agent answers that it has none, and that is an answer."""
    assert _said(encode_call(7, "_geminids/ping")) == {"id": 7, "method": "_geminids/ping", "params": {}}


@given(_TEXT)
def test_the_note_is_one_of_the_protocol(session_id: str) -> None:
    """It has no id, so that nobody answers it."""
    message = _said(encode_note(Cancel(session_id=session_id)))
    assert message.keys() == {"method", "params"}
    _assert_taken(_MODELS[message["method"]], message["params"])


@given(st.integers() | _TEXT, st.none() | _TEXT)
def test_an_answer_is_one_of_the_protocol(number: Any, option: str | None) -> None:
    """The option that was chosen, or that the turn is cancelled; under the id that was asked with."""
    if isinstance(number, int):
        number = max(-(2**63), min(number, 2**63 - 1))
    message = _said(encode_answer(number, option))
    assert message.keys() == {"id", "result"} and message["id"] == number
    _assert_taken("RequestPermissionResponse", message["result"])
    outcome = message["result"]["outcome"]
    assert (outcome["outcome"], outcome.get("optionId")) == (
        "selected" if option is not None else "cancelled",
        option,
    )


@given(st.integers(-(2**31), 2**31), _TEXT)
def test_a_refusal_is_one_of_the_protocol(code: int, why: str) -> None:
    """An error with a code and a message."""
    message = _said(encode_error("x", code, why))
    assert message.keys() == {"id", "error"}
    _assert_taken("Error", message["error"])


def test_half_a_character_does_not_stop_a_prompt() -> None:
    """A lone surrogate (a file name that is no UTF-8) cannot be written as JSON: it costs that character."""
    line = encode_call(1, Prompt(session_id="s", prompt=(Text(text="a\udcffb"),)))
    assert msgspec.json.decode(line)["params"]["prompt"][0]["text"] == "a?b"
