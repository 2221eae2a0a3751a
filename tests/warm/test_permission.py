"""Permission decisions: by rules first, then by the callback, then by the timeout; each is recorded."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from geminids.events.model import PermissionAsked, PermissionDecided
from geminids.launch.permissions.verdicts import Verdicts
from geminids.options import Permissions
from geminids.redact import Redactor
from geminids.run.recorder import RunRecorder
from geminids.warm.allow_always import AllowAlways
from geminids.warm.permissions.decide import PermissionDecider, Said

BACKENDS = ("asyncio", "trio")
ASKS = Verdicts("default", Permissions(shell="ask", file_write="ask"), asks=True)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Either event loop."""
    name: str = request.param
    return name


def _asked(command: str | None = "make", **fields: Any) -> PermissionAsked:
    given = {
        "tool": "run_shell_command",
        "kind": "execute",
        "title": command or "x",
        "cwd": "/repo",
        **fields,
    }
    return PermissionAsked(at=0, seq=0, attempt=1, turn=3, id="t", command=command, **given)


def _edit(path: str, **fields: Any) -> PermissionAsked:
    return _asked(None, tool="write_file", kind="write", title=f"Write {path}", paths=(path,), **fields)


def _decider(
    ask: Any, timeout: float | None = 5, verdicts: Verdicts = ASKS, always: AllowAlways | None = None
) -> PermissionDecider:
    recorder = RunRecorder()
    recorder.redactor = Redactor(("hunter2hunter2",))
    return PermissionDecider(recorder, verdicts, always or AllowAlways(), ask, timeout)


def _decided(
    decider: PermissionDecider, *asks: PermissionAsked, backend: str = "asyncio"
) -> list[PermissionDecided]:
    async def all_of_them() -> list[PermissionDecided]:
        return [await decider.decide(asked) for asked in asks]

    return anyio.run(all_of_them, backend=backend)


def _never(asked: PermissionAsked) -> str:
    raise AssertionError("somebody was asked")


# By a callback.


@pytest.mark.parametrize("choice", ["allow", "allow_always", "deny"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_the_callback_decides(backend: str, choice: Any, wrapped: bool) -> None:
    """Awaited; with who it was and why, where it says so."""

    async def decide(asked: PermissionAsked) -> Any:
        await anyio.lowlevel.checkpoint()
        return Said(choice, "person", "as I like") if wrapped else choice

    (decided,) = _decided(_decider(decide), _asked(), backend=backend)
    assert (decided.decision, decided.id, decided.tool, decided.turn) == (choice, "t", "run_shell_command", 3)
    assert (decided.by, decided.reason) == (("person", "as I like") if wrapped else ("callback", None))


def test_a_plain_function_decides_too() -> None:
    """It need not be a coroutine."""
    (decided,) = _decided(_decider(lambda asked: "allow"), _asked())
    assert (decided.decision, decided.by) == ("allow", "callback")


def test_a_callback_that_raises_is_a_no(backend: str) -> None:
    """With what it raised, without secrets."""

    async def decide(asked: PermissionAsked) -> Any:
        raise ValueError("no key hunter2hunter2")

    (decided,) = _decided(_decider(decide), _asked(), backend=backend)
    assert (decided.decision, decided.by) == ("deny", "callback")
    assert decided.reason == "the callback failed: ValueError: no key ***"


def test_a_callback_that_is_cancelled_is_a_no() -> None:
    """What it waited for was cancelled by somebody else; the turn goes on."""
    import asyncio

    async def decide(asked: PermissionAsked) -> Any:
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting

    (decided,) = _decided(_decider(decide), _asked())
    assert (decided.decision, decided.by) == ("deny", "callback")
    assert decided.reason == "the callback was cancelled"


def test_the_end_of_the_turn_is_no_decision(backend: str) -> None:
    """Where it is the turn that is cancelled, the cancellation goes on, and nothing is written down."""
    decider = _decider(lambda asked: anyio.sleep_forever())

    async def stop() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(decider.decide, _asked())
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()

    anyio.run(stop, backend=backend)
    assert decider.decisions == []


def test_a_callback_that_takes_too_long_is_a_no(backend: str) -> None:
    """By the clock, and told so."""

    async def decide(asked: PermissionAsked) -> Any:
        await anyio.sleep_forever()

    decider = _decider(decide, timeout=0.05)
    (decided,) = _decided(decider, _asked(), backend=backend)
    assert (decided.decision, decided.by, decided.reason) == (
        "deny",
        "timeout",
        "nobody answered within 0.05 s",
    )
    assert decider.decisions[0].waited_ms >= 45


def test_an_answer_after_the_time_is_none(backend: str) -> None:
    """A callback that holds on against its cancellation has not answered in time."""

    async def decide(asked: PermissionAsked) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            return "allow"  # noqa: B012

    (decided,) = _decided(_decider(decide, timeout=0.05), _asked(), backend=backend)
    assert (decided.decision, decided.by) == ("deny", "timeout")


@pytest.mark.parametrize(
    "nonsense",
    [None, True, 1, "", "yes", "ALLOW", ["allow"], {}, Said("maybe"), Said(True), Said("allow", "nobody")],  # type: ignore[arg-type]
)
def test_nonsense_is_a_no(nonsense: Any) -> None:
    """Only the three words count: whatever else comes must not let anything run."""
    decider = _decider(lambda asked: nonsense)
    (decided,) = _decided(decider, _asked())
    assert (decided.decision, decided.by) == ("deny", "callback")
    assert decided.reason is not None and repr(nonsense) in decided.reason
    assert decider.decisions[0].decision == "deny"


# By rules.


def test_rules_come_first() -> None:
    """A deny and an allow of the options are answered without anybody being asked."""
    said = Permissions(shell="ask", allow_commands=("ls",), deny_commands=("rm",))
    decider = _decider(_never, verdicts=Verdicts("default", said, asks=True))
    allowed, denied = _decided(decider, _asked("ls -l"), _asked("ls; rm x"))
    assert (allowed.decision, allowed.by, allowed.reason) == ("allow", "rule", "'ls' is in allow_commands")
    assert (denied.decision, denied.by, denied.reason) == ("deny", "rule", "'rm' is in deny_commands")


def test_what_is_always_allowed_is_not_asked_again() -> None:
    """Asked once, and the trail tells by which word the others were allowed."""
    heard = []

    def decide(asked: PermissionAsked) -> str:
        heard.append(asked.command)
        return "allow_always"

    decider = _decider(decide)
    _, second, other = _decided(decider, _asked("make"), _asked("make"), _asked("make install"))
    assert heard == ["make", "make install"]
    assert (second.decision, second.by, second.reason) == (
        "allow",
        "rule",
        "allowed for this chat: this very command",
    )
    assert other.by == "callback"


def test_always_is_weaker_than_a_deny() -> None:
    """What the options deny stays denied, whatever somebody has allowed before."""
    always = AllowAlways()
    always.remember(_asked("npm test"))
    said = Permissions(shell="ask", deny_commands=("npm test",))
    decider = _decider(_never, verdicts=Verdicts("default", said, asks=True), always=always)
    (decided,) = _decided(decider, _asked("npm test"))
    assert (decided.decision, decided.reason) == ("deny", "'npm test' is in deny_commands")


def test_an_allow_and_a_deny_are_for_once() -> None:
    """Neither is remembered."""
    answers = iter(("allow", "deny", "allow"))
    decided = _decided(_decider(lambda asked: next(answers)), _asked(), _asked(), _asked())
    assert [one.decision for one in decided] == ["allow", "deny", "allow"]


def test_always_where_it_is_not_to_be_had_is_once() -> None:
    """And is written down as what it was."""
    decider = _decider(lambda asked: "allow_always")
    nothing = _asked(None, tool="write_file", kind="write", title="Write")
    decided = _decided(decider, nothing, nothing)
    assert [(one.decision, one.by) for one in decided] == [("allow", "callback")] * 2


def test_a_rule_does_not_answer_for_a_build_file(tmp_path: Any) -> None:
    """`allow_tools` lets files be written; a build file, by a link's name too, is for a person."""
    said = Permissions(file_write="ask", allow_tools=("write_file",))
    (tmp_path / "notes.txt").symlink_to("pyproject.toml")
    decider = _decider(lambda asked: "deny", verdicts=Verdicts("default", said, asks=True))
    work = str(tmp_path)
    decided = _decided(
        decider, *(_edit(name, cwd=work) for name in ("a.txt", "pyproject.toml", "notes.txt", "a\0b"))
    )
    assert [one.by for one in decided] == ["rule", "callback", "callback", "rule"]


def test_nobody_to_ask_is_a_no() -> None:
    """By rule, with the reason."""
    (decided,) = _decided(_decider(None, verdicts=Verdicts("yolo", Permissions())), _asked())
    assert (decided.decision, decided.by, decided.reason) == ("deny", "rule", "there is nobody to ask")


# The trail.


def test_every_decision_is_in_the_trail() -> None:
    """What was asked, what was decided, by whom and why; long commands are cut, secrets masked, events numbered."""
    decider = _decider(lambda asked: Said("deny", "person", "not with hunter2hunter2"))
    decided = _decided(decider, _asked("make"), _asked("x" * 500), _edit("a.py"))
    assert [one.seq for one in decided] == [0, 1, 2]
    assert [one.what for one in decider.decisions] == ["make", "x" * 197 + "...", "Write a.py"]
    assert {(one.decision, one.by, one.reason) for one in decider.decisions} == {
        ("deny", "person", "not with ***")
    }
    assert all(
        one.at == event.at and one.waited_ms >= 0
        for one, event in zip(decider.decisions, decided, strict=True)
    )
