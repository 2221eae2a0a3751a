"""The terminal view: which lines and control codes it writes for which events."""

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


def test_a_whole_run(events: Any, watch_view: Any) -> None:
    """A run shows its text, a line for each tool, and a footer with outcome, time, models, tokens
    and resume command.
    """
    watched = watch_view(offline=True)
    watched.show(events.started()).wait(1.2)
    assert watched.screen.splitlines()[-1].endswith("starting  1.2 s")
    watched.show(events.text("I will "), events.text("look."))
    watched.show(events.tool("npm test")).wait(3.2)
    assert watched.screen.splitlines()[-1].endswith("running npm test  3.2 s")
    watched.show(events.done()).show(events.text("\n\nAll well.\n"))
    watched.show(events.finished(usage=_USAGE))
    watched.view.close()
    assert watched.screen == (
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


def test_the_cost_follows_the_tokens(events: Any, watch_view: Any) -> None:
    """The cost follows the tokens.

    It states whether it is an estimate or a list price; a scripted run has no cost.
    """

    def last(cost: Cost) -> Any:
        watched = watch_view(width=160)
        watched.show(events.started()).show(events.text("x")).show(events.finished(usage=_USAGE, cost=cost))
        watched.view.close()
        return next(line for line in watched.screen.splitlines() if "tokens in" in line)

    amount = Decimal("0.03412")
    assert last(Cost(usd=amount, basis="exact", auth_mode="key")).endswith("35 thinking · $0.0341")
    assert last(Cost(usd=amount, basis="estimate", auth_mode="key")).endswith("· about $0.0341")
    assert "· $0.0341 by list price" in last(Cost(list_price=amount, basis="exact", auth_mode="vertex"))
    assert last(Cost(usd=Decimal(0), basis="exact", auth_mode="none")).endswith("35 thinking")
    assert last(Cost(basis="unknown", auth_mode="key")).endswith("35 thinking · cost not known")
    vertex = last(Cost(list_price=amount, basis="estimate", auth_mode="vertex"))
    assert vertex.endswith("· about $0.0341 by list price (the bill of Vertex is not known)")
    tiny = Decimal("0.00000004")
    assert last(Cost(usd=tiny, basis="exact", auth_mode="key")).endswith("· under $0.0001")
    assert last(Cost(usd=tiny, basis="estimate", auth_mode="key")).endswith("· about $0.0001")


def test_unknown_and_unused_requests_are_shown(events: Any, watch_view: Any) -> None:
    """The footer counts requests with unknown tokens, and answers that were paid for but not used."""
    watched = watch_view(width=160)
    usage = msgspec.structs.replace(_USAGE, requests=4, unknown=1)
    watched.show(events.started()).show(events.text("x")).show(events.finished(usage=usage, discarded=(2, 3)))
    watched.view.close()
    lines = [line.strip() for line in watched.screen.splitlines()]
    assert next(line for line in lines if "tokens in" in line).endswith("· and 1 request with unknown tokens")
    assert "2 answers were paid for but not used: the CLI asked again" in lines


def test_no_cost_without_requests(events: Any, watch_view: Any) -> None:
    """A run without any known request shows no line about its cost."""
    watched = watch_view(width=160)
    end = events.finished(usage=None, cost=Cost(basis="unknown", auth_mode="key"))
    watched.show(events.started()).show(end)
    watched.view.close()
    assert "cost" not in watched.screen


def test_a_failure_says_why_and_what_to_do(events: Any, watch_view: Any) -> None:
    """The footer of a failure has kind, reason, hint, facts and the ended processes."""
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
    watched = watch_view(width=60).show(events.started())
    watched.show(
        events.finished(outcome="failed", failure=failure, reason="Too many\x1b[2J requests", ended=ended)
    )
    assert watched.screen == (
        "✗ failed (quota_minute) after 3.4 s · flash\n"
        "  Too many␛[2J requests\n"
        "  → Wait a minute, or choose another model.\n"
        "  HTTP 429 · exit code 1 · can be retried in 34 s\n"
        "  ended 2 processes: node server.js, sleep 300 (killed)"
    )


@pytest.mark.parametrize(
    ("status", "fields", "lines"),
    [
        ("ok", {"exit_code": 1}, ["  ✗ npm test  exit code 1 · 3.2 s"]),
        ("failed", {"error": "\n Error: no\nat x"}, ["  ✗ npm test  failed · 3.2 s", "    Error: no"]),
        ("failed", {"output": "boom"}, ["  ✗ npm test  failed · 3.2 s", "    boom"]),
        ("denied", {"error": "not allowed"}, ["  ⊘ npm test  denied", "    not allowed"]),
        ("cancelled", {"duration_ms": None}, ["  ◌ npm test  cancelled"]),
        ("ok", {"parent": "p"}, ["      ✓ npm test  3.2 s"]),
    ],
)
def test_a_tool_is_one_line_with_its_state(
    events: Any, watch_view: Any, status: str, fields: dict[str, Any], lines: list[str]
) -> None:
    """A tool is one line with mark, title and end.

    A failure adds the first line of its error, and a subagent's tool is indented.
    """
    watched = watch_view().show(events.tool("npm test"), events.done(status, **fields), events.finished())
    assert watched.screen.splitlines()[: len(lines) + 1] == [*lines, ""]


def test_a_long_title_is_cut(events: Any, watch_view: Any) -> None:
    """A long title is cut so that the line with its time fits the terminal, also with wide
    characters.
    """
    watched = watch_view(width=44).show(events.tool("日本語" * 40)).wait(2)
    assert watched.screen.endswith("…  2.0 s")
    assert len(watched.screen.splitlines()) == 1
    watched.show(events.done())
    assert watched.screen.splitlines()[0].endswith("…  3.2 s")


def test_the_reason_of_a_refusal_is_shown_in_full(events: Any, watch_view: Any) -> None:
    """The reason of a denied tool and the text of a warning are wrapped, not cut, because their end
    says what to do.
    """
    why = "approval=default does not let it be called; allow shell, or use another approval mode"
    watched = watch_view(width=50).show(events.notice("warning", "transport", why), events.tool("ls"))
    watched.show(events.done("denied", error=why), events.finished())
    assert watched.screen.splitlines()[:5] == [
        "  ! approval=default does not let it be called;",
        "  allow shell, or use another approval mode",
        "  ⊘ ls  denied",
        "    approval=default does not let it be called;",
        "    allow shell, or use another approval mode",
    ]


def test_only_warnings_and_errors_are_shown(events: Any, watch_view: Any) -> None:
    """Warnings and errors are shown. Retries, info and debug notices are not shown as lines."""
    watched = watch_view().show(events.started())
    for level, code in [
        ("debug", "noise"),
        ("info", "tool_error"),
        ("warning", "retry"),
        ("warning", "api_error"),
    ]:
        watched.show(events.notice(level, code, f"{code} was sent\nat length"))
    watched.show(events.notice("error", "gave_up", "gave up after attempt 3"), events.finished())
    assert watched.screen.splitlines()[:3] == [
        "  ! api_error was sent at length",
        "  ! gave up after attempt 3",
        "",
    ]


@pytest.mark.parametrize("no_color", [False, True])
def test_the_end_of_unfinished_text_is_the_status(
    events: Any, watch_view: Any, monkeypatch: pytest.MonkeyPatch, no_color: bool
) -> None:
    """While a block is not complete, the status shows its end. In a pause, it shows the activity.

    A complete block is shown above the status.
    """
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    watched = watch_view(width=40)
    watched.show(events.text("One.\n\nThe **answer** to the question, as far as I know, is"))
    first, *_, status = watched.screen.splitlines()
    assert (first, status) == ("One.", "⠋ …o the question, as far as I know, is")
    watched.wait(3)
    assert watched.screen.splitlines()[-1].endswith("thinking  3.0 s")
    watched.show(events.text(" 42.\n\n"))
    if no_color:
        assert watched.screen == "One.\n\nThe **answer** to the question, as far\nas I know, is 42."
    else:
        assert watched.screen == "One.\n\nThe answer to the question, as far as I\nknow, is 42."


def test_a_stop_is_shown_at_once(events: Any, watch_view: Any) -> None:
    """`stopping` is shown as soon as a stop is requested, before the run has ended."""
    watched = watch_view().show(events.started(), events.tool("npm test"))
    watched.view.stopping()
    assert "stopping" in watched.screen
    assert "npm test" not in watched.screen


def test_a_second_attempt_is_announced(events: Any, watch_view: Any) -> None:
    """A line announces the second attempt, so that its text does not look like part of the first
    answer.
    """
    watched = watch_view().show(
        events.started(), events.text("Half an"), events.started(attempt=2), events.text("Whole\n\n")
    )
    assert watched.screen == "Half an\n\n  attempt 2\n\nWhole"


def test_the_reason_for_the_next_attempt_is_shown_once(events: Any, watch_view: Any) -> None:
    """The reason for the next attempt is shown once: the CLI's own messages about the same failure
    are left out.
    """
    watched = watch_view().show(events.started(), events.notice("error", "gave_up", "attempt 1 failed"))
    watched.show(
        events.notice("warning", "api_error", "Error when talking"), events.notice("debug", "stderr", "}")
    )
    watched.show(
        events.notice("warning", "next_attempt", "server: busy; the next attempt starts over, in 1.0 s")
    )
    watched.show(events.started(attempt=2), events.text("no"))
    watched.show(
        events.notice("info", "next_attempt", "schema_mismatch: no JSON; asking the model again in session a")
    )
    watched.show(events.started(attempt=3), events.finished(attempts=3, duration_ms=2000))
    assert watched.screen.splitlines()[:8] == [
        "  ! server: busy; the next attempt starts over, in 1.0 s",
        "  attempt 2",
        "",
        "no",
        "",
        "  ! schema_mismatch: no JSON; asking the model again in session a",
        "  attempt 3",
        "",
    ]
    assert watched.screen.splitlines()[8].startswith("✓ success in 2.0 s · 3 attempts")


def test_a_failure_is_shown_once(events: Any, watch_view: Any) -> None:
    """A failure is shown in the footer only.

    If the run continues, the CLI's message about it is shown.
    """
    failure = Failure(kind="server", message="The model is overloaded.", retryable=True, hint="Try again.")
    notice = events.notice("warning", "api_error", "Error when talking: The model is overloaded.")
    watched = watch_view().show(events.started(), notice, events.finished(outcome="failed", failure=failure))
    assert watched.screen.count("The model is overloaded.") == 1
    assert "Error when talking" in watch_view().show(events.started(), notice, events.text("well")).screen


_PIECES = st.lists(
    st.text(st.sampled_from("ab \n日\t👍*`-|"), min_size=1, max_size=30)
    | st.sampled_from([0.3, 1.5])
    | st.just("TOOL"),
    max_size=20,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(_PIECES, st.sampled_from([40, 41, 80]), st.booleans())
def test_the_status_leaves_no_trace(
    events: Any,
    watch_view: Any,
    monkeypatch: pytest.MonkeyPatch,
    pieces: list[Any],
    width: int,
    no_color: bool,
) -> None:
    """After any sequence of text, pauses and tools, the screen is the same as without a status."""
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    with_pauses, without_pauses = watch_view(width), watch_view(width)
    for piece in pieces:
        if isinstance(piece, float):
            with_pauses.wait(piece)
        elif piece == "TOOL":
            for view in (with_pauses, without_pauses):
                view.show(events.tool("npm test"))
            with_pauses.wait(1)
            for view in (with_pauses, without_pauses):
                view.show(events.done())
        else:
            with_pauses.show(events.text(piece))
            without_pauses.show(events.text(piece))
    for view in (with_pauses, without_pauses):
        view.show(events.finished())
        view.view.close()
    assert with_pauses.screen == without_pauses.screen


@pytest.mark.parametrize(
    "control", ["\x1b[2J", "\x1b]0;owned\x07", "\x1b]52;c;QQ==\x1b\\", "\x9b2J", "\x08\x08", "\r"]
)
def test_no_text_steers_the_terminal(events: Any, watch_view: Any, control: str) -> None:
    """Control characters in text, titles, errors, notices, models, reasons and commands are shown
    as symbols.

    The emulated terminal fails at any control code that the view does not use itself.
    """
    failure = Failure(kind="crashed", message=control, retryable=False, hint=f"hint{control}")
    usage = Usage(input=1, models=(ModelUsage(model=f"model{control}"),))
    hostile_events = [
        events.started(model=f"m{control}", cwd=f"/tmp/{control}", session_id=f"s{control}"),
        events.text(f"text{control}"),
        events.thought(f"subject{control}"),
        events.tool(f"title{control}x"),
        events.notice("warning", "cli", f"notice{control}x"),
        events.done("failed", error=f"error{control}x"),
        events.done("failed", id="u", name=f"name{control}", output=f"output{control}x"),
        events.finished(
            outcome="failed",
            failure=failure,
            reason=f"reason{control}x",
            usage=usage,
            session_id=f"s{control}",
            ended=(EndedProcess(1, f"command{control}x", "KILL"),),
        ),
    ]
    pipe = watch_view(terminal=False)
    watched = watch_view()
    for event in hostile_events:
        watched.show(event).wait(2)
        pipe.show(event)
    assert "notice" in watched.screen
    assert all(letter.isprintable() or letter == "\n" for letter in pipe.raw)


@pytest.mark.parametrize("where", ["pipe", "dumb", "narrow"])
def test_simple_outputs_get_no_control_codes(
    events: Any, watch_view: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A pipe, a dumb terminal and a very narrow one get plain lines without colours, cursor
    movement and status.
    """
    if where == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    watched = watch_view(30 if where == "narrow" else 80, terminal=where != "pipe", offline=True)
    assert not watched.view.live
    watched.show(events.started()).wait(1).show(events.text("Hi"), events.tool("npm test")).wait(1)
    watched.view.stopping()
    watched.show(events.done("failed", error="no"), events.notice("warning", "cli", "odd"))
    watched.show(events.finished(usage=_USAGE))
    watched.view.close()
    assert all(letter.isprintable() or letter == "\n" for letter in watched.raw)
    assert "✗ npm test  failed · 3.2 s\n    no\n  ! odd\n" in watched.raw


def test_a_pipe_gets_whole_lines(events: Any, watch_view: Any) -> None:
    """In a pipe lines are not cut to 80 columns."""
    title = "echo " + "word " * 40 + "end"
    assert f"  ✓ {title}  3.2 s\n" in watch_view(terminal=False).show(events.tool(title), events.done()).raw


def test_a_terminal_has_colours_and_a_status(events: Any, watch_view: Any) -> None:
    """A terminal gets colours and a status."""
    watched = watch_view().show(events.started()).wait(0.5).show(events.tool("npm test"), events.done())
    assert watched.view.live
    assert "\x1b[32m✓" in watched.raw
    assert "starting" in watched.raw


def test_no_color_removes_only_the_colours(
    events: Any, watch_view: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NO_COLOR removes the colours and keeps the status."""
    monkeypatch.setenv("NO_COLOR", "1")
    watched = (
        watch_view().show(events.started()).wait(0.5).show(events.tool("npm test"), events.done("failed"))
    )
    watched.show(events.finished())
    assert "starting" in watched.raw
    assert not [
        colour for colour in range(30, 50) if f"\x1b[{colour}m" in watched.raw or f";{colour}m" in watched.raw
    ]


def test_forced_colours_add_no_status(events: Any, watch_view: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """FORCE_COLOR colours a pipe but adds no status."""
    watch_view()
    monkeypatch.setenv("FORCE_COLOR", "1")
    file = io.StringIO()
    view = TerminalView(file)
    view.show(events.started(), events.tool("npm test"), events.done())
    assert not view.live
    assert "\x1b[32m✓" in file.getvalue()
    assert "\x1b[J" not in file.getvalue()


def test_the_resume_command_can_be_pasted(events: Any, watch_view: Any) -> None:
    """The resume command names an unusual folder and home, and is never wrapped, so that it can be
    pasted.
    """
    watched = watch_view(width=50, home="isolated").show(events.started(cwd="/some where"), events.text("x"))
    watched.show(events.finished())
    assert """resume: geminids run --home isolated --cwd '/some where' --resume s-1 "…"\x1b""" in watched.raw


def test_the_transcript_command_has_a_short_id(events: Any, watch_view: Any) -> None:
    """The transcript command has the first 8 characters of a UUID, and the home if it is not the
    usual one.
    """
    watched = watch_view(home="isolated").show(events.started(), events.text("x"))
    watched.show(events.finished(session_id="0e8b0bd4-b565-4c7c-89da-41156b4a7b0f"))
    assert "transcript: geminids sessions show 0e8b0bd4 --home isolated\n" in watched.screen + "\n"


@pytest.mark.parametrize("fields", [{"session_id": None}, {"clear_session": True}])
def test_no_resume_command_without_a_usable_session(
    events: Any, watch_view: Any, fields: dict[str, Any]
) -> None:
    """Without a usable session, or without an answer, no resume command is shown."""
    assert (
        "resume"
        not in watch_view().show(events.started(), events.text("x"), events.finished(**fields)).screen
    )
    assert "resume" not in watch_view().show(events.started(), events.finished()).screen


def test_a_run_that_never_started(events: Any, watch_view: Any) -> None:
    """A run that never started shows kind, reason and hint, but no time and no model."""
    failure = Failure(kind="cli_missing", message="no CLI", retryable=False, hint="Run `geminids install`.")
    end = events.finished(outcome="failed", failure=failure, reason="no CLI", session_id=None)
    assert (
        watch_view(offline=True).show(end).screen
        == "✗ failed (cli_missing)\n  no CLI\n  → Run `geminids install`."
    )


def test_a_terminal_without_unicode_gets_ascii(events: Any, watch_view: Any) -> None:
    """Characters that the encoding of the terminal cannot hold are replaced, and nothing fails."""
    watch_view()
    raw = io.BytesIO()
    view = TerminalView(io.TextIOWrapper(raw, encoding="ascii"), terminal=True, width=60)
    view.show(events.started(), events.text("größer"), events.tool("npm test"), events.done())
    view.close()
    assert b"+ " in raw.getvalue()
    assert b"gr??er" in raw.getvalue()


class _CountingFile(io.StringIO):
    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


def test_a_batch_is_one_write(events: Any, watch_view: Any) -> None:
    """All events of one `show` call are written with a single write."""
    watch_view()
    file = _CountingFile()
    view = TerminalView(file, terminal=True, width=80)
    view.show(*[events.text("word ") for _ in range(1000)], events.tool("npm test"), events.done())
    assert file.writes == 1


def test_a_closed_pipe_is_reported_once(events: Any, watch_view: Any) -> None:
    """The first write to a closed pipe raises BrokenPipeError.

    Later calls of `show` and `close` raise nothing.
    """
    watch_view()
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as file:
        view = TerminalView(file)
        with pytest.raises(BrokenPipeError):
            view.show(events.text("x\n"))
        view.show(events.text("y\n"))
        view.close()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # so that closing the file raises nothing


def test_plain_output_does_not_import_rich() -> None:
    """The `run` command and the plain view do not import rich."""
    code = "import sys, geminids.cli.commands.run, geminids.views.plain; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_stall_is_shown_in_full(events: Any, watch_view: Any) -> None:
    """A stall notice is wrapped, not cut, and the status after it continues."""
    watched = watch_view(width=40)
    watched.show(events.started()).wait(1.0)
    text = "shell tool `npm run dev` has been running for 31 s (pid 4711, no CPU)"
    watched.show(events.notice(level="info", code="stall", message=text)).wait(0.2)
    lines = watched.screen.splitlines()
    assert " ".join(line.strip() for line in lines[:-1]) == f"… {text}"
    assert lines[-1].endswith("starting  1.2 s")


def test_a_long_reason_says_how_much_is_missing(events: Any, watch_view: Any) -> None:
    """The diff of a failed replay is shown whole. A longer reason is cut, with the number of lines."""

    def lines(count: int) -> list[str]:
        reason = "\n".join(f"line {number}" for number in range(count))
        failure = Failure(kind="bad_request", message=reason, retryable=False, hint="Record it again.")
        watched = watch_view(terminal=False).show(events.started())
        watched.show(events.finished(outcome="failed", failure=failure, reason=reason))
        return [line.strip() for line in watched.raw.splitlines()]

    assert lines(45)[45:47] == ["line 44", "→ Record it again."]
    assert lines(60)[45:48] == ["line 44", "… 15 more lines", "→ Record it again."]


def test_a_resume_command_fits_in_60_columns(events: Any, watch_view: Any) -> None:
    """A resume command has the first 8 characters of a UUID. An id that the user chose is whole,
    because other ids can begin like it.
    """
    watched = watch_view(width=60, offline=True).show(events.started(), events.text("x"))
    watched.show(events.finished(session_id="0e8b0bd4-b565-4c7c-89da-41156b4a7b0f"))
    assert '  resume: geminids run --offline --resume 0e8b0bd4 "…"\n' in watched.screen
    watched = watch_view(width=100).show(events.started(), events.text("x"))
    watched.show(events.finished(session_id="nightly-run-of-the-whole-test-suite-2"))
    assert "--resume nightly-run-of-the-whole-test-suite-2 " in watched.screen


def test_an_answer_is_rendered_only_with_colors(
    events: Any, watch_view: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal shows rendered Markdown.

    With NO_COLOR the text is as it was written, wrapped at words except for code. A pipe gets the
    unchanged lines.
    """
    text = "Use **bold** words, more than forty columns of them.\n```\nx = " + "1 + " * 12 + "1\n```\n"
    code = "x = " + "1 + " * 12 + "1"
    watched = watch_view(width=41).show(events.text(text), events.finished(session_id=None))
    rows = ["Use bold words, more than forty columns", "of them.", "", code[:41], code[41:], "", "✓ success"]
    assert watched.screen.splitlines() == rows
    piped = watch_view(terminal=False).show(events.text(text), events.finished(session_id=None))
    assert piped.raw == f"{text}\n✓ success\n"
    monkeypatch.setenv("NO_COLOR", "1")
    watched = watch_view(width=41).show(events.text(text), events.finished(session_id=None))
    plain = [
        "Use **bold** words, more than forty",
        "columns of them.",
        "```",
        code[:41],
        code[41:],
        "```",
        "",
    ]
    assert watched.screen.splitlines() == [*plain, "✓ success"]


def test_plain_text_is_the_same_in_every_cut(events: Any, watch_view: Any) -> None:
    """In a pipe, control codes that arrive in two pieces are handled like whole ones."""
    text = "one \x1b[31mred\x1b[0m\r\ntwo\rthree\n"
    for size in (1, 2, 3, 5, 100):
        watched = watch_view(terminal=False)
        for at in range(0, len(text), size):
            watched.show(events.text(text[at : at + size]))
        watched.view.close()
        assert watched.raw == "one red\ntwo␍three\n"
