"""Tests of redaction: it masks known secrets and changes nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geminids.redact import MASK, Redactor, TextRedactor, is_secret_name, secrets_of

# Few letters, so that secrets overlap, repeat and share their beginnings.
_SECRET = st.text('ab"\\é', min_size=2, max_size=8)
_PIECES = st.lists(st.one_of(st.text('ab"\\é ', max_size=6), _SECRET), max_size=20)


def _in_pieces(redactor: Redactor, pieces: list[str]) -> str:
    text = TextRedactor(redactor)
    return "".join([*map(text.feed, pieces), text.flush()])


@given(st.sets(_SECRET, min_size=1, max_size=4), _PIECES)
@example({"abab"}, ["xab", "ab"])
@example({"aaaa", "aaaaaaaa"}, ["aaaa", "aaaa"])
def test_text_in_pieces_is_redacted_like_the_whole(secrets: set[str], pieces: list[str]) -> None:
    """Text in pieces is redacted like the whole text: no secret is left, and all other text is
    kept."""
    redactor = Redactor(secrets)
    out = _in_pieces(redactor, pieces)
    assert out == redactor.text("".join(pieces))
    assert not any(secret in part for secret in secrets for part in out.split(MASK))


@given(st.sets(_SECRET, min_size=1, max_size=3), st.lists(st.text("xyz ", max_size=5), max_size=20))
def test_text_without_secrets_is_unchanged(secrets: set[str], pieces: list[str]) -> None:
    """Text without secrets is returned at once and unchanged."""
    redactor = Redactor(secrets)
    text = TextRedactor(redactor)
    assert [text.feed(piece) for piece in pieces] == pieces
    assert text.flush() == ""
    assert text.is_clear("".join(pieces))


@given(st.integers(1, 13))
def test_a_secret_in_two_pieces_is_found(cut: int) -> None:
    """A secret is found wherever the stream splits it."""
    redactor = Redactor(["hunter2hunter2"])
    assert (
        _in_pieces(redactor, ["key: hunter2hunter2"[: 5 + cut], "hunter2hunter2"[cut:] + "."]) == "key: ***."
    )


def test_the_beginning_of_a_secret_is_kept() -> None:
    """Text that only starts like a secret is kept."""
    assert _in_pieces(Redactor(["hunter2hunter2"]), ["I see a hunter2", ""]) == "I see a hunter2"


def test_values_are_redacted_everywhere() -> None:
    """Secrets are masked in keys, in nested texts and as numbers; other values keep their type."""
    value = {
        "hunter2hunter2": [1, True, None, {"a": "x hunter2hunter2"}],
        "pin": 1234567890,
        "n": 12345678901,
    }
    redacted = Redactor(["hunter2hunter2", "1234567890"]).value(value)
    assert redacted == {"***": [1, True, None, {"a": "x ***"}], "pin": "***", "n": 12345678901}


def test_a_value_that_is_nested_too_deeply_is_hidden() -> None:
    """A value that is nested too deeply to check is hidden."""
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    assert Redactor(["hunter2hunter2"]).value(deep) == MASK


@pytest.mark.parametrize("secret", ['pass"word\\1', "pässwörd1", "line\nbreak1"])
def test_a_secret_is_found_as_json_writes_it(secret: str) -> None:
    """A secret is found in both JSON escapings, in text and in bytes."""
    redactor = Redactor([secret])
    for written in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        assert redactor.text(f"<{written}>") == "<***>"
        assert redactor.block(f"<{written}>".encode()) == b"<***>"


def test_an_empty_redactor_changes_nothing() -> None:
    """An empty redactor is false and changes nothing."""
    redactor = Redactor([""])
    assert not redactor
    assert redactor.text("as it is") == "as it is"
    assert _in_pieces(redactor, ["as ", "it is"]) == "as it is"


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("GEMINI_API_KEY", "abcd", True),
        ("GEMINI_API_KEY", "abc", False),
        ("MY_TOKEN", "12345678", True),
        ("MY_TOKEN", "1234567", False),
        ("SSH_AUTH_SOCK", "/tmp/agent.1", False),
        ("PATH", "something long", False),
    ],
)
def test_which_variables_hold_secrets(name: str, value: str, is_secret: bool) -> None:
    """A variable whose name is that of a secret holds one, unless its value is a path or too
    short."""
    assert secrets_of({name: value}) == ({value} if is_secret else set())


def test_names_of_secrets() -> None:
    """Names of secrets are recognised in upper and lower case."""
    assert all(map(is_secret_name, ["aws_secret_access_key", "DB_PASSWORD", "GITHUB_PAT", "NPM_AUTH"]))
    assert not any(map(is_secret_name, ["HOME", "LANG", "AUTHOR", "PATH"]))


def test_paths_are_no_secrets() -> None:
    """A path variable or an existing path is shown.

    Any other secret that starts with a slash is masked.
    """
    environ = {
        "SSH_AUTH_SOCK": "/tmp/agent.sock",
        "GOOGLE_APPLICATION_CREDENTIALS": "/etc/no/such.json",
        "TOKEN_HERE": __file__,
        "AWS_SECRET_ACCESS_KEY": "/wJalrXUtnFEMIK7MDENG",
    }
    assert secrets_of(environ) == {"/wJalrXUtnFEMIK7MDENG"}


def test_each_line_of_a_key_is_masked() -> None:
    """Each line of a multi-line key is masked, because stderr arrives in pieces."""
    pem = "-----BEGIN KEY-----\nMIIBVgIBADANBgkqhkiG9w0\nshort\n-----END KEY-----"
    assert "MIIBVgIBADANBgkqhkiG9w0" in secrets_of({"TLS_KEY": pem})
    assert "short" not in secrets_of({"TLS_KEY": pem})
