"""Whatever a CLI writes, nothing of it is lost without a notice: real processes, real pipes, odd lines."""

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
    """The text in its pieces, the session and the tokens as the CLI gave them."""
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
def test_odd_lines_cost_nothing(events_of: Any, body: str, notices: list[str]) -> None:
    """The answer is whole, and what was odd is told."""
    events = events_of(body)
    assert end(events).text == "Hello"
    assert end(events).outcome == "success"
    assert codes(events) == notices


def test_bad_utf8_in_an_event_costs_its_character(events_of: Any) -> None:
    """And the notice says so."""
    events = events_of("out(INIT.encode() + say('Hel@lo').encode().replace(b'@', b'\\xc3') + DONE.encode())")
    assert end(events).text == "Hel\ufffdlo"
    assert codes(events) == ["encoding"]


def test_half_an_emoji_costs_no_tool_result(events_of: Any) -> None:
    """The CLI cuts long output at any UTF-16 unit."""
    body = r"""
out(INIT + line("tool_use", tool_name="glob", tool_id="t1", parameters={"pattern": "*"}))
out(line("tool_result", tool_id="t1", status="success", output="cut \ud83d") + say("Hello") + DONE)
"""
    events = events_of(body)
    (finished,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (finished.status, finished.output) == ("ok", "cut \ufffd")
    assert codes(events) == ["encoding"]


def test_a_character_is_split_across_reads(events_of: Any) -> None:
    """One byte at a time."""
    events = events_of(
        "for byte in (INIT + say('Größe 🙂') + DONE).encode(): out(bytes([byte])); time.sleep(0.0005)"
    )
    assert (end(events).text, codes(events)) == ("Größe 🙂", [])


def test_a_line_over_the_limit_is_dropped_and_told(events_of: Any) -> None:
    """Once each, with its size; the lines after it are read."""
    body = "out(INIT + say('Hel') + say('x' * 50_000) + say('lo') + 'y' * 700_000 + '\\n' + DONE)"
    events = events_of(body, line_limit=10_000)
    assert (end(events).text, end(events).outcome) == ("Hello", "success")
    notices = [event.message for event in events if isinstance(event, Notice) and event.code != "session"]
    assert [message.split()[3] for message in notices] == ["50,102", "700,000"]
    assert codes(events) == ["line_too_long", "line_too_long"]


def test_a_line_over_the_limit_without_an_end(events_of: Any) -> None:
    """It is told too, when the stream is over."""
    events = events_of("out(INIT + say('Hello') + DONE + 'x' * 50_000)", line_limit=10_000)
    assert (end(events).text, codes(events)) == ("Hello", ["line_too_long"])


def test_much_stderr_before_the_first_line(events_of: Any, memory_within: Any) -> None:
    """Five megabytes on stderr neither block the CLI nor pile up; a line too long to be read is told."""
    body = "out(('x' * 99 + '\\n') * 50_000, 2); out('y' * 2_000_000 + '\\n', 2); out(INIT + say('Hello') + DONE)"
    with memory_within(60):
        events = events_of(body)
    assert end(events).text == "Hello"
    found = codes(events)
    assert {code: found.count(code) for code in found} == {
        "stderr": 200,
        "line_too_long": 1,
        "stderr_more": 1,
    }


def test_open_tools_of_a_stream_that_breaks_off(events_of: Any) -> None:
    """Are cancelled; the run is cut off."""
    body = "out(INIT + say('a') + line('tool_use', tool_name='glob', tool_id='t1', parameters={}))"
    events = events_of(body)
    assert [event.status for event in events if isinstance(event, ToolFinished)] == ["cancelled"]
    finished = end(events)
    assert finished.failure is not None
    assert (finished.outcome, finished.failure.kind) == ("failed", "cut_off")


def test_a_cli_that_says_nothing(events_of: Any) -> None:
    """Still has an end."""
    finished = end(events_of("sys.exit(0)"))
    assert finished.failure is not None
    assert (finished.outcome, finished.failure.kind, finished.text) == ("failed", "cut_off", "")


def test_result_counts_that_are_no_counts(events_of: Any) -> None:
    """Stats of a new shape cost the tokens, not the run."""
    events = events_of(
        "out(INIT + say('Hello') + line('result', status='success', stats={'total_tokens': 1.5}))"
    )
    assert (end(events).outcome, end(events).usage) == ("success", None)


def test_secrets_of_the_environment_are_in_no_event(events_of: Any) -> None:
    """Not in tools, not on stderr, not in noise, not in text that is cut in the middle of one."""
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
async def test_each_line_can_be_had_beside_its_events(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the CLI printed it, secrets masked, with the events that it became."""
    monkeypatch.setenv("MY_TOKEN", "tok_0123456789")
    seen: list[tuple[str, list[str]]] = []

    def on_line(line: str, events: Sequence[Any]) -> None:
        seen.append((line, [type(event).__name__ for event in events]))

    options = stand_in("out(INIT + say('hi') + 'noise tok_0123456789\\n' + DONE)")
    async with geminids.open_run("hi", options, on_line=on_line) as run:
        async for _ in run:
            pass
    assert run.result.text == "hi"
    assert [kinds for _, kinds in seen] == [["Notice"], [], ["Text"], ["Notice"], []]
    assert json.loads(seen[2][0])["content"] == "hi"
    assert seen[3][0] == "noise ***"
