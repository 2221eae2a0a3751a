"""Tests of the CLI's output stream with real processes: no part of it is lost without a notice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

import geminids
from geminids import Finished, Notice, Text, ToolFinished

HELLO = "out(INIT + say('Hel') + say('lo') + DONE)"


def codes(events: list[Any]) -> list[str]:
    return [event.code for event in events if isinstance(event, Notice) and event.code != "session"]


def texts(events: list[Any]) -> list[str]:
    return [event.text for event in events if isinstance(event, Text)]


def end(events: list[Any]) -> Finished:
    finished = events[-1]
    assert isinstance(finished, Finished)
    return finished


def test_a_plain_stream(events_of: Any) -> None:
    """A plain stream gives the text in pieces, the session id and the usage."""
    events = events_of(HELLO)
    assert texts(events) == ["Hel", "lo"]
    assert codes(events) == []
    finished = end(events)
    assert (finished.outcome, finished.text, finished.session_id) == ("success", "Hello", "s-1")
    assert finished.usage is not None
    assert finished.usage.total == 3


@pytest.mark.parametrize(
    ("body", "notices"),
    [
        pytest.param(
            "out('Loading...\\n' + INIT + say('Hel') + '[WARN] x\\n' + say('lo') + DONE)",
            2 * ["noise"],
            id="noise",
        ),
        pytest.param(
            "out(INIT + say('Hel') + line('thought', text='hm') + say('lo') + DONE)",
            ["unknown_event"],
            id="unknown event",
        ),
        pytest.param(
            "out(INIT.replace('{', '{\"new\":[1,{}],') + say('Hel').replace('}', ',\"x\":null}') + say('lo') + DONE)",
            [],
            id="unknown fields",
        ),
        pytest.param(
            "out(INIT + line('message', role='system', content='x') + say('Hello') + DONE)",
            ["unknown_role"],
            id="new role",
        ),
        pytest.param(f"{HELLO[:-1]}.replace('\\n', '\\r\\n').replace('\\n\\n', '\\n'))", [], id="CRLF"),
        pytest.param("out('\\ufeff' + INIT + say('Hello') + DONE)", [], id="BOM"),
        pytest.param(
            "out(b'\\0\\0\\n' + (INIT + say('Hello')).encode() + b'\\0' + DONE.encode())",
            ["noise", "noise"],
            id="NUL",
        ),
        pytest.param(
            "out(INIT.encode() + b'\\xff\\xfe\\n' + say('Hello').encode() + DONE.encode())",
            ["encoding"],
            id="bad UTF-8 in noise",
        ),
        pytest.param("out((INIT + say('Hel') + say('lo') + DONE).rstrip('\\n'))", [], id="no last newline"),
        pytest.param(
            "out((INIT + say('Hel') + say('lo') + DONE).replace('\\n', ''))", [], id="all on one line"
        ),
        pytest.param(
            "out(INIT + say('Hello') + DONE + say('more')[:40])", ["noise"], id="truncated last line"
        ),
    ],
)
def test_odd_lines_do_not_harm_the_answer(events_of: Any, body: str, notices: list[str]) -> None:
    """Odd lines are reported as notices, and the answer is complete."""
    events = events_of(body)
    assert end(events).text == "Hello"
    assert end(events).outcome == "success"
    assert codes(events) == notices


def test_invalid_utf8_in_an_event_replaces_one_character(events_of: Any) -> None:
    """Invalid UTF-8 in an event replaces one character, and a notice reports it."""
    events = events_of("out(INIT.encode() + say('Hel@lo').encode().replace(b'@', b'\\xc3') + DONE.encode())")
    assert end(events).text == "Hel\ufffdlo"
    assert codes(events) == ["encoding"]


def test_half_an_emoji_in_a_tool_output(events_of: Any) -> None:
    """Half an emoji in a tool output is replaced and reported, because the CLI cuts long output at
    any UTF-16 unit."""
    body = r"""
out(INIT + line("tool_use", tool_name="glob", tool_id="t1", parameters={"pattern": "*"}))
out(line("tool_result", tool_id="t1", status="success", output="cut \ud83d") + say("Hello") + DONE)
"""
    events = events_of(body)
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (finished.status, finished.output) == ("ok", "cut \ufffd")
    assert codes(events) == ["encoding"]


def test_a_character_is_split_across_reads(events_of: Any) -> None:
    """Characters survive when their bytes arrive one at a time."""
    events = events_of(
        "for byte in (INIT + say('Größe 🙂') + DONE).encode(): out(bytes([byte])); time.sleep(0.0005)"
    )
    assert (end(events).text, codes(events)) == ("Größe 🙂", [])


def test_a_line_over_the_limit_is_dropped_and_reported(events_of: Any) -> None:
    """Each line over the limit is reported once with its size; later lines are read."""
    body = "out(INIT + say('Hel') + say('x' * 50_000) + say('lo') + 'y' * 700_000 + '\\n' + DONE)"
    events = events_of(body, line_limit=10_000)
    assert (end(events).text, end(events).outcome) == ("Hello", "success")
    notices = [event.message for event in events if isinstance(event, Notice) and event.code != "session"]
    assert [message.split()[3] for message in notices] == ["50,102", "700,000"]
    assert codes(events) == ["line_too_long", "line_too_long"]


def test_a_line_over_the_limit_without_an_end(events_of: Any) -> None:
    """A last line over the limit is reported even without a newline."""
    events = events_of("out(INIT + say('Hello') + DONE + 'x' * 50_000)", line_limit=10_000)
    assert (end(events).text, codes(events)) == ("Hello", ["line_too_long"])


def test_much_stderr_before_the_first_line(events_of: Any, memory_within: Any) -> None:
    """Five megabytes on stderr neither block the CLI nor fill memory.

    A line that is too long is reported.
    """
    body = "out(('x' * 99 + '\\n') * 50_000, 2); out('y' * 2_000_000 + '\\n', 2); out(INIT + say('Hello') + DONE)"
    with memory_within(60):
        events = events_of(body)
    assert end(events).text == "Hello"
    notices = codes(events)
    assert {code: notices.count(code) for code in notices} == {
        "stderr": 200,
        "line_too_long": 1,
        "stderr_more": 1,
    }


def test_open_tools_of_a_stream_that_breaks_off(events_of: Any) -> None:
    """If the stream ends without a result, open tools are cancelled and the failure is
    `cut_off`."""
    body = "out(INIT + say('a') + line('tool_use', tool_name='glob', tool_id='t1', parameters={}))"
    events = events_of(body)
    assert [event.status for event in events if isinstance(event, ToolFinished)] == ["cancelled"]
    finished = end(events)
    assert finished.failure is not None
    assert (finished.outcome, finished.failure.kind) == ("failed", "cut_off")


def test_a_cli_without_output(events_of: Any) -> None:
    """A CLI without output still gives a `Finished`."""
    finished = end(events_of("sys.exit(0)"))
    assert finished.failure is not None
    assert (finished.outcome, finished.failure.kind, finished.text) == ("failed", "cut_off", "")


def test_invalid_token_counts(events_of: Any) -> None:
    """Invalid token counts in the result make the usage None; the run succeeds."""
    events = events_of(
        "out(INIT + say('Hello') + line('result', status='success', stats={'total_tokens': 1.5}))"
    )
    assert (end(events).outcome, end(events).usage) == ("success", None)


def test_secrets_of_the_environment_are_in_no_event(events_of: Any) -> None:
    """No event contains a secret of the environment: not in tools, stderr, noise, or text that is
    split inside the secret."""
    secret = "hunter2-hunter2"
    body = """
secret = os.environ["MY_TOKEN"]
out(secret + "\\n", 2)
out(INIT + line("tool_use", tool_name="x", tool_id="t1", parameters={"command": "echo " + secret}))
out(line("tool_result", tool_id="t1", status="success", output="MY_TOKEN=" + secret))
out("noise " + secret + "\\n" + say("It is " + secret[:5]) + "more noise\\n" + say(secret[5:] + ".") + DONE)
"""
    events = events_of(body, env={"MY_TOKEN": secret})
    assert end(events).text == "It is ***."
    assert secret not in repr(events)
    assert repr(events).count("***") >= 6


@pytest.mark.anyio
async def test_on_line_receives_lines_and_events(fake_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`on_line` receives each printed line with secrets masked, together with its events."""
    monkeypatch.setenv("MY_TOKEN", "tok_0123456789")
    received: list[tuple[str, list[str]]] = []

    def on_line(line: str, events: Sequence[Any]) -> None:
        received.append((line, [type(event).__name__ for event in events]))

    options = fake_cli("out(INIT + say('hi') + 'noise tok_0123456789\\n' + DONE)")
    async with geminids.open_run("hi", options, on_line=on_line) as run:
        async for _ in run:
            pass
    assert run.result.text == "hi"
    assert [kinds for _, kinds in received] == [["Notice"], [], ["Text"], ["Notice"], []]
    assert json.loads(received[2][0])["content"] == "hi"
    assert received[3][0] == "noise ***"


@pytest.mark.anyio
async def test_on_stderr_receives_whole_lines(fake_cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`on_stderr` receives everything that the CLI prints on stderr, in whole lines and with secrets
    masked, and nothing of stdout. It does not change the events."""
    monkeypatch.setenv("MY_TOKEN", "tok_0123456789")
    pieces: list[str] = []
    body = "out(INIT + say('hi'))\nout('one tok_012', 2)\nout('3456789\\ntwo\\nlast', 2)\nout(DONE)"
    async with geminids.open_run("hi", fake_cli(body), on_stderr=pieces.append) as run:
        events = [event async for event in run]
    assert texts(events) == ["hi"]
    assert "".join(pieces) == "one ***\ntwo\nlast"
    assert all(piece.endswith("\n") for piece in pieces[:-1])
    notices = [event.message for event in events if isinstance(event, Notice) and event.code == "stderr"]
    assert notices == ["one ***", "two", "last"]
