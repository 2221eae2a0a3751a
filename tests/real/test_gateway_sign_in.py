"""No sign-in of a trusted folder's own goes past the gateway in silence."""

from __future__ import annotations

import json
from typing import Any

import pytest

import geminids
from fake_google import FakeGoogle
from geminids.gateway import Reply, Request

pytestmark = pytest.mark.real

KEY = "AIzaSy-not-a-real-key-0123456789"


def answers(request: Request) -> Reply | None:
    return Reply(text="hi") if request.method == "stream" else None


def asked(world: Any, google: FakeGoogle, **fields: Any) -> geminids.Result:
    env = {"GOOGLE_GEMINI_BASE_URL": google.url, "GEMINI_API_KEY": KEY, **fields.pop("env", {})}
    options = world.options(**{"gateway": "on", "trust_workspace": True, "env": env, **fields})
    return geminids.ask_sync("hello", options)


@pytest.mark.parametrize("fields", [{}, {"gateway": "auto", "max_requests": 3}], ids=["on", "budget"])
def test_a_key_that_only_the_cli_would_find(make_world: Any, fields: dict[str, Any]) -> None:
    """In the folder's `.env`: the CLI would take it, and ask Google itself. Nothing is started."""
    world = make_world("0.61.0")
    (world.cwd / ".env").write_text("GEMINI_API_KEY=AIzaSy-another-one-0123456789\n")
    with FakeGoogle(answers) as google:
        result = asked(world, google, env={"GEMINI_API_KEY": ""}, **fields)
    assert result.failure is not None
    assert (result.failure.kind, google.asked) == ("auth", [])
    assert ".env" in (result.failure.hint or "")


@pytest.mark.parametrize(("chosen", "goes"), [("vertex-ai", False), ("gemini-api-key", True)])
def test_a_folder_that_chooses_the_sign_in(make_world: Any, chosen: str, goes: bool) -> None:
    """Its settings outrank ours: another sign-in than by key is refused, and the file is named."""
    world = make_world("0.61.0")
    settings = world.cwd / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": chosen}}}))
    with FakeGoogle(answers, with_key=KEY) as google:
        result = asked(world, google)
    assert result.ok is goes
    if result.failure is not None:
        assert (result.failure.kind, google.asked) == ("bad_option", [])
        assert str(settings) in result.failure.message


def test_a_folder_with_variables_of_vertex(make_world: Any) -> None:
    """They change nothing: the requests come through the gateway, with the key."""
    world = make_world("0.61.0")
    names = ("GOOGLE_GENAI_USE_VERTEXAI=true", "GOOGLE_CLOUD_PROJECT=p", "GOOGLE_CLOUD_LOCATION=l")
    (world.cwd / ".env").write_text("\n".join((*names, "GOOGLE_API_KEY=AIzaSy-of-vertex-0123456789", "")))
    with FakeGoogle(answers, with_key=KEY) as google:
        result = asked(world, google, timeout=40)
    assert result.ok, result.failure
    assert {one.key for one in google.asked} == {KEY}
