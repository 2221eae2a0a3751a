"""Tests of `PermissionDecider`: rules decide first, then the callback, then the timeout.

Each decision is recorded.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from geminids.events.model import PermissionAsked, PermissionDecided
from geminids.launch.permissions.verdicts import Verdicts
from geminids.options import Permissions
from geminids.redact import Redactor
from geminids.run.recorder import RunRecorder
from geminids.warm.permissions.allow_always import AllowAlways
from geminids.warm.permissions.answer import PermissionAnswer
from geminids.warm.permissions.decide import PermissionDecider

BACKENDS = ("asyncio", "trio")
ASKS = Verdicts("default", Permissions(shell="ask", file_write="ask"), asks=True)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of an event loop: the test runs on both."""
    name: str = request.param
    return name


def _asked(command: str | None = "make", **fields: Any) -> PermissionAsked:
    defaults = {
        "tool": "run_shell_command",
        "kind": "execute",
        "title": command or "x",
        "cwd": "/repo",
        **fields,
    }
    return PermissionAsked(at=0, seq=0, attempt=1, turn=3, id="t", command=command, **defaults)


def _edit(path: str, **fields: Any) -> PermissionAsked:
    return _asked(None, tool="write_file", kind="write", title=f"Write {path}", paths=(path,), **fields)


def _decider(
    ask: Any, timeout: float | None = 5, verdicts: Verdicts = ASKS, always: AllowAlways | None = None
) -> PermissionDecider:
    recorder = RunRecorder()
    recorder.redactor = Redactor(("hunter2hunter2",))
    return PermissionDecider(recorder, verdicts, always or AllowAlways(), ask, timeout)


def _decide(
    decider: PermissionDecider, *asks: PermissionAsked, backend: str = "asyncio"
) -> list[PermissionDecided]:
    async def decide_all() -> list[PermissionDecided]:
        return [await decider.decide(asked) for asked in asks]

    return anyio.run(decide_all, backend=backend)


def _must_not_be_asked(asked: PermissionAsked) -> str:
    raise AssertionError("the callback was called")


# By a callback.


@pytest.mark.parametrize("choice", ["allow", "allow_always", "deny"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_callback_decides(backend: str, choice: Any, wrapped: bool) -> None:
    """An async callback decides; the decision records who decided and why."""

    async def decide(asked: PermissionAsked) -> Any:
        await anyio.lowlevel.checkpoint()
        return PermissionAnswer(choice, "person", "as I like") if wrapped else choice

    (decided,) = _decide(_decider(decide), _asked(), backend=backend)
    assert (decided.decision, decided.id, decided.tool, decided.turn) == (choice, "t", "run_shell_command", 3)
    assert (decided.by, decided.reason) == (("person", "as I like") if wrapped else ("callback", None))


def test_the_callback_may_be_a_plain_function() -> None:
    """The callback may be a plain function."""
    (decided,) = _decide(_decider(lambda asked: "allow"), _asked())
    assert (decided.decision, decided.by) == ("allow", "callback")


def test_a_callback_that_raises_denies(backend: str) -> None:
    """A callback that raises denies the call; the reason is its error, without secrets."""

    async def decide(asked: PermissionAsked) -> Any:
        raise ValueError("no key hunter2hunter2")

    (decided,) = _decide(_decider(decide), _asked(), backend=backend)
    assert (decided.decision, decided.by) == ("deny", "callback")
    assert decided.reason == "the callback failed: ValueError: no key ***"


def test_a_cancelled_callback_denies() -> None:
    """A callback whose own wait is cancelled denies the call; the turn continues."""
    import asyncio

    async def decide(asked: PermissionAsked) -> Any:
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting

    (decided,) = _decide(_decider(decide), _asked())
    assert (decided.decision, decided.by) == ("deny", "callback")
    assert decided.reason == "the callback was cancelled"


def test_a_cancelled_turn_records_no_decision(backend: str) -> None:
    """If the turn is cancelled, the cancellation is passed on and no decision is recorded."""
    decider = _decider(lambda asked: anyio.sleep_forever())

    async def stop() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(decider.decide, _asked())
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    anyio.run(stop, backend=backend)
    assert decider.decisions == []


def test_a_slow_callback_is_denied_by_timeout(backend: str) -> None:
    """A request that is not answered within the timeout is denied, and the reason gives the
    timeout."""

    async def decide(asked: PermissionAsked) -> Any:
        await anyio.sleep_forever()

    decider = _decider(decide, timeout=0.05)
    (decided,) = _decide(decider, _asked(), backend=backend)
    assert (decided.decision, decided.by, decided.reason) == (
        "deny",
        "timeout",
        "nobody answered within 0.05 s",
    )
    assert decider.decisions[0].waited_ms >= 45


def test_an_answer_after_the_timeout_does_not_count(backend: str) -> None:
    """An answer after the timeout does not count, even if the callback still returns one when it is
    cancelled."""

    async def decide(asked: PermissionAsked) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            return "allow"  # noqa: B012

    (decided,) = _decide(_decider(decide, timeout=0.05), _asked(), backend=backend)
    assert (decided.decision, decided.by) == ("deny", "timeout")


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1, "", "yes", "ALLOW", ["allow"], {}),
        PermissionAnswer("maybe"),  # type: ignore[arg-type]
        PermissionAnswer(True),  # type: ignore[arg-type]
        PermissionAnswer("allow", "nobody"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_answer_denies(value: Any) -> None:
    """Only the three valid answers count; any other value denies the call."""
    decider = _decider(lambda asked: value)
    (decided,) = _decide(decider, _asked())
    assert (decided.decision, decided.by) == ("deny", "callback")
    assert decided.reason is not None and repr(value) in decided.reason
    assert decider.decisions[0].decision == "deny"


# By rules.


def test_rules_come_first() -> None:
    """A rule of the options allows or denies a call; the callback is not called."""
    permissions = Permissions(shell="ask", allow_commands=("ls",), deny_commands=("rm",))
    decider = _decider(_must_not_be_asked, verdicts=Verdicts("default", permissions, asks=True))
    allowed, denied = _decide(decider, _asked("ls -l"), _asked("ls; rm x"))
    assert (allowed.decision, allowed.by, allowed.reason) == ("allow", "rule", "'ls' is in `allow_commands`")
    assert (denied.decision, denied.by, denied.reason) == ("deny", "rule", "'rm' is in `deny_commands`")


def test_allow_always_is_not_asked_again() -> None:
    """After `allow_always`, the same command is allowed without the callback, and the reason names
    the earlier answer."""
    received = []

    def decide(asked: PermissionAsked) -> str:
        received.append(asked.command)
        return "allow_always"

    decider = _decider(decide)
    _, second, other = _decide(decider, _asked("make"), _asked("make"), _asked("make install"))
    assert received == ["make", "make install"]
    assert (second.decision, second.by, second.reason) == (
        "allow",
        "rule",
        "allowed for this chat: this very command",
    )
    assert other.by == "callback"


def test_a_deny_rule_wins_over_allow_always() -> None:
    """A deny rule of the options wins over an earlier `allow_always`."""
    always = AllowAlways()
    always.remember(_asked("npm test"))
    permissions = Permissions(shell="ask", deny_commands=("npm test",))
    decider = _decider(
        _must_not_be_asked, verdicts=Verdicts("default", permissions, asks=True), always=always
    )
    (decided,) = _decide(decider, _asked("npm test"))
    assert (decided.decision, decided.reason) == ("deny", "'npm test' is in `deny_commands`")


def test_allow_and_deny_apply_once() -> None:
    """`allow` and `deny` apply to one call and are not remembered."""
    answers = iter(("allow", "deny", "allow"))
    decided = _decide(_decider(lambda asked: next(answers)), _asked(), _asked(), _asked())
    assert [decision.decision for decision in decided] == ["allow", "deny", "allow"]


def test_allow_always_counts_once_if_it_is_not_offered() -> None:
    """If a call cannot be allowed always, the answer `allow_always` allows it once and is recorded
    as `allow`."""
    decider = _decider(lambda asked: "allow_always")
    unknown_edit = _asked(None, tool="write_file", kind="write", title="Write")
    decided = _decide(decider, unknown_edit, unknown_edit)
    assert [(decision.decision, decision.by) for decision in decided] == [("allow", "callback")] * 2


def test_allow_tools_does_not_cover_build_files(tmp_path: Any) -> None:
    """`allow_tools` does not allow a write to a build file, also through a link: the callback
    decides."""
    permissions = Permissions(file_write="ask", allow_tools=("write_file",))
    (tmp_path / "notes.txt").symlink_to("pyproject.toml")
    decider = _decider(lambda asked: "deny", verdicts=Verdicts("default", permissions, asks=True))
    work = str(tmp_path)
    decided = _decide(
        decider, *(_edit(name, cwd=work) for name in ("a.txt", "pyproject.toml", "notes.txt", "a\0b"))
    )
    assert [decision.by for decision in decided] == ["rule", "callback", "callback", "rule"]


def test_without_a_callback_a_call_is_denied() -> None:
    """Without a callback, a call that no rule allows is denied, with the reason."""
    (decided,) = _decide(_decider(None, verdicts=Verdicts("yolo", Permissions())), _asked())
    assert (decided.decision, decided.by, decided.reason) == ("deny", "rule", "there is no user to ask")


# Recorded decisions.


def test_every_decision_is_recorded() -> None:
    """Each decision is recorded with the request. Long commands are cut and secrets are masked."""
    decider = _decider(lambda asked: PermissionAnswer("deny", "person", "not with hunter2hunter2"))
    decided = _decide(decider, _asked("make"), _asked("x" * 500), _edit("a.py"))
    assert [decision.seq for decision in decided] == [0, 1, 2]
    assert [decision.what for decision in decider.decisions] == ["make", "x" * 197 + "...", "Write a.py"]
    assert {(decision.decision, decision.by, decision.reason) for decision in decider.decisions} == {
        ("deny", "person", "not with ***")
    }
    assert all(
        decision.at == event.at and decision.waited_ms >= 0
        for decision, event in zip(decider.decisions, decided, strict=True)
    )
