"""A chat turn in the terminal: which lines the view shows for which events."""

from __future__ import annotations

from typing import Any

import pytest

from geminids.events.model import EndedProcess, ModelUsage, PermissionAsked, PermissionDecided, Usage
from geminids.outcome import Failure
from geminids.views.terminal.chat import ChatView

_USAGE = Usage(input=1204, cached=300, output=12, thinking=35, models=(ModelUsage(model="g-flash"),))


@pytest.fixture
def turn(watch_view: Any) -> Any:
    """The view of a chat turn, in a terminal of 80 columns."""
    watched = watch_view()
    watched.view = ChatView(watched.file, terminal=True, width=80, clock=lambda: watched.now)
    return watched


def _permission_request(events: Any, **fields: Any) -> Any:
    values = {"id": "t", "tool": "run_shell_command", "kind": "execute", "title": "ls", "command": "ls -la"}
    return events._make(
        PermissionAsked, **{**values, "cwd": "/repo", "always": "this very command", **fields}
    )


def test_thoughts_are_folded_to_one_line(events: Any, turn: Any) -> None:
    """Thoughts are shown as one line with time and subjects, before the text that follows.

    `thoughts` keeps all of them.
    """
    turn.show(events.started(), events.thought("Plan"), events.thought("Look")).wait(2.3)
    assert turn.screen.splitlines()[-1].endswith("thinking: Look  2.3 s")
    turn.show(events.text("Here it is."), events.thought("More"), events.text("And more.\n\n"))
    assert turn.screen == (
        "  thought for 2.3 s: Plan · Look\n\nHere it is.\n\n  thought for a moment: More\n\nAnd more."
    )
    assert [thought.subject for thought in turn.view.thoughts] == ["Plan", "Look", "More"]


def test_only_the_last_thoughts_are_shown(events: Any, turn: Any) -> None:
    """At most the last three subjects are shown, with `…` for the others.

    A thought without a subject adds no subject.
    """
    turn.show(events.started(), *(events.thought(f"s{number}") for number in range(5)), events.tool("ls"))
    assert "thought for a moment: … s2 · s3 · s4\n" in turn.screen + "\n"
    turn.show(events.done(), events.thought(""), events.finished())
    assert "thought for a moment\n" in turn.screen


def test_a_question_is_shown_below_earlier_text(events: Any, turn: Any) -> None:
    """The question, its keys and the answer are shown below the earlier text.

    No status line is shown.
    """
    asked = _permission_request(events)
    turn.show(events.started(), events.text("Let me see."), events.tool("ls -la"), asked)
    assert turn.view.asked == {"t"}
    turn.view.ask(asked)
    turn.view.offer(asked, more=False, reason=True)
    assert turn.screen.endswith("  allow?")
    turn.view.answered("yes")
    turn.view.end_question()
    turn.show(events.done())
    assert turn.screen == (
        "Let me see.\n\n"
        "  ? the agent wants to run a command\n"
        "  $ ls -la\n"
        "  in /repo\n"
        "  y yes, once   n no (or Enter)   r no, with a reason\n"
        "  a always, in this chat: this very command\n"
        "  allow? yes\n\n"
        "  ✓ ls -la  3.2 s\n"
        "⠋ thinking  0.1 s"
    )


def test_a_tool_begins_when_it_is_allowed(events: Any, turn: Any) -> None:
    """The running time of a tool starts when its permission is decided."""
    turn.show(events.started(), events.tool("ls"), _permission_request(events)).wait(9)
    decided = {"id": "t", "tool": "run_shell_command", "by": "person"}
    turn.show(events._make(PermissionDecided, decision="allow", **decided)).wait(0.5)
    assert turn.screen.splitlines()[-1].endswith("running ls  0.5 s")


def test_the_end_of_a_turn_is_one_line(events: Any, turn: Any) -> None:
    """A turn ends with one line: time, model and tokens."""
    turn.show(events.started(), events.text("Hi."), events.finished(usage=_USAGE))
    assert turn.screen == "Hi.\n\n3.4 s · g-flash · 1,204 tokens in (300 cached) · 12 out · 35 thinking"


def test_a_cancelled_turn_says_so(events: Any, turn: Any) -> None:
    """A cancelled turn shows a line that says so and a line with the ended processes.

    It shows no reason.
    """
    ended = (EndedProcess(1, "/bin/sleep 300", "KILL"),)
    turn.show(events.started(), events.tool("sleep 300"), events.done("cancelled"))
    turn.show(events.finished(outcome="interrupted", reason="interrupted by SIGINT", ended=ended))
    assert turn.screen == (
        "  ◌ sleep 300  cancelled · 3.2 s\n\n"
        "■ turn cancelled after 3.4 s\n"
        "  ended 1 process: sleep 300 (killed)"
    )


def test_unknown_and_unused_requests_are_shown(events: Any, turn: Any) -> None:
    """A turn ends with its number of requests with unknown tokens and of unused answers."""
    usage = Usage(requests=1, unknown=1, input=0, output=0)
    turn.show(events.started(), events.text("Hi."), events.finished(usage=usage, discarded=(1,)))
    assert turn.screen == (
        "Hi.\n\n3.4 s · 1 request with unknown tokens\n"
        "  1 answer was paid for but not used: the CLI asked again"
    )


def test_the_tokens_of_a_cancelled_turn(events: Any, turn: Any) -> None:
    """The tokens of a cancelled turn are shown below its line."""
    usage = Usage(requests=1, unknown=1, input=0, output=0)
    turn.show(events.started(), events.finished(outcome="interrupted", usage=usage))
    assert turn.screen == "■ turn cancelled after 3.4 s\n  1 request with unknown tokens"


def test_a_failed_turn_says_why_and_what_to_do(events: Any, turn: Any) -> None:
    """A failed turn shows the reason and a hint, like a failed run."""
    failure = Failure(kind="auth", message="bad key", retryable=False, hint="Set a key.")
    turn.show(events.started(), events.finished(outcome="failed", failure=failure, reason="bad key"))
    assert turn.screen == "✗ failed (auth) after 3.4 s · flash\n  bad key\n  → Set a key."
