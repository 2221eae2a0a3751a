"""Tests of the CLI's settings: they are read as the CLI reads them, and merged without losing the
user's."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.gemini.settings_file import SettingsProblem, merge, read_settings
from geminids.launch.auth import choose_auth
from geminids.launch.settings.run_settings import our_settings
from geminids.options import Options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("{}", {}),
        ("\ufeff{}", {}),
        ('{"a": 1} // note', {"a": 1}),
        ('/* head */ {"a": /* one */ 1}', {"a": 1}),
        ('{"url": "http://x//y", "b": "/* no comment */"}', {"url": "http://x//y", "b": "/* no comment */"}),
        ('{"quote": "a \\" // b"}', {"quote": 'a " // b'}),
        ("// only a note\n", {}),
    ],
)
def test_settings_may_have_comments(text: str, expected: object) -> None:
    """Comments are removed; text inside a string that looks like a comment stays."""
    assert read_settings(text, "settings.json") == expected


@pytest.mark.parametrize("text", ["{", '{"a": 1,}', "[]", "null", "{'a': 1}", '{"a": "'])
def test_invalid_settings_name_their_file(text: str) -> None:
    """Invalid settings raise one error that names the file."""
    with pytest.raises(SettingsProblem, match=r"settings\.json"):
        read_settings(text, "settings.json")


def test_an_error_after_a_comment_is_on_the_right_line() -> None:
    """Comments are replaced by blanks and not cut out, so that line numbers in errors are right."""
    with pytest.raises(SettingsProblem, match="line 3"):
        read_settings('{ // one\n /* two */\n "a" 1}', "settings.json")


def test_our_settings_are_merged_into_the_users() -> None:
    """Our settings are merged into the user's objects; keys that we do not set stay."""
    user: dict[str, Any] = {
        "general": {"vimMode": True, "sessionRetention": {"enabled": True, "maxAge": "1d"}},
        "mcpServers": {"a": {}},
    }
    merged = merge(user, our_settings(Options(max_turns=3, max_attempts=2), "gemini-api-key"))
    assert merged["general"]["vimMode"] is True
    assert merged["general"]["sessionRetention"] == {"enabled": False, "maxAge": "1d"}
    assert merged["general"]["maxAttempts"] == 2
    assert merged["model"] == {"maxSessionTurns": 3}
    assert merged["mcpServers"] == {"a": {}}
    assert merged["security"]["auth"]["selectedType"] == "gemini-api-key"
    assert user["general"]["sessionRetention"] == {"enabled": True, "maxAge": "1d"}


@pytest.mark.parametrize(
    ("environ", "settings", "mode", "written"),
    [
        ({"GEMINI_API_KEY": "k"}, {}, "key", "gemini-api-key"),
        (
            {"GEMINI_API_KEY": "k"},
            {"security": {"auth": {"selectedType": "oauth-personal"}}},
            "key",
            "gemini-api-key",
        ),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "true", "GEMINI_API_KEY": "k"}, {}, "vertex", "vertex-ai"),
        ({"GOOGLE_GENAI_USE_GCA": "true"}, {}, "account", "oauth-personal"),
        ({}, {"security": {"auth": {"selectedType": "oauth-personal"}}}, "account", None),
        ({}, {"security": {"auth": {"selectedType": "vertex-ai"}}}, "vertex", None),
        ({}, {"security": "odd"}, "none", None),
        ({"GEMINI_API_KEY": ""}, {}, "none", None),
        ({"GOOGLE_API_KEY": "k"}, {}, "none", None),
    ],
)
def test_the_sign_in_is_chosen(
    environ: dict[str, str], settings: dict[str, object], mode: str, written: str | None
) -> None:
    """The environment decides the sign-in first, then the user's settings, which are not
    rewritten."""
    auth = choose_auth(environ, settings)
    assert (auth.mode, auth.selected_type) == (mode, written)
