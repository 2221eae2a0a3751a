"""What is handed to the pool's owner, and what is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from geminids import McpServer, Options, Permissions
from geminids.config.fields import fields
from geminids.warm.owner.owner_order import make_order, rooted, too_cold_for_owner
from geminids.warm.owner.owner_wire import Order, as_line, asked_in


def test_an_order_arrives_as_it_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompt, options, variables, folder and umask of the client."""
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
    (back,) = asked_in(as_line(order))
    assert back == order
    assert isinstance(back, Order)
    assert back.environ == dict(os.environ)
    assert back.options.cwd == str(tmp_path)
    assert msgspec.structs.replace(back.options, cwd=".") == options


def test_every_path_is_made_whole() -> None:
    """The owner works in another folder: a field that is a path must not be forgotten."""
    named = {field.name for field in fields() if field.paths}
    given: dict[str, Any] = {
        name: ("a/b",) if isinstance(getattr(Options(), name), tuple) else "a/b" for name in named
    }
    made = rooted(Options(**given), "/w")
    for name in named:
        assert getattr(made, name) in ("/w/a/b", ("/w/a/b",)), name
    assert rooted(Options(key_from="file:a/b"), "/w").key_from == "file:/w/a/b"
    assert rooted(Options(key_from="keyring:a/b"), "/w").key_from == "keyring:a/b"


@pytest.mark.parametrize(
    ("prompt", "given", "why"),
    [
        ("hello", {}, None),
        ("hello", {"approval": "yolo", "max_turns": 3, "offline": True}, None),
        ("/usr/bin is where?", {}, None),
        ("/help", {"literal": True}, None),
        ("/help", {}, "commands"),
        ("hello", {"resume": "latest"}, "stored session"),
        ("hello", {"session_id": "x"}, "id of a new session"),
        ("hello", {"telemetry": True}, "telemetry"),
        ("hello", {"leftovers": "keep"}, "leaves running"),
    ],
)
def test_what_the_owner_cannot_do_is_not_sent_to_it(
    prompt: str, given: dict[str, Any], why: str | None
) -> None:
    """One sentence that says why, or None."""
    found = too_cold_for_owner(prompt, Options(**given))
    assert (found is None) == (why is None)
    assert why is None or why in str(found)


def test_what_is_no_text_cannot_be_sent() -> None:
    """A prompt or a variable of raw bytes is an error here, not a riddle at the other end."""
    with pytest.raises(UnicodeEncodeError):
        as_line(make_order("\udcff", Options(), 1, asks=False))
