"""Tests of the order that a client sends to the pool's owner."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminids import McpServer, Options, Permissions
from geminids.options.flags import fields
from geminids.warm.owner.order import make_order, rooted, why_not_served
from geminids.warm.owner.protocol import Order, as_line, decode_client_messages


def test_an_order_survives_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoded order equals the original: prompt, options, environment, folder and umask of the
    client."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_THE_CLIENT", "line\nbreak \u2028 and ü")
    options = Options(
        model="flash",
        effort=1024,
        timeout=5,
        permissions=Permissions(shell="ask", allow_commands=("git status",)),
        mcp_servers={"x": McpServer(command="srv", env={"A": "b"})},
        variables={"name": "value"},
        template="{{prompt}} {{name}}",
    )
    order = make_order("hello\nthere", options, 7.5, asks=True)
    (decoded,) = decode_client_messages(as_line(order))
    assert decoded == order
    assert isinstance(decoded, Order)
    assert decoded.environ == dict(os.environ)
    assert decoded.options.cwd == str(tmp_path)
    assert msgspec.structs.replace(decoded.options, cwd=".") == options


def test_every_path_becomes_absolute() -> None:
    """Every option that is a path becomes absolute, because the owner works in another folder."""
    path_options = {field.name for field in fields() if field.paths}
    values: dict[str, Any] = {
        name: ("a/b",) if isinstance(getattr(Options(), name), tuple) else "a/b" for name in path_options
    }
    absolute = rooted(Options(**values), "/w")
    for name in path_options:
        assert getattr(absolute, name) in ("/w/a/b", ("/w/a/b",)), name
    assert rooted(Options(key_from="file:a/b"), "/w").key_from == "file:/w/a/b"
    assert rooted(Options(key_from="keyring:a/b"), "/w").key_from == "keyring:a/b"


@pytest.mark.parametrize(
    ("prompt", "fields", "reason"),
    [
        ("hello", {}, None),
        ("hello", {"approval": "yolo", "max_turns": 3, "offline": True}, None),
        ("/usr/bin is where?", {}, None),
        ("/help", {"literal": True}, None),
        ("/help", {}, "slash command"),
        ("hello", {"resume": "latest"}, "stored session"),
        ("hello", {"session_id": "x"}, "id of a new session"),
        ("hello", {"telemetry": True}, "telemetry"),
        ("hello", {"leftovers": "keep"}, "leaves running"),
    ],
)
def test_runs_that_the_owner_cannot_serve(prompt: str, fields: dict[str, Any], reason: str | None) -> None:
    """`why_not_served` returns a sentence with the reason, or None if the owner can serve the
    run."""
    message = why_not_served(prompt, Options(**fields))
    assert (message is None) == (reason is None)
    assert reason is None or reason in str(message)


def test_invalid_text_cannot_be_sent() -> None:
    """The client cannot encode a prompt with invalid Unicode; it raises `UnicodeEncodeError`."""
    with pytest.raises(UnicodeEncodeError):
        as_line(make_order("\udcff", Options(), 1, asks=False))
