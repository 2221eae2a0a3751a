"""The terminal view: events in, what is seen out."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from geminids.events.cost import Cost
from geminids.events.model import EndedProcess, ModelUsage, Usage
from geminids.outcome import Failure
from geminids.views.terminal.terminal import TerminalView

_USAGE = Usage(
    input=31204,
    cached=23000,
    output=120,
    thinking=35,
    models=(ModelUsage(model="g-pro"), ModelUsage(model="g-flash")),
)


def test_a_whole_run(events: Any, watch: Any) -> None:
    """Text as it came, a line a tool, and a footer with outcome, time, models, tokens and how to resume."""
    seen = watch(offline=True)
    seen.show(events.started()).wait(1.2)
    assert seen.screen.splitlines()[-1].endswith("starting  1.2 s")
    seen.show(events.text("I will "), events.text("look."))
    seen.show(events.tool("npm test")).wait(3.2)
    assert seen.screen.splitlines()[-1].endswith("running npm test  3.2 s")
    seen.show(events.done()).show(events.text("\n\nAll well.\n"))
    seen.show(events.finished(usage=_USAGE))
    seen.view.close()
    assert seen.screen == (
        "offline: the answers come from a script, not from a model; the CLI and its\n"
        "tools are real\n\n"
        "I will look.\n\n"
        "  ✓ npm test  3.2 s\n\n"
        "All well.\n\n"
        "✓ success in 3.4 s · g-pro, g-flash · scripted, no real model\n"
        "  31,204 tokens in (23,000 cached) · 120 out · 35 thinking\n"
        '  resume: geminids run --offline --resume s-1 "…"\n'
        "  transcript: geminids sessions show s-1"
    )


def test_what_a_run_costs_stands_behind_its_tokens(events: Any, watch: Any) -> None:
    """And how well that is known, and whose bill it is; an offline run has no price."""

    def last(cost: Cost) -> Any:
        seen = watch(width=160)
        seen.show(events.started()).show(events.text("x")).show(events.finished(usage=_USAGE, cost=cost))
        seen.view.close()
        return next(line for line in seen.screen.splitlines() if "tokens in" in line)

    amount = Decimal("0.03412")
    assert last(Cost(usd=amount, basis="exact", auth_mode="key")).endswith("35 thinking · $0.0341")
    assert last(Cost(usd=amount, basis="estimate", auth_mode="key")).endswith("· about $0.0341")
    assert "· $0.0341 by list price" in last(Cost(list_price=amount, basis="exact", auth_mode="vertex"))
    assert last(Cost(usd=Decimal(0), basis="exact", auth_mode="none")).endswith("35 thinking")
    assert last(Cost(basis="unknown", auth_mode="key")).endswith("35 thinking · cost not known")
    vertex = last(Cost(list_price=amount, basis="estimate", auth_mode="vertex"))
    assert vertex.endswith("· about $0.0341 by list price (what Vertex bills is not known)")
    tiny = Decimal("0.00000004")
    assert last(Cost(usd=tiny, basis="exact", auth_mode="key")).endswith("· under $0.0001")
    assert last(Cost(usd=tiny, basis="estimate", auth_mode="key")).endswith("· about $0.0001")


def test_what_was_paid_for_nothing(events: Any, watch: Any) -> None:
    """The footer says of how many requests the tokens are not known, and how many answers the CLI did not use."""
    seen = watch(width=160)
    usage = msgspec.structs.replace(_USAGE, requests=4, unknown=1)
    seen.show(events.started()).show(events.text("x")).show(events.finished(usage=usage, discarded=(2, 3)))
    seen.view.close()
    lines = [line.strip() for line in seen.screen.splitlines()]
    assert next(line for line in lines if "tokens in" in line).endswith("· and 1 request with unknown tokens")
    assert "2 answers were paid for but not used: the CLI asked again" in lines


def test_nothing_asked_is_no_cost_to_wonder_about(events: Any, watch: Any) -> None:
    """A run that never came to a model, and that nobody has seen ask one, has no line about money."""
    seen = watch(width=160)
    end = events.finished(usage=None, cost=Cost(basis="unknown", auth_mode="key"))
    seen.show(events.started()).show(end)
    seen.view.close()
    assert "cost" not in seen.screen


def test_a_failure_says_why_and_what_to_do(events: Any, watch: Any) -> None:
    """Kind, reason, hint, the facts, and the processes that had to be ended, wrapped at words."""
    failure = Failure(
        kind="quota_minute",
        message="Too many requests",
        retryable=True,
        hint="Wait a minute, or choose another model.",
        retry_after=34,
        http_status=429,
        exit_code=1,
    )
    ended = (EndedProcess(1, "/usr/bin/node server.js", "TERM"), EndedProcess(2, "sleep 300", "KILL"))
    seen = watch(width=60).show(events.started())
    seen.show(
        events.finished(outcome="failed", failure=failure, reason="Too many\x1b[2J requests", ended=ended)
    )
    assert seen.screen == (
        "✗ failed (quota_minute) after 3.4 s · flash\n"
        "  Too many␛[2J requests\n"
        "  → Wait a minute, or choose another model.\n"
        "  HTTP 429 · exit code 1 · can be tried again in 34 s\n"
        "  ended 2 processes: node server.js, sleep 300 (killed)"
    )


@pytest.mark.parametrize(
    ("status", "fields", "lines"),
    [
        ("ok", {"exit_code": 1}, ["  ✓ npm test  exit code 1 · 3.2 s"]),
        ("failed", {"error": "\n Error: no\nat x"}, ["  ✗ npm test  failed · 3.2 s", "    Error: no"]),
        ("failed", {"output": "boom"}, ["  ✗ npm test  failed · 3.2 s", "    boom"]),
        ("denied", {"error": "not allowed"}, ["  ⊘ npm test  denied", "    not allowed"]),
        ("cancelled", {"duration_ms": None}, ["  ◌ npm test  cancelled"]),
        ("ok", {"parent": "p"}, ["      ✓ npm test  3.2 s"]),
    ],
)
def test_a_tool_is_one_line_with_its_state(
    events: Any, watch: Any, status: str, fields: dict[str, Any], lines: list[str]
) -> None:
    """Mark, title, what is known of its end; under a failure the first line of its error; a subagent's indented."""
    seen = watch().show(events.tool("npm test"), events.done(status, **fields), events.finished())
    assert seen.screen.splitlines()[: len(lines) + 1] == [*lines, ""]


def test_a_long_title_gives_way_to_the_time(events: Any, watch: Any) -> None:
    """A line is never wider than the terminal, in cells, and its end is what is kept."""
    seen = watch(width=44).show(events.tool("日本語" * 40)).wait(2)
    assert seen.screen.endswith("…  2.0 s")
    assert len(seen.screen.splitlines()) == 1
    seen.show(events.done())
    assert seen.screen.splitlines()[0].endswith("…  3.2 s")


def test_why_something_was_refused_is_told_in_full(events: Any, watch: Any) -> None:
    """What to do about it stands at the end of a reason, and of a warning: they are wrapped, not cut."""
    why = "approval=default does not let it be called; allow shell, or use another approval mode"
    seen = watch(width=50).show(events.notice("warning", "lane", why), events.tool("ls"))
    seen.show(events.done("denied", error=why), events.finished())
    assert seen.screen.splitlines()[:5] == [
        "  ! approval=default does not let it be called;",
        "  allow shell, or use another approval mode",
        "  ⊘ ls  denied",
        "    approval=default does not let it be called;",
        "    allow shell, or use another approval mode",
    ]


def test_warnings_are_seen_and_chatter_is_not(events: Any, watch: Any) -> None:
    """Warnings and errors are seen, a retry only in the status, debug and info nowhere."""
    seen = watch().show(events.started())
    for level, code in [
        ("debug", "noise"),
        ("info", "tool_error"),
        ("warning", "retry"),
        ("warning", "api_error"),
    ]:
        seen.show(events.notice(level, code, f"{code} was said\nat length"))
    seen.show(events.notice("error", "gave_up", "gave up after attempt 3"), events.finished())
    assert seen.screen.splitlines()[:3] == [
        "  ! api_error was said at length",
        "  ! gave up after attempt 3",
        "",
    ]


def test_the_clock_goes_on_in_a_pause_within_a_line(events: Any, watch: Any) -> None:
    """A stream that stops in mid-sentence has the status below it, and goes on as if nothing had been."""
    seen = watch().show(events.text("one\n" * 30 + "The answer is")).wait(3)
    assert seen.screen.splitlines()[-2] == "The answer is"
    assert seen.screen.splitlines()[-1].endswith("thinking  3.0 s")
    seen.show(events.text(" 42.\n"))
    assert seen.screen.splitlines()[-1] == "The answer is 42."


@pytest.mark.parametrize(
    "row", ["x" * 40, "x" * 80, "x" * 39 + "日" + "x" * 38, "日" * 20, "\t" * 4 + "x" * 8]
)
def test_a_pause_at_the_edge_loses_no_letter(events: Any, watch: Any, row: str) -> None:
    """Behind the last column a terminal waits to wrap, and would forget it: there the status waits too."""
    seen = watch(width=40).show(events.text(row)).wait(2).show(events.text("y"))
    assert seen.screen == watch(width=40).show(events.text(row + "y")).screen


def test_a_stop_is_seen_at_once(events: Any, watch: Any) -> None:
    """Ctrl-C has an answer before the run has ended."""
    seen = watch().show(events.started(), events.tool("npm test"))
    seen.view.stopping()
    assert "stopping" in seen.screen
    assert "npm test" not in seen.screen


def test_a_second_attempt_is_announced(events: Any, watch: Any) -> None:
    """The text begins again: that must not look like one answer."""
    seen = watch().show(
        events.started(), events.text("Half an"), events.started(attempt=2), events.text("Whole")
    )
    assert seen.screen == "Half an\n\n  attempt 2\n\nWhole"


def test_why_another_attempt_follows_is_said_once(events: Any, watch: Any) -> None:
    """The CLI's own words of the same failure are left out; an answer that is asked for again is told too."""
    seen = watch().show(events.started(), events.notice("error", "gave_up", "attempt 1 failed"))
    seen.show(
        events.notice("warning", "api_error", "Error when talking"), events.notice("debug", "stderr", "}")
    )
    seen.show(
        events.notice("warning", "next_attempt", "server: busy; the next attempt starts over, in 1.0 s")
    )
    seen.show(events.started(attempt=2), events.text("no"))
    seen.show(events.notice("info", "next_attempt", "schema_mismatch: no JSON; asking again in session a"))
    seen.show(events.started(attempt=3), events.finished(attempts=3, duration_ms=2000))
    assert seen.screen.splitlines()[:8] == [
        "  ! server: busy; the next attempt starts over, in 1.0 s",
        "  attempt 2",
        "",
        "no",
        "",
        "  ! schema_mismatch: no JSON; asking again in session a",
        "  attempt 3",
        "",
    ]
    assert seen.screen.splitlines()[8].startswith("✓ success in 2.0 s · 3 attempts")


def test_a_failure_is_said_once(events: Any, watch: Any) -> None:
    """At the end, with what to do; where the run goes on all the same, the CLI's words of it stand."""
    failure = Failure(kind="server", message="The model is overloaded.", retryable=True, hint="Try again.")
    said = events.notice("warning", "api_error", "Error when talking: The model is overloaded.")
    seen = watch().show(events.started(), said, events.finished(outcome="failed", failure=failure))
    assert seen.screen.count("The model is overloaded.") == 1
    assert "Error when talking" in watch().show(events.started(), said, events.text("well")).screen


_PIECES = st.lists(
    st.text(st.sampled_from("ab \n日\t👍"), min_size=1, max_size=30)
    | st.sampled_from([0.3, 1.5])
    | st.just("TOOL"),
    max_size=20,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(_PIECES, st.sampled_from([40, 41, 80]))
def test_the_status_leaves_no_trace(events: Any, watch: Any, pieces: list[Any], width: int) -> None:
    """However text, pauses and tools follow each other, in the end the screen is as if there had been no status."""
    live, still = watch(width), watch(width)
    for piece in pieces:
        if isinstance(piece, float):
            live.wait(piece)
        elif piece == "TOOL":
            for seen in (live, still):
                seen.show(events.tool("npm test"))
            live.wait(1)
            for seen in (live, still):
                seen.show(events.done())
        else:
            live.show(events.text(piece))
            still.show(events.text(piece))
    for seen in (live, still):
        seen.show(events.finished())
        seen.view.close()
    assert live.screen == still.screen


@pytest.mark.parametrize(
    "evil", ["\x1b[2J", "\x1b]0;owned\x07", "\x1b]52;c;QQ==\x1b\\", "\x9b2J", "\x08\x08", "\r"]
)
def test_nothing_the_agent_says_steers_the_terminal(events: Any, watch: Any, evil: str) -> None:
    """Text, titles, errors, notices, models, reasons, commands: control characters in them arrive as symbols.

    The glass on which the screen is read fails at any code that is not the view's own.
    """
    failure = Failure(kind="crashed", message=evil, retryable=False, hint=f"hint{evil}")
    usage = Usage(input=1, models=(ModelUsage(model=f"model{evil}"),))
    said = [
        events.started(model=f"m{evil}", cwd=f"/tmp/{evil}", session_id=f"s{evil}"),
        events.text(f"text{evil}"),
        events.thought(f"subject{evil}"),
        events.tool(f"title{evil}x"),
        events.notice("warning", "cli", f"notice{evil}x"),
        events.done("failed", error=f"error{evil}x"),
        events.done("failed", id="u", name=f"name{evil}", output=f"output{evil}x"),
        events.finished(
            outcome="failed",
            failure=failure,
            reason=f"reason{evil}x",
            usage=usage,
            session_id=f"s{evil}",
            ended=(EndedProcess(1, f"command{evil}x", "KILL"),),
        ),
    ]
    pipe = watch(terminal=False)
    seen = watch()
    for event in said:
        seen.show(event).wait(2)
        pipe.show(event)
    assert "notice" in seen.screen
    assert all(letter.isprintable() or letter == "\n" for letter in pipe.raw)


@pytest.mark.parametrize("where", ["pipe", "dumb", "narrow"])
def test_no_control_codes_where_they_are_not_wanted(
    events: Any, watch: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A pipe, a dumb terminal and a very narrow one get plain lines: no colours, no moving cursor, no status."""
    if where == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    seen = watch(30 if where == "narrow" else 80, terminal=where != "pipe", offline=True)
    assert not seen.view.live
    seen.show(events.started()).wait(1).show(events.text("Hi"), events.tool("npm test")).wait(1)
    seen.view.stopping()
    seen.show(events.done("failed", error="no"), events.notice("warning", "cli", "odd"))
    seen.show(events.finished(usage=_USAGE))
    seen.view.close()
    assert all(letter.isprintable() or letter == "\n" for letter in seen.raw)
    assert "✗ npm test  failed · 3.2 s\n    no\n  ! odd\n" in seen.raw


def test_a_pipe_gets_whole_lines(events: Any, watch: Any) -> None:
    """Nobody's screen is measured for a file: nothing is cut to 80 columns."""
    title = "echo " + "word " * 40 + "end"
    assert f"  ✓ {title}  3.2 s\n" in watch(terminal=False).show(events.tool(title), events.done()).raw


def test_a_terminal_has_colours_and_a_status(events: Any, watch: Any) -> None:
    """The other side of the rule: there, both are there."""
    seen = watch().show(events.started()).wait(0.5).show(events.tool("npm test"), events.done())
    assert seen.view.live
    assert "\x1b[32m✓" in seen.raw
    assert "starting" in seen.raw


def test_no_color_takes_the_colours_alone(events: Any, watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR the status still moves, and no colour is set."""
    monkeypatch.setenv("NO_COLOR", "1")
    seen = watch().show(events.started()).wait(0.5).show(events.tool("npm test"), events.done("failed"))
    seen.show(events.finished())
    assert "starting" in seen.raw
    assert not [
        colour for colour in range(30, 50) if f"\x1b[{colour}m" in seen.raw or f";{colour}m" in seen.raw
    ]


def test_forced_colours_move_nothing(events: Any, watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """FORCE_COLOR colours a pipe, and does not make a terminal of it."""
    watch()
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    view = TerminalView(file)
    view.show(events.started(), events.tool("npm test"), events.done())
    assert not view.live
    assert "\x1b[32m✓" in file.getvalue()
    assert "\x1b[J" not in file.getvalue()


def test_resume_works_when_it_is_pasted(events: Any, watch: Any) -> None:
    """The command names the folder and the home where they are not the usual ones, and is never broken in two."""
    seen = watch(width=50, home="isolated").show(events.started(cwd="/some where"), events.text("x"))
    seen.show(events.finished())
    assert """resume: geminids run --home isolated --cwd '/some where' --resume s-1 "…"\x1b""" in seen.raw


def test_the_transcript_is_named_by_the_beginning_of_a_uuid(events: Any, watch: Any) -> None:
    """And by its home, where that is not the usual one."""
    seen = watch(home="isolated").show(events.started(), events.text("x"))
    seen.show(events.finished(session_id="0e8b0bd4-b565-4c7c-89da-41156b4a7b0f"))
    assert "transcript: geminids sessions show 0e8b0bd4 --home isolated\n" in seen.screen + "\n"


@pytest.mark.parametrize("fields", [{"session_id": None}, {"clear_session": True}])
def test_no_resume_where_there_is_nothing_to_go_on_with(
    events: Any, watch: Any, fields: dict[str, Any]
) -> None:
    """Without a session, or with one that is spoilt, nothing is offered; nor where the agent said nothing."""
    assert "resume" not in watch().show(events.started(), events.text("x"), events.finished(**fields)).screen
    assert "resume" not in watch().show(events.started(), events.finished()).screen


def test_a_run_that_never_started_says_only_why(events: Any, watch: Any) -> None:
    """No time, no model, no scripted model: none of them was there."""
    failure = Failure(kind="cli_missing", message="no CLI", retryable=False, hint="Run `geminids install`.")
    end = events.finished(outcome="failed", failure=failure, reason="no CLI", session_id=None)
    assert (
        watch(offline=True).show(end).screen
        == "✗ failed (cli_missing)\n  no CLI\n  → Run `geminids install`."
    )


def test_a_terminal_without_unicode_gets_ascii(events: Any, watch: Any) -> None:
    """What its encoding cannot hold is replaced, and nothing fails."""
    watch()
    raw = io.BytesIO()
    view = TerminalView(io.TextIOWrapper(raw, encoding="ascii"), terminal=True, width=60)
    view.show(events.started(), events.text("größer"), events.tool("npm test"), events.done())
    view.close()
    assert b"+ " in raw.getvalue()
    assert b"gr??er" in raw.getvalue()


class _Counting(io.StringIO):
    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def test_a_batch_is_one_write(events: Any, watch: Any) -> None:
    """A fast stream costs one system call a batch, not one a word."""
    watch()
    file = _Counting()
    view = TerminalView(file, terminal=True, width=80)
    view.show(*[events.text("word ") for _ in range(1000)], events.tool("npm test"), events.done())
    assert file.writes == 1


def test_a_closed_pipe_is_told_once(events: Any, watch: Any) -> None:
    """The first write says that nobody reads; after that the view is silent, and closing never raises."""
    watch()
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as file:
        view = TerminalView(file)
        with pytest.raises(BrokenPipeError):
            view.show(events.text("x"))
        view.show(events.text("y"))
        view.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # so that closing the file itself is quiet


def test_rich_is_loaded_for_nothing_else() -> None:
    """`geminids run --output text` must not pay for it."""
    code = "import sys, geminids.cli.commands.run, geminids.views.plain; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_stall_is_told_whole(events: Any, watch: Any) -> None:
    """What is waited for is at the end of the sentence: it is wrapped, not cut; the state goes on as it was."""
    seen = watch(width=40)
    seen.show(events.started()).wait(1.0)
    text = "shell tool `npm run dev` has been running for 31 s (pid 4711, no CPU)"
    seen.show(events.notice(level="info", code="stall", message=text)).wait(0.2)
    lines = seen.screen.splitlines()
    assert " ".join(line.strip() for line in lines[:-1]) == f"… {text}"
    assert lines[-1].endswith("starting  1.2 s")
